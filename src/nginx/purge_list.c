/* purge_list.c: lists what a request purges. `corral_purge ZONE` leaves that to the request: to its
 * fields Corral-Key, Corral-Tag, Corral-Prefix, Corral-All; else to its body, with a key in each
 * line; else to its arguments key, tag, prefix, all, which are decoded. */
#include "purge.h"

#include <stdlib.h>

/* ---- items --------------------------------------------------------------------------------- */

int crl_ngx_purge_add(crl_ngx_purge_list *list, const u_char *item, size_t len) {
  size_t more = sizeof len + len;
  if (list->room - list->size < more) {
    size_t room = 2 * list->room + more;
    unsigned char *items = realloc(list->items, room);
    if (items == NULL) return -1;
    list->items = items;
    list->room = room;
  }
  ngx_memcpy(list->items + list->size, &len, sizeof len);
  ngx_memcpy(list->items + list->size + sizeof len, item, len);
  list->size += more;
  list->count++;
  return 0;
}

int crl_ngx_purge_next(const crl_ngx_purge_list *list, size_t *at, const unsigned char **item,
                       size_t *len) {
  if (*at == list->size) return 0;
  ngx_memcpy(len, list->items + *at, sizeof *len);
  *item = list->items + *at + sizeof *len;
  *at += sizeof *len + *len;
  return 1;
}

void crl_ngx_purge_clean(crl_ngx_purge_list *list) {
  free(list->items);
  list->items = NULL;
  list->size = list->room = list->count = 0;
}

/* ---- a text -------------------------------------------------------------------------------- */

static const char no_memory[] = "out of memory";

static const char *add(crl_ngx_purge_list *list, const u_char *item, size_t len) {
  return crl_ngx_purge_add(list, item, len) == 0 ? NULL : no_memory;
}

static const char *add_key(crl_ngx_purge_list *list, const u_char *key, size_t len) {
  if (len == 0) return "no key";
  return len > CORRAL_KEY_MAX ? "the key is too long" : add(list, key, len);
}

static const char *add_tags(crl_ngx_purge_list *list, const ngx_str_t *text) {
  size_t len;
  const char *why = NULL;
  for (size_t at = 0; why == NULL && (len = crl_http_word((char *)text->data, text->len, &at)) > 0;
       at += len)
    why = add(list, text->data + at, len);
  return why != NULL ? why : list->count > 0 ? NULL : "no tag";
}

/* Pages have tags for beginnings of so many levels only: a deeper one would purge nothing. */
static const char *add_prefix(crl_ngx_purge_list *list, const crl_ngx_conf *conf,
                              const ngx_str_t *text) {
  size_t end = 0;
  ngx_int_t levels = 0;
  for (size_t next; (next = crl_http_beginning((const char *)text->data, text->len, end)) > 0;
       levels++)
    end = next;
  if (text->len == 0 || end != text->len) return "a prefix ends with a slash, and has no arguments";
  if (levels > conf->path_tags) return "the prefix has more levels than corral_path_tags";
  return add(list, text->data, text->len);
}

static const char *add_text(crl_ngx_purge_list *list, const crl_ngx_conf *conf,
                            const ngx_str_t *text) {
  switch (list->kind) {
    case CRL_NGX_PURGE_TAG: return add_tags(list, text);
    case CRL_NGX_PURGE_PREFIX: return add_prefix(list, conf, text);
    case CRL_NGX_PURGE_ALL: return add(list, (const u_char *)"", 0);
    default: return add_key(list, text->data, text->len);
  }
}

/* ---- a request ----------------------------------------------------------------------------- */

static ngx_uint_t is_yes(const ngx_str_t *text) {
  return text->len > 0 && !(text->len == 1 && text->data[0] == '0');
}

ngx_uint_t crl_ngx_purge_asks_soft(ngx_http_request_t *r) {
  ngx_table_elt_t *field = crl_ngx_request_field(r, "Corral-Soft");
  return crl_ngx_conf_of(r)->purge_soft || (field != NULL && is_yes(&field->value));
}

static const struct {
  ngx_uint_t kind;
  const char *field, *argument;
} sources[] = {{CRL_NGX_PURGE_KEY, "Corral-Key", "key"},
               {CRL_NGX_PURGE_TAG, "Corral-Tag", "tag"},
               {CRL_NGX_PURGE_PREFIX, "Corral-Prefix", "prefix"},
               {CRL_NGX_PURGE_ALL, "Corral-All", "all"}};
enum { SOURCES = sizeof sources / sizeof sources[0] };

/* Sets *text to the request's field; 0: it has none. */
static int field_of(ngx_http_request_t *r, size_t source, ngx_str_t *text) {
  ngx_table_elt_t *field = crl_ngx_request_field(r, sources[source].field);
  if (field == NULL) return 0;
  *text = field->value;
  return 1;
}

static int argument_of(ngx_http_request_t *r, size_t source, ngx_str_t *text) {
  ngx_str_t given;
  const char *name = sources[source].argument;
  if (ngx_http_arg(r, (u_char *)name, ngx_strlen(name), &given) != NGX_OK) return 0;
  u_char *from = given.data, *to = text->data = ngx_pnalloc(r->pool, given.len + 1);
  if (to == NULL) return 0;
  ngx_unescape_uri(&to, &from, given.len, 0);
  text->len = (size_t)(to - text->data);
  return 1;
}

/* The body in memory; 0: there is none. */
static int body_of(ngx_http_request_t *r, ngx_str_t *text) {
  const ngx_chain_t *bufs = r->request_body != NULL ? r->request_body->bufs : NULL;
  if (bufs == NULL || !ngx_buf_in_memory(bufs->buf)) return 0;
  text->data = bufs->buf->pos;
  text->len = (size_t)(bufs->buf->last - bufs->buf->pos);
  return text->len > 0;
}

static const char *add_lines(crl_ngx_purge_list *list, const ngx_str_t *body) {
  const u_char *at = body->data, *end = at + body->len;
  const char *why = NULL;
  while (why == NULL && at < end) {
    const u_char *line = memchr(at, '\n', (size_t)(end - at)), *stop = line != NULL ? line : end;
    const u_char *last = stop > at && stop[-1] == '\r' ? stop - 1 : stop;
    if (last > at) why = add_key(list, at, (size_t)(last - at));
    at = stop + 1;
  }
  return why != NULL ? why : list->count > 0 ? NULL : "no key";
}

static const char *list_by(ngx_http_request_t *r, crl_ngx_purge_list *list,
                           int (*text_of)(ngx_http_request_t *, size_t, ngx_str_t *)) {
  ngx_str_t text, found = ngx_null_string;
  for (size_t i = 0; i < SOURCES; i++) {
    if (!text_of(r, i, &text)) continue;
    if (list->kind != CRL_NGX_PURGE_REQUEST) return "more than one of key, tag, prefix and all";
    list->kind = sources[i].kind;
    found = text;
  }
  if (list->kind == CRL_NGX_PURGE_ALL && !is_yes(&found)) return "all has to be 1";
  return list->kind != CRL_NGX_PURGE_REQUEST ? add_text(list, crl_ngx_conf_of(r), &found) : NULL;
}

static const char *list_request(ngx_http_request_t *r, crl_ngx_purge_list *list) {
  ngx_str_t body;
  const char *why = list_by(r, list, field_of);
  if (why != NULL || list->kind != CRL_NGX_PURGE_REQUEST) return why;
  if (r->request_body != NULL && r->request_body->temp_file != NULL)
    return "the body is larger than client_body_buffer_size";
  if (body_of(r, &body)) {
    list->kind = CRL_NGX_PURGE_KEY;
    return add_lines(list, &body);
  }
  why = list_by(r, list, argument_of);
  return why == NULL && list->kind == CRL_NGX_PURGE_REQUEST ? "no key, tag, prefix or all" : why;
}

const char *crl_ngx_purge_listed(ngx_http_request_t *r, crl_ngx_purge_list *list) {
  crl_ngx_conf *conf = crl_ngx_conf_of(r);
  ngx_str_t text = ngx_null_string;
  ngx_memzero(list, sizeof *list);
  list->kind = conf->purge_kind;
  list->is_soft = crl_ngx_purge_asks_soft(r);
  if (list->kind == CRL_NGX_PURGE_REQUEST) return list_request(r, list);
  if (conf->purge_key != NULL && ngx_http_complex_value(r, conf->purge_key, &text) != NGX_OK)
    return no_memory;
  return add_text(list, conf, &text);
}
