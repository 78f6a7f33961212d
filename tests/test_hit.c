/* test_hit.c: the cost of a hit, counted: allocations, hashes of its key, reads of each clock,
 * system calls, mutexes, and wakes. */
#include "support/answers_kit.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "context/context.h"
#include "os/env.h"
#include "policy/options.h"
#include "support/allocations_kit.h"
#include "support/redis_cluster.h"
#include "support/uncounted.h"

enum { HITS = 100, ATTEMPTS = 50 };

/* Of the thread that calls. */
static _Thread_local struct counts {
  long allocations, hashes, monotonic, boot, wall, sends, receives, polls, wakes, mutexes;
} now;

/* ---- what is counted ----------------------------------------------------------------------- */

static void allocated(void) { now.allocations++; }

uint64_t __real_crl_hash(const void *data, size_t size);
uint64_t __wrap_crl_hash(const void *data, size_t size);
uint64_t __wrap_crl_hash(const void *data, size_t size) {
  now.hashes++;
  return __real_crl_hash(data, size);
}

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
  now.monotonic += clock == CLOCK_MONOTONIC;
  now.boot += clock == CLOCK_BOOTTIME;
  now.wall += clock == CLOCK_REALTIME;
  return __real_clock_gettime(clock, ret);
}

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
  now.sends++;
  return __real_sendmsg(fd, message, flags);
}

ssize_t __real_recv(int fd, void *data, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags) {
  now.receives++;
  return __real_recv(fd, data, size, flags);
}

int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout) {
  now.polls++;
  return __real_poll(fds, count, timeout);
}

void __real_crl_env_word_wake(_Atomic uint32_t *word, int count);
void __wrap_crl_env_word_wake(_Atomic uint32_t *word, int count);
void __wrap_crl_env_word_wake(_Atomic uint32_t *word, int count) {
  now.wakes++;
  __real_crl_env_word_wake(word, count);
}

int __real_crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits);
int __wrap_crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits);
int __wrap_crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits) {
  now.wakes++;
  return __real_crl_env_word_wake_bits(word, count, bits);
}

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
  now.mutexes++;
  return __real_pthread_mutex_lock(mutex);
}

/* ---- hits ---------------------------------------------------------------------------------- */

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "value", 5);
}

static void get(corral *c, const char *key, corral_how how) {
  corral_value *value = NULL;
  const corral_policy *policy = CORRAL_POLICY(.ttl_ms = 3600000);
  assert_int_equal(corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.policy = policy),
                                         compute, NULL, &value),
                   CORRAL_OK);
  if (how != 0) assert_int_equal(corral_value_how(value), how);
  assert_int_equal(corral_value_size(value), 5);
  corral_value_unref(value);
}

static struct counts of_hits(corral *c, const char *key) {
  struct counts before = now, spent;
  for (int i = 0; i < HITS; i++) get(c, key, CORRAL_FRESH);
  spent = now;
  long *at = (long *)&spent;
  for (size_t i = 0; i < sizeof spent / sizeof *at; i++) at[i] -= ((const long *)&before)[i];
  return spent;
}

/* Once a second a hit checks files, or learns the server's clock; and a stall may cost a poll. So
 * there are attempts: a hundred hits at this cost show the rule. */
static void hits_cost(const char *uri, const char *key, const struct counts *one) {
  corral *c = NULL;
  corral_error error = {0};
  struct counts all = *one, spent = {0};
  for (size_t i = 0; i < sizeof all / sizeof(long); i++) ((long *)&all)[i] *= HITS;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 30000), &c, &error),
                   CORRAL_OK);
  get(c, key, CORRAL_COMPUTED);
  for (int i = 0; i < 3; i++) get(c, key, CORRAL_FRESH);
  for (int i = 0; i < ATTEMPTS; i++) {
    spent = of_hits(c, key);
    if (memcmp(&spent, &all, sizeof all) == 0) break;
  }
  if (memcmp(&spent, &all, sizeof all) != 0)
    fail_msg("%d hits on %s: %ld allocations, %ld hashes, %ld + %ld + %ld reads of clocks, %ld "
             "sendmsg, %ld recv, %ld poll, %ld wakes, %ld mutexes",
             HITS, uri, spent.allocations, spent.hashes, spent.monotonic, spent.boot, spent.wall,
             spent.sends, spent.receives, spent.polls, spent.wakes, spent.mutexes);
  corral_close(c);
}

static void a_hit_in_the_process_is_one_allocation_and_one_hash(void **state) {
  (void)state;
  hits_cost("memory:", "key", &(struct counts){1, 1, 1, 1, 0, 0, 0, 0, 0, 1});
  hits_cost("memory:", "key:1", &(struct counts){1, 1, 1, 1, 0, 0, 0, 0, 0, 1});
}

static void a_hit_in_a_file_takes_no_mutex(void **state) {
  (void)state;
  const char *uri = lab_lmdb(lab_room, "store");
  hits_cost(uri, "key", &(struct counts){1, 1, 1, 1, 0, 0, 0, 0, 0, 0});
  hits_cost(uri, "key:1", &(struct counts){1, 1, 1, 1, 0, 0, 0, 0, 0, 0});
}

/* The key that is stored isn't always the one that the herd knows: of both, one is hashed. One
 * read of the clock is the end of the look, for the stats file. */
static void a_hit_on_redis_is_that_and_two_system_calls(void **state) {
  (void)state;
  redis_server *server = NULL;
  if (!redis_server_start(&server, NULL)) skip();
  const char *uri = redis_server_unix_uri(server);
  hits_cost(uri, "key", &(struct counts){1, 1, 3, 1, 0, 1, 1, 0, 0, 0});
  hits_cost(uri, "key:1", &(struct counts){1, 1, 3, 1, 0, 1, 1, 0, 0, 0});
  redis_server_stop(server);
}

/* A key of each node. */
static void a_hit_on_a_cluster_is_the_same_on_each_node(void **state) {
  (void)state;
  redis_cluster *cluster = NULL;
  int seen[REDIS_CLUSTER_NODES] = {0}, left = REDIS_CLUSTER_PRIMARIES;
  if (!redis_cluster_start(&cluster)) skip();
  for (int i = 0; left > 0; i++) {
    char key[16];
    snprintf(key, sizeof key, "key:%d", i);
    int owner = redis_cluster_owner(cluster, redis_cluster_slot(cluster, key));
    if (seen[owner]++ == 0) {
      hits_cost(redis_cluster_uri(cluster), key, &(struct counts){1, 1, 3, 1, 0, 1, 1, 0, 0, 0});
      left--;
    }
  }
  redis_cluster_stop(cluster);
}

/* ---- a look within a look ------------------------------------------------------------------ */

/* As a store that is made of another corral. */
static corral *within;
static int looks;

void __real_crl_pool_look(struct crl_pool *pool, corral_op *op, int64_t begun, int64_t deadline,
                          corral_error *why);
void __wrap_crl_pool_look(struct crl_pool *pool, corral_op *op, int64_t begun, int64_t deadline,
                          corral_error *why);
void __wrap_crl_pool_look(struct crl_pool *pool, corral_op *op, int64_t begun, int64_t deadline,
                          corral_error *why) {
  corral *inner = within;
  within = NULL;
  looks++;
  if (inner != NULL) get(inner, "inner:1", CORRAL_FRESH);
  __real_crl_pool_look(pool, op, begun, deadline, why);
}

static void a_look_within_a_look_leaves_that_alone(void **state) {
  (void)state;
  corral *outer = NULL, *inner = NULL;
  corral_error error = {0};
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &outer, &error), CORRAL_OK);
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &inner, &error), CORRAL_OK);
  get(outer, "outer:1", CORRAL_COMPUTED);
  get(inner, "inner:1", CORRAL_COMPUTED);
  within = inner;
  looks = 0;
  get(outer, "outer:1", CORRAL_FRESH);
  assert_null(within);
  assert_int_equal(looks, 1); /* the inner one went the longer way */
  corral_close(inner);
  corral_close(outer);
}

/* ---- policies of callers ------------------------------------------------------------------- */

static void a_policy_is_resolved_once_and_each_one_counts(void **state) {
  (void)state;
  crl_context *context = calloc(1, sizeof *context);
  const corral_policy *first[CRL_POLICIES];
  corral_policy room;
  corral_error error = {0};
  int status;
  assert_null(crl_context_policy(context, CORRAL_POLICY(.ttl_ms = -9), &room, &status, &error));
  assert_int_equal(status, CORRAL_EINVAL);
  for (int i = 0; i < 2 * CRL_POLICIES; i++) {
    const corral_policy *given = CORRAL_POLICY(.ttl_ms = 100 + i),
                        *whole = crl_context_policy(context, given, &room, &status, &error);
    assert_int_equal(status, CORRAL_OK);
    assert_int_equal(whole->ttl_ms, 100 + i);
    if (i < CRL_POLICIES) assert_ptr_not_equal(whole, &room);
    if (i < CRL_POLICIES) first[i] = whole;
    if (i >= CRL_POLICIES) assert_ptr_equal(whole, &room);
  }
  for (int i = 0; i < CRL_POLICIES; i++)
    assert_ptr_equal(
        crl_context_policy(context, CORRAL_POLICY(.ttl_ms = 100 + i), &room, &status, &error),
        first[i]);
  crl_context_free_policies(context);
  free(context);
}

/* Each field counts. */
static void policies_that_differ_in_one_field_are_two(void **state) {
  (void)state;
  size_t count, at;
  const crl_option *rows = crl_options_of_policy(&count, &at);
  for (size_t i = 0; i < count; i++) {
    crl_context *context = calloc(1, sizeof *context);
    corral_policy room, one = {.size = sizeof one}, other = one;
    corral_error error = {0};
    int status;
    memcpy((char *)&one + at + i * sizeof(int64_t), &rows[i].most, sizeof(int64_t));
    memcpy((char *)&other + at + i * sizeof(int64_t), &rows[i].least, sizeof(int64_t));
    const corral_policy *a = crl_context_policy(context, &one, &room, &status, &error);
    assert_int_equal(status, CORRAL_OK);
    const corral_policy *b = crl_context_policy(context, &other, &room, &status, &error);
    assert_int_equal(status, CORRAL_OK);
    if (a == b) fail_msg("%s is no part of what is compared", rows[i].name);
    crl_context_free_policies(context);
    free(context);
  }
}

/* A caller's struct of an older header is another policy than a longer one that begins so. */
static void a_shorter_policy_is_one_of_its_own(void **state) {
  (void)state;
  crl_context *context = calloc(1, sizeof *context);
  corral_policy room, given = *CORRAL_POLICY(.ttl_ms = 77), other = given;
  corral_error error = {0};
  int status;
  given.size = offsetof(corral_policy, ttl_ms) + sizeof given.ttl_ms;
  context->policy.wait_ms = 5;
  other.wait_ms = 9;
  const corral_policy *a = crl_context_policy(context, &given, &room, &status, &error),
                      *b = crl_context_policy(context, &other, &room, &status, &error);
  assert_ptr_not_equal(a, b);
  assert_int_equal(a->ttl_ms, 77);
  assert_int_equal(a->wait_ms, 5);
  assert_int_equal(b->wait_ms, 9);
  given.size = 3;
  assert_null(crl_context_policy(context, &given, &room, &status, &error));
  assert_int_equal(status, CORRAL_EINVAL);
  crl_context_free_policies(context);
  free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hit_in_the_process_is_one_allocation_and_one_hash),
      cmocka_unit_test_setup_teardown(a_hit_in_a_file_takes_no_mutex, lab_make_room,
                                      lab_leave_room),
      cmocka_unit_test(a_hit_on_redis_is_that_and_two_system_calls),
      cmocka_unit_test(a_hit_on_a_cluster_is_the_same_on_each_node),
      cmocka_unit_test(a_look_within_a_look_leaves_that_alone),
      cmocka_unit_test(a_policy_is_resolved_once_and_each_one_counts),
      cmocka_unit_test(policies_that_differ_in_one_field_are_two),
      cmocka_unit_test(a_shorter_policy_is_one_of_its_own),
  };
  count_no_call();
  return cmocka_run_group_tests_name("hit", tests, NULL, NULL);
}
