/* guard.c: how a call is answered.
 *
 *   none     GET; on a miss compute, SET. What most programs do first.
 *   lock     GET; on a miss SET NX a lock with a TTL; the winner computes, SETs and DELs the lock,
 *            the others look again every 50 ms. Where the store is away: as none.
 *   corral   corral_get_or_compute, with a grace; while the store is away, what this process has
 *            computed meanwhile may serve.
 *   near     the same with a near tier.
 *   ramp     corral with the option `ramp`.
 *
 * The origin is asked for as long as a caller's patience lasts. */
#include "weather.h"

#include <stdlib.h>
#include <string.h>

#include <corral.h>

#include "../kit.h"

enum { POLL_US = 50000, LOCK_US = 3000000, NEAR_BYTES = 1 << 20, FILL_US = 30000000 };

static const world *here;
static int process;
static corral *c;

static int64_t deadline_of(const arrival *a) {
  return here->board->begin_us + a->at_us + here->plan->deadline_us;
}

static size_t name(char key[TEXT / 2], const char *kind, int number) {
  return (size_t)snprintf(key, TEXT / 2, "%s%d", kind, number);
}

/* True for the value of this key. */
static int is_of(const char *value, int number) {
  char key[TEXT / 2];
  size_t len = name(key, "k", number);
  return strncmp(value, key, len) == 0 && value[len] == '=';
}

static outcome judge(const char *value, int number) {
  return is_of(value, number) ? OUTCOME_FRESH : OUTCOME_WRONG;
}

static int compute(const char *key, char *value) {
  board *b = here->board;
  int n = atomic_fetch_add(&b->computes, 1);
  if (n < 2 * ARRIVALS) atomic_store(&b->compute_ms[n], (int)((clock_us() - b->begin_us) / 1000));
  atomic_fetch_add(&b->computing[process], 1);
  int made = origin_ask(here->origin, key, clock_us() + here->plan->deadline_us, value);
  atomic_fetch_sub(&b->computing[process], 1);
  return made;
}

/* ---- none, lock ---------------------------------------------------------------------------- */

static outcome compute_and_set(const arrival *a, const char *key) {
  char value[TEXT];
  if (!compute(key, value)) return OUTCOME_FAILED;
  (void)plain_set(key, value, here->ttl_us);
  return judge(value, a->key);
}

static outcome ask_none(const arrival *a) {
  char key[TEXT / 2], value[TEXT];
  name(key, "k", a->key);
  return plain_get(key, value) == PLAIN_OK ? judge(value, a->key) : compute_and_set(a, key);
}

static outcome ask_lock(const arrival *a) {
  char key[TEXT / 2], lock[TEXT / 2], value[TEXT];
  name(key, "k", a->key);
  name(lock, "lock", a->key);
  for (int64_t until = deadline_of(a); clock_us() < until; sleep_until_us(clock_us() + POLL_US)) {
    plain_status status = plain_get(key, value);
    if (status == PLAIN_OK) return judge(value, a->key);
    if (status == PLAIN_MISS) status = plain_add(lock, "1", LOCK_US);
    if (status == PLAIN_MISS) continue;
    outcome o = compute_and_set(a, key);
    if (status == PLAIN_OK) (void)plain_delete(lock);
    return o;
  }
  return OUTCOME_FAILED;
}

/* ---- corral -------------------------------------------------------------------------------- */

static int fill_in(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  char name_of[TEXT / 2] = "", value[TEXT];
  memcpy(name_of, key, key_len < sizeof name_of ? key_len : sizeof name_of - 1);
  (void)arg;
  if (compute(name_of, value)) return corral_fill_bytes(fill, value, strlen(value));
  corral_fill_fail(fill, 0, "the origin did not answer");
  return CORRAL_OK;
}

static outcome ask_corral(const arrival *a) {
  char key[TEXT / 2], text[TEXT] = "";
  corral_value *value;
  int64_t left_ms = (deadline_of(a) - clock_us()) / 1000;
  const corral_policy *policy = CORRAL_POLICY(.wait_ms = left_ms > 0 ? left_ms : 1);
  if (corral_get_or_compute(c, key, name(key, "k", a->key), CORRAL_CALL(.policy = policy), fill_in,
                            NULL, &value) != CORRAL_OK)
    return OUTCOME_FAILED;
  size_t size = corral_value_size(value);
  memcpy(text, corral_value_data(value), size < TEXT ? size : TEXT - 1);
  int stale = corral_value_how(value) == CORRAL_STALE;
  corral_value_unref(value);
  outcome o = judge(text, a->key);
  return o == OUTCOME_FRESH && stale ? OUTCOME_STALE : o;
}

static void open_corral(const char *socket) {
  static const char *const schemes[STORE_KINDS] = {"redis+unix://", "memcached+unix://", "lmdb:"};
  char uri[PATH + 24];
  corral_error error;
  snprintf(uri, sizeof uri, "%s%s", schemes[here->plan->store], socket);
  int64_t stale_ms = here->plan->stale_us / 1000;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = here->ttl_us / 1000, .swr_ms = stale_ms > 0 ? stale_ms : CORRAL_OFF,
                    .sie_ms = stale_ms > 0 ? stale_ms : CORRAL_OFF, .when_away = CORRAL_AWAY_STALE);
  if (corral_open(CORRAL_OPTIONS(.store = uri, .policy = policy,
                                 .near_bytes = here->guard == GUARD_NEAR ? NEAR_BYTES : 0,
                                 .ramp = here->guard == GUARD_RAMP),
                  &c, &error) != CORRAL_OK)
    die(error.text);
}

/* ---- each ---------------------------------------------------------------------------------- */

static int set(int number) {
  char key[TEXT / 2], value[TEXT];
  size_t len = name(key, "k", number);
  int size = snprintf(value, sizeof value, "%s=filled", key);
  if (c == NULL) return plain_set(key, value, here->ttl_us) == PLAIN_OK;
  return corral_set(c, key, len, NULL, value, (size_t)size) == CORRAL_OK;
}

void guard_fill(const world *w) {
  int64_t until = clock_us() + FILL_US;
  for (int i = 0; i < w->keys;)
    if (set(i))
      i++;
    else if (clock_us() > until)
      die("a value was not stored");
}

void guard_open(const world *w, int number) {
  here = w;
  process = number;
  const char *socket = w->cut[0] != '\0' && number < w->plan->processes / 2 ? w->cut : w->socket;
  if (w->guard >= GUARD_CORRAL)
    open_corral(socket);
  else
    plain_open(w->plan->store, socket);
}

outcome guard_ask(const arrival *a) {
  switch (here->guard) {
    case GUARD_NONE: return ask_none(a);
    case GUARD_LOCK: return ask_lock(a);
    default: return ask_corral(a);
  }
}
