/* reply.c: replies. Nothing is trusted: every line must be a possible reply to this request, every
 * key one that was asked for and comes once, every length one that an item can have. */
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
  refusal->status = CORRAL_OK;
  int status = crl_memcached_wire_line(&h->wire, deadline, &line, error);
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

enum { LINE_END = 2 };

/* A VALUE line: the item's bytes come next. */
static int begin_value(crl_memcached_handle *h, crl_memcached_hearing *hearing, char *line,
                       corral_error *error) {
  value_line v = {0};
  int is_gets = hearing->request->command == CRL_MEMCACHED_GETS;
  if (!take_value(line, &v) || v.size > CRL_MEMCACHED_LARGEST)
    return nonsense(h, error, "a VALUE line that makes no sense");
  crl_memcached_item *item = item_of(hearing->request, hearing->items, &v);
  if (item == NULL) return nonsense(h, error, "a value came for a key that was not asked for");
  if (is_gets && !v.has_cas) return nonsense(h, error, "gets is answered without a cas id");
  if (is_gets && v.cas == 0)
    return h->host->fail(error, CORRAL_EUNSUPPORTED,
                         "%s runs without cas (-C): leases can't be guarded there",
                         h->server->name);
  item->bytes = h->host->record_new((size_t)v.size + LINE_END);
  if (item->bytes == NULL)
    return h->host->fail(error, CORRAL_ENOMEM, "no memory for a value of %llu bytes",
                         (unsigned long long)v.size);
  item->exists = 1;
  item->size = (size_t)v.size;
  item->cas = v.cas;
  hearing->item = item;
  hearing->got = 0;
  return CORRAL_OK;
}

/* Bytes of the item, and the line end behind it, that are still to come. */
static size_t rest_of(const crl_memcached_hearing *hearing) {
  return hearing->item->size + LINE_END - hearing->got;
}

static int end_value(crl_memcached_handle *h, crl_memcached_hearing *hearing, corral_error *error) {
  const crl_memcached_item *item = hearing->item;
  if (memcmp(item->bytes + item->size, "\r\n", LINE_END) != 0)
    return nonsense(h, error, "a value is longer than was said");
  hearing->item = NULL;
  return CORRAL_OK;
}

static int hear_value(crl_memcached_handle *h, crl_memcached_hearing *hearing,
                      corral_error *error) {
  size_t have = h->wire.end - h->wire.start, rest = rest_of(hearing);
  if (have > rest) have = rest;
  memcpy(hearing->item->bytes + hearing->got, h->wire.in + h->wire.start, have);
  h->wire.start += have;
  hearing->got += have;
  return have == rest ? end_value(h, hearing, error) : CORRAL_OK;
}

void crl_memcached_hearing_begin(crl_memcached_hearing *hearing,
                                 const crl_memcached_request *request, crl_memcached_item *items) {
  memset(items, 0, request->count * sizeof *items);
  hearing->request = request;
  hearing->items = items;
  hearing->item = NULL;
  hearing->got = 0;
  hearing->done = 0;
  hearing->refusal.status = CORRAL_OK;
}

int crl_memcached_hearing_there(crl_memcached_handle *h, crl_memcached_hearing *hearing,
                                corral_error *error) {
  for (;;) {
    char *line;
    int status = hearing->item != NULL ? hear_value(h, hearing, error) : CORRAL_OK;
    if (status != CORRAL_OK || hearing->item != NULL) return status;
    status = crl_memcached_wire_line_there(&h->wire, &line, error);
    if (status != CORRAL_OK || line == NULL) return status;
    hearing->done = strcmp(line, "END") == 0;
    if (hearing->done) return CORRAL_OK;
    if (!starts(line, "VALUE ")) {
      hearing->done = 1;
      return refused(h, line, &hearing->refusal, error);
    }
    status = begin_value(h, hearing, line, error);
    if (status != CORRAL_OK) return status;
  }
}

/* The room for the bytes that come next: in the item itself, so that nothing is copied, where they
 * all are its own. */
static size_t room_of(crl_memcached_handle *h, const crl_memcached_hearing *hearing, char **to) {
  if (hearing->item == NULL) return crl_memcached_wire_room(&h->wire, to);
  *to = (char *)hearing->item->bytes + hearing->got;
  return rest_of(hearing);
}

static int came(crl_memcached_handle *h, crl_memcached_hearing *hearing, size_t got,
                corral_error *error) {
  if (hearing->item == NULL)
    h->wire.end += got;
  else if ((hearing->got += got) == hearing->item->size + LINE_END)
    return end_value(h, hearing, error);
  return CORRAL_OK;
}

int crl_memcached_hearing_take(crl_memcached_handle *h, crl_memcached_hearing *hearing, size_t *got,
                               corral_error *error) {
  char *to;
  size_t room = room_of(h, hearing, &to);
  int status = crl_memcached_wire_take(&h->wire, to, room, got, error);
  return status == CORRAL_OK ? came(h, hearing, *got, error) : status;
}

void crl_memcached_hearing_drop(const crl_memcached_handle *h, crl_memcached_hearing *hearing) {
  for (size_t i = 0; i < hearing->request->count; i++) {
    h->host->record_drop(hearing->items[i].bytes);
    hearing->items[i] = (crl_memcached_item){.exists = 0};
  }
}

static int hear_all(crl_memcached_handle *h, crl_memcached_hearing *hearing, int64_t deadline,
                    corral_error *error) {
  int status;
  while ((status = crl_memcached_hearing_there(h, hearing, error)) == CORRAL_OK && !hearing->done) {
    char *to;
    size_t got, room = room_of(h, hearing, &to);
    status = crl_memcached_wire_receive(&h->wire, to, room, deadline, &got, error);
    if (status == CORRAL_OK) status = came(h, hearing, got, error);
    if (status != CORRAL_OK) break;
  }
  return status;
}

int crl_memcached_hear_items(crl_memcached_handle *h, const crl_memcached_request *request,
                             crl_memcached_item *items, int64_t deadline,
                             crl_memcached_refusal *refusal, corral_error *error) {
  crl_memcached_hearing hearing;
  crl_memcached_hearing_begin(&hearing, request, items);
  int status = hear_all(h, &hearing, deadline, error);
  refusal->status = hearing.refusal.status;
  if (refusal->status != CORRAL_OK) *refusal = hearing.refusal;
  if (status != CORRAL_OK || refusal->status != CORRAL_OK) crl_memcached_hearing_drop(h, &hearing);
  return status;
}
