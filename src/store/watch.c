/* watch.c: one thread that listens to a store's watch, wakes waiters, and reports changes. */
#include "store/watch.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "os/env.h"
#include "os/hash.h"
#include "base/value.h"
#include "record/record.h"

enum {
  PAUSE_MS = 1000,
  TURN_MS = 60000,
  BATCH = 128,           /* keys of one registration */
  QUEUE_BYTES = 4 << 20, /* room for keys that wait for their registration */
  QUEUE_KEPT = 64 << 10, /* a larger buffer is freed once it is empty */
  OVERTAKEN_MOST = 8     /* more for one watcher mean that looks and watch see different servers */
};
enum { PRINT_NONE = 1, PRINT_FOREIGN = 2 };

typedef enum state {
  IDLE,
  RUNS,
  NEVER /* the store has no watch, or there is no thread to be had */
} state;

/* Keys to be registered: for each its hash, its length and its bytes. */
typedef struct queue {
  uint8_t *bytes;
  size_t used, room;
} queue;

struct crl_watch {
  crl_watch_options options;
  pthread_mutex_t mutex; /* guards the waiters, the queue, `up` and the start */
  crl_table watchers;
  queue queue;
  pthread_t thread;
  _Atomic int state;
  _Atomic int up;
  /* stop_fd: readable when the watch is freed; wake_fd: also when the queue has keys */
  int started, stop_fd, wake_fd;
  int said;   /* the event: 1 the watch is up, -1 it isn't, 0 nothing yet */
  queue work; /* the thread's: taken from `queue` */
};

crl_watch *crl_watch_new(const crl_watch_options *options) {
  crl_watch *watch = crl_alloc(sizeof *watch);
  if (watch == NULL) return NULL;
  watch->options = *options;
  watch->stop_fd = watch->wake_fd = -1;
  atomic_init(&watch->state, options->plugin->watch != NULL ? IDLE : NEVER);
  pthread_mutex_init(&watch->mutex, NULL);
  return watch;
}

static int signal_fd(int fd) {
  uint64_t one = 1;
  return write(fd, &one, sizeof one) == sizeof one;
}

void crl_watch_free(crl_watch *watch) {
  if (watch->started && signal_fd(watch->stop_fd) && signal_fd(watch->wake_fd))
    pthread_join(watch->thread, NULL);
  if (watch->stop_fd >= 0) close(watch->stop_fd);
  if (watch->wake_fd >= 0) close(watch->wake_fd);
  pthread_mutex_destroy(&watch->mutex);
  free(watch->queue.bytes);
  free(watch->work.bytes);
  crl_table_clean(&watch->watchers);
  free(watch);
}

static crl_watcher *watcher_of(crl_table_node *node) {
  return (crl_watcher *)(void *)((char *)node - offsetof(crl_watcher, node));
}

#ifdef CORRAL_CHECKS
static void check(const crl_watch *watch) {
  for (size_t i = 0; i < watch->watchers.size && i < CRL_CHECK_MOST; i++) {
    crl_table_node *node = watch->watchers.buckets[i];
    for (int left = CRL_CHECK_MOST; node != NULL && left > 0; node = node->next, left--)
      CRL_MUST(!watcher_of(node)->stands || watcher_of(node)->print != 0,
               "watch: only a registered key stands");
  }
  CRL_MUST(watch->queue.used <= watch->queue.room, "watch: the queue is within its room");
  CRL_MUST(atomic_load(&watch->up) || watch->queue.used == 0,
           "watch: keys are queued while the watch is up");
}
#endif

static void lock(crl_watch *watch) {
  pthread_mutex_lock(&watch->mutex);
  CRL_CHECK(watch);
}

static void unlock(crl_watch *watch) {
  CRL_CHECK(watch);
  pthread_mutex_unlock(&watch->mutex);
}

/* ---- changes ------------------------------------------------------------------------------- */

static void wake_bucket(crl_table_node *first, uint64_t hash) {
  for (crl_table_node *node = first; node != NULL; node = node->next) {
    if (hash != 0 && node->hash != hash) continue;
    watcher_of(node)->stands = 0;
    crl_waiter_wake(watcher_of(node)->waiter);
  }
}

static void wake(crl_watch *watch, uint64_t hash) {
  lock(watch);
  if (hash != 0) wake_bucket(crl_table_first(&watch->watchers, hash), hash);
  for (size_t i = 0; hash == 0 && i < watch->watchers.size; i++)
    wake_bucket(watch->watchers.buckets[i], 0);
  unlock(watch);
}

static void tell(void *arg, uint64_t hash) {
  crl_watch *watch = arg;
  if (watch->options.on_change != NULL) watch->options.on_change(watch->options.arg, hash);
  wake(watch, hash);
}

void crl_watch_missed(void *arg, uint64_t hash) {
  crl_watch *watch = arg;
  if (watch->options.on_missed != NULL) watch->options.on_missed(watch->options.arg, hash);
  wake(watch, hash);
}

/* ---- registrations ------------------------------------------------------------------------- */

/* Of a free record with a body: not of its end, which the process that stored it doesn't know. */
static uint64_t print_of_body(const corral_header *header) {
  uint64_t about[] = {header->stamp, (uint64_t)header->flags << 8 | header->kind};
  return crl_hash(about, sizeof about);
}

uint64_t crl_watch_print(const void *record, size_t size) {
  corral_header header;
  if (record == NULL) return PRINT_NONE;
  size_t head = size < CORRAL_HEAD ? size : CORRAL_HEAD;
  int reads = head == CORRAL_HEAD && crl_record_read(record, head, &header) == CORRAL_OK;
  uint64_t print = reads && header.state == CORRAL_FREE && header.stamp != 0
                       ? print_of_body(&header)
                       : crl_hash(record, head);
  return print > PRINT_FOREIGN ? print : ~print;
}

/* 0: the key isn't registered. */
static uint64_t print_of(const corral_registration *key) {
  switch (key->status) {
    case CORRAL_OK: return crl_watch_print(key->head, key->head_len);
    case CORRAL_EMISS: return PRINT_NONE;
    case CORRAL_EFOREIGN: return PRINT_FOREIGN;
    default: return 0;
  }
}

/* Tells a watcher the print that its key's registration found. Looks and registrations that never
 * agree would wake it without end. */
static void compare(crl_watcher *w, uint64_t print) {
  w->stands = w->print == print;
  if (w->stands) return;
  if (print == 0 || ++w->overtaken > OVERTAKEN_MOST) atomic_store(&w->refused, 1);
  crl_waiter_wake(w->waiter);
}

static void registered(crl_watch *watch, uint64_t hash, uint64_t print) {
  if (print != 0 && watch->options.on_registered != NULL)
    watch->options.on_registered(watch->options.arg, hash, print);
  lock(watch);
  for (crl_table_node *at = crl_table_first(&watch->watchers, hash); at != NULL; at = at->next)
    if (at->hash == hash && watcher_of(at)->print != 0) compare(watcher_of(at), print);
  unlock(watch);
}

/* Appends a key; 0: no room or no memory. */
static int append(queue *q, const crl_watch_key *key) {
  uint32_t len = (uint32_t)key->len;
  size_t more = sizeof key->hash + sizeof len + key->len;
  if (more > QUEUE_BYTES - q->used) return 0;
  if (q->used + more > q->room) {
    size_t room = 2 * (q->used + more);
    uint8_t *bytes = crl_alloc(room);
    if (bytes == NULL) return 0;
    if (q->used > 0) memcpy(bytes, q->bytes, q->used);
    free(q->bytes);
    q->bytes = bytes;
    q->room = room;
  }
  uint8_t *at = q->bytes + q->used;
  memcpy(at, &key->hash, sizeof key->hash);
  memcpy(at + sizeof key->hash, &len, sizeof len);
  memcpy(at + sizeof key->hash + sizeof len, key->data, key->len);
  q->used += more;
  return 1;
}

/* Takes the next key from offset *at. */
static crl_watch_key next_key(const queue *q, size_t *at) {
  crl_watch_key key;
  uint32_t len;
  memcpy(&key.hash, q->bytes + *at, sizeof key.hash);
  memcpy(&len, q->bytes + *at + sizeof key.hash, sizeof len);
  key.data = q->bytes + *at + sizeof key.hash + sizeof len;
  key.len = len;
  *at += sizeof key.hash + sizeof len + len;
  return key;
}

/* Registers the next keys of `work`, from offset *at. */
static int register_batch(crl_watch *watch, void *open, size_t *at, corral_error *why) {
  corral_registration keys[BATCH];
  uint64_t hashes[BATCH];
  size_t count = 0;
  while (count < BATCH && *at < watch->work.used) {
    crl_watch_key key = next_key(&watch->work, at);
    hashes[count] = key.hash;
    keys[count].key = key.data;
    keys[count].key_len = key.len;
    keys[count].status = CORRAL_EINDOUBT;
    keys[count++].head_len = 0;
  }
  int status = watch->options.plugin->register_keys(open, keys, count, watch->stop_fd,
                                                    crl_env_now_ms() + CORRAL_SILENCE_MS, why);
  for (size_t i = 0; i < count && status == CORRAL_OK; i++)
    registered(watch, hashes[i], print_of(&keys[i]));
  return status;
}

/* Registers all keys of the queue. */
static int register_all(crl_watch *watch, void *open, corral_error *why) {
  int status = CORRAL_OK;
  size_t at = 0;
  lock(watch);
  queue taken = watch->queue;
  watch->queue = watch->work;
  watch->work = taken;
  watch->queue.used = 0;
  unlock(watch);
  while (status == CORRAL_OK && at < watch->work.used)
    status = register_batch(watch, open, &at, why);
  watch->work.used = 0;
  if (watch->work.room > QUEUE_KEPT) {
    free(watch->work.bytes);
    watch->work = (queue){0};
  }
  return status;
}

/* ---- the thread ---------------------------------------------------------------------------- */

/* Waits `ms`, or less when the corral is being closed: then 1. */
static int rest(const crl_watch *watch, int64_t ms) {
  struct pollfd stop = {.fd = watch->stop_fd, .events = POLLIN};
  return poll(&stop, 1, (int)ms) > 0;
}

/* Emits the event, when the watch has come up or gone down since the last one. */
static void say(crl_watch *watch, int up, const corral_error *why) {
  char text[sizeof why->text + 8];
  if (watch->said == (up ? 1 : -1) || rest(watch, 0)) return;
  watch->said = up ? 1 : -1;
  const char *detail = why->text[0] != '\0' ? why->text : up ? "told by the store" : "no reason";
  snprintf(text, sizeof text, "%s%s", up ? "" : "poll: ", detail);
  corral_event_info info = crl_event_info(CORRAL_EVENT_WATCH, NULL, 0);
  info.detail = text;
  info.wake = !up                                 ? CORRAL_WAKE_POLL
              : why->code == CORRAL_WAKE_REDIRECT ? why->code
                                                  : CORRAL_WAKE_PUSH;
  crl_stats_set_gauge(&watch->options.events->stats, CORRAL_GAUGE_WAKE, info.wake + 1);
  crl_event_tell(watch->options.events, &info);
}

static void set_up(crl_watch *watch, int up) {
  lock(watch);
  atomic_store(&watch->up, up);
  watch->queue.used = 0;
  unlock(watch);
}

/* Listens until a change, a key to be registered, or the end. */
static int listen_once(crl_watch *watch, void *open, corral_error *why) {
  uint64_t wakes;
  int status = watch->options.plugin->changes(open, watch->wake_fd, crl_env_now_ms() + TURN_MS,
                                              tell, watch, why);
  if (read(watch->wake_fd, &wakes, sizeof wakes) < 0) return status;
  return status == CORRAL_OK ? register_all(watch, open, why) : status;
}

static void listen_to(crl_watch *watch, void *open, corral_error *why) {
  int status = CORRAL_OK;
  set_up(watch, 1);
  tell(watch, 0);
  say(watch, 1, why);
  memset(why, 0, sizeof *why);
  while (status == CORRAL_OK && !rest(watch, 0)) status = listen_once(watch, open, why);
  set_up(watch, 0);
  tell(watch, 0);
  say(watch, 0, why);
  watch->options.plugin->unwatch(open);
}

static void *run(void *arg) {
  crl_watch *watch = arg;
  crl_env_thread_name("corral-watch");
  do {
    corral_error why = {0};
    void *open = NULL;
    int status = watch->options.plugin->watch(watch->options.store, 0,
                                              crl_env_now_ms() + watch->options.op_ms, &open, &why);
    if (status == CORRAL_OK)
      listen_to(watch, open, &why);
    else
      say(watch, 0, &why);
    if (status == CORRAL_EUNSUPPORTED) {
      atomic_store(&watch->state, NEVER);
      break;
    }
  } while (!rest(watch, PAUSE_MS));
  return NULL;
}

static int new_fd(void) { return crl_env_own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

static void start(crl_watch *watch) {
  lock(watch);
  if (atomic_load(&watch->state) == IDLE) {
    watch->stop_fd = new_fd();
    watch->wake_fd = new_fd();
    watch->started = watch->stop_fd >= 0 && watch->wake_fd >= 0 &&
                     crl_env_thread(&watch->thread, run, watch) == 0;
    atomic_store(&watch->state, watch->started ? RUNS : NEVER);
  }
  unlock(watch);
}

/* ---- waiters ------------------------------------------------------------------------------- */

int crl_watch_up(crl_watch *watch) {
  if (atomic_load_explicit(&watch->state, memory_order_relaxed) == IDLE) start(watch);
  return crl_watch_is_up(watch);
}

int crl_watch_is_up(const crl_watch *watch) {
  return atomic_load_explicit(&watch->up, memory_order_relaxed);
}

int crl_watch_registers(const crl_watch *watch) {
  return watch->options.plugin->register_keys != NULL;
}

int crl_watch_register(crl_watch *watch, crl_watcher *watcher, const crl_watch_key *key,
                       uint64_t print) {
  lock(watch);
  int up = atomic_load(&watch->up), first = watch->queue.used == 0;
  if (watcher != NULL && up && watcher->stands && watcher->print == print) {
    unlock(watch);
    return 1;
  }
  if (watcher != NULL) watcher->print = print;
  if (watcher != NULL) watcher->stands = 0;
  int goes = up && (watcher == NULL || !crl_watch_refuses(watcher)) && append(&watch->queue, key);
  if (watcher != NULL && up && !goes) atomic_store(&watcher->refused, 1);
  if (goes && first) (void)signal_fd(watch->wake_fd);
  unlock(watch);
  return goes;
}

int crl_watch_refuses(const crl_watcher *watcher) { return atomic_load(&watcher->refused); }

void crl_watch_join(crl_watch *watch, crl_watcher *watcher, uint64_t hash, crl_waiter *waiter) {
  watcher->waiter = waiter;
  watcher->print = 0;
  watcher->stands = 0;
  lock(watch);
  crl_table_put(&watch->watchers, &watcher->node, hash);
  unlock(watch);
}

void crl_watch_leave(crl_watch *watch, crl_watcher *watcher) {
  lock(watch);
  crl_table_take(&watch->watchers, &watcher->node);
  unlock(watch);
}
