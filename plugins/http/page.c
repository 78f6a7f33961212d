/* page.c: the value of page=1: a page (corral/page.h), as the nginx module makes one of the same
 * answer: the fields that it stores, the hash of this request where the answer has a Vary, the
 * tags. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "http.h"

enum { SENT = 64 }; /* most fields of a request that are hashed */

typedef struct header {
  corral_page_field fields[CORRAL_PAGE_FIELDS];
  size_t count;
  int is_elsewhere; /* it names another location of nginx's, whose page is the answer */
} header;

static int is_named(const corral_page_field *field, const char *name) {
  return strlen(name) == field->name_len &&
         strncasecmp((const char *)field->name, name, field->name_len) == 0;
}

/* A line "Name: value", without the spaces around the value. */
static corral_page_field field_of(const char *line, size_t len) {
  const char *colon = memchr(line, ':', len), *end = line + len;
  if (colon == NULL) return (corral_page_field){.name_len = 0};
  const char *value = colon + 1;
  while (value < end && (*value == ' ' || *value == '\t')) value++;
  while (end > value && (unsigned char)end[-1] <= ' ') end--;
  return (corral_page_field){.name = (const unsigned char *)line,
                             .name_len = (size_t)(colon - line),
                             .value = (const unsigned char *)value,
                             .value_len = (size_t)(end - value)};
}

/* ---- the response's header ----------------------------------------------------------------- */

int crl_http_page_connection(crl_http_transfer *t, const char *value, size_t len) {
  size_t used = strlen(t->named), size;
  for (size_t at = 0; (size = crl_http_word(value, len, &at)) > 0; at += size) {
    if (used + size + 2 > sizeof t->named) return 0;
    if (used > 0) t->named[used++] = ' ';
    memcpy(t->named + used, value + at, size);
    used += size;
    t->named[used] = '\0';
  }
  return 1;
}

static int is_dropped(const crl_http_transfer *t, const corral_page_field *field) {
  return is_named(field, "set-cookie") || is_named(field, CORRAL_PAGE_LOCATION) ||
         t->origin->host->page->leaves_out(field) ||
         crl_http_names_have(t->named, (const char *)field->name, field->name_len);
}

/* Reads the lines before the body; 0: there are too many. */
static int read_header(const crl_http_transfer *t, header *h) {
  const char *at = t->body, *end = at + t->body_at;
  h->count = 0;
  h->is_elsewhere = 0;
  while (at < end) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t len = stop != NULL ? (size_t)(stop - at) : (size_t)(end - at);
    corral_page_field field = field_of(at, len);
    at += len + 1;
    if (is_named(&field, "x-accel-redirect")) h->is_elsewhere = 1;
    if (field.name_len == 0 || is_dropped(t, &field)) continue;
    if (h->count == CORRAL_PAGE_FIELDS) return 0;
    h->fields[h->count++] = field;
  }
  return 1;
}

/* ---- this request -------------------------------------------------------------------------- */

/* The hash of the request that was sent, with the fields that libcurl adds. */
static void hash_request(const crl_http_transfer *t, corral_page *page) {
  static const char *const added[] = {"Accept: */*", "User-Agent: corral/" CORRAL_VERSION};
  corral_page_field sent[SENT];
  size_t count = 0;
  for (const struct curl_slist *line = t->sent; line != NULL && count < SENT; line = line->next)
    sent[count++] = field_of(line->data, strlen(line->data));
  for (size_t i = 0, given = count; i < sizeof added / sizeof *added && count < SENT; i++) {
    corral_page_field field = field_of(added[i], strlen(added[i]));
    int is_sent = 0;
    for (size_t j = 0; j < given; j++)
      is_sent |=
          sent[j].name_len == field.name_len &&
          strncasecmp((const char *)sent[j].name, (const char *)field.name, field.name_len) == 0;
    if (!is_sent) sent[count++] = field;
  }
  t->origin->host->page->vary(page->vary, page->vary_len, sent, count, page->hash);
}

/* ---- tags ---------------------------------------------------------------------------------- */

static int add_tag(const crl_http_transfer *t, int kind, const void *text, size_t len) {
  unsigned char tag[CORRAL_TAG_MAX];
  size_t size = t->origin->host->page->tag(kind, text, len, tag);
  return t->origin->calls->tag(t->fill, tag, size);
}

/* The tags by which the module finds a page. CORRAL_OK; CORRAL_ETOOBIG: too many;
 * CORRAL_ENOMEM. */
static int add_tags(const crl_http_transfer *t, const header *h) {
  const crl_http_origin *o = t->origin;
  const char *key = t->key, *line = memchr(key, '\n', t->key_len);
  size_t end = 0, key_len = line != NULL ? (size_t)(line - key) : t->key_len;
  int status = CORRAL_OK;
  for (int64_t i = 0; i < o->path_tags && status == CORRAL_OK; i++) {
    end = crl_http_beginning(key, key_len, end);
    if (end == 0) break;
    status = add_tag(t, CORRAL_PAGE_OF_PREFIX, key, end);
  }
  for (size_t i = 0; i < h->count && status == CORRAL_OK; i++) {
    const corral_page_field *field = &h->fields[i];
    const char *list = (const char *)field->value;
    size_t len;
    if (!crl_http_names_have(o->tags, (const char *)field->name, field->name_len)) continue;
    for (size_t at = 0;
         status == CORRAL_OK && (len = crl_http_word(list, field->value_len, &at)) > 0; at += len)
      status = add_tag(t, CORRAL_PAGE_OF_WORD, list + at, len);
  }
  return status;
}

/* ---- the page ------------------------------------------------------------------------------ */

static int64_t life(int64_t said, int64_t policy) {
  int64_t ms = said != 0 ? said : policy;
  if (ms < 0) return -1;
  return ms < CORRAL_PAGE_LONGEST_MS ? ms : CORRAL_PAGE_LONGEST_MS;
}

/* The page's head, of a response that isn't one of the old page. `names` has room for its Vary. */
static corral_page head_of(const crl_http_transfer *t, const crl_http_lives *lives,
                           unsigned char names[CRL_HTTP_VARY]) {
  int64_t ttl = 0, swr = 0, sie = 0, age = t->rules.age > 0 ? t->rules.age : 0;
  t->origin->calls->policy_lives(t->fill, &ttl, &swr, &sie);
  corral_page page = {.status = (uint32_t)t->status,
                      .age_s = (uint32_t)(age < INT32_MAX ? age : INT32_MAX),
                      .ttl_ms = life(lives->ttl, ttl),
                      .swr_ms = life(lives->swr, swr),
                      .sie_ms = life(lives->sie, sie),
                      .date_ms = crl_http_date_apart(&t->rules, CORRAL_PAGE_LONGEST_MS),
                      .vary = names,
                      .vary_len = crl_http_vary_names(t->rules.vary, names)};
  if (t->len > t->body_at) page.body = (const unsigned char *)t->body + t->body_at;
  page.body_len = t->len - t->body_at;
  return page;
}

/* Makes the old page's header that of the new one, where the 304 doesn't say otherwise. */
static int renew(const crl_http_transfer *t, corral_page *page, header *h) {
  size_t kept;
  h->count = t->origin->host->page->merge(&t->old_page, h->fields, h->count, &kept);
  page->status = t->old_page.status;
  page->body = t->old_page.body;
  page->body_len = t->old_page.body_len;
  if (page->vary_len > 0) return h->count > 0;
  page->vary = t->old_page.vary;
  page->vary_len = t->old_page.vary_len;
  return h->count > 0;
}

int crl_http_page_fill(crl_http_transfer *t, crl_http_lives *lives) {
  const corral_page_calls *calls = t->origin->host->page;
  unsigned char names[CRL_HTTP_VARY];
  header *h = malloc(sizeof *h);
  if (h == NULL) return CORRAL_ENOMEM;
  corral_page page = head_of(t, lives, names);
  int status = CORRAL_EINVAL;
  if (read_header(t, h) && (t->status != 304 || renew(t, &page, h))) {
    if (page.vary_len > 0) hash_request(t, &page);
    size_t size = calls->room(&page, h->fields, h->count);
    unsigned char *to = size > 0 ? t->origin->calls->reserve(t->fill, size) : NULL;
    if (to != NULL) status = add_tags(t, h);
    if (to != NULL && status == CORRAL_ETOOBIG) {
      t->origin->calls->pass(t->fill); /* a purge could miss it */
      status = CORRAL_OK;
    } else if (size > 0 && to == NULL) {
      status = CORRAL_ETOOBIG;
    }
    if (to != NULL) to = calls->write(to, &page, h->fields, h->count);
    if (to != NULL && page.body_len > 0) memcpy(to, page.body, page.body_len);
    if (h->is_elsewhere) *lives = (crl_http_lives){CORRAL_OFF, CORRAL_OFF, CORRAL_OFF};
  }
  free(h);
  return status;
}
