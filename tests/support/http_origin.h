/* http_origin.h: an HTTP/1.1 origin inside the test, on threads of its own, that answers each path
 * as the test says and counts what came.
 *
 *   http_origin *origin = http_origin_start();
 *   http_origin_answer(origin, "/page", HTTP_ANSWER(.headers = "Cache-Control: max-age=60\r\n",
 *                                                   .body = "hello", .delay_ms = 100));
 *   ... http_origin_url(origin) ...
 *   assert_int_equal(http_origin_seen(origin, "/page"), 1);
 *   http_origin_stop(origin);
 *
 * A path that has no answer is answered by that of "*", and when there is none, 404. The query
 * isn't part of a path, unless an answer was set for the whole target ("/page?a=1"). Counters are
 * kept per path (or target) that a call here named before; "*" counts all requests, also those. Any
 * thread. Connections are kept alive. */
#ifndef TESTS_HTTP_ORIGIN_H
#define TESTS_HTTP_ORIGIN_H

#include <stddef.h>

typedef struct http_origin http_origin;

/* What becomes of a request. */
typedef enum http_fate {
  HTTP_FATE_ANSWERED = 0,
  HTTP_FATE_DIES,          /* the connection is dropped instead of an answer */
  HTTP_FATE_DIES_MID_BODY, /* it is dropped after half of the body */
  HTTP_FATE_HANGS,         /* nothing is said until the client hangs up */
  HTTP_FATE_HANGS_MID_BODY /* the same after half of the body */
} http_fate;

/* How a path is answered; zeroes are the defaults. Texts are copied. */
typedef struct http_answer {
  int status;          /* 0: 200 */
  const char *headers; /* whole lines, each with its \r\n */
  size_t headers_len;  /* 0: all of `headers`, which is a text */
  const char *body;
  size_t body_len; /* 0: all of `body`, which is a text */
  size_t repeat;   /* the body so many times; 0: once */
  /* 1: the body is followed by " N", the number of this request of its path, from 1 */
  int numbered;
  /* with its quotes: sent as ETag; a request whose If-None-Match names it gets 304 with the same
   * headers */
  const char *etag;
  int chunked;  /* 1: in chunks, without a Content-Length */
  int unsized;  /* 1: neither: the end of the connection is the end of the body */
  int closes;   /* 1: the connection is closed after the answer */
  int delay_ms; /* before the answer begins */
  /* 1: the answer doesn't begin before http_origin_let, or another answer for this path */
  int held;
  http_fate fate;
} http_answer;

#define HTTP_ANSWER(...) (&(http_answer){__VA_ARGS__})

/* Listens on a free port below 32768 of 127.0.0.1. Never fails: it aborts. */
http_origin *http_origin_start(void);
/* Hangs up on everybody, and frees it. */
void http_origin_stop(http_origin *origin);
int http_origin_port(const http_origin *origin);
/* "http://127.0.0.1:PORT" */
const char *http_origin_url(const http_origin *origin);

/* From the next request on. Counters stay. */
void http_origin_answer(http_origin *origin, const char *path, const http_answer *answer);
/* The requests for this path that are held get their answers, and those that come. */
void http_origin_let(http_origin *origin, const char *path);

/* Down: nobody listens any more, and all connections are broken. Up again: on the same port. Both
 * return when it is so. */
void http_origin_down(http_origin *origin);
void http_origin_up(http_origin *origin);

/* Requests that came; that are being answered now; the most that were at once. */
int http_origin_seen(http_origin *origin, const char *path);
int http_origin_running(http_origin *origin, const char *path);
int http_origin_most_running(http_origin *origin, const char *path);
/* Connections that were taken, since the start. */
int http_origin_connections(http_origin *origin);
/* True once `count` requests came for this path (are being answered now), within 10 s. */
int http_origin_await_seen(http_origin *origin, const char *path, int count);
int http_origin_await_running(http_origin *origin, const char *path, int count);
/* A header of the last request for this path, in a buffer of this thread that the next call
 * overwrites; NULL when it wasn't sent. ":method" and ":target" are the request line's. */
const char *http_origin_header(http_origin *origin, const char *path, const char *name);

#endif
