/* test_lock_desk.c: what an operator does to locks, on each store that is there: two corrals on one
 * store are two holders. */
#include "support/folder_kit.h"
#include "support/lock_kit.h"

#include "support/memcached_server.h"
#include "support/redis_server.h"
#if CORRAL_HAVE_postgresql
#include "support/postgresql_server.h"
#endif
#if CORRAL_HAVE_mariadb
#include "support/mariadb_server.h"
#endif
#if CORRAL_HAVE_zookeeper
#include "support/zookeeper_server.h"
#endif
#if CORRAL_HAVE_etcd
#include "support/etcd_server.h"
#endif

enum { PATIENCE_MS = 30000, HOUR = 3600000 };

/* ---- the stores ---------------------------------------------------------------------------- */

enum {
  SHARED = 1, /* has shared locks */
  TIED = 2,   /* its holds belong to connections */
  NUMBERS = 4 /* it keeps no names */
};

typedef struct a_store {
  const char *name;
  int has;
  char uri[300];
} a_store;

static a_store stores[16];
static size_t store_count;

static void add(const char *name, int has, const char *uri) {
  a_store *s = &stores[store_count++];
  s->name = name;
  s->has = has;
  snprintf(s->uri, sizeof s->uri, "%s", uri);
}

static redis_server *redis[3];
static memcached_server *memcached;

static void start_redis(void) {
  char uri[300];
  for (size_t i = 0; i < 3; i++)
    if (!redis_server_start(&redis[i], NULL)) return;
  add("redis", SHARED, redis_server_uri(redis[0]));
  snprintf(uri, sizeof uri, "%s/1?scripts=no", redis_server_uri(redis[0]));
  add("redis without scripts", SHARED, uri);
  snprintf(uri, sizeof uri, "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/2?server_ms=10s",
           redis_server_port(redis[0]), redis_server_port(redis[1]), redis_server_port(redis[2]));
  add("redlock", 0, uri);
}

#if CORRAL_HAVE_postgresql
static postgresql_server *postgresql;
static void start_postgresql(void) {
  if (!postgresql_server_start(&postgresql, NULL)) return;
  add("postgresql", 0, postgresql_server_uri(postgresql, ""));
  add("advisory", SHARED | TIED | NUMBERS, postgresql_server_uri(postgresql, "?locks=advisory"));
}
#endif

#if CORRAL_HAVE_mariadb
static mariadb_server *mariadb;
static void start_mariadb(void) {
  if (!mariadb_server_start(&mariadb)) return;
  mariadb_server_settle(mariadb);
  add("mariadb", TIED | NUMBERS, mariadb_server_uri(mariadb));
}
#endif

#if CORRAL_HAVE_zookeeper
static zookeeper_server *zookeeper;
static void start_zookeeper(void) {
  char uri[60];
  if (!zookeeper_server_start(&zookeeper, NULL)) return;
  snprintf(uri, sizeof uri, "zookeeper://127.0.0.1:%d", zookeeper_server_port(zookeeper));
  add("zookeeper", SHARED, uri);
}
#endif

#if CORRAL_HAVE_etcd
static etcd_server *etcd;
static void start_etcd(void) {
  if (etcd_server_start(&etcd, NULL)) add("etcd", 0, etcd_server_uri(etcd));
}
#endif

static int start_all(void **state) {
  char uri[300];
  make_folder(state);
  add("memory", SHARED, "memory:desk");
  snprintf(uri, sizeof uri, "lmdb:%s/store", folder);
  add("lmdb", SHARED, uri);
#if CORRAL_HAVE_sqlite
  snprintf(uri, sizeof uri, "sqlite:%s/locks", folder);
  add("sqlite", SHARED, uri);
#endif
  start_redis();
  if (memcached_server_start(&memcached, NULL))
    add("memcached", SHARED | NUMBERS, memcached_server_uri(memcached));
#if CORRAL_HAVE_postgresql
  start_postgresql();
#endif
#if CORRAL_HAVE_mariadb
  start_mariadb();
#endif
#if CORRAL_HAVE_zookeeper
  start_zookeeper();
#endif
#if CORRAL_HAVE_etcd
  start_etcd();
#endif
  return 0;
}

static int stop_all(void **state) {
  for (size_t i = 0; i < 3; i++) redis_server_stop(redis[i]);
  memcached_server_stop(memcached);
#if CORRAL_HAVE_postgresql
  postgresql_server_stop(postgresql);
#endif
#if CORRAL_HAVE_mariadb
  mariadb_server_stop(mariadb);
#endif
#if CORRAL_HAVE_zookeeper
  zookeeper_server_stop(zookeeper);
#endif
#if CORRAL_HAVE_etcd
  etcd_server_stop(etcd);
#endif
  return remove_folder(state);
}

static corral *open_at(const char *uri, void *arg) {
  corral *c;
  if (corral_open(
          CORRAL_OPTIONS(.store = uri, .op_ms = 10000, .on_event = on_event, .event_arg = arg), &c,
          &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

/* Tells a story on each store that has all of `with` and nothing of `without`. */
static void each(int with, int without, void (*story)(void)) {
  for (size_t i = 0; i < store_count; i++) {
    const a_store *store = &stores[i];
    if ((store->has & with) != with || (store->has & without) != 0) continue;
    print_message("%s\n", store->name);
    atomic_store(&a_lost, 0);
    a = open_at(store->uri, &a_lost);
    b = open_at(store->uri, NULL);
    story();
    close_both(NULL);
  }
}

/* ---- breaking ------------------------------------------------------------------------------ */

static int breaks(corral *c, const char *name, uint64_t fence) {
  return corral_lock_break(c, name, strlen(name), fence, &error);
}

static size_t holders_of(const char *name) {
  size_t count = 99;
  assert_int_equal(corral_lock_show(a, name, strlen(name), NULL, 0, &count, &error), CORRAL_OK);
  return count;
}

/* `name` is free: taken and released by b. */
static void is_free(const char *name) {
  assert_int_equal(corral_lock_release(take(b, name, CORRAL_LOCK(.wait_ms = PATIENCE_MS)), &error),
                   CORRAL_OK);
}

static void is_lost(corral_lock *lock) {
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_left_ms(lock), 0);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
}

static void lost_and_larger(void) {
  corral_lock *lock = take(a, "lost", CORRAL_LOCK(.ttl_ms = HOUR));
  uint64_t fence = corral_lock_fence(lock);
  assert_int_equal(try(b, "lost", CORRAL_LOCK(0)), CORRAL_EBUSY);
  if (breaks(b, "lost", fence) != CORRAL_OK) fail_msg("%s", error.text);
  corral_lock *next = take(b, "lost", CORRAL_LOCK(.wait_ms = PATIENCE_MS));
  assert_true(corral_lock_fence(next) > fence);
  is_lost(lock);
  assert_int_equal(corral_lock_extend(next, 0, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
}

static void a_broken_hold_is_lost_to_its_holder_and_the_next_token_is_larger(void **state) {
  (void)state;
  each(0, TIED, lost_and_larger);
}

static atomic_int told;
static void on_lost(corral_lock *lock, const char *why, void *arg) {
  (void)lock, (void)arg;
  if (strstr(why, "it was broken") != NULL) atomic_fetch_add(&told, 1);
}

/* It would be held for an hour. */
static void told_by_itself(void) {
  atomic_store(&told, 0);
  corral_lock *lock =
      take(a, "told", CORRAL_LOCK(.ttl_ms = 6000, .keep = 1, .max_ms = HOUR, .on_lost = on_lost));
  assert_int_equal(breaks(b, "told", 0), CORRAL_OK);
  until(a, CORRAL_EVENT_LOCK_LOST, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(atomic_load(&told), 1);
}

static void a_holder_who_keeps_a_broken_hold_is_told_without_asking(void **state) {
  (void)state;
  each(SHARED, TIED, told_by_itself);
}

static void later_stays(void) {
  corral_lock *lock = take(a, "later", CORRAL_LOCK(.ttl_ms = HOUR));
  uint64_t first = corral_lock_fence(lock);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  lock = take(b, "later", CORRAL_LOCK(.ttl_ms = HOUR, .wait_ms = PATIENCE_MS));
  assert_int_equal(breaks(a, "later", first), CORRAL_EMISS);
  assert_non_null(strstr(error.text, "no hold has the fencing token"));
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_OK);
  assert_int_equal(breaks(a, "later", corral_lock_fence(lock)), CORRAL_OK);
  is_lost(lock);
}

static void a_break_by_token_leaves_a_later_hold_alone(void **state) {
  (void)state;
  each(0, TIED, later_stays);
}

static void reader_by_reader(void) {
  corral_lock *one = take(a, "readers", CORRAL_LOCK(.shared = 1, .ttl_ms = HOUR)),
              *two = take(b, "readers", CORRAL_LOCK(.shared = 1, .ttl_ms = HOUR)),
              *three = take(b, "readers", CORRAL_LOCK(.shared = 1, .ttl_ms = HOUR, .owner = "3"));
  assert_int_equal(breaks(a, "readers", corral_lock_fence(two)), CORRAL_OK);
  assert_int_equal(holders_of("readers"), 2);
  is_lost(two);
  assert_int_equal(corral_lock_extend(one, 0, &error), CORRAL_OK);
  assert_int_equal(breaks(b, "readers", 0), CORRAL_OK);
  assert_int_equal(holders_of("readers"), 0);
  is_lost(one);
  is_lost(three);
  is_free("readers");
}

static void readers_are_broken_one_by_one_or_all(void **state) {
  (void)state;
  each(SHARED, TIED, reader_by_reader);
}

static void nothing_to_break(void) {
  assert_int_equal(breaks(a, "nobody", 0), CORRAL_EMISS);
  assert_string_equal(error.text, "nobody holds it");
  is_free("nobody");
  assert_int_equal(breaks(a, "nobody", 0), CORRAL_EMISS);
  assert_int_equal(breaks(a, "nobody", 7), CORRAL_EMISS);
  assert_int_equal(breaks(a, "", 0), CORRAL_EINVAL);
  assert_int_equal(breaks(NULL, "nobody", 0), CORRAL_EINVAL);
}

static void what_nobody_holds_is_not_broken(void **state) {
  (void)state;
  each(0, 0, nothing_to_break);
}

static void *wait_for_it(void *arg) {
  corral_lock *lock;
  static int64_t status;
  (void)arg;
  status = corral_lock_take(b, "waiter", 6, CORRAL_LOCK(.wait_ms = HOUR), &lock, NULL);
  if (status == CORRAL_OK) status = corral_lock_release(lock, NULL);
  return &status;
}

static void a_waiter_is_next(void) {
  pthread_t thread;
  void *status;
  corral_lock *lock = take(a, "waiter", CORRAL_LOCK(.ttl_ms = HOUR));
  assert_int_equal(pthread_create(&thread, NULL, wait_for_it, NULL), 0);
  until(b, CORRAL_EVENT_LOCK_WAIT, 1);
  assert_int_equal(breaks(a, "waiter", 0), CORRAL_OK);
  assert_int_equal(pthread_join(thread, &status), 0);
  assert_int_equal(*(int64_t *)status, CORRAL_OK);
  is_lost(lock);
}

static void a_waiter_has_the_lock_after_the_break(void **state) {
  (void)state;
  each(0, TIED, a_waiter_is_next);
}

static void the_server_has_to(void) {
  corral_lock *lock = take(a, "tied", CORRAL_LOCK(.ttl_ms = HOUR));
  assert_int_equal(breaks(b, "tied", 0), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "pg_terminate_backend"));
  assert_int_equal(breaks(b, "tied", corral_lock_fence(lock)), CORRAL_EUNSUPPORTED);
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_OK);
  assert_int_equal(breaks(a, "tied", corral_lock_fence(lock)), CORRAL_OK); /* its own */
  is_lost(lock);
  is_free("tied");
}

static void a_hold_of_anothers_connection_is_for_the_server_to_end(void **state) {
  (void)state;
  each(TIED, 0, the_server_has_to);
}

static void what_corral_did_not_write_is_not_broken(void **state) {
  (void)state;
  if (redis[0] == NULL) skip();
  a = open_at(redis_server_uri(redis[0]), NULL);
  redis_server_ask(redis[0], "SET ~lock::foreign x");
  assert_int_equal(breaks(a, "foreign", 0), CORRAL_EFOREIGN);
  assert_string_equal(redis_server_ask(redis[0], "GET ~lock::foreign"), "x");
  corral_close(a);
}

/* ---- listing ------------------------------------------------------------------------------- */

enum { LISTED = 8 };
typedef struct heard {
  size_t count, most; /* `most`: it ends the listing then */
  size_t lens[LISTED], holders[LISTED];
  char names[LISTED][64];
  uint64_t fences[LISTED];
} heard;

static int hear(const void *name, size_t len, const corral_lock_holder *holders, size_t count,
                void *arg) {
  heard *h = arg;
  assert_true(h->count < LISTED && len < sizeof h->names[0] && count > 0);
  memcpy(h->names[h->count], name, len);
  h->lens[h->count] = len;
  h->holders[h->count] = count;
  h->fences[h->count] = holders[0].fence;
  return ++h->count == h->most;
}

static heard lists(corral *c, const char *prefix, size_t most) {
  heard h = {.most = most};
  if (corral_lock_list(c, prefix, strlen(prefix), hear, &h, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return h;
}

static const char *const names[] = {"list:", "list:a", "list:b", "list:b2",
                                    "list:\xfe%*?[]\\^{}\x01 \"/x"};
enum { NAMES = 5 };

/* Taken in another order, beside locks that aren't to be listed: free ones, and another name. */
static void in_order(void) {
  static const size_t order[NAMES] = {3, 1, 4, 0, 2};
  corral_lock *locks[NAMES], *other = take(b, "lisu", CORRAL_LOCK(.ttl_ms = HOUR));
  for (size_t i = 0; i < NAMES; i++)
    locks[order[i]] = take(a, names[order[i]], CORRAL_LOCK(.ttl_ms = HOUR));
  assert_int_equal(try(b, "list:free", CORRAL_LOCK(0)), CORRAL_OK);
  heard h = lists(b, "list:", 0);
  assert_int_equal(h.count, NAMES);
  for (size_t i = 0; i < NAMES; i++) {
    assert_int_equal(h.lens[i], strlen(names[i]));
    assert_memory_equal(h.names[i], names[i], h.lens[i]);
    assert_int_equal(h.holders[i], 1);
    assert_int_equal(h.fences[i], corral_lock_fence(locks[i]));
  }
  h = lists(b, "list:b", 0);
  assert_int_equal(h.count, 2);
  h = lists(b, names[4], 0);
  assert_int_equal(h.count, 1);
  h = lists(b, "list", 2);
  assert_int_equal(h.count, 2);
  assert_int_equal(h.lens[1], 6);
  h = lists(b, "", 0);
  assert_int_equal(h.count, NAMES + 1);
  assert_memory_equal(h.names[NAMES], "lisu", 4);
  for (size_t i = 0; i < NAMES; i++)
    assert_int_equal(corral_lock_release(locks[i], &error), CORRAL_OK);
  h = lists(a, "list", 0);
  assert_int_equal(h.count, 0);
  assert_int_equal(corral_lock_release(other, &error), CORRAL_OK);
}

static void the_locks_that_are_held_are_listed_in_the_order_of_their_names(void **state) {
  (void)state;
  each(0, NUMBERS, in_order);
}

static void both_of_them(void) {
  corral_lock *one = take(a, "list2", CORRAL_LOCK(.shared = 1, .ttl_ms = HOUR)),
              *two = take(b, "list2", CORRAL_LOCK(.shared = 1, .ttl_ms = HOUR));
  heard h = lists(a, "list2", 0);
  assert_int_equal(h.count, 1);
  assert_int_equal(h.holders[0], 2);
  assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
}

static void a_lock_with_many_holders_is_listed_once_with_all_of_them(void **state) {
  (void)state;
  each(SHARED, NUMBERS, both_of_them);
}

static void says_so(void) {
  heard h = {.count = 0};
  corral_lock *lock = take(a, "list:unlisted", CORRAL_LOCK(.ttl_ms = HOUR));
  assert_int_equal(corral_lock_list(b, NULL, 0, hear, &h, &error), CORRAL_EUNSUPPORTED);
  assert_true(error.text[0] != '\0');
  assert_int_equal(h.count, 0);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void a_store_without_names_says_so(void **state) {
  (void)state;
  each(NUMBERS, 0, says_so);
}

static void a_namespace_lists_its_own_locks_and_no_others(void **state) {
  (void)state;
  for (size_t i = 0; i < store_count; i++) {
    if (stores[i].has & NUMBERS) continue;
    a = open_at(stores[i].uri, NULL);
    assert_int_equal(
        corral_open(CORRAL_OPTIONS(.store = stores[i].uri, .name_space = "~n:%", .op_ms = 10000),
                    &b, &error),
        CORRAL_OK);
    corral_lock *one = take(a, "space:a", CORRAL_LOCK(.ttl_ms = HOUR)),
                *two = take(b, "space:b", CORRAL_LOCK(.ttl_ms = HOUR));
    heard h = lists(a, "space", 0);
    assert_int_equal(h.count, 1);
    assert_memory_equal(h.names[0], "space:a", 7);
    h = lists(b, "", 0);
    assert_int_equal(h.count, 1);
    assert_memory_equal(h.names[0], "space:b", 7);
    assert_int_equal(corral_lock_release(one, &error), CORRAL_OK);
    assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
    close_both(NULL);
  }
}

/* Keys that are no locks' are not told, but they count towards the limit. */
static void too_many_to_list_is_told(void **state) {
  (void)state;
  heard h = {.count = 0};
  if (redis[0] == NULL) skip();
  a = open_at(redis_server_uri(redis[0]), NULL);
  redis_server_ask(redis[0], "EVAL %s 0",
                   "for i = 1, 65537 do redis.call('SET', '~lock::many' .. i, '') end");
  assert_int_equal(corral_lock_list(a, "many", 4, hear, &h, &error), CORRAL_ETOOBIG);
  assert_non_null(strstr(error.text, "65536"));
  assert_int_equal(corral_lock_list(a, "many1", 5, hear, &h, &error), CORRAL_OK);
  assert_int_equal(h.count, 0);
  redis_server_ask(redis[0], "FLUSHALL");
  corral_close(a);
}

static void what_cannot_be_listed_is_named(void **state) {
  (void)state;
  heard h = {.count = 0};
  a = open_at(stores[0].uri, NULL);
  assert_int_equal(corral_lock_list(a, "n", 1, NULL, NULL, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_list(a, NULL, 1, hear, &h, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_list(a, "n", 65537, hear, &h, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_list(NULL, "n", 1, hear, &h, &error), CORRAL_EINVAL);
  corral_close(a);
  if (redis[0] == NULL) return;
  a = open_at("redis://127.0.0.1:1", NULL);
  assert_int_equal(corral_lock_list(a, "n", 1, hear, &h, &error), CORRAL_EUNAVAILABLE);
  corral_close(a);
  redis_server_ask(redis[2], "FLUSHALL");
  redis_server_kill(redis[1]);
  for (size_t i = 0; i < store_count; i++) {
    if (strncmp(stores[i].uri, "redlock", 7) != 0) continue;
    a = open_at(stores[i].uri, NULL);
    corral_lock *lock = take(a, "two of three", CORRAL_LOCK(.ttl_ms = HOUR));
    assert_int_equal(lists(a, "two", 0).count, 1);
    redis_server_kill(redis[2]);
    assert_int_equal(corral_lock_list(a, "two", 3, hear, &h, &error), CORRAL_EUNAVAILABLE);
    corral_lock_release(lock, &error);
    corral_close(a);
  }
}

/* ---- watching ------------------------------------------------------------------------------ */

enum { CHANGES = 16 };
static struct {
  pthread_mutex_t mutex;
  size_t count, holders[CHANGES];
  uint64_t fences[CHANGES];
  corral_cancel_token *cancel;
  int status;
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int see(const void *name, size_t len, const corral_lock_holder *holders, size_t count,
               void *arg) {
  (void)arg;
  assert_int_equal(len, 7);
  assert_memory_equal(name, "watched", 7);
  pthread_mutex_lock(&seen.mutex);
  assert_true(seen.count < CHANGES);
  seen.holders[seen.count] = count;
  seen.fences[seen.count++] = count > 0 ? holders[0].fence : 0;
  pthread_mutex_unlock(&seen.mutex);
  return 0;
}

static void *watch_it(void *arg) {
  (void)arg;
  seen.status = corral_lock_watch(b, "watched", 7, seen.cancel, see, NULL, NULL);
  return NULL;
}

/* Waits until change number `count` was seen, which is the last one: so many holders. */
static uint64_t sees(size_t count, size_t holders) {
  int64_t end = crl_env_now_ms() + PATIENCE_MS;
  for (size_t now = 0; now < count; crl_env_pause_us(1000)) {
    pthread_mutex_lock(&seen.mutex);
    now = seen.count;
    pthread_mutex_unlock(&seen.mutex);
    if (crl_env_now_ms() > end) fail_msg("change %d of %d", (int)now, (int)count);
  }
  assert_int_equal(seen.count, count);
  assert_int_equal(seen.holders[count - 1], holders);
  return seen.fences[count - 1];
}

static void each_change(void) {
  pthread_t thread;
  seen.count = 0;
  seen.cancel = corral_cancel_token_new();
  assert_int_equal(pthread_create(&thread, NULL, watch_it, NULL), 0);
  (void)sees(1, 0);
  corral_lock *lock = take(a, "watched", CORRAL_LOCK(.ttl_ms = HOUR));
  assert_int_equal(sees(2, 1), corral_lock_fence(lock));
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_OK); /* no change */
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  (void)sees(3, 0);
  lock = take(a, "watched", CORRAL_LOCK(.ttl_ms = HOUR, .shared = 1));
  assert_int_equal(sees(4, 1), corral_lock_fence(lock));
  corral_lock *two = take(a, "watched", CORRAL_LOCK(.ttl_ms = HOUR, .shared = 1, .owner = "two"));
  (void)sees(5, 2);
  assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
  assert_int_equal(sees(6, 1), corral_lock_fence(lock));
  assert_int_equal(breaks(a, "watched", 0), CORRAL_OK);
  (void)sees(7, 0);
  corral_cancel_token_cancel(seen.cancel);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(seen.status, CORRAL_ECANCELLED);
  corral_cancel_token_free(seen.cancel);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
}

static void who_watches_is_told_each_change_of_holders_and_no_extension(void **state) {
  (void)state;
  each(SHARED, 0, each_change);
}

enum { SECONDS = 2200 }; /* ms: the server tells the connection's time in whole seconds */

static void grows_older(void) {
  pthread_t thread;
  seen.count = 0;
  seen.cancel = corral_cancel_token_new();
  assert_int_equal(pthread_create(&thread, NULL, watch_it, NULL), 0);
  (void)sees(1, 0);
  corral_lock *lock = take(a, "watched", CORRAL_LOCK(.ttl_ms = HOUR));
  (void)sees(2, 1);
  crl_env_pause_us(1000 * SECONDS);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  (void)sees(3, 0);
  corral_cancel_token_cancel(seen.cancel);
  assert_int_equal(pthread_join(thread, NULL), 0);
  corral_cancel_token_free(seen.cancel);
}

static void that_a_holders_connection_grows_older_is_no_change(void **state) {
  (void)state;
  each(TIED, 0, grows_older);
}

static void a_watch_waits_for_a_store_that_goes_away_and_can_be_cancelled_meanwhile(void **state) {
  (void)state;
  pthread_t thread;
  redis_server *own;
  if (!redis_server_start(&own, NULL)) skip();
  a = open_at(redis_server_uri(own), NULL);
  b = open_at(redis_server_uri(own), NULL);
  seen.count = 0;
  seen.cancel = corral_cancel_token_new();
  assert_int_equal(pthread_create(&thread, NULL, watch_it, NULL), 0);
  (void)sees(1, 0);
  corral_lock *lock = take(a, "watched", CORRAL_LOCK(.ttl_ms = HOUR));
  (void)sees(2, 1);
  redis_server_kill(own);
  until(b, CORRAL_EVENT_STORE_DOWN, 1);
  redis_server_restart(own);
  (void)sees(3, 0); /* it remembers nothing */
  redis_server_pause(own);
  corral_cancel_token_cancel(seen.cancel);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(seen.status, CORRAL_ECANCELLED);
  corral_cancel_token_free(seen.cancel);
  redis_server_resume(own);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  close_both(NULL);
  redis_server_stop(own);
}

static void *list_it(void *arg) {
  heard h = {.count = 0};
  pthread_cancel(pthread_self());
  *(int *)arg = corral_lock_list(b, "no such", 7, hear, &h, NULL);
  return NULL;
}

/* It would leave what is on its stack in the lists of others, and its connections open. */
static void a_thread_that_is_cancelled_ends_its_watch_or_list_first(void **state) {
  (void)state;
  pthread_t thread;
  int listed = 1;
  if (redis[0] == NULL) skip();
  a = open_at(redis_server_uri(redis[0]), NULL);
  b = open_at(redis_server_uri(redis[0]), NULL);
  seen.count = 0;
  seen.cancel = corral_cancel_token_new();
  assert_int_equal(pthread_create(&thread, NULL, watch_it, NULL), 0);
  (void)sees(1, 0);
  pthread_cancel(thread);
  corral_lock *lock = take(a, "watched", CORRAL_LOCK(.ttl_ms = HOUR));
  (void)sees(2, 1);
  corral_cancel_token_cancel(seen.cancel);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(seen.status, CORRAL_ECANCELLED);
  corral_cancel_token_free(seen.cancel);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(pthread_create(&thread, NULL, list_it, &listed), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(listed, CORRAL_OK);
  close_both(NULL);
}

static int once(const void *name, size_t len, const corral_lock_holder *holders, size_t count,
                void *arg) {
  (void)name, (void)len, (void)holders, (void)count;
  ++*(int *)arg;
  return 1;
}

static void a_watch_ends_when_its_function_says_so_or_cannot_begin(void **state) {
  (void)state;
  int calls = 0;
  a = open_at(stores[0].uri, NULL);
  assert_int_equal(corral_lock_watch(a, "n", 1, NULL, once, &calls, &error), CORRAL_OK);
  assert_int_equal(calls, 1);
  assert_int_equal(corral_lock_watch(a, "", 0, NULL, once, &calls, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_watch(a, "n", 1, NULL, NULL, &calls, &error), CORRAL_EINVAL);
  corral_close(a);
  if (redis[0] == NULL) return;
  a = open_at("redis://127.0.0.1:1", NULL);
  assert_int_equal(corral_lock_watch(a, "n", 1, NULL, once, &calls, &error), CORRAL_EUNAVAILABLE);
  assert_int_equal(calls, 1);
  corral_close(a);
}

/* ---- times --------------------------------------------------------------------------------- */

enum { WAIT_MS = 60 };

static void how_long_locks_are_waited_for_and_held_is_counted(void **state) {
  (void)state;
  pthread_t thread;
  void *status;
  corral_lock_stats stats = {.size = sizeof stats};
  a = open_at(stores[0].uri, NULL);
  b = open_at(stores[0].uri, NULL);
  assert_int_equal(corral_lock_stats_read(b, &stats, &error), CORRAL_OK);
  assert_int_equal(stats.wait.count, 0);
  assert_int_equal(stats.hold.max_us, 0);
  for (int i = 0; i < 3; i++) is_free("waiter");
  corral_lock *lock = take(a, "waiter", CORRAL_LOCK(.ttl_ms = HOUR));
  assert_int_equal(try(b, "waiter", CORRAL_LOCK(0)), CORRAL_EBUSY); /* isn't granted */
  assert_int_equal(pthread_create(&thread, NULL, wait_for_it, NULL), 0);
  until(b, CORRAL_EVENT_LOCK_WAIT, 1);
  crl_env_pause_us(1000 * WAIT_MS);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(pthread_join(thread, &status), 0);
  assert_int_equal(*(int64_t *)status, CORRAL_OK);
  assert_int_equal(corral_lock_stats_read(b, &stats, &error), CORRAL_OK);
  assert_int_equal(stats.wait.count, 4);
  assert_int_equal(stats.hold.count, 4);
  assert_true(stats.wait.max_us >= 1000 * WAIT_MS);
  assert_true(stats.wait.p50_us <= stats.wait.p90_us && stats.wait.p999_us <= stats.wait.max_us);
  assert_int_equal(corral_lock_stats_read(a, &stats, &error), CORRAL_OK);
  assert_int_equal(stats.wait.count, 1);
  assert_true(stats.hold.max_us >= 1000 * (WAIT_MS - 1));
  assert_int_equal(corral_lock_stats_read(a, NULL, &error), CORRAL_EINVAL);
  stats.size = 0;
  assert_int_equal(corral_lock_stats_read(a, &stats, &error), CORRAL_EINVAL);
  close_both(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_broken_hold_is_lost_to_its_holder_and_the_next_token_is_larger),
      cmocka_unit_test(a_holder_who_keeps_a_broken_hold_is_told_without_asking),
      cmocka_unit_test(a_break_by_token_leaves_a_later_hold_alone),
      cmocka_unit_test(readers_are_broken_one_by_one_or_all),
      cmocka_unit_test(what_nobody_holds_is_not_broken),
      cmocka_unit_test(a_waiter_has_the_lock_after_the_break),
      cmocka_unit_test(a_hold_of_anothers_connection_is_for_the_server_to_end),
      cmocka_unit_test(what_corral_did_not_write_is_not_broken),
      cmocka_unit_test(the_locks_that_are_held_are_listed_in_the_order_of_their_names),
      cmocka_unit_test(a_lock_with_many_holders_is_listed_once_with_all_of_them),
      cmocka_unit_test(a_store_without_names_says_so),
      cmocka_unit_test(a_namespace_lists_its_own_locks_and_no_others),
      cmocka_unit_test(too_many_to_list_is_told),
      cmocka_unit_test(who_watches_is_told_each_change_of_holders_and_no_extension),
      cmocka_unit_test(that_a_holders_connection_grows_older_is_no_change),
      cmocka_unit_test(a_watch_waits_for_a_store_that_goes_away_and_can_be_cancelled_meanwhile),
      cmocka_unit_test(a_thread_that_is_cancelled_ends_its_watch_or_list_first),
      cmocka_unit_test(a_watch_ends_when_its_function_says_so_or_cannot_begin),
      cmocka_unit_test(how_long_locks_are_waited_for_and_held_is_counted),
      cmocka_unit_test(what_cannot_be_listed_is_named), /* kills servers */
  };
  return cmocka_run_group_tests(tests, start_all, stop_all);
}
