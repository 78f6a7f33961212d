/* test_spread.c: looks on several servers of a store, which are asked at once: by a pool, of two
 * scripted memcacheds. */
#include "support/memcached_dialogue_kit.h"

#include "store/pool.h"
#include "os/timers.h"
#include "os/worker.h"

enum { SERVERS = 2, SILENCE = 5000, FAR = 60000 };

#define ASKED "EXPECT get \nEXPECT \\r\\n\n"
#define NONE "SEND END\\r\\n\n"

typedef struct pair {
  fake_server *servers[SERVERS];
  char keys[SERVERS][16]; /* one of each server */
  crl_pool *pool;
  crl_events events;
  crl_threads threads;
  corral_op ops[SERVERS];
  corral_error errors[SERVERS];
} pair;

static void name_keys(pair *p, const client *c) {
  for (int found = 0, i = 0; found != (1 << SERVERS) - 1; i++) {
    char key[16];
    size_t len = (size_t)snprintf(key, sizeof key, "key %d", i);
    size_t server = crl_plugin_memcached.route(c->store, key, len);
    memcpy(p->keys[server], key, sizeof key);
    found |= 1 << server;
  }
}

static void started(pair *p, const char *first, const char *second, int64_t op_ms) {
  client c;
  char uri[80];
  memset(p, 0, sizeof *p);
  p->servers[0] = fake_server_start(first);
  p->servers[1] = fake_server_start(second);
  snprintf(uri, sizeof uri, "memcached://127.0.0.1:%d,127.0.0.1:%d",
           fake_server_port(p->servers[0]), fake_server_port(p->servers[1]));
  assert_int_equal(only_open(&c, uri), CORRAL_OK);
  name_keys(p, &c);
  p->threads = (crl_threads){.timers = crl_timers_new(), .workers = crl_workers_new()};
  crl_pool_options options = {.plugin = &crl_plugin_memcached,
                              .store = c.store,
                              .info = c.info,
                              .probe_key = "probe",
                              .op_ms = op_ms,
                              .breaker_failures = 3,
                              .breaker_rest_ms = FAR,
                              .away_ms = FAR,
                              .events = &p->events,
                              .threads = &p->threads};
  p->pool = crl_pool_new(&options);
  assert_non_null(p->pool);
}

static void ask(pair *p) {
  for (int i = 0; i < SERVERS; i++)
    p->ops[i] = (corral_op){.verb = CORRAL_VERB_GET,
                            .key = p->keys[i],
                            .key_len = strlen(p->keys[i]),
                            .error = &p->errors[i]};
  crl_pool_perform(p->pool, p->ops, SERVERS, INT64_MAX);
}

/* Opens the connections: a first look finds none. */
static void ask_first(pair *p) {
  ask(p);
  for (int i = 0; i < SERVERS; i++) assert_int_equal(p->ops[i].status, CORRAL_EMISS);
}

static void ended_pair(pair *p) {
  crl_pool_free(p->pool);
  crl_timers_free(p->threads.timers);
  crl_workers_free(p->threads.workers);
  for (int i = 0; i < SERVERS; i++) assert_true(fake_server_stop(p->servers[i]));
}

static void all_servers_hold_their_request_before_any_answers(void **state) {
  (void)state;
  static const char script[] = GREETED ASKED NONE ASKED "MEET 2\n" NONE;
  pair p;
  started(&p, script, script, FAR);
  ask_first(&p);
  ask(&p);
  for (int i = 0; i < SERVERS; i++) assert_int_equal(p.ops[i].status, CORRAL_EMISS);
  ended_pair(&p);
}

static void a_silent_server_costs_the_other_ones_answer_nothing(void **state) {
  (void)state;
  for (int silent = 0; silent < SERVERS; silent++) {
    static const char well[] = GREETED ASKED NONE ASKED NONE, hangs[] = GREETED ASKED NONE "HANG\n";
    pair p;
    started(&p, silent == 0 ? hangs : well, silent == 1 ? hangs : well, SILENCE);
    ask_first(&p);
    ask(&p);
    assert_int_equal(p.ops[!silent].status, CORRAL_EMISS);
    assert_int_equal(p.ops[silent].status, CORRAL_EINDOUBT);
    assert_true((p.ops[silent].flags & CRL_OP_SLOW) != 0);
    assert_non_null(strstr(p.errors[silent].text, "no answer"));
    assert_true(crl_pool_is_well_for(p.pool, &p.ops[!silent]));
    assert_false(crl_pool_is_well_for(p.pool, &p.ops[silent]));
    ended_pair(&p);
  }
}

static void a_server_that_hung_up_is_asked_once_more(void **state) {
  (void)state;
  static const char well[] = GREETED ASKED NONE ASKED NONE,
                    left[] = GREETED ASKED NONE ASKED "CLOSE\nACCEPT\n" GREETED ASKED NONE;
  pair p;
  started(&p, left, well, FAR);
  ask_first(&p);
  ask(&p);
  for (int i = 0; i < SERVERS; i++) {
    assert_int_equal(p.ops[i].status, CORRAL_EMISS);
    assert_true(crl_pool_is_well_for(p.pool, &p.ops[i]));
  }
  ended_pair(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_servers_hold_their_request_before_any_answers),
      cmocka_unit_test(a_silent_server_costs_the_other_ones_answer_nothing),
      cmocka_unit_test(a_server_that_hung_up_is_asked_once_more),
  };
  return cmocka_run_group_tests_name("spread", tests, default_signals, NULL);
}
