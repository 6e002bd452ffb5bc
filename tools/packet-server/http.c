// SPDX-License-Identifier: MIT
#include "http.h"

#include <arpa/inet.h>
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

/* A part of the head. */
struct span {
	const char *at, *end;
};

static bool is(struct span span, const char *text)
{
	const size_t size = strlen(text);

	return (size_t)(span.end - span.at) == size && strncasecmp(span.at, text, size) == 0;
}

/* Without the blanks around it. */
static struct span trim(struct span span)
{
	while (span.at < span.end && (*span.at == ' ' || *span.at == '\t'))
		span.at++;
	while (span.at < span.end && (span.end[-1] == ' ' || span.end[-1] == '\t'))
		span.end--;
	return span;
}

/* Cuts off what comes before the first @mark, or all. */
static struct span cut(struct span *rest, char mark)
{
	const char *end = memchr(rest->at, mark, (size_t)(rest->end - rest->at));
	const struct span part = { rest->at, end ? end : rest->end };

	rest->at = end ? end + 1 : rest->end;
	return part;
}

/* A method, or the name of a field. */
static bool is_token(struct span span)
{
	for (const char *at = span.at; at < span.end; at++)
		if (*at <= ' ' || *at > '~' || strchr("\"(),/:;<=>?@[\\]{}", *at))
			return false;
	return span.at < span.end;
}

/* The value of a Host field: "host", "host:port", "[IPv6]" and so on; also nothing. */
static bool is_host(struct span host)
{
	char address[INET6_ADDRSTRLEN] = "";
	struct in6_addr binary;

	if (host.at < host.end && *host.at == '[') {
		const struct span literal = cut(&host, ']');
		const size_t size = (size_t)(literal.end - literal.at) - 1;

		if (literal.end == host.at || size >= sizeof(address))
			return false;
		memcpy(address, literal.at + 1, size);
		if (inet_pton(AF_INET6, address, &binary) != 1)
			return false;
	}
	for (; host.at < host.end && *host.at != ':'; host.at++) {
		const char c = *host.at;

		if (*address)
			return false;
		if (c == '%' && host.end - host.at > 2 && digit(host.at[1]) >= 0 &&
		    digit(host.at[2]) >= 0)
			continue;
		if (digit(c) < 0 && ((c | 0x20) < 'g' || (c | 0x20) > 'z') &&
		    !(c && strchr("-._~!$&'()*+,;=", c)))
			return false;
	}
	while (host.at < host.end && *++host.at >= '0' && *host.at <= '9')
		;
	return host.at == host.end;
}

/*
 * The path of a target, without its query. A client may write the whole "http://host/path", as it must
 * to a proxy. 200; or what is wrong with it.
 */
static int decode(struct span target, char *to)
{
	static const char scheme[] = "http://";
	const size_t length = sizeof(scheme) - 1;
	size_t size = 0;

	if ((size_t)(target.end - target.at) > length &&
	    strncasecmp(target.at, scheme, length) == 0) {
		struct span host = { target.at + length, target.at + length };

		while (host.end < target.end && !strchr("/?#", *host.end))
			host.end++;
		if (host.at == host.end || *host.at == ':' || !is_host(host))
			return 400;
		target.at = host.end;
		/* The path may be left out. */
		if (target.at < target.end && *target.at == '/')
			target.at++;
	} else if (target.at == target.end || *target.at++ != '/') {
		return 400;
	}
	for (; target.at < target.end && *target.at != '?' && *target.at != '#'; target.at++) {
		char c = *target.at;

		if (c == '%') {
			const int high = target.end - target.at > 2 ? digit(target.at[1]) : -1,
				  low = target.end - target.at > 2 ? digit(target.at[2]) : -1;

			if (high < 0 || low < 0)
				return 400;
			c = (char)(high << 4 | low);
			target.at += 2;
		}
		if (c == 0)
			return 400;
		if (size + 1 == HTTP_PATH_MAX)
			return 414;
		to[size++] = c;
	}
	to[size] = 0;
	return 200;
}

/* What the fields say that matters here. */
struct fields {
	unsigned int lines, hosts, lengths, encodings;
	bool body;	  /* its length is not 0 */
	bool chunked;	  /* the last of the encodings */
	bool other;	  /* there is another encoding */
	bool close, keep; /* the connection */
};

/* 200, or what is wrong with it. */
static int take_length(struct fields *fields, struct span value)
{
	uint64_t length = 0;

	for (const char *at = value.at; at < value.end; at++)
		if (*at < '0' || *at > '9' || __builtin_mul_overflow(length, 10, &length) ||
		    __builtin_add_overflow(length, (uint64_t)(*at - '0'), &length))
			return 400;
	fields->body = length > 0;
	return value.at < value.end && !fields->lengths++ ? 200 : 400;
}

/* As take_length(). */
static int take_field(struct fields *fields, struct span line)
{
	const struct span name = cut(&line, ':');
	struct span value = trim(line);

	/* Without a colon, the line ends with its name. A folded line begins with a blank. */
	if (*name.end != ':' || !is_token(name))
		return 400;
	if (++fields->lines > HTTP_FIELDS_MAX)
		return 431;
	if (is(name, "Content-Length"))
		return take_length(fields, value);
	if (is(name, "Host") && (fields->hosts++ || !is_host(value)))
		return 400;
	if (is(name, "Transfer-Encoding")) {
		fields->encodings++;
		while (value.at < value.end) {
			fields->other |= fields->chunked;
			fields->chunked = is(trim(cut(&value, ',')), "chunked");
			fields->other |= !fields->chunked;
		}
	} else if (is(name, "Connection")) {
		while (value.at < value.end) {
			const struct span option = trim(cut(&value, ','));

			fields->close |= is(option, "close");
			fields->keep |= is(option, "keep-alive");
		}
	}
	return 200;
}

/* The first line: 200, or what is wrong with it. @minor: of the version. */
static int take_first(struct span line, struct http_request *request, char *minor)
{
	const struct span method = cut(&line, ' '), path = cut(&line, ' ');

	if (!is_token(method) || line.end - line.at != 8 || memcmp(line.at, "HTTP/", 5) != 0 ||
	    line.at[5] < '0' || line.at[5] > '9' || line.at[6] != '.' || line.at[7] < '0' ||
	    line.at[7] > '9')
		return 400;
	for (const char *at = path.at; at < path.end; at++)
		if (*at <= ' ' || *at > '~')
			return 400;
	if (line.at[5] != '1')
		return 505;
	*minor = line.at[7];
	if (!request->head_only && memcmp(method.at, "GET ", 4) != 0)
		return 405;
	return decode(path, request->path);
}

/*
 * What follows from @fields, for a request that is @status without them. A body is not read, and
 * would be taken for the next request: the connection ends. So it does if a proxy may find the end
 * of the request elsewhere than this server.
 */
static int judge(const struct fields *fields, int status, char minor)
{
	if (fields->encodings) {
		if (fields->lengths || minor == '0' || !fields->chunked)
			return 400;
		return fields->other ? 501 : 413;
	}
	return fields->body ? 413 : status;
}

/* The whole head, from its first line to the end of the last one. */
static void parse(struct span head, struct http_request *request)
{
	struct fields fields = { 0 };
	struct span line = cut(&head, '\n');
	char minor = '0';
	int status;

	line.end--;
	request->status = status = take_first(line, request, &minor);
	if (status != 200 && status != 405)
		return;
	while (head.at < head.end) {
		line = cut(&head, '\n');
		line.end--;
		request->status = take_field(&fields, line);
		if (request->status != 200)
			return;
	}
	request->status = judge(&fields, status, minor);
	if (request->status == status)
		request->keep = !fields.close && (minor != '0' || fields.keep);
}

/* Each line ends with CR LF, in which alone they occur, nor are there other controls. */
static bool is_text(struct span span)
{
	for (const char *at = span.at; at < span.end; at++) {
		const unsigned char c = (unsigned char)*at;

		if (c == '\r' && (at + 1 == span.end || at[1] == '\n'))
			continue;
		if (c == '\n' && at > span.at && at[-1] == '\r')
			continue;
		if ((c < ' ' && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

size_t http_parse(const char *buffer, size_t size, struct http_request *request)
{
	/* One empty line before a request is allowed. */
	const size_t skip = size >= 2 && memcmp(buffer, "\r\n", 2) == 0 ? 2 : 0;
	struct span head = { buffer + skip, buffer + size };
	const char *end = memmem(head.at, size - skip, "\r\n\r\n", 4);

	*request = (struct http_request){ .status = 400 };
	/* Whatever is wrong with the rest, there is no body in the answer. */
	request->head_only = size - skip >= 5 && memcmp(head.at, "HEAD ", 5) == 0;
	if (end)
		head.end = end + 2;
	if (!is_text(head) || (size - skip >= 2 && memcmp(head.at, "\r\n", 2) == 0))
		return size;
	if (end) {
		parse(head, request);
		return (size_t)(end + 4 - buffer);
	}
	request->status = 431;
	return size == HTTP_HEAD_MAX ? size : 0;
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
	case 414:
		return "URI Too Long";
	case 431:
		return "Request Header Fields Too Large";
	case 501:
		return "Not Implemented";
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
