/* conditional.c: a compute that asks its origin only whether anything has changed, by the validator
 * that the origin gave it (an ETag).
 *
 * cc -std=c11 conditional.c $(pkg-config --cflags --libs corral) -o conditional && ./conditional */
#include <corral.h>
#include <stdio.h>
#include <string.h>

/* The origin: a page that takes long to send, with an edition. */
typedef struct origin {
  unsigned edition;
  char sent[80]; /* its last answer */
} origin;

/* Answers as HTTP does: NULL, "not modified", if the caller's tag is that of the page. */
static const char *origin_get(origin *o, const void *etag, size_t etag_size, char new_etag[16],
                              char page[64]) {
  snprintf(new_etag, 16, "\"%u\"", o->edition);
  int same = etag_size == strlen(new_etag) && memcmp(etag, new_etag, etag_size) == 0;
  snprintf(o->sent, sizeof o->sent, "%s", same ? "304 not modified" : "200 and the page");
  snprintf(page, 64, "prices, edition %u", o->edition);
  return same ? NULL : page;
}

static int fetch(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  origin *o = arg;
  char etag[16], room[64];
  size_t size;
  /* NULL and 0 if there is no old value */
  const void *old_etag = corral_fill_old_validator(fill, &size);
  const char *page = origin_get(o, old_etag, size, etag, room);
  (void)key, (void)key_len;
  if (page == NULL) return corral_fill_not_modified(fill); /* etag, version and tags stay too */
  /* a late compute never stores over a later edition */
  corral_fill_version(fill, o->edition);
  int status = corral_fill_validator(fill, etag, strlen(etag));
  if (status == CORRAL_OK) status = corral_fill_tag(fill, "prices", 6);
  return status == CORRAL_OK ? corral_fill_bytes(fill, page, strlen(page)) : status;
}

static int show(corral *c, origin *o) {
  corral_error error = {0};
  corral_value *value;
  /* the grace keeps an old value in the store for the next compute to look at */
  const corral_policy *policy = CORRAL_POLICY(.ttl_ms = 60000, .sie_ms = 86400000);
  snprintf(o->sent, sizeof o->sent, "wasn't asked");
  if (corral_get_or_compute(c, "list", 4, CORRAL_CALL(.policy = policy, .error = &error), fetch, o,
                            &value) != CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  printf("%-8s %.*s, version %u; the origin: %s\n", corral_how_name(corral_value_how(value)),
         (int)corral_value_size(value), (const char *)corral_value_data(value),
         (unsigned)corral_value_version(value), o->sent);
  corral_value_unref(value);
  return 0;
}

int main(int argc, char **argv) {
  origin o = {.edition = 1};
  corral_error error = {0};
  corral *pages;
  if (corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:", .name_space = "pages"),
                  &pages, &error) != CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  int failed = show(pages, &o); /* computed: the whole page */
  failed |= show(pages, &o);    /* fresh */
  /* check again all values with the tag "prices" */
  corral_expire_tag(pages, "prices", 6, NULL);
  failed |= show(pages, &o); /* nothing has changed */
  o.edition = 2;
  corral_expire_tag(pages, "prices", 6, NULL);
  failed |= show(pages, &o); /* the new page */
  corral_close(pages);
  return failed;
}
