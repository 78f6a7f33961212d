/* stream.h: an answer of the origin while it comes, and the requests of this worker that get it.
 *
 * Its bytes are kept until the answer is whole and stored. When it can't be stored after all, it is
 * let go: from then on bytes are freed that all readers have sent. */
#ifndef CRL_NGX_STREAM_H
#define CRL_NGX_STREAM_H

#include "judge.h"

typedef struct crl_ngx_stream crl_ngx_stream;

/* For the answer that `sr` gets for this leading request. `fill` is looked at until the stream is
 * let go or ended. NULL: no memory, or a header that can't be kept. */
crl_ngx_stream *crl_ngx_stream_new(crl_ngx_ctx *leader, ngx_http_request_t *sr, corral_fill *fill,
                                   const crl_ngx_verdict *verdict,
                                   const crl_ngx_response *response);
/* Gives up the capture's reference. */
void crl_ngx_stream_leave(crl_ngx_stream *stream);
const crl_ngx_body *crl_ngx_stream_body(const crl_ngx_stream *stream);
/* Takes bytes: 0. 1: there is no room, until the subrequest is run again; -1: no memory. */
int crl_ngx_stream_append(crl_ngx_stream *stream, u_char *bytes, size_t size);
/* True while an answer that is to be kept may have so many bytes more. */
int crl_ngx_stream_has_room(const crl_ngx_stream *stream, size_t size);
/* True once clients get it. */
int crl_ngx_stream_is_started(const crl_ngx_stream *stream);
/* True while a client still takes it. */
int crl_ngx_stream_is_read(const crl_ngx_stream *stream);
/* Lets clients get it, if the leading request still wants an answer; 0 when it doesn't. */
int crl_ngx_stream_start(crl_ngx_stream *stream);
/* It won't be stored: nobody joins it any more. */
void crl_ngx_stream_let_go(crl_ngx_stream *stream);
/* All bytes have come: nothing is sent any more until crl_ngx_stream_end. */
void crl_ngx_stream_hold(crl_ngx_stream *stream);
/* Readers end: with the rest of the answer, or, when it broke off, by a broken connection. */
void crl_ngx_stream_end(crl_ngx_stream *stream, ngx_uint_t is_whole);

/* Makes a request that has no call under way a reader of the answer that comes for its key: 1, or 0
 * when there is none for it. */
int crl_ngx_stream_join(crl_ngx_ctx *ctx);

/* ---- flights.c: the worker's requests and answers under way, by key ------------------------ */

ngx_int_t crl_ngx_flights_init(crl_ngx_zone *zone, ngx_pool_t *pool);
void crl_ngx_flights_wait(crl_ngx_ctx *ctx);
void crl_ngx_flights_stop_waiting(crl_ngx_ctx *ctx);
/* The request doesn't wait for another's any more: it leads. It stays in the table. */
void crl_ngx_flights_lead(crl_ngx_ctx *ctx);
/* Counts a request among those of its key that go their own way after too long a wait, until it
 * ends. 0: there are corral_deadline_max of them already. */
int crl_ngx_flights_pass(crl_ngx_ctx *ctx);
/* The next request, after `after`, that waits for the same key as ctx; NULL: none. `after` NULL:
 * the first. */
crl_ngx_ctx *crl_ngx_flights_next(const crl_ngx_ctx *ctx, const crl_ngx_ctx *after);

/* The part of the table that answers and requests use. */
typedef struct crl_ngx_flight_link {
  ngx_queue_t queue;
  const crl_ngx_ctx *ctx; /* the leading request */
} crl_ngx_flight_link;
void crl_ngx_flights_offer(crl_ngx_flight_link *link, const crl_ngx_ctx *leader);
void crl_ngx_flights_withdraw(crl_ngx_flight_link *link);
/* The answer that is offered for this request's key; NULL: none. */
crl_ngx_flight_link *crl_ngx_flights_find(const crl_ngx_ctx *ctx);

#endif
