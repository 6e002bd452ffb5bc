// SPDX-License-Identifier: MIT
#include "files.h"

#include "system.h"

bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;
	ssize_t length = -1;

	if (fd >= 0) {
		length = read(fd, text, size - 1);
		error = errno;
		close(fd);
		errno = error;
	}
	text[length > 0 ? length : 0] = '\0';
	return length >= 0;
}

bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), error;
	ssize_t length;

	if (fd < 0)
		return false;
	length = write(fd, text, strlen(text));
	error = errno;
	close(fd);
	errno = error;
	return length == (ssize_t)strlen(text);
}

const char *text_of(const char *format, ...)
{
	static _Thread_local char texts[4][512];
	static _Thread_local unsigned int calls;
	char *text = texts[calls++ % 4];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(texts[0]), format, args);
	va_end(args);
	return text;
}
