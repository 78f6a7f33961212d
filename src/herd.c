/* herd.c: one flight per key per process; everyone else joins it. */
#include "herd.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "env.h"

enum { SHARDS = 16, BUCKETS = 64 };

typedef enum state { FLYING, LANDED, GIVEN_UP } state;

typedef struct shard {
  pthread_mutex_t mutex;
  crl_entry *buckets[BUCKETS];
} shard;

struct crl_entry {
  crl_entry *next, **link; /* link is NULL once it is out of the map */
  shard *home;
  size_t refs, waiting;
  state state;
  int passes; /* for its owner alone */
  crl_outcome outcome, interim;
  int64_t interim_until, interim_last;
  void (*alone)(void *arg);
  void *alone_arg;
  pthread_cond_t changed;
  crl_listener *listeners;
  uint64_t hash;
  size_t key_len;
  uint8_t key[];
};

struct crl_herd {
  uint64_t seed;
  shard shards[SHARDS];
};

crl_herd *crl_herd_new(uint64_t seed) {
  crl_herd *herd = crl_alloc(sizeof *herd);
  if (herd == NULL) return NULL;
  herd->seed = seed;
  for (int i = 0; i < SHARDS; i++) pthread_mutex_init(&herd->shards[i].mutex, NULL);
  return herd;
}

void crl_herd_free(crl_herd *herd) {
  for (int i = 0; i < SHARDS; i++) pthread_mutex_destroy(&herd->shards[i].mutex);
  free(herd);
}

/* ---- under the shard's mutex ----------------------------------------------------------------------------- */

static crl_entry **bucket_of(shard *home, uint64_t hash) { return &home->buckets[hash / SHARDS % BUCKETS]; }

static crl_entry *find(shard *home, uint64_t hash, const void *key, size_t key_len) {
  for (crl_entry *e = *bucket_of(home, hash); e != NULL; e = e->next)
    if (e->hash == hash && e->key_len == key_len && memcmp(e->key, key, key_len) == 0) return e;
  return NULL;
}

static void take_out(crl_entry *entry) {
  if (entry->link == NULL) return;
  *entry->link = entry->next;
  if (entry->next != NULL) entry->next->link = entry->link;
  entry->link = NULL;
}

static crl_entry *put_in(shard *home, uint64_t hash, const void *key, size_t key_len) {
  crl_entry *entry = crl_alloc(sizeof *entry + key_len);
  if (entry == NULL) return NULL;
  entry->home = home;
  entry->hash = hash;
  entry->key_len = key_len;
  memcpy(entry->key, key, key_len);
  crl_env_cond_init(&entry->changed);
  entry->link = bucket_of(home, hash);
  entry->next = *entry->link;
  if (entry->next != NULL) entry->next->link = &entry->next;
  *entry->link = entry;
  return entry;
}

static void copy_outcome(crl_outcome *to, const crl_outcome *from) {
  *to = *from;
  if (to->bytes != NULL) crl_bytes_ref(to->bytes);
}

static void tell_listeners(crl_entry *entry) {
  for (crl_listener *l = entry->listeners; l != NULL; l = l->next) {
    atomic_store(&l->stirred, 1);
    crl_nap_wake(l->nap);
  }
}

/* Everybody who waits looks again. */
static void tell_all(crl_entry *entry) {
  pthread_cond_broadcast(&entry->changed);
  tell_listeners(entry);
}

/* ---- public ---------------------------------------------------------------------------------------------- */

static shard *home_of(crl_herd *herd, const void *key, size_t key_len, uint64_t *hash) {
  *hash = XXH3_64bits_withSeed(key, key_len, herd->seed);
  return &herd->shards[*hash % SHARDS];
}

crl_entry *crl_herd_enter(crl_herd *herd, const void *key, size_t key_len, int *leads) {
  uint64_t hash;
  shard *home = home_of(herd, key, key_len, &hash);
  pthread_mutex_lock(&home->mutex);
  crl_entry *entry = find(home, hash, key, key_len);
  *leads = entry == NULL;
  if (entry == NULL) entry = put_in(home, hash, key, key_len);
  if (entry != NULL) entry->refs++;
  pthread_mutex_unlock(&home->mutex);
  return entry;
}

crl_entry *crl_herd_private(crl_herd *herd, const void *key, size_t key_len) {
  uint64_t hash;
  shard *home = home_of(herd, key, key_len, &hash);
  pthread_mutex_lock(&home->mutex);
  crl_entry *entry = put_in(home, hash, key, key_len);
  if (entry != NULL) {
    take_out(entry);
    entry->refs++;
  }
  pthread_mutex_unlock(&home->mutex);
  return entry;
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

/* The end of a flight is handed on: each who is woken by it wakes two more, so that they don't all queue for the mutex at once, and whoever ends the
 * flight is soon on its way. */
static void relay(crl_entry *entry) {
  pthread_cond_signal(&entry->changed);
  pthread_cond_signal(&entry->changed);
}

/* What there is for a waiter now; 0 nothing. */
static crl_wait ready(const crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  if (entry->passes && !patience->owns) return CRL_WAIT_PASS;
  if (entry->state == LANDED) {
    copy_outcome(outcome, &entry->outcome);
    return CRL_WAIT_LANDED;
  }
  if (entry->interim_until > 0 && entry->link != NULL && crl_env_now_ms() < entry->interim_until) {
    copy_outcome(outcome, &entry->interim);
    return CRL_WAIT_LANDED;
  }
  if (entry->state == GIVEN_UP) return CRL_WAIT_GIVEN_UP;
  return crl_ticket_cancelled(patience->ticket) ? CRL_WAIT_LEFT : (crl_wait)0;
}

/* The stale answer for the last moment; 0 there is none. */
static crl_wait last_resort(const crl_entry *entry, crl_outcome *outcome) {
  if (entry->link == NULL || crl_env_now_ms() >= entry->interim_last) return (crl_wait)0;
  copy_outcome(outcome, &entry->interim);
  return CRL_WAIT_LANDED;
}

static int has_soft_end(const crl_patience *patience) { return patience->soft_until > 0 && patience->soft_until < patience->deadline; }

/* What there is for a waiter, also by its own time. */
static crl_wait look(const crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  crl_wait result = ready(entry, patience, outcome);
  int64_t now = crl_env_now_ms();
  if (result == 0 && now >= (has_soft_end(patience) ? patience->soft_until : patience->deadline)) result = last_resort(entry, outcome);
  return result == 0 && now >= patience->deadline ? CRL_WAIT_DEADLINE : result;
}

static crl_wait wait_for(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  crl_wait result;
  int64_t until = has_soft_end(patience) ? patience->soft_until : patience->deadline;
  while ((result = look(entry, patience, outcome)) == 0)
    if (!crl_env_cond_wait(&entry->changed, &entry->home->mutex, until)) until = patience->deadline;
  return result;
}

void crl_herd_pass(crl_entry *entry) {
  pthread_mutex_lock(&entry->home->mutex);
  entry->passes = 1;
  take_out(entry);
  tell_all(entry);
  pthread_mutex_unlock(&entry->home->mutex);
}

static void stir(void *arg) {
  crl_entry *entry = arg;
  pthread_mutex_lock(&entry->home->mutex);
  pthread_cond_broadcast(&entry->changed);
  pthread_mutex_unlock(&entry->home->mutex);
}

static void end_waiting(crl_entry *entry, crl_wait came) {
  entry->waiting--;
  if (entry->state != FLYING && entry->waiting > 0) relay(entry);
  if ((came == CRL_WAIT_DEADLINE || came == CRL_WAIT_LEFT) && entry->waiting == 0 && entry->alone != NULL) entry->alone(entry->alone_arg);
}

crl_wait crl_herd_wait(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  crl_leaver leaver;
  crl_ticket_join(patience->ticket, &leaver, stir, entry);
  pthread_mutex_lock(&entry->home->mutex);
  entry->waiting++;
  crl_wait result = wait_for(entry, patience, outcome);
  end_waiting(entry, result);
  pthread_mutex_unlock(&entry->home->mutex);
  crl_ticket_leave(patience->ticket, &leaver);
  return result;
}

/* ---- waiting in parts ------------------------------------------------------------------------------------ */

void crl_herd_listen(crl_entry *entry, crl_listener *listener, crl_nap *nap) {
  listener->nap = nap;
  atomic_init(&listener->stirred, 1);
  pthread_mutex_lock(&entry->home->mutex);
  listener->next = entry->listeners;
  listener->link = &entry->listeners;
  if (listener->next != NULL) listener->next->link = &listener->next;
  entry->listeners = listener;
  entry->waiting++;
  pthread_mutex_unlock(&entry->home->mutex);
}

crl_wait crl_herd_look(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome) {
  pthread_mutex_lock(&entry->home->mutex);
  crl_wait result = look(entry, patience, outcome);
  pthread_mutex_unlock(&entry->home->mutex);
  return result;
}

void crl_herd_unlisten(crl_entry *entry, crl_listener *listener, crl_wait came) {
  pthread_mutex_lock(&entry->home->mutex);
  *listener->link = listener->next;
  if (listener->next != NULL) listener->next->link = listener->link;
  end_waiting(entry, came);
  pthread_mutex_unlock(&entry->home->mutex);
}

void crl_herd_heed(crl_entry *entry, void (*alone)(void *arg), void *arg) {
  pthread_mutex_lock(&entry->home->mutex);
  entry->alone = alone;
  entry->alone_arg = arg;
  pthread_mutex_unlock(&entry->home->mutex);
}

void crl_herd_if_alone(crl_entry *entry, void (*alone)(void *arg), void *arg) {
  pthread_mutex_lock(&entry->home->mutex);
  if (entry->waiting == 0) alone(arg);
  pthread_mutex_unlock(&entry->home->mutex);
}

/* ---- the flight's side ----------------------------------------------------------------------------------- */

void crl_herd_interim(crl_entry *entry, const crl_outcome *outcome, int64_t until, int64_t last) {
  pthread_mutex_lock(&entry->home->mutex);
  crl_bytes_unref(entry->interim.bytes);
  copy_outcome(&entry->interim, outcome);
  entry->interim_until = until;
  entry->interim_last = last;
  tell_all(entry);
  pthread_mutex_unlock(&entry->home->mutex);
}

static void end(crl_entry *entry, state how, const crl_outcome *outcome) {
  pthread_mutex_lock(&entry->home->mutex);
  if (entry->state == FLYING) {
    if (outcome != NULL) copy_outcome(&entry->outcome, outcome);
    entry->state = how;
    take_out(entry);
    relay(entry);
    tell_listeners(entry);
  }
  pthread_mutex_unlock(&entry->home->mutex);
}

void crl_herd_land(crl_entry *entry, const crl_outcome *outcome) { end(entry, LANDED, outcome); }
void crl_herd_give_up(crl_entry *entry) { end(entry, GIVEN_UP, NULL); }

void crl_herd_detach(crl_entry *entry) {
  pthread_mutex_lock(&entry->home->mutex);
  take_out(entry);
  pthread_mutex_unlock(&entry->home->mutex);
}

void crl_herd_detach_key(crl_herd *herd, const void *key, size_t key_len) {
  uint64_t hash;
  shard *home = home_of(herd, key, key_len, &hash);
  pthread_mutex_lock(&home->mutex);
  crl_entry *entry = find(home, hash, key, key_len);
  if (entry != NULL) take_out(entry);
  pthread_mutex_unlock(&home->mutex);
}

void crl_herd_detach_all(crl_herd *herd) {
  for (size_t i = 0; i < SHARDS; i++) {
    shard *home = &herd->shards[i];
    pthread_mutex_lock(&home->mutex);
    for (size_t b = 0; b < BUCKETS; b++)
      while (home->buckets[b] != NULL) take_out(home->buckets[b]);
    pthread_mutex_unlock(&home->mutex);
  }
}

crl_entry *crl_entry_ref(crl_entry *entry) {
  pthread_mutex_lock(&entry->home->mutex);
  entry->refs++;
  pthread_mutex_unlock(&entry->home->mutex);
  return entry;
}

void crl_entry_unref(crl_entry *entry) {
  shard *home = entry->home;
  pthread_mutex_lock(&home->mutex);
  int last = --entry->refs == 0;
  if (last) take_out(entry);
  pthread_mutex_unlock(&home->mutex);
  if (!last) return;
  crl_bytes_unref(entry->outcome.bytes);
  crl_bytes_unref(entry->interim.bytes);
  pthread_cond_destroy(&entry->changed);
  free(entry);
}

size_t crl_herd_count(crl_herd *herd) {
  size_t count = 0;
  for (int i = 0; i < SHARDS; i++) {
    pthread_mutex_lock(&herd->shards[i].mutex);
    for (int b = 0; b < BUCKETS; b++)
      for (crl_entry *e = herd->shards[i].buckets[b]; e != NULL; e = e->next) count++;
    pthread_mutex_unlock(&herd->shards[i].mutex);
  }
  return count;
}

size_t crl_herd_waiting(crl_herd *herd, const void *key, size_t key_len) {
  uint64_t hash;
  shard *home = home_of(herd, key, key_len, &hash);
  pthread_mutex_lock(&home->mutex);
  crl_entry *entry = find(home, hash, key, key_len);
  size_t waiting = entry == NULL ? 0 : entry->waiting;
  pthread_mutex_unlock(&home->mutex);
  return waiting;
}
