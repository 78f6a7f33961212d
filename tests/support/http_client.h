/* http_client.h: a blocking HTTP/1.1 client for tests, and many of it at once.
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
 * What goes wrong on the way is in the reply (status 0, and a text); nothing of this fails a test
 * by itself, so that threads may use it. A client is for one thread at a time. */
#ifndef TESTS_HTTP_CLIENT_H
#define TESTS_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

typedef struct http_client http_client;

typedef struct http_request {
  const char *method; /* NULL: GET */
  const char *path;   /* with its query, as it goes over the line; NULL: "/" */
  /* further ones, each line ended by \r\n; NULL for none. Host and Content-Length are written by
   * the client */
  const char *headers;
  const void *body; /* of `size` bytes; NULL for none */
  size_t size;
  int closes; /* 1: with "Connection: close" */
} http_request;

enum { HTTP_HEADERS = 64 };

typedef struct http_reply {
  int status; /* of HTTP; 0: no answer came, or none that is whole, see `error` */
  /* `size` bytes and a '\0'; NULL only when no answer came. Decoded when it was chunked */
  char *body;
  size_t size;
  int64_t first_us; /* from the request's first byte to the answer's first */
  int64_t took_us;  /* to the answer's last */
  int is_reused;    /* it came over a connection that an earlier request has used */
  /* http_client_ask sent the request twice: the server had closed that connection */
  int is_repeated;
  char error[120]; /* "" when all went well */
  /* the status line's number also where the answer wasn't whole; 0: not even that came */
  int cut_status;
  char *head; /* inner: what the headers point into */
  int header_count;
  struct {
    const char *name, *value;
  } headers[HTTP_HEADERS];
} http_reply;

/* `address`: "127.0.0.1:PORT" (any dotted IPv4) or "unix:PATH". Connects at the first request, and
 * again when it must. */
http_client *http_client_new(const char *address);
/* Hangs up. NULL is allowed. */
void http_client_free(http_client *client);

/* Sends a request and reads the answer, for at most 30 s. The connection is used again if the
 * server lets it; a request over a used one that the server has closed meanwhile is sent again over
 * a new one, once. */
http_reply http_client_ask(http_client *client, const http_request *request);
/* The same in two steps: 0, or -1 when it couldn't be sent; then the answer to what was sent
 * last. */
int http_client_send(http_client *client, const http_request *request);
http_reply http_client_receive(http_client *client);
/* Connects now, so that a request needn't; 0 or -1. */
int http_client_connect(http_client *client);
/* Hangs up now, whatever is under way: by a reset when unread bytes are there, else as a browser
 * that is closed. */
void http_client_hang_up(http_client *client);
/* A client that goes away: sends the request, reads this many bytes of the answer (0: doesn't wait
 * for it), hangs up. How many bytes it had; -1 when it couldn't even send. */
long http_client_abort(http_client *client, const http_request *request, size_t after_bytes);

/* The first header of that name, in any case of letters; NULL when there is none. The reply's. */
const char *http_reply_header(const http_reply *reply, const char *name);
void http_reply_free(http_reply *reply);

/* ---- many at once -------------------------------------------------------------------------- */

typedef struct http_storm {
  const char *address;
  /* instead of it, up to NULL: connection i goes to address i % count */
  const char *const *addresses;
  const char *method, *path, *headers; /* as in http_request */
  /* instead of `path`, up to NULL: the n-th request of connection i is for path (i + n) % count */
  const char *const *paths;
  /* each on its own thread; all are connected before the first request of any is sent */
  int connections;
  int requests_each;    /* 0: until http_client_storm_end */
  int closes;           /* 1: a new connection for each request */
  const char *expected; /* the body of a right answer; NULL: any */
  size_t expected_size; /* 0: strlen(expected) */
} http_storm;

typedef struct http_storm_result {
  int count;                      /* requests sent */
  int good;                       /* status 200 and the expected body */
  int wrong_bodies;               /* status 200 and another body */
  int errors;                     /* no whole answer */
  int repeated;                   /* sent twice, as in http_reply */
  int statuses[600];              /* how many had each; [0]: errors */
  int64_t p50_us, p99_us, max_us; /* of all that were answered */
  int64_t *times_us;              /* these, sorted; `times` of them */
  int times;
  char *body; /* of the first answer with status 200; NULL when there was none */
  size_t body_size;
  int same_bodies; /* all with status 200 were as that one */
  /* of the first that wasn't answered, or of a wrong answer: its status and the begin of its body;
   * "" when all were good */
  char error[120];
} http_storm_result;

typedef struct http_storm_run http_storm_run;

/* Runs it to its end. */
http_storm_result http_client_storm(const http_storm *plan);
/* The same behind the caller's back: returns once all connections are there and were let loose. */
http_storm_run *http_client_storm_start(const http_storm *plan);
/* How many of its requests were answered until now. */
int http_client_storm_answered(http_storm_run *run);
/* Waits for it; with requests_each 0 each connection ends after the request that is under way. */
http_storm_result http_client_storm_end(http_storm_run *run);
void http_storm_free(http_storm_result *result);
#endif
