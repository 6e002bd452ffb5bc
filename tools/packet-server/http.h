/* SPDX-License-Identifier: MIT */
/* As much of HTTP/1.1 as a static server needs. */
#ifndef PACKET_HTTP_H
#define PACKET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { HTTP_HEAD_MAX = 8192, HTTP_PATH_MAX = 1024, HTTP_FIELDS_MAX = 100 };

struct http_request {
	int status; /* 200, or what is wrong with it */
	bool head_only, keep;
	char path[HTTP_PATH_MAX]; /* relative, decoded */
};

/*
 * The size of the head at the start of @buffer, for the next one to follow; 0: it is not whole.
 *
 * By the rules of RFC 9112, where a recipient may be strict, it is. Only Host may be missing.
 */
size_t http_parse(const char *buffer, size_t size, struct http_request *request);

/* A file below the folder @root, never outside of it. Returns 200 or another status. */
int http_open(int root, const char *path, int *file, off_t *size);

/* The head of an answer; of one with an error, also its text. Returns the size. */
int http_head(char *buffer, size_t size, int status, off_t length,
	      const struct http_request *request);

#endif /* PACKET_HTTP_H */
