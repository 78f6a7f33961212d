/* flights.c: the requests of this worker with a call under way, those that go their own way after
 * too long a wait, and the answers that are coming, by key. */
#include "stream.h"

enum { BUCKETS = 1024 };

struct crl_ngx_flights {
  uint32_t seed;
  struct {
    ngx_queue_t waiting, passing, answers;
  } buckets[BUCKETS];
};

ngx_int_t crl_ngx_flights_init(crl_ngx_zone *zone, ngx_pool_t *pool) {
  crl_ngx_flights *flights = ngx_palloc(pool, sizeof *flights);
  if (flights == NULL) return NGX_ERROR;
  flights->seed = (uint32_t)ngx_random();
  for (size_t i = 0; i < BUCKETS; i++) {
    ngx_queue_init(&flights->buckets[i].waiting);
    ngx_queue_init(&flights->buckets[i].passing);
    ngx_queue_init(&flights->buckets[i].answers);
  }
  zone->flights = flights;
  return NGX_OK;
}

static size_t bucket_of(const crl_ngx_ctx *ctx) {
  return (ngx_murmur_hash2(ctx->key.data, ctx->key.len) ^ ctx->zone->flights->seed) % BUCKETS;
}

static int is_same(const crl_ngx_ctx *a, const crl_ngx_ctx *b) {
  return a->key.len == b->key.len && ngx_memcmp(a->key.data, b->key.data, a->key.len) == 0 &&
         a->is_variant == b->is_variant &&
         (!a->is_variant || ngx_memcmp(a->variant, b->variant, sizeof a->variant) == 0);
}

void crl_ngx_flights_wait(crl_ngx_ctx *ctx) {
  ngx_queue_insert_tail(&ctx->zone->flights->buckets[bucket_of(ctx)].waiting, &ctx->waiting);
  ctx->is_waiting = ctx->is_gauged = 1;
  crl_ngx_gauge_waiting(ctx->zone, 1);
}

void crl_ngx_flights_lead(crl_ngx_ctx *ctx) {
  if (ctx->is_gauged) crl_ngx_gauge_waiting(ctx->zone, -1);
  ctx->is_gauged = 0;
}

void crl_ngx_flights_stop_waiting(crl_ngx_ctx *ctx) {
  if (ctx->is_waiting) {
    ngx_queue_remove(&ctx->waiting); /* several statements */
  }
  ctx->is_waiting = 0;
  crl_ngx_flights_lead(ctx);
}

crl_ngx_ctx *crl_ngx_flights_next(const crl_ngx_ctx *ctx, const crl_ngx_ctx *after) {
  ngx_queue_t *all = &ctx->zone->flights->buckets[bucket_of(ctx)].waiting;
  ngx_queue_t *at = after != NULL ? ngx_queue_next(&after->waiting) : ngx_queue_head(all);
  for (; at != ngx_queue_sentinel(all); at = ngx_queue_next(at)) {
    crl_ngx_ctx *other = ngx_queue_data(at, crl_ngx_ctx, waiting);
    if (other != ctx && is_same(ctx, other)) return other;
  }
  return NULL;
}

static void stop_passing(void *data) {
  crl_ngx_ctx *ctx = data;
  if (ctx->is_passing) {
    ngx_queue_remove(&ctx->passing); /* several statements */
  }
  ctx->is_passing = 0;
}

int crl_ngx_flights_pass(crl_ngx_ctx *ctx) {
  ngx_queue_t *all = &ctx->zone->flights->buckets[bucket_of(ctx)].passing;
  ngx_int_t count = 0;
  for (ngx_queue_t *at = ngx_queue_head(all); at != ngx_queue_sentinel(all);
       at = ngx_queue_next(at))
    count += is_same(ctx, ngx_queue_data(at, crl_ngx_ctx, passing));
  ngx_http_cleanup_t *cleanup =
      count < ctx->conf->deadline_max ? ngx_http_cleanup_add(ctx->r, 0) : NULL;
  if (cleanup == NULL) return 0;
  cleanup->data = ctx;
  cleanup->handler = stop_passing;
  ngx_queue_insert_tail(all, &ctx->passing);
  ctx->is_passing = 1;
  return 1;
}

void crl_ngx_flights_offer(crl_ngx_flight_link *link, const crl_ngx_ctx *leader) {
  link->ctx = leader;
  ngx_queue_insert_tail(&leader->zone->flights->buckets[bucket_of(leader)].answers, &link->queue);
}

void crl_ngx_flights_withdraw(crl_ngx_flight_link *link) {
  if (link->ctx != NULL) {
    ngx_queue_remove(&link->queue); /* several statements */
  }
  link->ctx = NULL;
}

crl_ngx_flight_link *crl_ngx_flights_find(const crl_ngx_ctx *ctx) {
  ngx_queue_t *all = &ctx->zone->flights->buckets[bucket_of(ctx)].answers;
  for (ngx_queue_t *at = ngx_queue_head(all); at != ngx_queue_sentinel(all);
       at = ngx_queue_next(at)) {
    crl_ngx_flight_link *link = ngx_queue_data(at, crl_ngx_flight_link, queue);
    if (is_same(ctx, link->ctx)) return link;
  }
  return NULL;
}
