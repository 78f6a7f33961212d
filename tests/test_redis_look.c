/* test_redis_look.c: a look at a value on Redis: its commands and system calls, the server's clock
 * by which it judges, and what is not believed. */
#include "support/redis_kit.h"

#include <poll.h>
#include <unistd.h>

#include "../plugins/redis/redis.h"
#include "support/fake_server.h"

enum { LOOKS = 200, ATTEMPTS = 50, TTL = 1000000 };

/* ---- system calls, counted ----------------------------------------------------------------- */

/* Of the thread that calls. */
static _Thread_local int sends, receives, peeks, polls;

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
  sends++;
  return __real_sendmsg(fd, message, flags);
}

ssize_t __real_recv(int fd, void *data, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags) {
  receives++;
  peeks += (flags & MSG_PEEK) != 0;
  return __real_recv(fd, data, size, flags);
}

int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout) {
  polls++;
  return __real_poll(fds, count, timeout);
}

/* A time that is left of `whole`. Its tenth is more than any machine's delay. */
static void assert_about(int64_t left, int64_t whole) {
  if (left > whole + whole / 10 || left < whole - whole / 10)
    fail_msg("%lld is not about %lld", (long long)left, (long long)whole);
}

static void count_anew(void) { sends = receives = peeks = polls = 0; }

/* ---- commands, counted --------------------------------------------------------------------- */

static long long calls_of(redis_server *at, const char *command) {
  char name[64];
  snprintf(name, sizeof name, "cmdstat_%s:calls=", command);
  const char *found = strstr(redis_server_ask(at, "INFO commandstats"), name);
  return found == NULL ? 0 : strtoll(found + strlen(name), NULL, 10);
}

/* Number of PTTL among the commands of one look; in *s what it found. */
static long long asked(client *c, const char *key, sight *s) {
  long long before = calls_of(server, "pttl");
  *s = looks(c, key);
  return calls_of(server, "pttl") - before;
}

/* The same, until a look did without: a slow machine may have made the clock useless for a
 * second. */
static int does_without(client *c, const char *key, sight *s) {
  for (int i = 0; i < ATTEMPTS; i++) {
    if (asked(c, key, s) == 0) return 1;
    usleep(100000);
  }
  return 0;
}

/* Stores a record with a fresh life of `own_ms` in its metadata, for `ttl_ms`. */
static void stores(client *c, const char *key, int64_t own_ms, int64_t ttl_ms) {
  assert_int_equal(does(c, CORRAL_VERB_CLAIM, key, 1), CORRAL_OK);
  size_t len;
  uint8_t *record = record_make((corral_header){.kind = 1, .metadata = 8}, 20, 'x', &len);
  uint8_t *part = record + len - 8;
  memset(part, 0, 8);
  part[0] = 1; /* fresh life */
  part[1] = 6;
  crl_record_put(part + 2, (uint64_t)own_ms, 6);
  corral_op op = op_of(CORRAL_VERB_SETTLE, key, 1);
  op.settle.record = record;
  op.settle.record_len = len;
  op.settle.ttl_ms = ttl_ms;
  assert_int_equal(done(c, &op), CORRAL_OK);
  free(record);
}

/* ---- what a hit costs ---------------------------------------------------------------------- */

static int counts_of_hits(client *c) {
  long long gets = calls_of(server, "getrange"), ttls = calls_of(server, "pttl"),
            times = calls_of(server, "time");
  int64_t begun = c->host->now_ms();
  count_anew();
  for (int i = 0; i < LOOKS; i++) assert_int_equal(looks(c, "k").size, 20);
  int64_t took = c->host->now_ms() - begun;
  int exact = sends == LOOKS && receives == LOOKS && peeks == 0 && polls == 0;
  gets = calls_of(server, "getrange") - gets;
  ttls = calls_of(server, "pttl") - ttls;
  times = calls_of(server, "time") - times;
  return exact && gets == LOOKS && ttls == 0 && times <= 1 + took / 1000;
}

/* A stall of the machine may cost a check, a poll or, for a second, a PTTL of each look; a hundred
 * hits without any show the rule. */
static void hits_cost(client *c) {
  int attempts = 0;
  stores(c, "k", TTL, TTL);
  while (!counts_of_hits(c)) {
    if (++attempts == ATTEMPTS)
      fail_msg("%d hits: %d sendmsg, %d recv (%d peeks), %d poll", LOOKS, sends, receives, peeks,
               polls);
    usleep(100000);
    looks(c, "k"); /* the connection isn't idle */
  }
}

static corral_op timely(client *c, corral_verb verb, uint64_t fence) {
  crl_redis_handle *h = c->handle;
  corral_op op = op_of(verb, "lock", 1);
  if (verb == CORRAL_VERB_LOCK)
    op.lock.hold_ms = 10000;
  else
    op.unlock.fence = fence;
  h->now += LIMIT; /* the connection wasn't idle, however slow this machine is */
  h->time.asked += LIMIT;
  assert_int_equal(perform(c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_OK);
  return op;
}

/* A stall of the machine may cost a poll, or leave the server's clock unknown. */
static void a_lock_is_taken_by_two_system_calls_and_released_by_two(void **state) {
  (void)state;
  client c = begin();
  int attempts = 0;
  do {
    count_anew();
    corral_op op = timely(&c, CORRAL_VERB_LOCK, 0);
    timely(&c, CORRAL_VERB_UNLOCK, op.lock_state.fence);
  } while ((sends != 2 || receives != 2 || peeks != 0 || polls != 0) && ++attempts < LOOKS);
  if (attempts == LOOKS)
    fail_msg("%d sendmsg, %d recv (%d peeks), %d poll", sends, receives, peeks, polls);
  closed(&c);
}

static void a_hit_is_one_command_and_two_system_calls(void **state) {
  (void)state;
  client c = begin();
  hits_cost(&c);
  closed(&c);
  c = opened(redis_server_unix_uri(server));
  redis_server_ask(server, "FLUSHALL");
  hits_cost(&c);
  closed(&c);
}

static void only_looks_are_sent_without_a_check(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  count_anew();
  for (int i = 0; i < 3; i++) does(&c, CORRAL_VERB_EXTEND, "k", 1);
  assert_int_equal(peeks, 3);
  corral_op mixed[] = {op_of(CORRAL_VERB_GET, "k", 0), op_of(CORRAL_VERB_EXTEND, "k", 1)};
  assert_int_equal(perform(&c, mixed, 2), CORRAL_OK);
  for (size_t i = 0; i < 2; i++) dropped(&mixed[i]);
  assert_int_equal(peeks, 4);
  closed(&c);
}

static void a_connection_that_was_idle_is_checked(void **state) {
  (void)state;
  client c = begin();
  looks(&c, "k");
  usleep(300000);
  count_anew();
  looks(&c, "k");
  assert_int_equal(peeks, 1);
  closed(&c);
}

/* ---- the life of what is found ------------------------------------------------------------- */

static void the_life_is_that_of_the_records_head(void **state) {
  (void)state;
  client c = begin();
  sight s;
  stores(&c, "k", TTL, TTL);
  assert_true(does_without(&c, "k", &s));
  assert_about(s.life_ms, TTL);
  assert_true(s.life_ms <= TTL);
  redis_server_ask(server, "PERSIST k");
  assert_true(does_without(&c, "k", &s));
  assert_about(s.life_ms, TTL);
  redis_server_ask(server, "PEXPIRE k 1");
  while (strcmp(redis_server_ask(server, "EXISTS k"), "0") != 0) usleep(1000);
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  closed(&c);
}

static void a_record_that_is_over_though_its_key_is_there_is_asked_about(void **state) {
  (void)state;
  client c = begin();
  sight s;
  stores(&c, "k", TTL, TTL);
  redis_server_ask(server, "PERSIST k");
  uint8_t end[8];
  crl_record_put(end, (uint64_t)server_now() - LIMIT, 8);
  redis_server_ask(server, "SETRANGE k 8 %b", end, sizeof end);
  assert_int_equal(asked(&c, "k", &s), 1);
  assert_int_equal(s.status, CORRAL_OK);
  assert_int_equal(s.life_ms, 0);
  closed(&c);
}

static void more_life_than_a_record_ever_had_is_asked_about(void **state) {
  (void)state;
  client c = begin();
  sight s;
  stores(&c, "k", TTL, 2 * TTL);
  assert_int_equal(asked(&c, "k", &s), 1);
  assert_about(s.life_ms, 2 * TTL);
  closed(&c);
}

static void a_lease_is_judged_without_its_ttl(void **state) {
  (void)state;
  client c = begin();
  sight s;
  does(&c, CORRAL_VERB_CLAIM, "alone", 1);
  assert_true(does_without(&c, "alone", &s));
  assert_about(s.until_ms, HOUR);
  stores(&c, "k", TTL, TTL);
  does(&c, CORRAL_VERB_CLAIM, "k", 2);
  assert_true(does_without(&c, "k", &s));
  assert_about(s.until_ms, HOUR);
  assert_about(s.life_ms, TTL);
  assert_int_equal(s.size, 20);
  closed(&c);
}

static void no_key_and_a_strangers_key_are_told(void **state) {
  (void)state;
  client c = begin();
  sight s;
  assert_true(does_without(&c, "none", &s));
  assert_int_equal(s.status, CORRAL_EMISS);
  redis_server_ask(server, "SET text hello");
  assert_int_equal(looks(&c, "text").status, CORRAL_EFOREIGN);
  closed(&c);
}

/* A user who may look, and has this right or not; "k" is stored. */
static client as_reader(const char *right) {
  client c = begin();
  char uri[128];
  stores(&c, "k", TTL, TTL);
  closed(&c);
  redis_server_ask(server, "ACL SETUSER reader on >secret ~* +get +getrange +pttl %s", right);
  snprintf(uri, sizeof uri, "redis://reader:secret@127.0.0.1:%d", redis_server_port(server));
  return opened(uri);
}

static void without_the_right_to_time_each_look_asks_for_the_ttl(void **state) {
  (void)state;
  sight s;
  client c = as_reader("-time");
  long long times = calls_of(server, "time");
  for (int i = 0; i < 3; i++) {
    assert_int_equal(asked(&c, "k", &s), 1);
    assert_int_equal(s.status, CORRAL_OK);
    assert_about(s.life_ms, TTL);
  }
  assert_int_equal(calls_of(server, "time"), times);
  redis_server_ask(server, "ACL DELUSER reader");
  closed(&c);
}

/* A right that is taken away while the connection lasts. */
static void a_right_to_time_that_is_lost_costs_a_ttl_for_each_look(void **state) {
  (void)state;
  sight s;
  client c = as_reader("+time");
  assert_true(does_without(&c, "k", &s));
  redis_server_ask(server, "ACL SETUSER reader -time");
  usleep(1100000);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(asked(&c, "k", &s), 1);
    assert_about(s.life_ms, TTL);
  }
  redis_server_ask(server, "ACL DELUSER reader");
  closed(&c);
}

/* ---- the server's clock -------------------------------------------------------------------- */

static int64_t boot;
static int64_t told_boot(void) { return boot; }

typedef struct clock_kit {
  corral_host host;
  crl_redis_store store;
  crl_redis_handle *handle;
} clock_kit;

static crl_redis_handle *with_clock(clock_kit *kit) {
  kit->host = *crl_registry_host();
  kit->host.boot_ms = told_boot;
  kit->store = (crl_redis_store){.host = &kit->host};
  kit->handle = calloc(1, sizeof *kit->handle);
  assert_non_null(kit->handle);
  kit->handle->store = &kit->store;
  return kit->handle;
}

static void the_servers_time_lies_within_its_bounds(void **state) {
  (void)state;
  clock_kit kit;
  crl_redis_handle *h = with_clock(&kit);
  int64_t least, most;
  boot = 5000;
  assert_false(crl_redis_clock_now(h, &least, &most));
  crl_redis_clock_learn(h, 1000000, 4990); /* a round trip of 10 ms */
  assert_true(crl_redis_clock_now(h, &least, &most));
  assert_true(least <= 1000000 && 1000010 <= most);
  assert_true(least >= 1000000 - 3 && most <= 1000010 + 5);
  boot += 1000;
  assert_true(crl_redis_clock_now(h, &least, &most));
  assert_true(least <= 1000999 && 1001011 <= most);
  free(h);
}

static void bounds_too_wide_or_too_old_are_no_good(void **state) {
  (void)state;
  clock_kit kit;
  crl_redis_handle *h = with_clock(&kit);
  int64_t least, most;
  boot = 5000;
  crl_redis_clock_learn(h, 1000000, 4000);
  assert_false(crl_redis_clock_good(h));
  assert_false(crl_redis_clock_now(h, &least, &most));
  crl_redis_clock_learn(h, 1000000, 5000);
  assert_true(crl_redis_clock_now(h, &least, &most));
  boot += 60000; /* the host slept */
  assert_false(crl_redis_clock_now(h, &least, &most));
  boot -= 120000;
  assert_false(crl_redis_clock_now(h, &least, &most));
  free(h);
}

static void the_clock_is_renewed_once_in_a_second(void **state) {
  (void)state;
  clock_kit kit;
  crl_redis_handle *h = with_clock(&kit);
  boot = h->now = 5000;
  assert_true(crl_redis_clock_due(h));
  crl_redis_clock_learn(h, 1000000, 5000);
  assert_false(crl_redis_clock_due(h));
  h->now += 999;
  assert_false(crl_redis_clock_due(h));
  h->now += 1;
  assert_true(crl_redis_clock_due(h));
  h->time.refused = 1;
  assert_false(crl_redis_clock_due(h));
  assert_false(crl_redis_clock_good(h));
  free(h);
}

/* 1: a look without PTTL is sure of a record that ends at this time; then *life is its life. */
static int is_sure_of(const crl_redis_handle *h, corral_header header, int64_t end, int64_t *life) {
  size_t len;
  if (header.kind == 0) header.kind = 1;
  header.life_end = end;
  uint8_t *record = record_make(header, 20, 'x', &len);
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  int sure = crl_redis_record_found(h, &op, record, len, CRL_REDIS_UNASKED);
  *life = op.state.life_ms;
  free(record);
  return sure;
}

static void an_end_within_the_clocks_bounds_is_not_sure(void **state) {
  (void)state;
  clock_kit kit;
  crl_redis_handle *h = with_clock(&kit);
  int64_t least, most, life;
  corral_header leased = {.state = CORRAL_LEASED, .length_ms = 1000};
  boot = 5000;
  crl_redis_clock_learn(h, 1000000, 4950);
  assert_true(crl_redis_clock_now(h, &least, &most));
  leased.until = most + 500;
  assert_true(is_sure_of(h, (corral_header){0}, most + 1, &life));
  assert_int_equal(life, 1);
  assert_true(is_sure_of(h, (corral_header){.kind = 4}, most + 1, &life));
  assert_int_equal(life, most + 1 - least); /* so that a tag's change is never told too old */
  assert_false(is_sure_of(h, (corral_header){0}, most, &life));
  assert_false(is_sure_of(h, (corral_header){0}, least + 1, &life));
  assert_false(is_sure_of(h, leased, most, &life));
  assert_false(is_sure_of(h, leased, least + 1, &life));
  assert_true(is_sure_of(h, leased, least, &life));
  assert_int_equal(life, 0);
  assert_false(is_sure_of(h, (corral_header){0}, least, &life));
  assert_false(is_sure_of(h, (corral_header){0}, INT64_MIN, &life));
  assert_false(is_sure_of(h, (corral_header){0}, INT64_MAX, &life));
  free(h);
}

/* 1: a look finds a lease without a body that ends at this time; 0: it must ask for the TTL. */
static int finds_lease(const crl_redis_handle *h, int64_t until, int64_t pttl, int64_t *left) {
  uint8_t front[CORRAL_FRONT];
  corral_header lease = {.state = CORRAL_LEASED, .length_ms = 1000, .until = until};
  size_t len = crl_record_write(&lease, front);
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  int found = crl_redis_record_found(h, &op, front, len, pttl);
  *left = op.state.left_ms;
  return found;
}

/* Bounds may change from look to look, and a lease that was over is not to be found again. */
static void a_lease_that_ends_within_the_bounds_ends_with_its_key(void **state) {
  (void)state;
  clock_kit kit;
  crl_redis_handle *h = with_clock(&kit);
  int64_t least, most, left;
  boot = 5000;
  crl_redis_clock_learn(h, 1000000, 4950);
  assert_true(crl_redis_clock_now(h, &least, &most));
  assert_false(finds_lease(h, most, CRL_REDIS_UNASKED, &left));
  assert_false(finds_lease(h, least + 1, CRL_REDIS_UNASKED, &left));
  assert_true(finds_lease(h, least, CRL_REDIS_UNASKED, &left));
  assert_int_equal(left, 0);
  assert_true(finds_lease(h, most + 1, CRL_REDIS_UNASKED, &left));
  assert_true(left > 0);
  for (int64_t until = least + 1; until <= most; until++) {
    assert_true(finds_lease(h, until, CORRAL_LEASE_KEPT_MS, &left));
    assert_int_equal(left, 0);
    assert_true(finds_lease(h, until, CORRAL_LEASE_KEPT_MS + 7, &left));
    assert_int_equal(left, 7);
  }
  /* a TTL that somebody has changed */
  assert_true(finds_lease(h, most + 100, HOUR, &left));
  assert_in_range(left, 100, 100 + most - least);
  free(h);
}

/* ---- dialogues ----------------------------------------------------------------------------- */

#define TIME_IS(seconds) "*2\\r\\n$10\\r\\n" seconds "\\r\\n$1\\r\\n0\\r\\n"
#define GREETED "EXPECT TIME\\r\\n\nSEND +OK\\r\\n@INFO" TIME_IS("1700000000") "\n"
#define LOOK "EXPECT GETRANGE\\r\\n$1\\r\\nk\\r\\n\n"
#define MISS "$0\\r\\n\\r\\n"

/* A record whose life ends at this time, as a reply in a script. */
static const char *record_until(int64_t end) {
  static char texts[2][512];
  static int turn;
  char *text = texts[turn++ & 1];
  size_t len, at = 0, room = sizeof texts[0];
  uint8_t *record = record_make((corral_header){.kind = 1, .life_end = end}, 2, 'x', &len);
  at += (size_t)snprintf(text, room, "$%zu\\r\\n", len);
  for (size_t i = 0; i < len; i++)
    at += (size_t)snprintf(text + at, room - at, "\\x%02x", record[i]);
  snprintf(text + at, room - at, "\\r\\n");
  free(record);
  return text;
}

/* The connection's clock doesn't age before it is told anew. */
static client speaks(fake_server **fake, const char *script) {
  static corral_host host;
  char uri[64];
  *fake = fake_server_start(script);
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", fake_server_port(*fake));
  client c = opened(uri);
  crl_redis_time *time = &((crl_redis_handle *)c.handle)->time;
  if (time->most > time->least + 5) time->most = time->least + 5; /* however slow this machine */
  host = *c.host;
  host.boot_ms = told_boot;
  boot = time->at;
  ((crl_redis_store *)c.store)->host = &host;
  return c;
}

static void ended(client *c, fake_server *fake) {
  closed(c);
  assert_true(fake_server_stop(fake));
}

/* The key has no TTL (any more), so that only the record's end counts. */
static void a_step_of_the_servers_clock_is_known_a_second_later(void **state) {
  (void)state;
  const int64_t end = INT64_C(1700000000000) + HOUR / 2;
  char script[4096];
  fake_server *fake;
  snprintf(script, sizeof script,
           GREETED LOOK "SEND %s\n"
                        "EXPECT TIME\\r\\n\n" LOOK
                        "SEND " TIME_IS("1700003600") "%s\n"
                                                      "EXPECT TIME\\r\\n\n" LOOK
                                                      "EXPECT PTTL\\r\\n\nSEND " TIME_IS(
                                                          "1700003600") "%s:-1\\r\\n\n",
           record_until(end), record_until(end), record_until(end));
  client c = speaks(&fake, script);
  crl_redis_time *time = &((crl_redis_handle *)c.handle)->time;
  time->asked += LIMIT; /* no TIME yet, however slow this machine is */
  sight s = looks(&c, "k");
  assert_int_equal(s.size, 2);
  assert_about(s.life_ms, HOUR / 2);
  time->asked -= LIMIT;
  usleep(1100000);
  s = looks(&c, "k");
  assert_int_equal(s.status, CORRAL_OK);
  assert_int_equal(s.life_ms, 0);
  ended(&c, fake);
}

static void a_reply_that_came_unasked_is_not_believed(void **state) {
  (void)state;
  static const char *const unasked[] = {"SEND +OK\\r\\n\n",
                                        "SEND :0\\r\\n\n",
                                        "SEND $3\\r\\nbad\\r\\n\n",
                                        "SEND *1\\r\\n:0\\r\\n\n",
                                        "SEND -ERR idle\\r\\n\nCLOSE\n",
                                        "SEND $3\\r\\nbad\\r\\n" MISS "\n"};
  for (size_t i = 0; i < sizeof unasked / sizeof *unasked; i++) {
    char script[1024];
    fake_server *fake;
    /* the second look is answered once its first bytes have come, and is asked again at once */
    snprintf(script, sizeof script, GREETED LOOK "SEND " MISS "\n" LOOK "%s%s", unasked[i],
             strstr(unasked[i], "CLOSE") != NULL ? "" : "SEND " MISS "\n");
    client c = speaks(&fake, script);
    crl_redis_handle *h = c.handle;
    h->time.asked += LIMIT; /* no TIME yet, */
    assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
    h->now += LIMIT; /* and the connection wasn't idle, however slow this machine is */
    corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
    if (perform(&c, &op, 1) == CORRAL_OK) fail_msg("%s", unasked[i]);
    if (op.status != CORRAL_EINDOUBT) fail_msg("%s: %s", unasked[i], corral_status_name(op.status));
    assert_null(op.found.record);
    ended(&c, fake);
  }
}

static void a_look_at_a_silent_server_ends_by_its_deadline(void **state) {
  (void)state;
  fake_server *fake;
  client c = speaks(&fake, GREETED LOOK "HANG\n");
  crl_redis_handle *h = c.handle;
  assert_int_equal(h->wire.patience > LIMIT / 4 && h->wire.patience <= LIMIT / 2, 1);
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  int64_t begun = c.host->now_ms();
  for (int64_t limit = 200; limit <= 400; limit += 200) {
    op.status = CORRAL_EINDOUBT;
    h->wire.patience = 200; /* first as long as the limit, then half of it */
    struct timeval tv = {.tv_usec = 200000};
    assert_int_equal(setsockopt(h->wire.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv), 0);
    begun = c.host->now_ms();
    assert_int_equal(perform_ops(&crl_plugin_redis, c.handle, &op, 1, begun + limit, &c.error),
                     CORRAL_EUNAVAILABLE);
    assert_int_equal(op.status, CORRAL_EINDOUBT);
    assert_true(c.host->now_ms() - begun >= limit);
  }
  ended(&c, fake);
}

/* ---- through the library ------------------------------------------------------------------- */

static int computes;

static int once(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key, (void)key_len, (void)arg;
  computes++;
  return corral_fill_bytes(fill, "42", 2);
}

static void asks(corral *cache) {
  corral_value *value;
  assert_int_equal(corral_get_or_compute(cache, "k", 1, NULL, once, NULL, &value), CORRAL_OK);
  corral_value_unref(value);
}

static void troubles(const corral_event_info *info, void *arg) {
  if (info->event == CORRAL_EVENT_STORE_DOWN || info->event == CORRAL_EVENT_STORE_ERROR)
    ++*(int *)arg;
}

static void a_connection_closed_between_two_looks_costs_its_callers_nothing(void **state) {
  (void)state;
  int trouble = 0;
  corral *cache;
  corral_error error;
  start(NULL);
  computes = 0;
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .handles = 1, .op_ms = LIMIT,
                                 .on_event = troubles, .event_arg = &trouble),
                  &cache, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  for (int i = 0; i < 10; i++) {
    asks(cache);
    redis_server_ask(server, "CLIENT KILL TYPE normal SKIPME yes");
    if (i & 1) usleep(150000);
  }
  assert_int_equal(computes, 1);
  assert_int_equal(trouble, 0);
  corral_close(cache);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hit_is_one_command_and_two_system_calls),
      cmocka_unit_test(a_lock_is_taken_by_two_system_calls_and_released_by_two),
      cmocka_unit_test(only_looks_are_sent_without_a_check),
      cmocka_unit_test(a_connection_that_was_idle_is_checked),
      cmocka_unit_test(the_life_is_that_of_the_records_head),
      cmocka_unit_test(a_record_that_is_over_though_its_key_is_there_is_asked_about),
      cmocka_unit_test(more_life_than_a_record_ever_had_is_asked_about),
      cmocka_unit_test(a_lease_is_judged_without_its_ttl),
      cmocka_unit_test(no_key_and_a_strangers_key_are_told),
      cmocka_unit_test(without_the_right_to_time_each_look_asks_for_the_ttl),
      cmocka_unit_test(a_right_to_time_that_is_lost_costs_a_ttl_for_each_look),
      cmocka_unit_test(the_servers_time_lies_within_its_bounds),
      cmocka_unit_test(bounds_too_wide_or_too_old_are_no_good),
      cmocka_unit_test(the_clock_is_renewed_once_in_a_second),
      cmocka_unit_test(an_end_within_the_clocks_bounds_is_not_sure),
      cmocka_unit_test(a_lease_that_ends_within_the_bounds_ends_with_its_key),
      cmocka_unit_test(a_step_of_the_servers_clock_is_known_a_second_later),
      cmocka_unit_test(a_reply_that_came_unasked_is_not_believed),
      cmocka_unit_test(a_look_at_a_silent_server_ends_by_its_deadline),
      cmocka_unit_test(a_connection_closed_between_two_looks_costs_its_callers_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
