/* SPDX-License-Identifier: MIT */
/* The small files of /proc and /sys: text, whole, in one call. */
#ifndef FILES_H
#define FILES_H

#include <stdbool.h>
#include <stddef.h>

/* Each false with errno set if that was not to be had. */
bool write_text(const char *path, const char *text);
/* As much of it as fits, and a NUL byte. */
bool read_text(const char *path, char *text, size_t size);

#endif /* FILES_H */
