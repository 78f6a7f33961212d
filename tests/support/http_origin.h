/* http_origin.h: an HTTP/1.1 origin inside the test, on threads of its own, that answers each path
 * as the test sets it and counts the requests.
 *
 *   http_origin *origin = http_origin_start();
 *   http_origin_answer(origin, "/page", HTTP_ANSWER(.headers = "Cache-Control: max-age=60\r\n",
 *                                                   .body = "hello", .delay_ms = 100));
 *   ... http_origin_url(origin) ...
 *   assert_int_equal(http_origin_seen(origin, "/page"), 1);
 *   http_origin_stop(origin);
 *
 * A path that has no answer is answered by that of "*", and when there is none, 404. The query
 * isn't part of a path, unless an answer was set for the whole target ("/page?a=1"). Counters exist
 * for each path (or target) named in an earlier call; "*" counts all requests. Any thread.
 * Connections are kept alive. */
#ifndef TESTS_HTTP_ORIGIN_H
#define TESTS_HTTP_ORIGIN_H

#include <stddef.h>

typedef struct http_origin http_origin;

/* The fate of a request. */
typedef enum http_fate {
  HTTP_FATE_ANSWERED = 0,
  HTTP_FATE_DIES,          /* the connection is closed without an answer */
  HTTP_FATE_DIES_MID_BODY, /* the connection is closed after half of the body */
  HTTP_FATE_HANGS,         /* no answer until the client hangs up */
  HTTP_FATE_HANGS_MID_BODY /* half of the body, then nothing until the client hangs up */
} http_fate;

/* The answer for a path; 0 and NULL are the defaults. Texts are copied. */
typedef struct http_answer {
  int status;          /* 0: 200 */
  const char *headers; /* complete lines, each with its \r\n */
  size_t headers_len;  /* 0: all of `headers`, which is a text */
  const char *body;
  size_t body_len; /* 0: all of `body`, which is a text */
  size_t repeat;   /* the body is sent this many times; 0: once */
  /* 1: the body is followed by " N", the number of the request for its path, from 1 */
  int numbered;
  /* with quotes; sent as ETag. A request whose If-None-Match names it gets 304 with the same
   * headers */
  const char *etag;
  int chunked;  /* 1: chunked, without Content-Length */
  int unsized;  /* 1: neither chunked nor Content-Length: the end of the connection ends the body */
  int closes;   /* 1: the connection is closed after the answer */
  int delay_ms; /* delay before the answer begins */
  int pause_ms; /* the body is sent in four parts, with this pause between two */
  /* 1: the answer waits for http_origin_let, or for a new answer for this path */
  int held;
  http_fate fate;
} http_answer;

#define HTTP_ANSWER(...) (&(http_answer){__VA_ARGS__})

/* Listens on a free port below 32768 of 127.0.0.1. Aborts on any error. */
http_origin *http_origin_start(void);
/* Closes all connections and frees the origin. */
void http_origin_stop(http_origin *origin);
int http_origin_port(const http_origin *origin);
/* "http://127.0.0.1:PORT" */
const char *http_origin_url(const http_origin *origin);

/* Sets the answer from the next request on. Counters stay. */
void http_origin_answer(http_origin *origin, const char *path, const http_answer *answer);
/* Releases the held requests for this path, and later ones. */
void http_origin_let(http_origin *origin, const char *path);

/* down: the port is closed and all connections are broken. up: listens again on the same port. Both
 * return when that is done. */
void http_origin_down(http_origin *origin);
void http_origin_up(http_origin *origin);

/* Requests received; requests being answered now; the largest such number. */
int http_origin_seen(http_origin *origin, const char *path);
int http_origin_running(http_origin *origin, const char *path);
int http_origin_most_running(http_origin *origin, const char *path);
/* Connections accepted since the start. */
int http_origin_connections(http_origin *origin);
/* True once `count` requests for this path were received (await_running: are being answered),
 * within 30 s. */
int http_origin_await_seen(http_origin *origin, const char *path, int count);
int http_origin_await_running(http_origin *origin, const char *path, int count);
/* A header of the last request for this path, in a buffer of this thread that the next call
 * overwrites; NULL when the header is missing. ":method" and ":target" name parts of the request
 * line. */
const char *http_origin_header(http_origin *origin, const char *path, const char *name);

#endif
