// SPDX-License-Identifier: MIT
/*
 * packet-server's requests of HTTP, by the rules of RFC 9112: what it serves, and what it refuses
 * because a proxy may understand it in another way.
 */
#include "http.h"
#include "support.h"

static int status_of(const char *text)
{
	struct http_request request;

	assert_int_equal(http_parse(text, strlen(text), &request), strlen(text));
	/* After these, it is not certain where the next request begins. */
	if (request.status != 200 && request.status != 405)
		assert_false(request.keep);
	return request.status;
}

TEST(requests)
{
	static char long_head[HTTP_HEAD_MAX];
	struct http_request request;

	assert_int_equal(http_parse("GET / HT", 8, &request), 0);
	http_parse("GET /a%20b?c HTTP/1.1\r\n\r\nGET", 28, &request);
	assert_string_equal(request.path, "a b");
	assert_true(request.keep);
	http_parse("GET http://x/a%20b?c HTTP/1.1\r\n\r\n", 33, &request);
	assert_string_equal(request.path, "a b");
	http_parse("GET http://x HTTP/1.1\r\n\r\n", 25, &request);
	assert_string_equal(request.path, "");
	memset(long_head, 'x', sizeof(long_head));
	assert_int_equal(http_parse(long_head, sizeof(long_head), &request), HTTP_HEAD_MAX);
	assert_int_equal(request.status, 431);
}

static const struct {
	const char *line;
	int status;
} first_lines[] = {
	{ "GET /a%20b?c HTTP/1.1", 200 },
	{ "GET / HTTP/1.0", 200 },
	{ "GET / HTTP/1.9", 200 },
	{ "\r\nGET / HTTP/1.1", 200 },
	{ "\r\n\r\nGET / HTTP/1.1", 400 },
	{ "", 400 },
	{ "GET", 400 },
	{ "GET /", 400 },
	{ "GET / ", 400 },
	{ " GET / HTTP/1.1", 400 },
	{ "GET  / HTTP/1.1", 400 },
	{ "GET /  HTTP/1.1", 400 },
	{ "GET / HTTP/1.1 ", 400 },
	{ "GET /a b HTTP/1.1", 400 },
	{ "GET\t/ HTTP/1.1", 400 },
	{ "GET /\t HTTP/1.1", 400 },
	{ "GET / http/1.1", 400 },
	{ "GET / HTTP/1", 400 },
	{ "GET / HTTP/1.x", 400 },
	{ "GET / HTTP/11.1", 400 },
	{ "GET / HTTP/2.0", 505 },
	{ "GET / HTTP/0.9", 505 },
	{ "POST / HTTP/1.1", 405 },
	{ "get / HTTP/1.1", 405 },
	{ "HEADS / HTTP/1.1", 405 },
	{ "G(T / HTTP/1.1", 400 },
	{ "GET x HTTP/1.1", 400 },
	/* The absolute form, which a server must accept. */
	{ "GET http://127.0.0.1/ HTTP/1.1", 200 },
	{ "GET HTTP://x/a%20b?c HTTP/1.1", 200 },
	{ "GET http://x.example:8080 HTTP/1.1", 200 },
	{ "GET http://[::1]:80?c HTTP/1.1", 200 },
	{ "HEAD http://x/ HTTP/1.0", 200 },
	{ "POST http://x/ HTTP/1.1", 405 },
	{ "GET http:// HTTP/1.1", 400 },
	{ "GET http:/// HTTP/1.1", 400 },
	{ "GET http://:80/ HTTP/1.1", 400 },
	{ "GET http://a@x/ HTTP/1.1", 400 },
	{ "GET http://[::1/ HTTP/1.1", 400 },
	{ "GET http://x:y/ HTTP/1.1", 400 },
	{ "GET http://x/%zz HTTP/1.1", 400 },
	{ "GET http:/x HTTP/1.1", 400 },
	{ "GET http:x HTTP/1.1", 400 },
	{ "GET httpx://x/ HTTP/1.1", 400 },
	{ "GET ftp://x/ HTTP/1.1", 400 },
	{ "GET * HTTP/1.1", 400 },
	{ "GET /%zz HTTP/1.1", 400 },
	{ "GET /%0 HTTP/1.1", 400 },
	{ "GET /%00 HTTP/1.1", 400 },
	{ "GET /\x01 HTTP/1.1", 400 },
	{ "GET /\x7f HTTP/1.1", 400 },
	{ "GET /\xe4 HTTP/1.1", 400 },
	{ "GET /\r HTTP/1.1", 400 },
	{ "GET /\n HTTP/1.1", 400 },
};

TEST(first_lines_of_requests)
{
	char text[2 * HTTP_PATH_MAX];

	for (size_t i = 0; i < sizeof(first_lines) / sizeof(*first_lines); i++) {
		snprintf(text, sizeof(text), "%s\r\n\r\n", first_lines[i].line);
		if (status_of(text) != first_lines[i].status)
			fail_msg("'%s': %d", first_lines[i].line, status_of(text));
	}
	snprintf(text, sizeof(text), "GET /%0*d HTTP/1.1\r\n\r\n", HTTP_PATH_MAX - 1, 0);
	assert_int_equal(status_of(text), 200);
	snprintf(text, sizeof(text), "GET /%0*d HTTP/1.1\r\n\r\n", HTTP_PATH_MAX, 0);
	assert_int_equal(status_of(text), 414);
}

#define LENGTH "Content-Length"
#define ENCODING "Transfer-Encoding"

static const struct {
	const char *fields; /* with "\r\n" between two lines */
	int status;
	bool ends; /* the connection, though the request is served */
} heads[] = {
	{ "Host: x", 200, false },
	{ "Host:x", 200, false },
	{ "Host:", 200, false },
	{ "Host: \t x \t ", 200, false },
	{ "Host: x.example:8080", 200, false },
	{ "Host: x:", 200, false },
	{ "Host: 127.0.0.1:80", 200, false },
	{ "Host: [::1]", 200, false },
	{ "Host: [2001:db8::192.0.2.1]:8080", 200, false },
	{ "Host: a-z_~%20!$&'()*+,;=", 200, false },
	{ "Host: a b", 400, false },
	{ "Host: a b/@", 400, false },
	{ "Host: x/", 400, false },
	{ "Host: a@x", 400, false },
	{ "Host: http://x", 400, false },
	{ "Host: x:y", 400, false },
	{ "Host: x:1:2", 400, false },
	{ "Host: x:-1", 400, false },
	{ "Host: ::1", 400, false },
	{ "Host: [", 400, false },
	{ "Host: []", 400, false },
	{ "Host: [x]", 400, false },
	{ "Host: [::1", 400, false },
	{ "Host: ::1]", 400, false },
	{ "Host: [::1]x", 400, false },
	{ "Host: [::1][::1]", 400, false },
	{ "Host: [::::]", 400, false },
	{ "Host: [0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]", 400, false },
	{ "Host: %", 400, false },
	{ "Host: %2", 400, false },
	{ "Host: %zz", 400, false },
	{ "Host: x\\", 400, false },
	{ "Host: \xe4", 400, false },
	{ "X-\x60|~: \xe4\xf6 \t(\"\\", 200, false },
	/* The length of a body: only none is served. */
	{ LENGTH ": 0", 200, false },
	{ "content-LENGTH:0", 200, false },
	{ LENGTH ": \t0 \t", 200, false },
	{ LENGTH ": 000", 200, false },
	{ LENGTH ": 40", 413, false },
	{ LENGTH ": 00040", 413, false },
	{ LENGTH ": 18446744073709551615", 413, false },
	{ LENGTH ": 18446744073709551616", 400, false },
	{ LENGTH ": 99999999999999999999999999999999999999999", 400, false },
	{ LENGTH ":", 400, false },
	{ LENGTH ": ", 400, false },
	{ LENGTH ": +0", 400, false },
	{ LENGTH ": -0", 400, false },
	{ LENGTH ": -1", 400, false },
	{ LENGTH ": 0x0", 400, false },
	{ LENGTH ": 0x10", 400, false },
	{ LENGTH ": 1e1", 400, false },
	{ LENGTH ": 0.0", 400, false },
	{ LENGTH ": 0 0", 400, false },
	{ LENGTH ": 0, 0", 400, false },
	{ LENGTH ": 0,", 400, false },
	{ LENGTH ": ,0", 400, false },
	{ LENGTH ": 0;x", 400, false },
	{ LENGTH ": \"0\"", 400, false },
	{ LENGTH ": 0x", 400, false },
	{ LENGTH ": zero", 400, false },
	{ LENGTH ": \xb2", 400, false },
	{ LENGTH ": 0\r\n" LENGTH ": 0", 400, false },
	{ LENGTH ": 0\r\n" LENGTH ": 40", 400, false },
	{ LENGTH ": 40\r\n" LENGTH ": 0", 400, false },
	{ LENGTH ": 0\r\nHost: x\r\n"
		 "CONTENT-length: 40",
	  400, false },
	{ LENGTH "\r\n : 40", 400, false },
	{ LENGTH ": 0\r\n 40", 400, false },
	{ LENGTH ":\r\n 40", 400, false },
	/* A name is what it is: no other spelling means the same. */
	{ LENGTH " : 40", 400, false },
	{ LENGTH "\t: 40", 400, false },
	{ " " LENGTH ": 40", 400, false },
	{ "\t" LENGTH ": 40", 400, false },
	{ LENGTH "\v: 40", 400, false },
	{ LENGTH "\x01: 40", 400, false },
	{ LENGTH "\x7f: 40", 400, false },
	{ LENGTH "\xa0: 40", 400, false },
	{ LENGTH " 40", 400, false },
	{ "Content_Length: 40", 200, false },
	{ LENGTH "s: 40", 200, false },
	/* Encodings. */
	{ ENCODING ": chunked", 413, false },
	{ ENCODING ": CHUNKED ", 413, false },
	{ ENCODING ": gzip, chunked", 501, false },
	{ ENCODING ": gzip\r\n" ENCODING ": chunked", 501, false },
	{ ENCODING ": chunked, chunked", 501, false },
	{ ENCODING ": chunked, gzip", 400, false },
	{ ENCODING ": chunked\r\n" ENCODING ": identity", 400, false },
	{ ENCODING ": identity", 400, false },
	{ ENCODING ": xchunked", 400, false },
	{ ENCODING ": chunked x", 400, false },
	{ ENCODING ": \"chunked\"", 400, false },
	{ ENCODING ": chunked;q=1", 400, false },
	{ ENCODING ":", 400, false },
	{ ENCODING ": \vchunked", 400, false },
	{ ENCODING ": chunked\r\n" LENGTH ": 0", 400, false },
	{ LENGTH ": 40\r\n" ENCODING ": chunked", 400, false },
	{ ENCODING " : chunked", 400, false },
	{ ENCODING "\r\n : chunked", 400, false },
	{ ENCODING ":\r\n chunked", 400, false },
	/* Lines that are none. */
	{ "Host", 400, false },
	{ ":", 400, false },
	{ ": x", 400, false },
	{ " ", 400, false },
	{ " Host: x", 400, false },
	{ "Host: x\r\n y", 400, false },
	{ "Host: x\r\n\ty", 400, false },
	{ "Host: x\r\n\t", 400, false },
	{ "H@st: x", 400, false },
	{ "H\xf6st: x", 400, false },
	{ "Host: x\r\nHost: x", 400, false },
	{ "X: \x01", 400, false },
	{ "X: \x7f", 400, false },
	{ "X: a\rb", 400, false },
	{ "X: a\r\rb", 400, false },
	{ "X: a\nb: c", 400, false },
	{ "X: a\n" LENGTH ": 40", 400, false },
	{ "X: a\r" LENGTH ": 40", 400, false },
	/* Whether the connection goes on. */
	{ "Connection: keep-alive", 200, false },
	{ "Connection: close", 200, true },
	{ "Connection: Close ", 200, true },
	{ "Connection: x,close", 200, true },
	{ "Connection: close, keep-alive", 200, true },
	{ "Connection: keep-alive\r\nConnection: close", 200, true },
	{ "Connection: closed", 200, false },
	{ "Connection: not-close", 200, false },
};

TEST(heads_of_requests)
{
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		struct http_request request;
		char text[256];

		snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n%s\r\n\r\n", heads[i].fields);
		if (status_of(text) != heads[i].status)
			fail_msg("'%s': %d", heads[i].fields, status_of(text));
		http_parse(text, strlen(text), &request);
		if (request.status == 200 && request.keep == heads[i].ends)
			fail_msg("'%s': keep %d", heads[i].fields, request.keep);
		/* Whatever is the matter with a body is so for each method. */
		snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n%s\r\n\r\n", heads[i].fields);
		assert_int_equal(status_of(text), heads[i].status == 200 ? 405 : heads[i].status);
	}
	assert_int_equal(status_of("GET / HTTP/1.0\r\n" ENCODING ": chunked\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.0\r\n" LENGTH ": 40\r\n\r\n"), 413);
}

/* The answer to a HEAD has no body, whatever is wrong with the request. */
TEST(heads_only)
{
	static const char *const texts[] = {
		"HEAD / HTTP/1.1\r\n\r\n",	   "\r\nHEAD / HTTP/1.1\r\n\r\n",
		"HEAD / HTTP/2.0\r\n\r\n",	   "HEAD  / HTTP/1.1\r\n\r\n",
		"HEAD x HTTP/1.1\r\n\r\n",	   "HEAD / HTTP/1.1\r\nX\r\n\r\n",
		"HEAD / HTTP/1.1\r\n\x01\r\n\r\n", "GET / HTTP/2.0\r\n\r\n",
		"HEADS / HTTP/1.1\r\n\r\n",
	};
	const size_t count = sizeof(texts) / sizeof(*texts);

	for (size_t i = 0; i < count; i++) {
		const bool head = i < count - 2;
		struct http_request request;
		char answer[200];

		http_parse(texts[i], strlen(texts[i]), &request);
		assert_int_equal(request.head_only, head);
		http_head(answer, sizeof(answer), request.status, 0, &request);
		if (request.status != 200)
			assert_int_equal(strstr(answer, "\r\n\r\n")[4] == 0, head);
	}
}

/* Not text: what does not become right with further bytes is refused at once. */
TEST(bytes_of_requests)
{
	static const struct {
		const char *text;
		size_t size, head;
		int status;
	} rows[] = {
		{ "G", 1, 0, 431 },
		{ "\r", 1, 0, 431 },
		{ "\r\n", 2, 0, 431 },
		{ "\n", 1, 1, 400 },
		{ "GET / HTTP/1.1\n", 15, 15, 400 },
		{ "GET / HTTP/1.1\n\n", 16, 16, 400 },
		{ "GET / HTTP/1.1\r", 15, 0, 431 },
		{ "GET / HTTP/1.1\r\r", 16, 16, 400 },
		{ "GET / HTTP/1.1\r\n\r", 17, 0, 431 },
		{ "GET / HTTP/1.1\r\n\n", 17, 17, 400 },
		{ "GET /\0 HTTP/1.1\r\n\r\n", 19, 19, 400 },
		{ "GET / HTTP/1.1\r\nX: \0\r\n\r\n", 24, 24, 400 },
		{ "GET / HTTP/1.1\r\nX\0: \r\n\r\n", 24, 24, 400 },
		{ "\0", 1, 1, 400 },
		{ "\x16\x03\x01", 3, 3, 400 }, /* TLS */
		/* What follows a head is not looked at. */
		{ "GET / HTTP/1.1\r\n\r\n\0\n", 20, 18, 200 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct http_request request;
		const size_t head = http_parse(rows[i].text, rows[i].size, &request);

		if (head != rows[i].head || request.status != rows[i].status)
			fail_msg("row %zu: %zu bytes, %d", i, head, request.status);
	}
}

TEST(many_fields)
{
	char text[HTTP_HEAD_MAX + 1];
	struct http_request request;
	int size;

	for (int fields = HTTP_FIELDS_MAX - 1; fields <= HTTP_FIELDS_MAX + 1; fields++) {
		size = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n");
		for (int i = 0; i < fields; i++)
			size += snprintf(text + size, sizeof(text) - (size_t)size, "X%d: y\r\n", i);
		snprintf(text + size, sizeof(text) - (size_t)size, "\r\n");
		assert_int_equal(status_of(text), fields <= HTTP_FIELDS_MAX ? 200 : 431);
	}
	/* The longest head, and one that is a byte longer. */
	snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nX: %0*d\r\n\r\n", HTTP_HEAD_MAX - 23, 0);
	assert_int_equal(strlen(text), HTTP_HEAD_MAX);
	assert_int_equal(status_of(text), 200);
	assert_int_equal(http_parse(text, HTTP_HEAD_MAX - 1, &request), 0);
	text[HTTP_HEAD_MAX - 2] = 'x';
	assert_int_equal(http_parse(text, HTTP_HEAD_MAX, &request), HTTP_HEAD_MAX);
	assert_int_equal(request.status, 400);
	snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nX: %0*d\r\n\r", HTTP_HEAD_MAX - 22, 0);
	assert_int_equal(http_parse(text, HTTP_HEAD_MAX, &request), HTTP_HEAD_MAX);
	assert_int_equal(request.status, 431);
}

int main(void)
{
	return run_group(NULL, NULL, NULL);
}
