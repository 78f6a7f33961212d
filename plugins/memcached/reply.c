/* reply.c: replies. Nothing is trusted: every line must be a possible reply to this request, every
 * key one that was asked for and comes once, every length one that an item can have. */
#include <stdlib.h>

#include "memcached.h"

/* ---- error lines --------------------------------------------------------------------------- */

static int starts(const char *line, const char *with) {
  return strncmp(line, with, strlen(with)) == 0;
}

/* Meanings of error lines; the first row that the line starts with counts. */
static const struct meaning {
  const char *start;
  int status, fatal;
} meanings[] = {
    {"SERVER_ERROR object too large", CORRAL_ETOOBIG, 0},
    {"SERVER_ERROR out of memory", CORRAL_EREFUSED, 0},
    {"SERVER_ERROR Out of memory", CORRAL_EREFUSED, 0},
    {"SERVER_ERROR", CORRAL_EINDOUBT, 0}, /* also from a proxy that lost its server */
    {"CLIENT_ERROR unauthenticated", CORRAL_EAUTH, 1},
    {"CLIENT_ERROR authentication", CORRAL_EAUTH, 1},
    /* the request was right, so server and plugin are out of step */
    {"CLIENT_ERROR", CORRAL_EPROTOCOL, 1},
    /* the server may take the value that followed for commands */
    {"ERROR", CORRAL_EUNSUPPORTED, 1},
};

int crl_memcached_is_error(const char *line, crl_memcached_refusal *refusal, int *fatal) {
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
    if (!starts(line, meanings[i].start)) continue;
    size_t len = strlen(line);
    if (len >= sizeof refusal->text) len = sizeof refusal->text - 1;
    for (size_t at = 0; at < len; at++)
      refusal->text[at] = (char)(line[at] >= ' ' && line[at] <= '~' ? line[at] : '?');
    refusal->text[len] = '\0';
    refusal->status = meanings[i].status;
    *fatal = meanings[i].fatal;
    return 1;
  }
  return 0;
}

static int nonsense(const crl_memcached_handle *h, corral_error *error, const char *what) {
  return h->host->fail(error, CORRAL_EPROTOCOL, "%s: %s", h->server->name, what);
}

/* Handles a line that is no expected reply. CORRAL_OK: the connection can still be used. */
static int refused(const crl_memcached_handle *h, const char *line, crl_memcached_refusal *refusal,
                   corral_error *error) {
  int fatal;
  if (!crl_memcached_is_error(line, refusal, &fatal))
    return nonsense(h, error, "the reply is not one of a memcached server");
  return fatal ? h->host->fail(error, refusal->status, "%s: %s", h->server->name, refusal->text)
               : CORRAL_OK;
}

/* ---- add, cas ------------------------------------------------------------------------------ */

int crl_memcached_hear_word(crl_memcached_handle *h, const crl_memcached_request *request,
                            int64_t deadline, crl_memcached_word *word,
                            crl_memcached_refusal *refusal, corral_error *error) {
  static const char *const words[] = {[CRL_MEMCACHED_STORED] = "STORED",
                                      [CRL_MEMCACHED_NOT_STORED] = "NOT_STORED",
                                      [CRL_MEMCACHED_EXISTS] = "EXISTS",
                                      [CRL_MEMCACHED_NOT_FOUND] = "NOT_FOUND"};
  /* EXISTS and NOT_FOUND are replies to cas only */
  size_t possible = request->command == CRL_MEMCACHED_ADD ? 2 : sizeof words / sizeof *words;
  char *line;
  size_t len;
  refusal->status = CORRAL_OK;
  int status = crl_memcached_wire_line(&h->wire, deadline, &line, &len, error);
  if (status != CORRAL_OK) return status;
  *word = CRL_MEMCACHED_REFUSED;
  for (size_t i = 0; i < possible; i++)
    if (strcmp(line, words[i]) == 0) *word = (crl_memcached_word)i;
  return *word == CRL_MEMCACHED_REFUSED ? refused(h, line, refusal, error) : CORRAL_OK;
}

/* ---- get, gets ----------------------------------------------------------------------------- */

/* Reads a number and the space or line end behind it; 0: it isn't one. */
static int take_number(char **at, uint64_t *ret) {
  uint64_t number = 0;
  char *p = *at;
  if (*p == '\0') return 0;
  for (; *p >= '0' && *p <= '9'; p++)
    if (__builtin_mul_overflow(number, 10u, &number) ||
        __builtin_add_overflow(number, (uint64_t)(*p - '0'), &number))
      return 0;
  if (p == *at || (*p != ' ' && *p != '\0')) return 0;
  *at = *p == ' ' ? p + 1 : p;
  *ret = number;
  return 1;
}

typedef struct value_line {
  const char *key;
  size_t key_len;
  uint64_t size, cas;
  int has_cas;
} value_line;

/* "VALUE key flags bytes [cas]" */
static int take_value(char *line, value_line *v) {
  char *at = line + 6, *space = strchr(at, ' ');
  uint64_t flags;
  if (space == NULL || space == at) return 0;
  v->key = at;
  v->key_len = (size_t)(space - at);
  at = space + 1;
  if (!take_number(&at, &flags) || !take_number(&at, &v->size)) return 0;
  v->has_cas = *at != '\0';
  return (!v->has_cas || take_number(&at, &v->cas)) && *at == '\0';
}

/* The item that a VALUE belongs to; NULL: it wasn't asked for, or came before. */
static crl_memcached_item *item_of(const crl_memcached_request *request, crl_memcached_item *items,
                                   const value_line *v) {
  for (size_t i = 0; i < request->count; i++) {
    const crl_memcached_key *key = request->keys[i];
    if (key->len == v->key_len && memcmp(key->text, v->key, v->key_len) == 0)
      return items[i].exists ? NULL : &items[i];
  }
  return NULL;
}

static int hear_value(crl_memcached_handle *h, const crl_memcached_request *request,
                      crl_memcached_item *items, char *line, int64_t deadline,
                      corral_error *error) {
  value_line v = {0};
  char end[2];
  if (!take_value(line, &v) || v.size > CRL_MEMCACHED_LARGEST)
    return nonsense(h, error, "a VALUE line that makes no sense");
  crl_memcached_item *item = item_of(request, items, &v);
  if (item == NULL) return nonsense(h, error, "a value came for a key that was not asked for");
  if (request->command == CRL_MEMCACHED_GETS && !v.has_cas)
    return nonsense(h, error, "gets is answered without a cas id");
  if (request->command == CRL_MEMCACHED_GETS && v.cas == 0)
    return h->host->fail(error, CORRAL_EUNSUPPORTED,
                         "%s runs without cas (-C): leases can't be guarded there",
                         h->server->name);
  item->bytes = malloc(v.size > 0 ? v.size : 1);
  if (item->bytes == NULL)
    return h->host->fail(error, CORRAL_ENOMEM, "no memory for a value of %llu bytes",
                         (unsigned long long)v.size);
  item->exists = 1;
  item->size = v.size;
  item->cas = v.cas;
  int status = crl_memcached_wire_bytes(&h->wire, item->bytes, v.size, deadline, error);
  if (status == CORRAL_OK)
    status = crl_memcached_wire_bytes(&h->wire, end, sizeof end, deadline, error);
  if (status == CORRAL_OK && memcmp(end, "\r\n", 2) != 0)
    return nonsense(h, error, "a value is longer than was said");
  return status;
}

static int hear_all(crl_memcached_handle *h, const crl_memcached_request *request,
                    crl_memcached_item *items, int64_t deadline, crl_memcached_refusal *refusal,
                    corral_error *error) {
  for (;;) {
    char *line;
    size_t len;
    int status = crl_memcached_wire_line(&h->wire, deadline, &line, &len, error);
    if (status != CORRAL_OK) return status;
    if (strcmp(line, "END") == 0) return CORRAL_OK;
    if (!starts(line, "VALUE ")) return refused(h, line, refusal, error);
    status = hear_value(h, request, items, line, deadline, error);
    if (status != CORRAL_OK) return status;
  }
}

int crl_memcached_hear_items(crl_memcached_handle *h, const crl_memcached_request *request,
                             crl_memcached_item *items, int64_t deadline,
                             crl_memcached_refusal *refusal, corral_error *error) {
  memset(items, 0, request->count * sizeof *items);
  refusal->status = CORRAL_OK;
  int status = hear_all(h, request, items, deadline, refusal, error);
  for (size_t i = 0; i < request->count && (status != CORRAL_OK || refusal->status != CORRAL_OK);
       i++) {
    free(items[i].bytes);
    items[i].bytes = NULL;
    items[i].exists = 0;
  }
  return status;
}
