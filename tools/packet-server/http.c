// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: it is no path, or too long. */
static bool decode(const char *from, const char *end, char *to)
{
	size_t size = 0;

	if (from == end || *from++ != '/')
		return false;
	for (; from < end && *from != '?' && *from != '#'; from++) {
		char c = *from;

		if (c == '%') {
			const int high = end - from > 2 ? digit(from[1]) : -1,
				  low = end - from > 2 ? digit(from[2]) : -1;

			if (high < 0 || low < 0)
				return false;
			c = (char)(high << 4 | low);
			from += 2;
		}
		if (c == 0 || size + 1 == HTTP_PATH_MAX)
			return false;
		to[size++] = c;
	}
	to[size] = 0;
	return true;
}

/* Does a line of the head say @name: @value? */
static bool says(const char *head, size_t size, const char *name, const char *value)
{
	const size_t length = strlen(name);
	const char *end = head + size;

	for (const char *line = head; line < end;) {
		const char *next = memchr(line, '\n', (size_t)(end - line));

		if (!next)
			break;
		if ((size_t)(next - line) > length && strncasecmp(line, name, length) == 0 &&
		    line[length] == ':') {
			const char *at = line + length + 1;

			while (at < next && (*at == ' ' || *at == '\t'))
				at++;
			if (!value || (strlen(value) <= (size_t)(next - at) &&
				       strncasecmp(at, value, strlen(value)) == 0))
				return true;
		}
		line = next + 1;
	}
	return false;
}

static int parse_line(const char *line, size_t size, size_t head, struct http_request *request)
{
	const char *space = memchr(line, ' ', size), *path, *version;

	if (!space)
		return 400;
	path = space + 1;
	version = memchr(path, ' ', size - (size_t)(path - line));
	if (!version)
		return 400;
	if (size - (size_t)(version - line) != 9 || memcmp(version, " HTTP/1.", 8) != 0 ||
	    (version[8] != '0' && version[8] != '1'))
		return 505;
	/* A body would be taken for the next request. */
	if (says(line, head, "Transfer-Encoding", NULL) ||
	    (says(line, head, "Content-Length", NULL) &&
	     !says(line, head, "Content-Length", "0\r")))
		return 413;
	request->keep = version[8] == '1' ? !says(line, head, "Connection", "close") :
					    says(line, head, "Connection", "keep-alive");
	request->head_only = space - line == 4 && memcmp(line, "HEAD", 4) == 0;
	if (!request->head_only && (space - line != 3 || memcmp(line, "GET", 3) != 0))
		return 405;
	return decode(path, version, request->path) ? 200 : 400;
}

size_t http_parse(const char *buffer, size_t size, struct http_request *request)
{
	const char *end = memmem(buffer, size, "\r\n\r\n", 4);
	const char *line = memmem(buffer, size, "\r\n", 2);

	*request = (struct http_request){ .status = 431 };
	if (!end)
		return size == HTTP_HEAD_MAX ? size : 0;
	request->status = parse_line(buffer, (size_t)(line - buffer), (size_t)(end + 2 - buffer),
				     request);
	if (request->status == 413 || request->status == 400 || request->status == 505)
		request->keep = false;
	return (size_t)(end + 4 - buffer);
}

/* Nothing but what is below the folder: no "..", and no symbolic link that leads out. */
static int open_below(int root, const char *path)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };

	return (int)syscall(SYS_openat2, root, *path ? path : "index.html", &how, sizeof(how));
}

int http_open(int root, const char *path, int *file, off_t *size)
{
	struct stat found;
	int fd = open_below(root, path);

	if (fd == -1)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? 503 : 404;
	if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) {
		*file = fd;
		*size = found.st_size;
		return 200;
	}
	close(fd);
	return 404;
}

static const char *reason_of(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 413:
		return "Content Too Large";
	case 431:
		return "Request Header Fields Too Large";
	case 503:
		return "Service Unavailable";
	default:
		return "HTTP Version Not Supported";
	}
}

int http_head(char *buffer, size_t size, int status, off_t length,
	      const struct http_request *request)
{
	const char *reason = reason_of(status),
		   *allow = status == 405 ? "Allow: GET, HEAD\r\n" : "";
	const bool text = status != 200;

	return snprintf(buffer, size,
			"HTTP/1.1 %d %s\r\nContent-Length: %jd\r\n%sConnection: %s\r\n\r\n%s%s",
			status, reason, (intmax_t)(text ? (off_t)strlen(reason) + 1 : length),
			allow, request->keep ? "keep-alive" : "close",
			text && !request->head_only ? reason : "",
			text && !request->head_only ? "\n" : "");
}
