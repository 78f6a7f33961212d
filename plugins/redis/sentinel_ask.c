/* sentinel_ask.c: asking sentinels for the primary, and hearing of another one.
 *
 * Sentinels are asked one after the other, beginning with the one that was right the last time,
 * until one names a server that says itself that it is the primary. One may be down, be behind, or
 * not know the name: then the next one is asked.
 *
 * The connection on which a sentinel was right stays open as the bell: in the same write as the
 * question it asked to be told of each switch, so none is missed in between. Sentinels tell of the
 * switch when the replica is promoted, while the former primary may go on to take writes for many
 * seconds more, until it is reached and made a replica. */
#include <stdlib.h>

#include "sentinel.h"

static const char channel[] = "+switch-master";

static crl_redis_sentinel *of(crl_redis_cluster *c) { return (crl_redis_sentinel *)(void *)c; }

/* ---- reading ------------------------------------------------------------------------------- */

static int is_text(const crl_redis_token *t, const char *text) {
  return (t->type == '$' || t->type == '+') && t->len == strlen(text) &&
         memcmp(t->text, text, t->len) == 0;
}

/* Sets the port; 0: the text is none. */
static int read_port(const char *text, size_t len, crl_redis_place *ret) {
  int port = 0;
  for (size_t i = 0; i < len; i++) {
    if (text[i] < '0' || text[i] > '9' || i >= 5) return 0;
    port = 10 * port + text[i] - '0';
  }
  ret->port = port;
  return port >= 1 && port <= 65535;
}

int crl_redis_sentinel_place(crl_redis_message m, crl_redis_place *ret) {
  crl_redis_token list, host, port;
  memset(ret, 0, sizeof *ret);
  if (!crl_redis_message_next(&m, &list)) return -1;
  if (list.type == '_') return 0;
  if (list.type != '*' || list.number != 2 || !crl_redis_message_next(&m, &host) ||
      !crl_redis_message_next(&m, &port) || port.type != '$')
    return -1;
  return host.len > 0 && crl_redis_token_copy(&host, ret->host, sizeof ret->host) &&
                 read_port(port.text, port.len, ret)
             ? 1
             : -1;
}

/* Takes the next word of a text; 0: there is none. */
static int next_word(const char **at, const char *end, const char **word, size_t *len) {
  while (*at < end && **at == ' ') ++*at;
  *word = *at;
  while (*at < end && **at != ' ') ++*at;
  *len = (size_t)(*at - *word);
  return *len > 0;
}

/* The text is "NAME FORMER-HOST FORMER-PORT HOST PORT". */
int crl_redis_sentinel_told(crl_redis_message m, const char *master, crl_redis_place *ret) {
  enum { NAME, HOST = 3, PORT, WORDS };
  crl_redis_token list, word, text;
  const char *words[WORDS];
  size_t lens[WORDS];
  memset(ret, 0, sizeof *ret);
  if (!crl_redis_message_next(&m, &list) || (list.type != '*' && list.type != '>') ||
      list.number != 3 || !crl_redis_message_next(&m, &word) || !is_text(&word, "message") ||
      !crl_redis_message_next(&m, &word) || !is_text(&word, channel) ||
      !crl_redis_message_next(&m, &text) || text.type != '$')
    return 0;
  const char *at = text.text, *end = at + text.len;
  for (int i = 0; i < WORDS; i++)
    if (!next_word(&at, end, &words[i], &lens[i])) return 0;
  crl_redis_token host = {.type = '$', .text = words[HOST], .len = lens[HOST]};
  return lens[NAME] == strlen(master) && memcmp(words[NAME], master, lens[NAME]) == 0 &&
         crl_redis_token_copy(&host, ret->host, sizeof ret->host) &&
         read_port(words[PORT], lens[PORT], ret);
}

/* ---- the primary --------------------------------------------------------------------------- */

/* From now on the primary is at this place. 1: it was another one, or none; -1: no memory. */
static int take_over(crl_redis_sentinel *s, const crl_redis_place *place) {
  crl_redis_cluster *c = &s->cluster;
  pthread_mutex_lock(&c->mutex);
  size_t number = crl_redis_node_meet_locked(c, place),
         former = crl_redis_slot_number(crl_redis_slot_entry(c, 0));
  int changed = number != 0 ? crl_redis_slot_give(c, 0, number) : -1;
  for (size_t i = 1; i < CRL_REDIS_NODES && changed > 0; i++) {
    crl_redis_node *n = atomic_load(&c->nodes[i]);
    if (n != NULL) n->has_slots = i == number;
  }
  atomic_store(&c->has_map, 1);
  pthread_mutex_unlock(&c->mutex);
  if (changed <= 0) return changed;
  if (former != CRL_REDIS_FRONT_DOOR) atomic_store(&s->untold, 1);
  crl_redis_slots_moved(c);
  return 1;
}

/* Connects to a place that a sentinel named: the greeting asks whether it is the primary. */
static int verify(crl_redis_sentinel *s, const crl_redis_place *place, int64_t deadline,
                  void **ret_handle, corral_error *error) {
  crl_redis_cluster *c = &s->cluster;
  size_t number = crl_redis_node_meet(c, place);
  crl_redis_node *node = number != 0 ? crl_redis_node_hold(c, number) : NULL;
  if (node == NULL)
    return c->base.host->fail(error, CORRAL_ENOMEM, "%.80s: no room for one more server",
                              c->base.name);
  return crl_redis_connect(&node->store, deadline, ret_handle, error);
}

/* ---- the bell ------------------------------------------------------------------------------ */

/* Takes all that has come. 0: the bell is of no more use. */
static int hear_bell(crl_redis_sentinel *s) {
  crl_redis_message m;
  crl_redis_place place;
  size_t size, got;
  short want;
  for (;;) {
    int whole = crl_redis_resp_next(&s->rung, &m);
    if (whole < 0) return 0;
    if (whole > 0) {
      if (crl_redis_sentinel_told(m, s->master, &place)) (void)take_over(s, &place);
      continue;
    }
    char *room = crl_redis_resp_room(&s->rung, &size);
    if (room == NULL ||
        crl_redis_wire_take(&s->bell->wire, room, size, &got, &want, NULL) != CORRAL_OK)
      return 0;
    if (got == 0) return 1;
    crl_redis_resp_feed(&s->rung, got);
  }
}

static void take_down(crl_redis_sentinel *s) {
  if (s->bell == NULL) return;
  atomic_store(&s->bell_fd, -1);
  crl_redis_disconnect(s->bell);
  crl_redis_resp_free(&s->rung);
  s->bell = NULL;
}

void crl_redis_sentinel_unhang(crl_redis_sentinel *s) {
  pthread_mutex_lock(&s->mutex);
  take_down(s);
  pthread_mutex_unlock(&s->mutex);
}

/* Another thread that has it listens. */
static int hear(crl_redis_cluster *c) {
  crl_redis_sentinel *s = of(c);
  if (pthread_mutex_trylock(&s->mutex) != 0) return atomic_load(&s->bell_fd);
  if (s->bell != NULL && !hear_bell(s)) take_down(s);
  pthread_mutex_unlock(&s->mutex);
  return atomic_load(&s->bell_fd);
}

/* Takes the place of the former bell, and listens at once: a switch may have come meanwhile. A
 * watch that polls the former one is woken. */
static void hang(crl_redis_sentinel *s, crl_redis_handle *bell, const crl_redis_resp *in) {
  pthread_mutex_lock(&s->mutex);
  take_down(s);
  s->bell = bell;
  s->rung = *in;
  atomic_store(&s->bell_fd, bell->wire.fd);
  if (!hear_bell(s)) take_down(s);
  pthread_mutex_unlock(&s->mutex);
  crl_redis_slots_moved(&s->cluster);
}

/* ---- asking -------------------------------------------------------------------------------- */

/* One conversation with a sentinel. */
typedef struct call {
  crl_redis_handle *sentinel; /* NULL: it wasn't reached */
  crl_redis_resp in;
  int tells; /* 1: it will tell of each switch */
  crl_redis_place place;
} call;

static void end_call(call *with) {
  if (with->sentinel != NULL) crl_redis_disconnect(with->sentinel);
  crl_redis_resp_free(&with->in);
  with->sentinel = NULL;
}

static void put_questions(crl_redis_out *out, const char *master) {
  crl_redis_out_reset(out);
  crl_redis_out_command(out, 3);
  crl_redis_out_text(out, "SENTINEL");
  crl_redis_out_text(out, "get-master-addr-by-name");
  crl_redis_out_text(out, master);
  crl_redis_out_command(out, 2);
  crl_redis_out_text(out, "SUBSCRIBE");
  crl_redis_out_text(out, channel);
}

/* Judges the answer to the first question. */
static int judge(const crl_redis_sentinel *s, call *with, crl_redis_message m,
                 corral_error *error) {
  const corral_host *host = s->cluster.base.host;
  const char *name = with->sentinel->store->name;
  corral_error why = {0};
  char place[140];
  if (*m.at == '-') {
    int status = crl_redis_message_refused(with->sentinel, m, &why);
    if (status != CORRAL_EUNSUPPORTED) return host->fail(error, status, "%s", why.text);
    crl_redis_reply_place(with->sentinel->store, place, sizeof place);
    return host->fail(error, status, "%.80s: is no sentinel: name one, or write %s://%.100s", name,
                      with->sentinel->store->tls ? "rediss" : "redis", place);
  }
  int known = crl_redis_sentinel_place(m, &with->place);
  if (known > 0) return CORRAL_OK;
  if (known == 0)
    return host->fail(error, CORRAL_EUNAVAILABLE, "%.80s: knows no primary named '%.60s'", name,
                      s->master);
  return host->fail(error, CORRAL_EPROTOCOL, "%.80s: a strange answer: is it a sentinel?", name);
}

/* Asks a sentinel, which is held, and let go with the call. */
static int ask(crl_redis_sentinel *s, crl_redis_node *sentinel, int64_t deadline, call *with,
               corral_error *error) {
  crl_redis_message m;
  crl_redis_token t;
  void *handle;
  size_t sent;
  int status = crl_redis_connect(&sentinel->store, deadline, &handle, error);
  if (status != CORRAL_OK) return status;
  crl_redis_handle *h = with->sentinel = handle;
  put_questions(&h->out, s->master);
  if (h->out.failed)
    return s->cluster.base.host->fail(error, CORRAL_ENOMEM, "no memory to ask a sentinel");
  status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  if (status == CORRAL_OK) status = crl_redis_message_hear(h, &with->in, deadline, &m, error);
  if (status == CORRAL_OK) status = judge(s, with, m, error);
  if (status != CORRAL_OK) return status;
  if (crl_redis_message_hear(h, &with->in, deadline, &m, NULL) != CORRAL_OK) return CORRAL_OK;
  with->tells = crl_redis_message_next(&m, &t) && (t.type == '*' || t.type == '>');
  return CORRAL_OK;
}

static int is_same(const crl_redis_place *a, const crl_redis_place *b) {
  return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* The limit of one of `turns` tries, the last of which has all the time that is left. */
static int64_t share(const corral_host *host, int64_t deadline, size_t turns) {
  int64_t now = host->now_ms(), left = deadline - now;
  if (left <= 0 || turns < 2) return deadline;
  int64_t until = now + 1 + left / (int64_t)turns;
  return until < deadline ? until : deadline;
}

/* Connects to the server that a sentinel named. `failed`: a place that was of no use a moment ago,
 * and isn't tried again; one that was silent for a share of the time is. */
static int try_place(crl_redis_sentinel *s, const crl_redis_place *place, int64_t until,
                     crl_redis_place *failed, void **ret_handle, corral_error *error) {
  if (is_same(place, failed)) return CORRAL_EUNAVAILABLE; /* for the reason that was told */
  int status = verify(s, place, until, ret_handle, error);
  if (status != CORRAL_OK && s->cluster.base.host->now_ms() < until) *failed = *place;
  return status;
}

/* Asks one sentinel, with `turns` left, this one included. *answered: 1 if it named a server. */
static int try_one(crl_redis_sentinel *s, size_t at, size_t turns, int64_t deadline,
                   crl_redis_place *failed, int *answered, void **ret_handle, int *changed,
                   corral_error *error) {
  const corral_host *host = s->cluster.base.host;
  crl_redis_node *sentinel = s->cluster.seeds[at];
  call with = {.sentinel = NULL};
  atomic_fetch_add(&sentinel->holders, 1);
  int status = ask(s, sentinel, share(host, deadline, turns), &with, error);
  *answered = with.sentinel != NULL;
  if (status == CORRAL_OK)
    status = try_place(s, &with.place, share(host, deadline, turns > 1 ? 2 : 1), failed, ret_handle,
                       error);
  if (status == CORRAL_OK) {
    *changed = take_over(s, &with.place) > 0;
    atomic_store(&s->first, at);
  }
  if (status == CORRAL_OK && with.tells)
    hang(s, with.sentinel, &with.in);
  else
    end_call(&with);
  return status;
}

/* Asks until one was right. The text of a failure is that of a sentinel that answered, if there was
 * one. */
static int ask_all(crl_redis_sentinel *s, int64_t deadline, void **ret_handle, int *changed,
                   corral_error *error) {
  const corral_host *host = s->cluster.base.host;
  size_t count = s->cluster.seed_count, first = atomic_load(&s->first);
  crl_redis_place failed = {.port = 0};
  corral_error told = {0};
  int status = CORRAL_EUNAVAILABLE;
  for (size_t i = 0; i < count && status != CORRAL_OK; i++) {
    corral_error why = {0};
    int answered;
    status = try_one(s, (first + i) % count, count - i, deadline, &failed, &answered, ret_handle,
                     changed, &why);
    if (why.text[0] != '\0' && (told.text[0] == '\0' || answered)) told = why;
  }
  atomic_store(&s->asked_at, host->now_ms());
  return status == CORRAL_OK ? status : host->fail(error, told.status, "%s", told.text);
}

static int enter(crl_redis_cluster *c, int64_t deadline, void **ret_handle, corral_error *error) {
  int changed;
  return ask_all(of(c), deadline, ret_handle, &changed, error);
}

static int learn(crl_redis_cluster *c, int64_t deadline, int *changed, corral_error *error) {
  void *handle;
  *changed = 0;
  if (atomic_exchange(&c->refreshing, 1)) return CORRAL_OK;
  int status = ask_all(of(c), deadline, &handle, changed, error);
  if (status == CORRAL_OK) crl_redis_disconnect(handle);
  atomic_store(&c->refreshing, 0);
  return status;
}

static unsigned only_slot(const void *key, size_t len) {
  (void)key, (void)len;
  return 0;
}

const crl_redis_ways crl_redis_sentinel_ways = {
    .slot_of = only_slot, .enter = enter, .learn = learn, .listen = hear};
