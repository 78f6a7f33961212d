/* purge.c: purging: the handler of corral_purge, and the method PURGE of a page itself
 * (corral_purge_method).
 *
 * A request purges keys with all their variants, tags, beginnings of keys, or the whole zone. They
 * are listed first (purge_list.c). A thread of the library asks the store then; the request waits,
 * and is answered after that: what is reported as purged is gone. */
#include "purge.h"

#include <stdlib.h>

typedef struct crl_ngx_purge {
  ngx_http_request_t *r; /* NULL: the request is dead */
  crl_ngx_zone *zone;
  corral_async_call *call;
  ngx_http_cleanup_t *cleanup;
  crl_ngx_purge_list list;
  size_t found; /* keys under which there was something */
} crl_ngx_purge;

/* ---- on a thread of the library ------------------------------------------------------------ */

static int end_tag(corral *c, const unsigned char *tag, size_t len, ngx_uint_t is_soft,
                   corral_error *error) {
  return is_soft ? corral_expire_tag(c, tag, len, error)
                 : corral_invalidate_tag(c, tag, len, error);
}

/* True when the store has a page, or its rebuilding is under way. */
static int is_there(corral *c, const unsigned char *key, size_t len) {
  corral_inspection seen = {.size = sizeof seen};
  return corral_inspect(c, key, len, NULL, &seen) == CORRAL_OK &&
         ((strcmp(seen.state, "none") != 0 && strcmp(seen.state, "void") != 0) ||
          seen.lease_left_ms != 0);
}

static int end_item(corral *c, crl_ngx_purge *purge, const unsigned char *item, size_t len,
                    corral_error *error) {
  unsigned char tag[CORRAL_TAG_MAX];
  ngx_uint_t is_soft = purge->list.is_soft;
  switch (purge->list.kind) {
    case CRL_NGX_PURGE_KEY:
      purge->found += (size_t)is_there(c, item, len);
      return is_soft ? corral_page_expire(c, item, len, CORRAL_CALL(.error = error))
                     : corral_page_invalidate(c, item, len, CORRAL_CALL(.error = error));
    case CRL_NGX_PURGE_TAG:
      return end_tag(c, tag, corral_page_tag(CORRAL_PAGE_OF_WORD, item, len, tag), is_soft, error);
    case CRL_NGX_PURGE_PREFIX:
      return end_tag(c, tag, corral_page_tag(CORRAL_PAGE_OF_PREFIX, item, len, tag), is_soft,
                     error);
    default: return is_soft ? corral_expire_all(c, error) : corral_invalidate_all(c, error);
  }
}

static int work(corral *c, void *arg, corral_error *error) {
  crl_ngx_purge *purge = arg;
  const unsigned char *item;
  size_t at = 0, len;
  int status = CORRAL_OK;
  while (status == CORRAL_OK && crl_ngx_purge_next(&purge->list, &at, &item, &len))
    status = end_item(c, purge, item, len, error);
  return status;
}

/* ---- the answer ---------------------------------------------------------------------------- */

ngx_int_t crl_ngx_purge_refuse(ngx_http_request_t *r, ngx_uint_t status, const char *why) {
  ngx_str_t text;
  text.data = ngx_pnalloc(r->pool, 64 + ngx_strlen(why));
  if (text.data == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  text.len = (size_t)(ngx_sprintf(text.data, "{\"error\":\"%s\"}\n", why) - text.data);
  return crl_ngx_send_text(r, status, "application/json", &text);
}

static ngx_int_t tell(const crl_ngx_purge *purge) {
  static const char *const kinds[] = {"", "key", "tag", "prefix", "all"};
  const crl_ngx_purge_list *list = &purge->list;
  ngx_http_request_t *r = purge->r;
  ngx_str_t text;
  text.data = ngx_pnalloc(r->pool, 256 + purge->zone->name.len);
  if (text.data == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  u_char *at = crl_ngx_put_name(ngx_sprintf(text.data, "{\"zone\":\""), &purge->zone->name);
  at = ngx_sprintf(at, "\",\"kind\":\"%s\",\"soft\":%s,\"purged\":%uz", kinds[list->kind],
                   list->is_soft ? "true" : "false", list->count);
  if (list->kind == CRL_NGX_PURGE_KEY) at = ngx_sprintf(at, ",\"found\":%uz", purge->found);
  at = ngx_sprintf(at, "}\n");
  text.len = (size_t)(at - text.data);
  int is_missing = list->kind == CRL_NGX_PURGE_KEY && purge->found == 0;
  return crl_ngx_send_text(r, is_missing ? NGX_HTTP_NOT_FOUND : NGX_HTTP_OK, "application/json",
                           &text);
}

static ngx_int_t answer(const crl_ngx_purge *purge, int status, const corral_error *error) {
  if (status == CORRAL_OK) return tell(purge);
  ngx_log_error(NGX_LOG_ERR, purge->r->connection->log, 0, "corral_purge: %s",
                error->text[0] != '\0' ? error->text : corral_status_text(status));
  return status == CORRAL_EUNSUPPORTED
             ? crl_ngx_purge_refuse(purge->r, NGX_HTTP_NOT_IMPLEMENTED,
                                    purge->list.kind == CRL_NGX_PURGE_ALL
                                        ? "the zone needs generation=on"
                                        : "the store can't do it")
             : crl_ngx_purge_refuse(purge->r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                    "the store did not hear it");
}

/* ---- the call ------------------------------------------------------------------------------ */

static void on_cleanup(void *data) {
  crl_ngx_purge *purge = data;
  purge->r = NULL;
  purge->cleanup = NULL;
  if (purge->call != NULL) corral_async_call_cancel(purge->call);
  purge->call = NULL;
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  crl_ngx_purge *purge = arg;
  ngx_http_request_t *r = purge->r;
  purge->call = NULL;
  crl_ngx_zone_purged(purge->zone);
  corral_value_unref(value);
  if (r == NULL) return;
  ngx_connection_t *connection = r->connection;
  ngx_http_finalize_request(r, answer(purge, status, error));
  ngx_http_run_posted_requests(connection);
}

static void on_gone(void *arg) {
  crl_ngx_purge *purge = arg;
  crl_ngx_zone *zone = purge->zone;
  ngx_http_request_t *r = purge->r;
  crl_ngx_zone_purged(zone);
  if (purge->cleanup != NULL) purge->cleanup->handler = NULL;
  crl_ngx_purge_clean(&purge->list);
  free(purge);
  crl_ngx_zone_release(zone);
  if (r == NULL || zone->is_closing) return;
  ngx_connection_t *connection = r->connection;
  ngx_http_finalize_request(r, NGX_DONE);
  ngx_http_run_posted_requests(connection);
}

/* Takes the list. NGX_DONE: the request is held until `gone`, and `done` finalizes it; or a
 * status. */
static ngx_int_t begin(ngx_http_request_t *r, crl_ngx_zone *zone, crl_ngx_purge_list *list) {
  ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
  crl_ngx_purge *purge = cleanup != NULL ? calloc(1, sizeof *purge) : NULL;
  if (purge == NULL) {
    crl_ngx_purge_clean(list);
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
  }
  *purge = (crl_ngx_purge){.r = r, .zone = zone, .cleanup = cleanup, .list = *list};
  int status = zone->loop == NULL
                   ? CORRAL_EUNAVAILABLE
                   : corral_loop_run(zone->loop, work,
                                     CORRAL_ASYNC(.done = on_done, .gone = on_gone, .arg = purge),
                                     &purge->call, NULL);
  if (status != CORRAL_OK) {
    crl_ngx_purge_clean(&purge->list);
    free(purge);
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "corral_purge: it can't begin: %s",
                  corral_status_text(status));
    return crl_ngx_purge_refuse(r, NGX_HTTP_SERVICE_UNAVAILABLE, "it can't begin");
  }
  cleanup->data = purge;
  cleanup->handler = on_cleanup;
  crl_ngx_zone_hold(zone);
  r->main->count++;
  return NGX_DONE;
}

/* ---- requests ------------------------------------------------------------------------------ */

static ngx_int_t begin_listed(ngx_http_request_t *r) {
  crl_ngx_conf *conf = crl_ngx_conf_of(r);
  crl_ngx_purge_list list;
  const char *why = crl_ngx_purge_listed(r, &list);
  if (why != NULL) {
    crl_ngx_purge_clean(&list);
    return crl_ngx_purge_refuse(r, NGX_HTTP_BAD_REQUEST, why);
  }
  return begin(r, conf->purge, &list);
}

/* The count that reading the body took is the one that `done` gives back. */
static void on_body(ngx_http_request_t *r) {
  ngx_int_t rc = begin_listed(r);
  if (rc != NGX_DONE) ngx_http_finalize_request(r, rc);
}

ngx_int_t crl_ngx_purge_handler(ngx_http_request_t *r) {
  if (r->method != NGX_HTTP_POST && !crl_ngx_is_purge(r)) return crl_ngx_refuse_method(r);
  if (!crl_ngx_permits(r)) return NGX_HTTP_FORBIDDEN;
  if (crl_ngx_conf_of(r)->purge_kind == CRL_NGX_PURGE_REQUEST) {
    r->request_body_in_single_buf = 1;
    ngx_int_t rc = ngx_http_read_client_request_body(r, on_body);
    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
  }
  ngx_int_t rc = ngx_http_discard_request_body(r);
  if (rc != NGX_OK) return rc;
  rc = begin_listed(r);
  if (rc == NGX_DONE) r->main->count++; /* until `done`, which finalizes */
  return rc;
}

ngx_int_t crl_ngx_purge_page(ngx_http_request_t *r, const ngx_str_t *key) {
  crl_ngx_conf *conf = crl_ngx_conf_of(r);
  crl_ngx_purge_list list = {.kind = CRL_NGX_PURGE_KEY};
  if (!crl_ngx_permits(r)) return NGX_HTTP_FORBIDDEN;
  ngx_int_t rc = ngx_http_discard_request_body(r);
  if (rc != NGX_OK) return rc;
  list.is_soft = crl_ngx_purge_asks_soft(r);
  if (crl_ngx_purge_add(&list, key->data, key->len) != 0 || crl_ngx_suspend(r) != 0) {
    crl_ngx_purge_clean(&list);
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
  }
  return begin(r, conf->zone, &list);
}
