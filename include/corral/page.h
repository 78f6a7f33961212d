/* page.h: pages: values that are HTTP responses, with status, header and body.
 *
 *   corral_page page;
 *   if (corral_page_read(corral_value_data(value), corral_value_size(value), &page) == CORRAL_OK)
 *     show(page.status, page.body, page.body_len);
 *
 * The nginx module stores pages, an http: origin with page=1 makes them, and the command shows and
 * ends them: all of them take each other's (docs/http.md, docs/nginx.md).
 *
 * Format. A page is the bytes of a value, with numbers in little-endian, so hosts of any kind may
 * share a store. Anybody who may write into the store may write a page: what a response must not
 * have (a line's end inside a field, a length or a status of its own) is refused when it is read as
 * well as when it is written. What can't be read is refused as a whole.
 *
 * Variants. Where a response has a Vary, the page under the key itself is that of the request that
 * came first. The page of another request is the key's variant (corral_call.variant) whose name is
 * the hash of that request (corral_page_vary) in hexadecimal digits. All variants of a key have one
 * tag in common, by which corral_page_invalidate ends them with it.
 *
 * Pure, but for the last two functions: no I/O, no clock, no memory. Any function from any
 * thread. */
#ifndef CORRAL_PAGE_H
#define CORRAL_PAGE_H

#include <corral.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CORRAL_PAGE_FIELDS 256                       /* fields of a page */
#define CORRAL_PAGE_VARY 512                         /* bytes of its names of Vary */
#define CORRAL_PAGE_HASH 16                          /* bytes of the hash of a request */
#define CORRAL_PAGE_LONGEST_MS INT64_C(315360000000) /* longest life: ten years */

/* A line of a header. Texts aren't terminated. */
typedef struct corral_page_field {
  const unsigned char *name, *value;
  size_t name_len, value_len; /* at most 65,535 each */
} corral_page_field;

typedef struct corral_page {
  uint32_t status; /* 200 to 599 */
  uint32_t age_s;  /* its age when it was stored */
  /* lives at its storing, at most CORRAL_PAGE_LONGEST_MS, -1: none; ttl_ms and swr_ms are for
   * display, the store's record has those that count */
  int64_t ttl_ms, swr_ms;
  /* How long after its fresh life it may be sent when rebuilding fails; -1: never. The store may
   * have it for longer, to ask the origin whether it changed. */
  int64_t sie_ms;
  int64_t date_ms; /* its Date minus the moment of its storing */
  /* names in lower case, separated by spaces; not Accept-Encoding */
  const unsigned char *vary;
  size_t vary_len; /* at most CORRAL_PAGE_VARY */
  /* of the request's fields with these names; zeroes if there are none */
  unsigned char hash[CORRAL_PAGE_HASH];
  const unsigned char *fields; /* to be read by corral_page_next */
  size_t fields_len;
  const unsigned char *body;
  size_t body_len;
} corral_page;

/* Takes a value apart; *ret points into `data`. CORRAL_EFOREIGN: it is no page, but another kind of
 * value. CORRAL_ECORRUPT: one that corral_page_write can't have written. */
CORRAL_API int corral_page_read(const void *data, size_t size, corral_page *ret);
/* Where corral_page_next goes on; 0 at first. */
typedef size_t corral_page_cursor;
/* The next field: 1, or 0 when there are no more. */
CORRAL_API int corral_page_next(const corral_page *page, corral_page_cursor *at,
                                corral_page_field *ret);
/* True when the page may be sent stale, that long after it was stored. */
CORRAL_API int corral_page_may_be_stale(const corral_page *page, int64_t kept_ms);

/* The bytes of the whole page; 0: a part exceeds its bound, or is no part of a response. Of the
 * page's fields and body only body_len is used. */
CORRAL_API size_t corral_page_size(const corral_page *page, const corral_page_field *fields,
                                   size_t count);
/* Writes all but the body to `to`, which has room for corral_page_size; returns where the body
 * belongs. */
CORRAL_API unsigned char *corral_page_write(unsigned char *to, const corral_page *page,
                                            const corral_page_field *fields, size_t count);
/* True for fields of one connection or of one answer, and those meant for nginx: no page has
 * them. */
CORRAL_API int corral_page_leaves_out(const corral_page_field *field);
/* The name of fields by which nginx's module notes to which locations a page's request is to be
 * redirected first. An origin's field of this name is not to be stored, and none is sent to
 * clients. */
#define CORRAL_PAGE_LOCATION "Corral-Location"
/* True when both pages, each of so many bytes without its body, send the same header: they differ
 * at most in the Date, by less than a second. */
CORRAL_API int corral_page_same_head(const void *one, const void *other, size_t size);
/* Makes the header of a page that a 304 renews (RFC 9111, 3.2): `fields`, which has room for
 * CORRAL_PAGE_FIELDS and the 304's fields, gets the old page's fields before them, which take the
 * place of their like, unless they describe the body. Returns their number, *ret_old of them the
 * old page's. 0: there are too many. */
CORRAL_API size_t corral_page_merge(const corral_page *old, corral_page_field *fields, size_t count,
                                    size_t *ret_old);

/* The hash of a request: of its fields with these names (as in corral_page.vary). Lines of the same
 * name are one list, white space around commas doesn't count, and Accept-Language has no case. */
CORRAL_API void corral_page_vary(const unsigned char *names, size_t len,
                                 const corral_page_field *request, size_t count,
                                 unsigned char *ret_hash);

/* The tags that the module gives to pages: that of all variants of a key; that of all keys with
 * this beginning (corral_path_tags); a word of a response's field (corral_tag). */
enum { CORRAL_PAGE_OF_KEY = 1, CORRAL_PAGE_OF_PREFIX = 2, CORRAL_PAGE_OF_WORD = 3 };
/* Writes a tag, of CORRAL_TAG_MAX bytes at most; returns its length. */
CORRAL_API size_t corral_page_tag(int kind, const void *text, size_t len, unsigned char *ret);

/* corral_invalidate and corral_expire for a key with all the variants of its page. */
CORRAL_API int corral_page_invalidate(corral *c, const void *key, size_t key_len,
                                      const corral_call *call);
CORRAL_API int corral_page_expire(corral *c, const void *key, size_t key_len,
                                  const corral_call *call);

#ifdef __cplusplus
}
#endif

#endif
