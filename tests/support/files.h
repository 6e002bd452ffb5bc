/* SPDX-License-Identifier: MIT */
/* The small files of /proc and /sys: text, whole, in one call; and the names of these files. */
#ifndef FILES_H
#define FILES_H

#include <stdbool.h>
#include <stddef.h>

/* Each false with errno set if that was not to be had. */
bool write_text(const char *path, const char *text);
/* As much of it as fits, and a NUL byte. */
bool read_text(const char *path, char *text, size_t size);

/* Of up to 511 bytes. It stays until the fourth call after this one in the same thread. */
const char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* FILES_H */
