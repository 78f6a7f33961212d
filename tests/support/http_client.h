/* http_client.h: a blocking HTTP/1.1 client for tests, and storms of many clients at once.
 *
 *   http_client *client = http_client_new("127.0.0.1:8080");   or "unix:/path/to/socket"
 *   http_reply reply = http_client_ask(
 *     client, &(http_request){.path = "/page?a=1", .headers = "Range: bytes=0-9\r\n"});
 *   ... reply.status ... http_reply_header(&reply, "cache-status") ... reply.body ...
 *   http_reply_free(&reply);
 *   http_client_free(client);
 *
 *   http_storm_result storm = http_client_storm(&(http_storm){
 *     .address = address, .path = "/", .connections = 200, .requests_each = 1,
 *     .expected = "hello"});
 *   assert_int_equal(storm.good, 200);                 status 200 and the expected body
 *   assert_true(storm.p99_us < 150000);
 *   http_storm_free(&storm);
 *
 * Errors are in the reply (status 0, and a text); no function here fails the test, so any thread
 * may call them. A client is for one thread at a time. */
#ifndef TESTS_HTTP_CLIENT_H
#define TESTS_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

typedef struct http_client http_client;

typedef struct http_request {
  const char *method; /* NULL: GET */
  const char *path;   /* with its query, as sent; NULL: "/" */
  /* further header lines, each ended by \r\n; NULL for none. The client writes Host and
   * Content-Length itself */
  const char *headers;
  const void *body; /* body of `size` bytes; NULL for none */
  size_t size;
  int closes; /* 1: sends "Connection: close" */
} http_request;

enum { HTTP_HEADERS = 64 };

typedef struct http_reply {
  int status; /* HTTP status; 0: no complete answer came, see `error` */
  /* `size` bytes and a '\0'; NULL only when no answer came. Decoded when it was chunked */
  char *body;
  size_t size;
  int64_t first_us; /* from the first byte of the request to the first of the answer */
  int64_t took_us;  /* to the last byte of the answer */
  int is_reused;    /* the connection had carried an earlier request */
  /* http_client_ask sent the request twice: the server had closed the first connection */
  int is_repeated;
  char error[120]; /* "" without an error */
  /* status of an incomplete answer too; 0: no status line came */
  int cut_status;
  char *head; /* internal: the headers point into it */
  int header_count;
  struct {
    const char *name, *value;
  } headers[HTTP_HEADERS];
} http_reply;

/* `address`: "127.0.0.1:PORT" (any dotted IPv4) or "unix:PATH". Connects at the first request, and
 * again after the connection was closed. */
http_client *http_client_new(const char *address);
/* Hangs up. NULL is allowed. */
void http_client_free(http_client *client);

/* Sends a request and reads the answer, for at most 30 s. The connection is kept if the server
 * allows it. When a kept connection turns out to be closed, the request is sent once more over a
 * new one. */
http_reply http_client_ask(http_client *client, const http_request *request);
/* http_client_ask in two steps. http_client_send returns 0, or -1 when the request couldn't be
 * sent; http_client_receive reads the answer to the last request. */
int http_client_send(http_client *client, const http_request *request);
http_reply http_client_receive(http_client *client);
/* Connects before the first request. Returns 0 or -1. */
int http_client_connect(http_client *client);
/* Hangs up at once, also during an answer: by a reset when unread bytes are there, else as a
 * browser that is closed. */
void http_client_hang_up(http_client *client);
/* Sends the request, reads `after_bytes` bytes of the answer (0: doesn't wait for it), and hangs
 * up. Returns the number of bytes read; -1 when the request couldn't be sent. */
long http_client_abort(http_client *client, const http_request *request, size_t after_bytes);

/* The first header of that name, case-insensitive; NULL when there is none. Owned by the reply. */
const char *http_reply_header(const http_reply *reply, const char *name);
void http_reply_free(http_reply *reply);

/* ---- many at once -------------------------------------------------------------------------- */

typedef struct http_storm {
  const char *address;
  /* instead of `address`, up to NULL: connection i goes to address i % count */
  const char *const *addresses;
  const char *method, *path, *headers; /* as in http_request */
  /* instead of `path`, up to NULL: the n-th request of connection i is for path (i + n) % count */
  const char *const *paths;
  /* each on its own thread; all connect before the first request is sent */
  int connections;
  int requests_each;    /* 0: until http_client_storm_end */
  int closes;           /* 1: a new connection for each request */
  const char *expected; /* the body of a right answer; NULL: any */
  size_t expected_size; /* 0: strlen(expected) */
} http_storm;

typedef struct http_storm_result {
  int count;                      /* requests sent */
  int good;                       /* status 200 and the expected body */
  int wrong_bodies;               /* status 200 with another body */
  int errors;                     /* incomplete answers */
  int repeated;                   /* requests sent twice, as in http_reply */
  int statuses[600];              /* number of answers by status; [0]: errors */
  int64_t p50_us, p99_us, max_us; /* of all requests that were answered */
  int64_t *times_us;              /* durations of these requests, sorted; `times` of them */
  int times;
  char *body; /* body of the first answer with status 200; NULL without one */
  size_t body_size;
  int same_bodies; /* all answers with status 200 had that body */
  /* about the first unanswered request or wrong answer: status and start of the body; "" when all
   * were good */
  char error[120];
} http_storm_result;

typedef struct http_storm_run http_storm_run;

/* Runs the storm to its end. */
http_storm_result http_client_storm(const http_storm *plan);
/* Starts the storm in the background; returns once all connections are made and their requests
 * released. */
http_storm_run *http_client_storm_start(const http_storm *plan);
/* Requests of the storm answered so far. */
int http_client_storm_answered(http_storm_run *run);
/* Waits for the end of the storm; with requests_each 0, each connection ends after its current
 * request. */
http_storm_result http_client_storm_end(http_storm_run *run);
void http_storm_free(http_storm_result *result);
#endif
