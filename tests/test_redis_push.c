/* test_redis_push.c: copies and waiters on a real Redis, which tells of changes by push: whatever
 * happens to connections, a copy that answers alone is one whose change will be told. */
#include "support/answers_kit.h"

#include <corral/loop.h>
#include <pthread.h>
#include <sched.h>

#include "support/redis_server.h"

enum { LIMIT_US = 20000000, OP_MS = 5000 /* no look of a busy machine ends in a compute */ };

static redis_server *redis;

/* ---- the server ---------------------------------------------------------------------------- */

static int is_watch(const char *line) { return strstr(line, " flags=t") != NULL; }
static int is_handle(const char *line) {
  return strstr(line, " name=corral ") != NULL && !is_watch(line);
}

/* Without RESP3: the connection that registers, and the one that is told. */
static int registers(const char *line) { return is_watch(line); }
static int is_ear(const char *line) { return strstr(line, " cmd=subscribe ") != NULL; }
static int is_usual(const char *line) { return is_handle(line) && !is_ear(line); }

/* Closes connections on the server's side; returns how many. */
static int kills(int (*is_meant)(const char *line)) {
  char *list = strdup(redis_server_ask(redis, "CLIENT LIST")), *rest = NULL;
  int count = 0;
  for (char *line = strtok_r(list, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (!is_meant(line)) continue;
    redis_server_ask(redis, "CLIENT KILL ID %lld", strtoll(line + 3, NULL, 10));
    count++;
  }
  free(list);
  return count;
}

/* ---- a corral with copies ------------------------------------------------------------------ */

typedef struct log {
  char said[8][240];
  _Atomic int count, wake;
} log;

static void on_event(const corral_event_info *info, void *arg) {
  log *l = arg;
  const char *detail = info->detail;
  assert_int_equal(info->wake >= 0, info->event == CORRAL_EVENT_WATCH);
  if (info->event != CORRAL_EVENT_WATCH) return;
  l->wake = info->wake;
  int at = atomic_load(&l->count);
  snprintf(l->said[at % 8], sizeof l->said[0], "%s", detail == NULL ? "" : detail);
  atomic_store(&l->count, at + 1);
}

static corral *with_copies(const char *uri, log *l) {
  redis_server_ask(redis, "FLUSHALL");
  return opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .host_lock = CORRAL_OFF,
                               .op_ms = OP_MS, .on_event = on_event, .event_arg = l));
}

static corral_policy far_sighted(void) {
  corral_policy policy = usual();
  policy.near_ms = FAR;
  return policy;
}

/* Number of keys that the server will tell of. */
static long long registrations(void) {
  const char *at = strstr(redis_server_ask(redis, "INFO stats"), "tracking_total_keys:");
  return at == NULL ? -1 : strtoll(at + 20, NULL, 10);
}

/* Asks until a copy answers. */
static void copies(corral *c, const char *key, say *s) {
  corral_policy policy = far_sighted();
  uint64_t before = corral_counter(c, CORRAL_EVENT_NEAR);
  int64_t until = lab_now_us() + LIMIT_US;
  while (corral_counter(c, CORRAL_EVENT_NEAR) == before) {
    assert_int_equal(asks_by(c, key, &policy, s).status, CORRAL_OK);
    if (lab_now_us() > until) fail_msg("no copy ever answers");
  }
}

/* Asks until a copy answers whose change the watch will tell. */
static void watched_copies(corral *c, const char *key, say *s) {
  int64_t until = lab_now_us() + LIMIT_US;
  for (copies(c, key, s); registrations() < 1; copies(c, key, s))
    if (lab_now_us() > until) fail_msg("no key is ever registered");
  copies(c, key, s);
}

/* Asks until the key was computed `least` times. */
static void computes(corral *c, const char *key, say *s, int least) {
  corral_policy policy = far_sighted();
  int64_t until = lab_now_us() + LIMIT_US;
  while (s->ran < least) {
    assert_int_equal(asks_by(c, key, &policy, s).status, CORRAL_OK);
    if (lab_now_us() > until) fail_msg("a change was never told: a copy goes on answering");
  }
  assert_int_equal(s->ran, least);
}

static void says(log *l, int number, const char *text) {
  int64_t until = lab_now_us() + LIMIT_US;
  while (atomic_load(&l->count) <= number)
    if (lab_now_us() > until)
      fail_msg("no event says: %s", text);
    else
      sched_yield();
  if (strstr(l->said[number], text) == NULL) fail_msg("%s: %s", text, l->said[number]);
}

/* ---- copies -------------------------------------------------------------------------------- */

/* A copy is told of although connections of this kind are closed, three times. */
static void outlives_the_end_of(int (*kind)(const char *line), corral *c, say *s) {
  for (int round = 1; round <= 3; round++) {
    watched_copies(c, "k", s);
    assert_true(kills(kind) > 0);
    assert_true(strtol(redis_server_ask(redis, "DEL k"), NULL, 10) == 1);
    computes(c, "k", s, round + 1);
  }
}

static void a_copy_whose_handle_was_closed_by_the_server_is_still_told_of(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  say s = {.text = "v"};
  outlives_the_end_of(is_handle, c, &s);
  says(&l, 0, "push (RESP3)");
  assert_int_equal(l.count, 1);
  corral_close(c);
}

/* Tags' versions are copies, too. */
static void a_tag_whose_handle_was_closed_is_still_told_of(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  corral *other = opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = OP_MS));
  say s = {.text = "v", .tags = {"t"}};
  for (int round = 1; round <= 3; round++) {
    watched_copies(c, "k", &s);
    assert_true(kills(is_handle) > 0);
    assert_int_equal(corral_invalidate_tag(other, "t", 1, NULL), CORRAL_OK);
    computes(c, "k", &s, round + 1);
  }
  corral_close(other);
  corral_close(c);
}

static void copies_are_registered_anew_after_the_end_of_the_watch(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  say s = {.text = "v"};
  watched_copies(c, "k", &s);
  for (int round = 1; round <= 2; round++) {
    assert_int_equal(kills(is_watch), 1);
    redis_server_ask(redis, "DEL k");
    computes(c, "k", &s, round + 1);
    says(&l, 2 * round - 1, "poll: ");
    says(&l, 2 * round, "push (RESP3)");
    watched_copies(c, "k", &s);
  }
  redis_server_ask(redis, "DEL k");
  computes(c, "k", &s, 4);
  corral_close(c);
}

static void a_flush_ends_all_copies(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  say s = {.text = "v"}, other = {.text = "w"};
  watched_copies(c, "k", &s);
  watched_copies(c, "other", &other);
  redis_server_ask(redis, "FLUSHALL");
  computes(c, "k", &s, 2);
  computes(c, "other", &other, 2);
  corral_close(c);
}

/* Changes between looks and registrations: a copy never goes back to an earlier value. */
static void a_change_between_look_and_registration_leaves_no_copy(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  corral *other = opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = OP_MS));
  corral_policy policy = far_sighted();
  say s = {.text = "0"};
  watched_copies(c, "k", &s);
  for (int i = 1; i <= 300; i++) {
    char text[16];
    int64_t until = lab_now_us() + LIMIT_US;
    snprintf(text, sizeof text, "%d", i);
    assert_int_equal(corral_set(other, "k", 1, CORRAL_CALL(.policy = &policy), text, strlen(text)),
                     CORRAL_OK);
    while (strcmp(asks_by(c, "k", &policy, &s).text, text) != 0)
      if (lab_now_us() > until) fail_msg("%s was not told", text);
  }
  assert_int_equal(s.ran, 1);
  assert_true(corral_counter(c, CORRAL_EVENT_NEAR) > 0);
  corral_close(other);
  corral_close(c);
}

static void a_hit_without_copies_opens_no_watch(void **state) {
  (void)state;
  if (redis == NULL) skip();
  corral *c = opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis)));
  say s = {.text = "v"};
  for (int i = 0; i < 3; i++) asks(c, "hit", &s);
  assert_null(strstr(redis_server_ask(redis, "CLIENT LIST"), " flags=t"));
  assert_int_equal(corral_counter(c, CORRAL_EVENT_WATCH), 0);
  corral_close(c);
}

/* ---- what this process has stored --------------------------------------------------------- */

/* The looks of all clients at keys, this process' watch among them. */
static long long looks(void) {
  long long count = 0;
  char *stats = strdup(redis_server_ask(redis, "INFO commandstats")), *rest = NULL;
  for (char *line = strtok_r(stats, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    const char *calls = strstr(line, ":calls=");
    if (calls != NULL &&
        (strncmp(line, "cmdstat_get:", 12) == 0 || strncmp(line, "cmdstat_getrange:", 17) == 0))
      count += strtoll(calls + 7, NULL, 10);
  }
  free(stats);
  return count;
}

/* Asks no store. */
static int has_copy(corral *c, const char *key) {
  corral_value *value = NULL;
  corral_policy policy = far_sighted();
  int status = corral_peek(c, key, strlen(key), CORRAL_CALL(.policy = &policy), &value);
  corral_value_unref(value);
  return status == CORRAL_OK;
}

/* The watch finds the record that was stored. */
static void after_its_own_compute_a_process_asks_no_more(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  corral_policy policy = far_sighted();
  say first = {.text = "w"};
  watched_copies(c, "warm", &first); /* the watch is up */
  for (int i = 0; i < 20; i++) {
    char key[16];
    say s = {.text = i % 2 == 0 ? "v" : NULL};
    snprintf(key, sizeof key, "own%d", i);
    int64_t until = lab_now_us() + LIMIT_US;
    (void)asks_by(c, key, &policy, &s);
    while (i % 2 == 0 && !has_copy(c, key))
      if (lab_now_us() > until) fail_msg("no copy is kept, or the watch doesn't know its record");
    uint64_t near = corral_counter(c, CORRAL_EVENT_NEAR);
    while (i % 2 == 1 && corral_counter(c, CORRAL_EVENT_NEAR) == near) has_copy(c, key);
    long long before = looks();
    for (int call = 0; call < 50; call++)
      assert_int_equal(asks_by(c, key, &policy, &s).status,
                       i % 2 == 0 ? CORRAL_OK : CORRAL_ENOTFOUND);
    assert_int_equal(s.ran, 1);
    assert_int_equal(looks(), before);
  }
  corral_close(c);
}

/* Another process changes the record between its settle and the watch's look at it. */
typedef enum change { NONE, GOES, ANOTHER } change;

static change next_change;

static void on_fill(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event != CORRAL_EVENT_FILL || next_change == NONE) return;
  const char *reply = next_change == GOES ? redis_server_ask(redis, "DEL k")
                                          : redis_server_ask(redis, "COPY warm k REPLACE");
  assert_int_equal(strtol(reply, NULL, 10), 1);
}

/* A registration of an earlier round may look at any moment, so a copy may be one push late. */
static void a_change_between_settle_and_registration_is_seen(void **state) {
  (void)state;
  if (redis == NULL) skip();
  redis_server_ask(redis, "FLUSHALL");
  next_change = NONE;
  corral *c = opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .near_bytes = 1 << 20,
                                    .host_lock = CORRAL_OFF, .op_ms = OP_MS, .on_event = on_fill));
  say warm = {.text = "w"};
  watched_copies(c, "warm", &warm);
  for (int round = 0; round < 40; round++) {
    say s = {.text = "v"};
    redis_server_ask(redis, "DEL k");
    next_change = round % 2 == 0 ? GOES : ANOTHER;
    computes(c, "k", &s, 1);
    next_change = NONE;
    computes(c, "k", &s, 2); /* a record of another key is none, either */
  }
  corral_close(c);
}

/* ---- waiters ------------------------------------------------------------------------------- */

typedef struct waiter {
  corral *c;
  pthread_t thread;
  int status;
  char text[16];
} waiter;

static void *waits(void *arg) {
  waiter *w = arg;
  corral_value *value = NULL;
  corral_policy policy = usual();
  policy.poll_ms = policy.poll_max_ms = policy.lease_ms = 60000;
  say s = {.text = "computed by the waiter"};
  w->status =
      corral_get_or_compute(w->c, "k", 1, CORRAL_CALL(.policy = &policy), answer, &s, &value);
  if (w->status == CORRAL_OK)
    snprintf(w->text, sizeof w->text, "%.*s", (int)corral_value_size(value),
             (const char *)corral_value_data(value));
  corral_value_unref(value);
  return NULL;
}

typedef struct leader {
  corral *c;
  pthread_t thread;
  _Atomic int inside, let_go;
} leader;

static int leads(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  leader *l = arg;
  (void)key;
  (void)key_len;
  atomic_store(&l->inside, 1);
  while (!atomic_load(&l->let_go)) sched_yield();
  return corral_fill_bytes(fill, "led", 3);
}

static void *run_leader(void *arg) {
  leader *l = arg;
  corral_value *value = NULL;
  corral_policy policy = usual();
  policy.lease_ms = policy.lease_min_ms = 60000;
  assert_int_equal(
      corral_get_or_compute(l->c, "k", 1, CORRAL_CALL(.policy = &policy), leads, l, &value),
      CORRAL_OK);
  corral_value_unref(value);
  return NULL;
}

/* The pause between two looks is 60 s here: only a push can end the wait in time. */
static void a_waiter_is_woken_though_all_handles_were_closed(void **state) {
  (void)state;
  if (redis == NULL) skip();
  const char *uri = redis_server_unix_uri(redis);
  const corral_options *alone =
      CORRAL_OPTIONS(.store = uri, .host_lock = CORRAL_OFF, .op_ms = OP_MS);
  leader l = {.c = opened(alone)};
  waiter w = {.c = opened(alone)};
  for (int round = 0; round < 3; round++) {
    uint64_t waits_before = corral_counter(w.c, CORRAL_EVENT_WAIT);
    redis_server_ask(redis, "FLUSHALL");
    atomic_store(&l.inside, 0);
    atomic_store(&l.let_go, 0);
    assert_int_equal(pthread_create(&l.thread, NULL, run_leader, &l), 0);
    while (!atomic_load(&l.inside)) sched_yield();
    assert_int_equal(pthread_create(&w.thread, NULL, waits, &w), 0);
    while (corral_counter(w.c, CORRAL_EVENT_WAIT) == waits_before) sched_yield();
    int64_t until = lab_now_us() + LIMIT_US;
    while (registrations() < 1)
      if (lab_now_us() > until) fail_msg("the waiter's key is never registered");
    assert_true(kills(is_handle) > 0);
    int64_t before = lab_now_us();
    atomic_store(&l.let_go, 1);
    pthread_join(w.thread, NULL);
    pthread_join(l.thread, NULL);
    assert_int_equal(w.status, CORRAL_OK);
    assert_string_equal(w.text, "led");
    assert_in_range(lab_now_us() - before, 0, LIMIT_US);
  }
  assert_true(corral_counter(w.c, CORRAL_EVENT_WATCH) > 0);
  corral_close(w.c);
  corral_close(l.c);
}

/* ---- a server that refuses ----------------------------------------------------------------- */

static void a_user_without_tracking_polls_and_the_event_says_so(void **state) {
  (void)state;
  if (redis == NULL) skip();
  char uri[96];
  static log l;
  l.count = 0;
  redis_server_ask(redis, "ACL DELUSER somebody");
  redis_server_ask(redis, "ACL SETUSER somebody on >secret ~* &* +@all -client|tracking");
  snprintf(uri, sizeof uri, "redis://somebody:secret@127.0.0.1:%d", redis_server_port(redis));
  corral *c = with_copies(uri, &l);
  corral_policy policy = far_sighted();
  say s = {.text = "v"};
  (void)asks_by(c, "k", &policy, &s);
  says(&l, 0, "poll: ");
  assert_int_equal(l.wake, CORRAL_WAKE_POLL);
  says(&l, 0, "it refuses CLIENT TRACKING: NOPERM");
  copies(c, "k", &s); /* copies answer by near_ms */
  policy.near_ms = 1;
  redis_server_ask(redis, "DEL k");
  lab_sleep_ms(2);
  assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_COMPUTED);
  assert_int_equal(l.count, 1);
  corral_close(c);
}

/* ---- a server without RESP3 ---------------------------------------------------------------- */

static redis_server *usual_server;

/* Nobody may be refused HELLO by his rights, but a server may not know it. */
static int start_without_hello(void **state) {
  static const char *const args[] = {"--rename-command", "HELLO", "GOODBYE", NULL};
  usual_server = redis;
  if (redis != NULL) redis_server_start(&redis, args);
  return lab_make_room(state);
}

static int stop_without_hello(void **state) {
  if (redis != NULL) redis_server_stop(redis);
  redis = usual_server;
  return lab_leave_room(state);
}

static const char *limited_to(const char *rights) {
  static char uri[96];
  redis_server_ask(redis, "ACL DELUSER simple");
  redis_server_ask(redis, "ACL SETUSER simple on >secret ~* &* +@all");
  redis_server_ask(redis, "ACL SETUSER simple %s", rights);
  snprintf(uri, sizeof uri, "redis://simple:secret@127.0.0.1:%d", redis_server_port(redis));
  return uri;
}

/* Other connections may come and go; a copy is told of until one of the watch's ends. */
static void without_hello_a_second_connection_is_told(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  say s = {.text = "v"};
  outlives_the_end_of(is_usual, c, &s);
  watched_copies(c, "k", &s);
  redis_server_ask(redis, "FLUSHALL");
  computes(c, "k", &s, 5);
  says(&l, 0, "redirect (RESP2)");
  assert_int_equal(l.wake, CORRAL_WAKE_REDIRECT);
  assert_int_equal(l.count, 1);
  corral_close(c);
}

static void the_end_of_either_connection_ends_the_copies(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  say s = {.text = "v"};
  for (int round = 1; round <= 4; round++) {
    watched_copies(c, "k", &s);
    assert_int_equal(kills(round % 2 == 0 ? registers : is_ear), 1);
    redis_server_ask(redis, "DEL k");
    computes(c, "k", &s, round + 1);
    says(&l, (2 * round - 1) % 8, "poll: ");
    says(&l, (2 * round) % 8, "redirect (RESP2)");
  }
  corral_close(c);
}

static void a_redirect_that_falls_silent_is_given_up(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static log l;
  l.count = 0;
  corral *c = with_copies(redis_server_unix_uri(redis), &l);
  say s = {.text = "v"};
  watched_copies(c, "k", &s);
  redis_server_pause(redis);
  says(&l, 1, "poll: ");
  redis_server_resume(redis);
  says(&l, 2, "redirect (RESP2)");
  corral_close(c);
}

static void without_what_a_redirect_needs_the_event_says_what_is_refused(void **state) {
  (void)state;
  if (redis == NULL) skip();
  static const char *const rights[] = {"-client|tracking", "-subscribe", "resetchannels",
                                       "-client|id"};
  static const char *const refused[] = {"HELLO, and CLIENT TRACKING", "HELLO, and SUBSCRIBE",
                                        "HELLO, and SUBSCRIBE", "HELLO, and CLIENT ID"};
  for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
    static log l;
    l.count = 0;
    corral *c = with_copies(limited_to(rights[i]), &l);
    say s = {.text = "v"};
    corral_policy policy = far_sighted();
    (void)asks_by(c, "k", &policy, &s);
    says(&l, 0, "poll: ");
    says(&l, 0, refused[i]);
    corral_close(c);
  }
}

#define T(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)
#define S(test) cmocka_unit_test_setup_teardown(test, start_without_hello, stop_without_hello)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_copy_whose_handle_was_closed_by_the_server_is_still_told_of),
      T(a_tag_whose_handle_was_closed_is_still_told_of),
      T(copies_are_registered_anew_after_the_end_of_the_watch),
      T(a_flush_ends_all_copies),
      T(a_change_between_look_and_registration_leaves_no_copy),
      T(a_hit_without_copies_opens_no_watch),
      T(after_its_own_compute_a_process_asks_no_more),
      T(a_change_between_settle_and_registration_is_seen),
      T(a_waiter_is_woken_though_all_handles_were_closed),
      T(a_user_without_tracking_polls_and_the_event_says_so),
      S(without_hello_a_second_connection_is_told),
      S(the_end_of_either_connection_ends_the_copies),
      S(a_redirect_that_falls_silent_is_given_up),
      S(without_what_a_redirect_needs_the_event_says_what_is_refused),
  };
  redis_server_start(&redis, NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  redis_server_stop(redis);
  return failed;
}
