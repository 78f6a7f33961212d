/* stream.c: sends an answer of the origin to the requests of this worker while it comes; see
 * stream.h.
 *
 * The subrequest's filters append (capture.c), and the readers send on an event of the stream's
 * own: never from within the subrequest, whose request may end by that. A reader has buffers of its
 * own over the shared bytes. The leading request is a reader too. A client of it that is gone ends
 * its reading, not the request, on which the origin's subrequest depends. */
#include "stream.h"

#include <stdlib.h>

enum { BLOCK = 32 * 1024, LARGEST_BLOCK = 256 * 1024 };
/* Bytes that all answers of this worker that are kept may take together; more where one alone may
 * be large (corral_max_size). An answer that finds no room is let go. */
enum { MOST_KEPT = 128 * 1024 * 1024, KEPT_AT_ONCE = 4 };
static size_t kept;

/* When the answer isn't to be kept: bytes in memory that readers have not sent, and, where some
 * readers are slower than others, bytes in a file. */
enum { WINDOW = 512 * 1024 };
/* A longer pause of limit_rate is cut to this: nginx's upstream may have set the timer instead. */
enum { PAUSE_MOST_MS = 1000 };
static const off_t most_in_file = (off_t)1 << 30;

struct crl_ngx_stream {
  crl_ngx_flight_link link; /* while it may be joined; first */
  ngx_uint_t refs;
  crl_ngx_ctx *leader;
  ngx_http_request_t *sr; /* NULL: has ended */
  corral_fill *fill;      /* NULL: let go, or ended */
  ngx_atomic_uint_t purges;
  ngx_event_t wake;
  ngx_queue_t readers;
  crl_ngx_body body;
  corral_page record; /* points into head */
  off_t length;       /* of the body, by the header; -1: unknown */
  size_t kept;        /* its part of the worker's sum */
  unsigned is_started : 1;
  unsigned is_let_go : 1;
  unsigned is_whole : 1;
  unsigned is_broken : 1;
  unsigned is_full : 1; /* the subrequest waits for room */
  unsigned char head[];
};

struct crl_ngx_reader {
  ngx_queue_t link;
  crl_ngx_ctx *ctx;
  crl_ngx_stream *stream;
  off_t at;          /* bytes given to the filters */
  ngx_event_t pause; /* of limit_rate */
  ngx_chain_t *free, *busy;
  unsigned is_begun : 1;   /* its header is sent */
  unsigned is_flushed : 1; /* something was sent behind the header */
  unsigned is_linked : 1;  /* among the stream's readers */
  unsigned is_gone : 1;    /* the leading request's client doesn't get the rest */
};

static ngx_uint_t is_over(const crl_ngx_stream *stream) {
  return stream->is_whole || stream->is_broken;
}

static void unref(crl_ngx_stream *stream) {
  if (--stream->refs > 0) return;
  crl_ngx_flights_withdraw(&stream->link);
  crl_ngx_body_clear(&stream->body);
  kept -= stream->kept;
  free(stream);
}

static void wake(crl_ngx_stream *stream) {
  if (stream->wake.posted) return;
  stream->refs++;
  ngx_post_event(&stream->wake, &ngx_posted_events);
}

/* ---- a reader's end ------------------------------------------------------------------------ */

static void unlink_reader(void *data) {
  crl_ngx_reader *reader = data;
  if (reader->is_linked) {
    ngx_queue_remove(&reader->link); /* several statements */
  }
  if (reader->pause.timer_set) ngx_del_timer(&reader->pause);
  reader->is_linked = 0;
}

static void unref_reader(void *data) {
  crl_ngx_reader *reader = data;
  unref(reader->stream);
}

static ngx_msec_t left_of(const ngx_event_t *timer) {
  ngx_msec_int_t left = (ngx_msec_int_t)(timer->timer.key - ngx_current_msec);
  return left > 0 ? (ngx_msec_t)left : 1;
}

/* Ends the reader. nginx sends the bytes that are left, when the pause of limit_rate is over. */
static void finish(crl_ngx_reader *reader, ngx_int_t rc) {
  ngx_http_request_t *r = reader->ctx->r;
  if (reader->pause.timer_set) ngx_add_timer(r->connection->write, left_of(&reader->pause));
  unlink_reader(reader);
  if (rc == NGX_ERROR) r->keepalive = 0;
  r->write_event_handler = ngx_http_request_empty_handler;
  ngx_http_finalize_request(r, rc);
}

/* The client doesn't take any more. */
static void lose(crl_ngx_reader *reader, ngx_int_t rc) {
  ngx_http_request_t *r = reader->ctx->r;
  if (reader->ctx != reader->stream->leader || is_over(reader->stream)) {
    finish(reader, rc);
    return;
  }
  reader->is_gone = 1;
  if (reader->pause.timer_set) ngx_del_timer(&reader->pause);
  r->write_event_handler = ngx_http_request_empty_handler;
  if (r == r->connection->data && r->connection->write->timer_set)
    ngx_del_timer(r->connection->write);
}

/* ---- sending ------------------------------------------------------------------------------- */

/* A buffer without bytes. It counts as sent at once, but filters may hold it longer: it is not used
 * again. */
static ngx_chain_t *link_to_nothing(ngx_http_request_t *r) {
  ngx_chain_t *link = ngx_alloc_chain_link(r->pool);
  ngx_buf_t *buf = ngx_calloc_buf(r->pool);
  if (link == NULL || buf == NULL) return NULL;
  link->buf = buf;
  return link;
}

static ngx_chain_t *link_to(crl_ngx_reader *reader, const crl_ngx_piece *piece) {
  ngx_http_request_t *r = reader->ctx->r;
  ngx_chain_t *link = ngx_chain_get_free_buf(r->pool, &reader->free);
  if (link == NULL) return NULL;
  ngx_buf_t *buf = link->buf;
  ngx_memzero(buf, sizeof *buf);
  buf->tag = (ngx_buf_tag_t)&ngx_http_corral_module;
  size_t skipped = (size_t)(reader->at - piece->from);
  if (piece->file_at >= 0) {
    buf->in_file = 1;
    buf->file = &reader->stream->body.file->file;
    buf->file_pos = piece->file_at + (off_t)skipped;
    buf->file_last = piece->file_at + (off_t)piece->size;
  } else {
    buf->memory = 1;
    buf->start = buf->pos = (u_char *)(uintptr_t)piece->bytes + skipped;
    buf->end = buf->last = (u_char *)(uintptr_t)piece->bytes + piece->size;
    buf->file_last = piece->from + (off_t)piece->size; /* nginx reads this for files only */
  }
  reader->at += (off_t)(piece->size - skipped);
  return link;
}

/* All bytes that the reader has not been given. 0, or -1 without memory. */
static int collect(crl_ngx_reader *reader, ngx_chain_t **ret) {
  crl_ngx_stream *stream = reader->stream;
  ngx_http_request_t *r = reader->ctx->r;
  ngx_chain_t **tail = ret, *last = NULL;
  *ret = NULL;
  for (crl_ngx_piece *piece = crl_ngx_body_at(&stream->body, reader->at);
       piece != NULL && piece->size > 0; piece = piece->next) {
    last = *tail = link_to(reader, piece);
    if (last == NULL) return -1;
    tail = &last->next;
  }
  *tail = NULL;
  if (last == NULL && (stream->is_whole || !reader->is_flushed)) last = *ret = link_to_nothing(r);
  if (last == NULL) return stream->is_whole || !reader->is_flushed ? -1 : 0;
  reader->is_flushed = 1;
  last->next = NULL;
  last->buf->flush = !stream->is_whole;
  if (!stream->is_whole) return 0;
  last->buf->last_buf = r == r->main;
  last->buf->last_in_chain = 1;
  last->buf->sync = ngx_buf_size(last->buf) == 0 && r != r->main;
  return 0;
}

/* An answer that isn't to be kept is for its readers alone: the last one that leaves ends it. */
static void notice_leaving(crl_ngx_stream *stream) {
  ngx_http_request_t *r = stream->leader->r;
  crl_ngx_reader *reader = stream->leader->reader;
  if (reader == NULL || !reader->is_linked || ngx_queue_head(&stream->readers) != &reader->link ||
      ngx_queue_last(&stream->readers) != &reader->link)
    return;
  (void)crl_ngx_notice_leaving(r);
}

static void on_pause_over(ngx_event_t *pause) {
  crl_ngx_reader *reader = pause->data;
  ngx_event_t *writing = reader->ctx->r->connection->write;
  writing->delayed = 0;
  ngx_post_event(writing, &ngx_posted_events);
}

/* limit_rate pauses the connection, and a timer of the connection ends that. The subrequest's
 * upstream, which isn't buffered, sets or removes that timer. So the reader moves the pause to a
 * timer of its own. If the connection's timer is gone, the reader sends at once: nginx counts the
 * rate from the request's start. */
static void keep_pause(crl_ngx_reader *reader, ngx_event_t *writing) {
  if (reader->pause.timer_set) return;
  ngx_msec_t left = writing->timer_set ? left_of(writing) : 1;
  if (writing->timer_set) ngx_del_timer(writing);
  reader->pause.handler = on_pause_over;
  reader->pause.data = reader;
  reader->pause.log = writing->log;
  ngx_add_timer(&reader->pause, ngx_min(left, (ngx_msec_t)PAUSE_MOST_MS));
}

static ngx_int_t await_writable(crl_ngx_reader *reader) {
  ngx_http_request_t *r = reader->ctx->r;
  ngx_connection_t *connection = r->connection;
  ngx_event_t *writing = connection->write;
  ngx_http_core_loc_conf_t *core = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
  if (r != connection->data) return NGX_OK;
  if (writing->delayed)
    keep_pause(reader, writing);
  else if (connection->buffered)
    ngx_add_timer(writing, core->send_timeout);
  else if (writing->timer_set)
    ngx_del_timer(writing);
  return ngx_handle_write_event(writing, core->send_lowat);
}

static void pump(crl_ngx_reader *reader) {
  ngx_http_request_t *r = reader->ctx->r;
  ngx_chain_t *out;
  if (reader->is_gone || reader->stream->is_broken) {
    if (is_over(reader->stream)) finish(reader, NGX_ERROR);
    return;
  }
  if (collect(reader, &out) != 0) {
    lose(reader, NGX_ERROR);
    return;
  }
  ngx_int_t rc = ngx_http_output_filter(r, out);
  ngx_chain_update_chains(r->pool, &reader->free, &reader->busy, &out,
                          (ngx_buf_tag_t)&ngx_http_corral_module);
  if (rc == NGX_ERROR)
    lose(reader, rc);
  else if (reader->stream->is_whole)
    finish(reader, rc);
  else if (await_writable(reader) != NGX_OK)
    lose(reader, NGX_ERROR);
}

static void on_write(ngx_http_request_t *r) {
  crl_ngx_reader *reader = crl_ngx_ctx_of(r)->reader;
  ngx_event_t *writing = r->connection->write;
  crl_ngx_stream *stream = reader->stream;
  if (writing->timedout) {
    writing->timedout = 0;
    ngx_log_error(NGX_LOG_INFO, r->connection->log, NGX_ETIMEDOUT, "client timed out");
    r->connection->timedout = 1;
    lose(reader, NGX_HTTP_REQUEST_TIME_OUT);
    return;
  }
  if (writing->delayed) {
    (void)await_writable(reader);
    return;
  }
  ngx_uint_t was_full = stream->is_full;
  stream->refs++;
  pump(reader);
  if (was_full) wake(stream);
  unref(stream);
}

static void begin(crl_ngx_reader *reader) {
  ngx_http_request_t *r = reader->ctx->r;
  reader->is_begun = 1;
  r->single_range = 1;
  r->write_event_handler = on_write;
  ngx_int_t rc = crl_ngx_reply_header(reader->ctx, &reader->stream->record, reader->stream->length);
  if (rc == NGX_ERROR)
    lose(reader, rc);
  else if (rc > NGX_OK || r->header_only)
    finish(reader, rc);
  else
    pump(reader);
}

/* ---- room ---------------------------------------------------------------------------------- */

/* The first byte of the body that the reader's buffers still refer to in memory. Bytes of the file
 * don't count: nginx may have copied some that are not sent yet. */
static off_t first_unsent(const crl_ngx_reader *reader) {
  for (ngx_chain_t *link = reader->busy; link != NULL; link = link->next)
    if (!link->buf->in_file && ngx_buf_size(link->buf) > 0)
      return link->buf->file_last - ngx_buf_size(link->buf);
  return reader->at;
}

/* Frees what all readers have sent. */
static void trim(crl_ngx_stream *stream) {
  off_t least = stream->body.size;
  for (ngx_queue_t *at = ngx_queue_head(&stream->readers);
       at != ngx_queue_sentinel(&stream->readers); at = ngx_queue_next(at)) {
    crl_ngx_reader *reader = ngx_queue_data(at, crl_ngx_reader, link);
    if (!reader->is_gone) least = ngx_min(least, first_unsent(reader));
  }
  crl_ngx_body_trim(&stream->body, least);
}

int crl_ngx_stream_is_read(const crl_ngx_stream *stream) {
  for (ngx_queue_t *at = ngx_queue_head(&stream->readers);
       at != ngx_queue_sentinel(&stream->readers); at = ngx_queue_next(at))
    if (!(ngx_queue_data(at, crl_ngx_reader, link))->is_gone) return 1;
  return 0;
}

/* True when a reader has sent all there is. */
static int is_starved(const crl_ngx_stream *stream) {
  for (ngx_queue_t *at = ngx_queue_head(&stream->readers);
       at != ngx_queue_sentinel(&stream->readers); at = ngx_queue_next(at)) {
    crl_ngx_reader *reader = ngx_queue_data(at, crl_ngx_reader, link);
    if (!reader->is_gone && reader->at == stream->body.size && reader->busy == NULL) return 1;
  }
  return 0;
}

static void count_kept(crl_ngx_stream *stream, size_t size) {
  kept += size - stream->kept;
  stream->kept = size;
}

int crl_ngx_stream_has_room(const crl_ngx_stream *stream, size_t size) {
  size_t most = ngx_max((size_t)MOST_KEPT, KEPT_AT_ONCE * stream->leader->conf->max_size);
  return kept + size <= most;
}

int crl_ngx_stream_append(crl_ngx_stream *stream, u_char *bytes, size_t size) {
  crl_ngx_body *body = &stream->body;
  ngx_http_core_loc_conf_t *core =
      ngx_http_get_module_loc_conf(stream->sr->main, ngx_http_core_module);
  size_t room = ngx_min(ngx_max((size_t)BLOCK, (size_t)body->size), (size_t)LARGEST_BLOCK);
  int failed = 0;
  if (stream->is_let_go) {
    room = BLOCK;
    if (body->in_memory > WINDOW) trim(stream);
  } else if (stream->length > body->size) {
    room = (size_t)ngx_min(stream->length - body->size, (off_t)LARGEST_BLOCK);
  }
  if (stream->is_let_go && body->in_memory > WINDOW) {
    off_t in_file = body->file != NULL ? body->file->offset : 0;
    if (!is_starved(stream) || in_file > most_in_file) {
      stream->is_full = 1;
      return 1;
    }
    failed = crl_ngx_body_spill(body, bytes, size, core->client_body_temp_path);
  } else {
    failed = crl_ngx_body_append(body, bytes, size, room);
  }
  if (!stream->is_let_go) count_kept(stream, body->in_memory);
  if (stream->is_started || !stream->leader->is_counted) wake(stream);
  return failed;
}

/* ---- the stream ---------------------------------------------------------------------------- */

static int attach(crl_ngx_stream *stream, crl_ngx_ctx *ctx) {
  ngx_http_request_t *r = ctx->r;
  crl_ngx_reader *reader = ngx_pcalloc(r->pool, sizeof *reader);
  ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
  ngx_pool_cleanup_t *last = ngx_pool_cleanup_add(r->pool, 0);
  if (reader == NULL || cleanup == NULL || last == NULL) return -1;
  reader->ctx = ctx;
  reader->stream = stream;
  reader->is_linked = 1;
  ngx_queue_insert_tail(&stream->readers, &reader->link);
  stream->refs++;
  cleanup->handler = unlink_reader;
  last->handler = unref_reader;
  cleanup->data = last->data = reader;
  ctx->reader = reader;
  r->write_event_handler = ngx_http_request_empty_handler;
  ctx->waited = ngx_current_msec - ctx->begun;
  crl_ngx_describe(ctx, &stream->record, (int64_t)stream->record.age_s * 1000,
                   ctx == stream->leader ? CORRAL_COMPUTED : CORRAL_JOINED);
  ctx->is_stored = !stream->is_let_go;
  return 0;
}

/* A request that came after a purge gets nothing from before it. */
static int may_join(const crl_ngx_stream *stream, const crl_ngx_ctx *ctx) {
  unsigned char hash[CORRAL_PAGE_HASH];
  const corral_page *record = &stream->record;
  if (stream->is_let_go || is_over(stream) || crl_ngx_redirect_is_away(ctx, record) ||
      ctx->purges > stream->purges || ctx->is_lookup || ctx->is_refresh ||
      (stream->fill != NULL && corral_fill_should_stop(stream->fill)))
    return 0;
  if (record->vary_len == 0) return 1;
  return crl_ngx_vary_hash(ctx->r, record->vary, record->vary_len, hash) == 0 &&
         ngx_memcmp(hash, record->hash, sizeof hash) == 0;
}

/* Takes the requests of this worker along that wait for the same key. */
static void gather(crl_ngx_stream *stream) {
  crl_ngx_ctx *ctx = crl_ngx_flights_next(stream->leader, NULL), *next;
  for (; ctx != NULL; ctx = next) {
    next = crl_ngx_flights_next(stream->leader, ctx);
    if (ctx->is_leading || !may_join(stream, ctx) || attach(stream, ctx) != 0) continue;
    crl_ngx_call_leave(ctx);
  }
}

int crl_ngx_stream_start(crl_ngx_stream *stream) {
  crl_ngx_ctx *leader = stream->leader;
  if (stream->is_started) return 1;
  if (leader->is_counted || attach(stream, leader) != 0) return 0;
  stream->is_started = 1;
  leader->is_sent = 1;
  leader->is_late = 0;
  if (!stream->is_let_go) gather(stream);
  if (stream->fill != NULL) crl_ngx_flights_offer(&stream->link, leader);
  wake(stream);
  return 1;
}

/* Runs all readers. One that ends may end others: those of the same main request. Each stays among
 * the readers meanwhile, as the subrequest may run, and free what all of them have sent. */
static void pump_all(crl_ngx_stream *stream) {
  size_t count = 0;
  for (ngx_queue_t *at = ngx_queue_head(&stream->readers);
       at != ngx_queue_sentinel(&stream->readers); at = ngx_queue_next(at))
    count++;
  for (; count > 0 && !ngx_queue_empty(&stream->readers); count--) {
    ngx_queue_t *at = ngx_queue_head(&stream->readers);
    crl_ngx_reader *reader = ngx_queue_data(at, crl_ngx_reader, link);
    ngx_connection_t *connection = reader->ctx->r->connection;
    ngx_queue_remove(at);
    ngx_queue_insert_tail(&stream->readers, at);
    ngx_http_set_log_request(connection->log, reader->ctx->r);
    if (reader->is_begun)
      pump(reader);
    else
      begin(reader);
    ngx_http_run_posted_requests(connection);
  }
}

/* Lets the subrequest go on that found no room. */
static void make_room(crl_ngx_stream *stream) {
  if (!stream->is_full || stream->sr == NULL) return;
  trim(stream);
  if (stream->body.in_memory > WINDOW / 2 && !is_starved(stream)) return;
  stream->is_full = 0;
  ngx_connection_t *connection = stream->sr->connection;
  if (ngx_http_post_request(stream->sr, NULL) == NGX_OK) ngx_http_run_posted_requests(connection);
}

static void on_wake(ngx_event_t *event) {
  crl_ngx_stream *stream = event->data;
  if (crl_ngx_stream_start(stream)) pump_all(stream);
  make_room(stream);
  if (stream->is_let_go && stream->sr != NULL) notice_leaving(stream);
  unref(stream);
}

static int copy_head(crl_ngx_stream *stream, size_t room, const corral_page *record,
                     const crl_ngx_response *response) {
  (void)corral_page_write(stream->head, record, response->fields, response->count);
  return corral_page_read(stream->head, room, &stream->record);
}

crl_ngx_stream *crl_ngx_stream_new(crl_ngx_ctx *leader, ngx_http_request_t *sr, corral_fill *fill,
                                   const crl_ngx_verdict *verdict,
                                   const crl_ngx_response *response) {
  size_t room = corral_page_size(&verdict->record, response->fields, response->count);
  crl_ngx_stream *stream = room > 0 ? calloc(1, sizeof *stream + room) : NULL;
  if (stream == NULL) return NULL;
  if (copy_head(stream, room, &verdict->record, response) != 0) {
    free(stream);
    return NULL;
  }
  stream->refs = 1;
  stream->leader = leader;
  stream->sr = sr;
  stream->fill = fill;
  stream->length = sr->headers_out.content_length_n;
  stream->wake.handler = on_wake;
  stream->wake.data = stream;
  stream->wake.log = ngx_cycle->log;
  ngx_queue_init(&stream->readers);
  stream->purges = leader->purges;
  if (!leader->is_counted) wake(stream);
  return stream;
}

const crl_ngx_body *crl_ngx_stream_body(const crl_ngx_stream *stream) { return &stream->body; }

int crl_ngx_stream_is_started(const crl_ngx_stream *stream) { return stream->is_started; }

void crl_ngx_stream_let_go(crl_ngx_stream *stream) {
  stream->is_let_go = 1;
  count_kept(stream, 0);
  stream->fill = NULL;
  crl_ngx_flights_withdraw(&stream->link);
}

void crl_ngx_stream_hold(crl_ngx_stream *stream) {
  stream->sr = NULL;
  stream->fill = NULL;
  crl_ngx_flights_withdraw(&stream->link);
  if (!stream->wake.posted) return;
  ngx_delete_posted_event(&stream->wake);
  unref(stream);
}

void crl_ngx_stream_end(crl_ngx_stream *stream, ngx_uint_t is_whole) {
  crl_ngx_stream_hold(stream);
  stream->is_whole = is_whole & 1;
  stream->is_broken = !is_whole;
  wake(stream);
}

void crl_ngx_stream_leave(crl_ngx_stream *stream) { unref(stream); }

int crl_ngx_stream_join(crl_ngx_ctx *ctx) {
  crl_ngx_flight_link *link = crl_ngx_flights_find(ctx);
  crl_ngx_stream *stream = (crl_ngx_stream *)(void *)link;
  if (link == NULL || !may_join(stream, ctx) || crl_ngx_suspend(ctx->r) != 0 ||
      attach(stream, ctx) != 0)
    return 0;
  wake(stream);
  return 1;
}
