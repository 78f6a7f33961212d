/* test_memcached_servers.c: the memcached plugin on real servers: several at once, unusual
 * configurations, failing servers, large values, unusual keys, URIs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../plugins/memcached/memcached.h"
#include "support/descriptors_kit.h"
#include "support/memcached_kit.h"
#include "support/memcached_server.h"
#include "support/fork_kit.h"

static memcached_server *server; /* shared by the tests that don't start their own */

static int stop(void **state) {
  (void)state;
  memcached_server_stop(server);
  server = NULL;
  return 0;
}

static client begin(void) {
  if (server == NULL && !memcached_server_start(&server, NULL)) skip();
  memcached_server_ask(server, "flush_all");
  return opened(memcached_server_uri(server));
}

/* ---- large values and unusual keys --------------------------------------------------------- */

static void a_value_too_large_for_the_server_leaves_the_old_one(void **state) {
  (void)state;
  const char *const args[] = {"-I", "512k", "-m", "16", NULL};
  memcached_server *small;
  if (!memcached_server_start(&small, args)) skip();
  client c = opened(memcached_server_uri(small));
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(fills(&c, "k", 1, 1000), CORRAL_OK);
  does(&c, CORRAL_VERB_CLAIM, "k", 2);
  assert_int_equal(fills(&c, "k", 2, 600000), CORRAL_ETOOBIG); /* refused before it is sent */
  assert_int_equal(looks(&c, "k").size, 1000);
  ((crl_memcached_handle *)c.handle)->largest = SIZE_MAX; /* now the server must refuse it */
  assert_int_equal(fills(&c, "k", 2, 600000), CORRAL_ETOOBIG);
  assert_non_null(strstr(c.error.text, "too large"));
  assert_int_equal(looks(&c, "k").size, 1000);
  assert_int_equal(fills(&c, "k", 2, 2000), CORRAL_OK);
  closed(&c);
  memcached_server_stop(small);
}

static void a_full_server_says_so_and_keeps_what_it_has(void **state) {
  (void)state;
  const char *const args[] = {"-M", "-m", "8", NULL};
  memcached_server *full;
  if (!memcached_server_start(&full, args)) skip();
  client c = opened(memcached_server_uri(full));
  does(&c, CORRAL_VERB_CLAIM, "first", 1);
  assert_int_equal(fills(&c, "first", 1, 10000), CORRAL_OK);
  int status = CORRAL_OK;
  for (int i = 0; i < 2000 && status == CORRAL_OK; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    status = does(&c, CORRAL_VERB_CLAIM, key, 1);
    if (status == CORRAL_OK) status = fills(&c, key, 1, 10000);
  }
  assert_int_equal(status, CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "out of memory"));
  assert_int_equal(looks(&c, "first").size, 10000);
  closed(&c);
  memcached_server_stop(full);
}

static void every_size_comes_back_as_it_was(void **state) {
  (void)state;
  static const size_t sizes[] = {0,     1,     8000,  8196,   16384,  32000,     32639,
                                 32640, 32641, 65536, 200000, 400000, MIB - 1000};
  client c = begin();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    corral_op op = op_of(CORRAL_VERB_SETTLE, "k", (unsigned)i);
    does(&c, CORRAL_VERB_INVALIDATE, "k", 0);
    assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", (unsigned)i), CORRAL_OK);
    assert_int_equal(settles(&c, op, sizes[i], 0x0a), CORRAL_OK);
    /* the second verb edits the record, only its header */
    for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_CLAIM; verb++) {
      corral_op look = op_of((corral_verb)verb, "k", 100);
      assert_int_equal(perform(&c, &look, 1), CORRAL_OK);
      assert_int_equal(body_of(&look), sizes[i]);
      for (size_t at = CORRAL_HEAD; at < CORRAL_HEAD + body_of(&look); at++)
        if (look.found.record[at] != 0x0a)
          fail_msg("size %zu: byte %zu is %d", sizes[i], at, look.found.record[at]);
      dropped(&look);
    }
    assert_int_equal(looks(&c, "k").size, sizes[i]);
  }
  closed(&c);
}

static void items_above_a_mebibyte_need_a_server_and_a_uri_that_allow_them(void **state) {
  (void)state;
  const char *const args[] = {"-I", "8m", "-m", "64", NULL};
  memcached_server *large;
  char uri[120];
  if (!memcached_server_start(&large, args)) skip();
  snprintf(uri, sizeof uri, "%s?max_item=8m", memcached_server_uri(large));
  client c = opened(uri), plain = opened(memcached_server_uri(large));
  assert_true(c.info.max_record > 7 * MIB && plain.info.max_record < MIB);
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(fills(&plain, "k", 1, 5 * MIB), CORRAL_ETOOBIG);
  assert_int_equal(fills(&c, "k", 1, 5 * MIB), CORRAL_OK);
  assert_int_equal(looks(&plain, "k").size, 5 * MIB);
  closed(&c);
  closed(&plain);
  memcached_server_stop(large);
}

static void a_key_is_any_bytes(void **state) {
  (void)state;
  client c = begin();
  static char keys[8][65536] = {"with space",  "line\r\nset injected 0 0 1\r\nx", "percent%41",
                                "percentA",    "\xc3\x28 no utf-8 \xff",          "zero\0inside",
                                "tab\tand\x7f"};
  size_t lens[8] = {10, 27, 10, 8, 15, 11, 8, 65536};
  memset(keys[7], 'x', sizeof keys[7]);
  for (unsigned i = 0; i < 8; i++) {
    corral_op op = op_of(CORRAL_VERB_CLAIM, "", i);
    op.key = keys[i];
    op.key_len = lens[i];
    assert_int_equal(done(&c, &op), CORRAL_OK);
    assert_int_equal(settles(&c, op, 100 + i, 1), CORRAL_OK);
  }
  for (unsigned i = 0; i < 8; i++) {
    corral_op op = op_of(CORRAL_VERB_GET, "", 0);
    op.key = keys[i];
    op.key_len = lens[i];
    assert_int_equal(sees(&c, op).size, 100 + i);
    op.key_len--;
    assert_int_equal(sees(&c, op).status, CORRAL_EMISS);
  }
  assert_string_equal(memcached_server_ask(server, "get injected"), "END");
  corral_op empty = op_of(CORRAL_VERB_GET, "", 0);
  assert_int_equal(done(&c, &empty), CORRAL_EINVAL);
  closed(&c);
}

static void keys_are_encoded_so_that_no_two_are_one(void **state) {
  (void)state;
  crl_memcached_key key;
  char text[400];
  const corral_host *host = crl_registry_host();
  crl_memcached_encode(host, "a b%c\n\xff~", 8, &key);
  assert_string_equal(key.text, "a%20b%25c%0a%ff~");
  memset(text, 'x', sizeof text);
  crl_memcached_encode(host, text, 250, &key);
  assert_int_equal(key.len, 250);
  assert_memory_equal(key.text, text, 250);
  crl_memcached_encode(host, text, 251, &key);
  assert_int_equal(key.len, 6 + 32);
  assert_memory_equal(key.text, "~long:", 6);
  text[100] = ' ';
  crl_memcached_encode(host, text, 249, &key);
  assert_int_equal(key.len, 6 + 32);
  for (int i = 0; i < 256; i++) {
    char byte = (char)i;
    crl_memcached_encode(host, &byte, 1, &key);
    assert_int_equal(strlen(key.text), key.len);
    for (size_t at = 0; at < key.len; at++) assert_true(key.text[at] > ' ' && key.text[at] <= '~');
  }
}

/* ---- unusual and failing servers ----------------------------------------------------------- */

static void a_server_without_cas_is_refused(void **state) {
  (void)state;
  const char *const args[] = {"-C", NULL};
  memcached_server *bare;
  client c;
  if (!memcached_server_start(&bare, args)) skip();
  assert_int_equal(try_open(&c, memcached_server_uri(bare)), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(c.error.text, "runs without cas (-C): leases can't be guarded there"));
  closed(&c);
  memcached_server_stop(bare);
}

static void a_unix_socket_works_as_well(void **state) {
  (void)state;
  memcached_server *local;
  if (!memcached_server_start_unix(&local, NULL)) skip();
  client c = opened(memcached_server_uri(local));
  assert_int_equal(c.info.handles, 2);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(fills(&c, "k", 1, 500000), CORRAL_OK);
  assert_int_equal(looks(&c, "k").size, 500000);
  closed(&c);
  memcached_server_stop(local);
}

static void
a_restarted_server_breaks_the_handle_and_its_cas_ids_are_never_used_again(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  memcached_server_restart(server);
  /* the cas ids of a new server begin again */
  memcached_server_ask(server, "set k 0 0 5\r\nother");
  corral_op op = op_of(CORRAL_VERB_RELEASE, "k", 1);
  assert_int_equal(perform(&c, &op, 1), CORRAL_EUNAVAILABLE);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  hung_up(&c);
  assert_int_equal(connects(&c, LIMIT), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 1), CORRAL_EFOREIGN);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "cold", 1), CORRAL_OK);
  closed(&c);
}

static void a_restart_between_read_and_write_is_never_bridged(void **state) {
  (void)state;
  client c = begin();
  crl_memcached_key key;
  crl_memcached_encode(c.host, "k", 1, &key);
  const crl_memcached_key *keys[] = {&key};
  crl_memcached_request cas = {.command = CRL_MEMCACHED_CAS,
                               .keys = keys,
                               .count = 1,
                               .value = "stale",
                               .size = 5,
                               .cas = 1};
  crl_memcached_refusal refusal;
  crl_memcached_word word;
  int sent;
  memcached_server_restart(server);
  /* its cas id is low, and may equal the old one */
  memcached_server_ask(server, "set k 0 0 5\r\nother");
  int64_t deadline = c.host->now_ms() + LIMIT;
  for (uint64_t id = 1; id < 20; id++) {
    cas.cas = id;
    int status = crl_memcached_send(c.handle, &cas, deadline, &sent, NULL);
    if (status == CORRAL_OK)
      status = crl_memcached_hear_word(c.handle, &cas, deadline, &word, &refusal, NULL);
    assert_int_equal(status, CORRAL_EUNAVAILABLE);
  }
  assert_non_null(strstr(memcached_server_ask(server, "get k"), "other"));
  closed(&c);
}

static void a_stopped_server_is_given_up_at_the_deadline(void **state) {
  (void)state;
  client c = begin();
  memcached_server_pause(server);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  assert_int_not_equal(perform_for(&c, &op, 1, 4000), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  memcached_server_resume(server);
  closed(&c);
}

static void a_server_that_is_away_is_told(void **state) {
  (void)state;
  client c;
  assert_int_equal(try_open(&c, "memcached://127.0.0.1:19"), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "memcached 127.0.0.1:19: can't connect"));
  closed(&c);
}

static void no_connection_leaves_anything_open(void **state) {
  (void)state;
  client c = begin(), away;
  hung_up(&c);
  assert_int_equal(only_open(&away, "memcached://127.0.0.1:19"), CORRAL_OK);
  int before = open_descriptors();
  for (int i = 0; i < 50; i++) {
    assert_int_equal(connects(&c, LIMIT), CORRAL_OK);
    assert_int_equal(does(&c, CORRAL_VERB_GET, "nobody-stored-this", 0), CORRAL_EMISS);
    hung_up(&c);
    assert_int_equal(connects(&away, LIMIT), CORRAL_EUNAVAILABLE);
  }
  assert_int_equal(open_descriptors(), before);
  closed(&c);
  closed(&away);
}

/* ---- forks and threads --------------------------------------------------------------------- */

static void a_handle_let_go_in_the_child_of_a_fork_still_serves_its_parent(void **state) {
  (void)state;
  client c = begin();
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    closed(&c);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(fills(&c, "k", 1, 300000), CORRAL_OK);
  assert_int_equal(looks(&c, "k").size, 300000);
  closed(&c);
}

enum { RACERS = 4, ROUNDS = 60 };
static atomic_int leaders[ROUNDS], settled[ROUNDS];

static void *race(void *arg) {
  unsigned me = *(unsigned *)arg;
  client c = opened(memcached_server_uri(server));
  for (int i = 0; i < ROUNDS; i++) {
    char key[16];
    snprintf(key, sizeof key, "race%d", i);
    corral_op op = op_of(CORRAL_VERB_CLAIM, key, me);
    op.claim.seen = (uint64_t)i % 2; /* CLAIM by add, or by gets first */
    if (done(&c, &op) != CORRAL_OK) continue;
    atomic_fetch_add(&leaders[i], 1);
    if (fills(&c, key, me, i % 3 == 0 ? 100000 : 100) == CORRAL_OK)
      atomic_fetch_add(&settled[i], 1);
  }
  closed(&c);
  return NULL;
}

static void of_many_that_claim_at_once_each_fill_has_one_lease(void **state) {
  (void)state;
  client c = begin();
  pthread_t threads[RACERS];
  unsigned numbers[RACERS];
  for (unsigned i = 0; i < RACERS; i++) {
    numbers[i] = i + 1;
    assert_int_equal(pthread_create(&threads[i], NULL, race, &numbers[i]), 0);
  }
  for (unsigned i = 0; i < RACERS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < ROUNDS; i++) {
    /* A claim after a fill leads again; every claim must have been settled. */
    if (atomic_load(&leaders[i]) < 1 || atomic_load(&leaders[i]) != atomic_load(&settled[i]))
      fail_msg("key %d: %d leaders, %d fills", i, atomic_load(&leaders[i]),
               atomic_load(&settled[i]));
  }
  closed(&c);
}

/* ---- routing to servers -------------------------------------------------------------------- */

static size_t route_of(const client *c, const char *key) {
  return crl_plugin_memcached.route(c->store, key, strlen(key));
}

static void keys_spread_over_the_servers_by_their_weights(void **state) {
  (void)state;
  client even, odd;
  size_t count[4] = {0}, heavy = 0;
  assert_int_equal(only_open(&even, "memcached://10.0.0.1,10.0.0.2:11212,10.0.0.3,[::1]:11213"),
                   CORRAL_OK);
  assert_int_equal(only_open(&odd, "memcached://10.0.0.1,10.0.0.2?weights=3,1"), CORRAL_OK);
  assert_int_equal(even.info.servers, 4);
  for (int i = 0; i < 4000; i++) {
    char key[16];
    snprintf(key, sizeof key, "key %d", i);
    count[route_of(&even, key)]++;
    heavy += route_of(&odd, key) == 0;
  }
  for (int i = 0; i < 4; i++)
    if (count[i] < 600 || count[i] > 1400) fail_msg("server %d has %zu of 4000 keys", i, count[i]);
  if (heavy < 2600 || heavy > 3400) fail_msg("three quarters of 4000 keys are %zu", heavy);
  closed(&even);
  closed(&odd);
}

static void a_server_more_takes_its_share_and_moves_no_other_key(void **state) {
  (void)state;
  client three, four;
  int moved = 0;
  assert_int_equal(only_open(&three, "memcached://10.0.0.1,10.0.0.2,10.0.0.3"), CORRAL_OK);
  assert_int_equal(only_open(&four, "memcached://10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"), CORRAL_OK);
  for (int i = 0; i < 4000; i++) {
    char key[16];
    snprintf(key, sizeof key, "key %d", i);
    size_t before = route_of(&three, key), after = route_of(&four, key);
    moved += before != after;
    if (before != after && after != 3 && moved > 400)
      fail_msg("%s went from %zu to %zu", key, before, after);
  }
  if (moved > 1500) fail_msg("%d of 4000 keys moved", moved);
  closed(&three);
  closed(&four);
}

/* libmemcached with the same servers must write each key to the server that `route` returns. */
static void the_map_is_the_librarys_own(void **state) {
  (void)state;
  memcached_server *other;
  char uri[160];
  client c, all = begin();
  if (!memcached_server_start(&other, NULL)) skip();
  int ports[2] = {memcached_server_tcp_port(server), memcached_server_tcp_port(other)};
  snprintf(uri, sizeof uri, "memcached://127.0.0.1:%d,127.0.0.1:%d", ports[0], ports[1]);
  assert_int_equal(only_open(&c, uri), CORRAL_OK);
  memcached_st *plain = memcached_create(NULL);
  memcached_behavior_set(plain, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1);
  for (int i = 0; i < 2; i++) memcached_server_add(plain, "127.0.0.1", (in_port_t)ports[i]);
  for (int i = 0; i < 200; i++) {
    char key[16], command[32];
    int len = snprintf(key, sizeof key, "key%d", i);
    assert_true(memcached_success(memcached_set(plain, key, (size_t)len, "x", 1, 0, 0)));
    snprintf(command, sizeof command, "get %s", key);
    const char *found =
        memcached_server_ask(route_of(&c, key) == 0 ? server : other, "%s", command);
    if (strncmp(found, "VALUE", 5) != 0) fail_msg("%s is on the other server", key);
  }
  memcached_free(plain);
  closed(&c);
  closed(&all);
  memcached_server_stop(other);
}

static void each_handle_talks_to_its_own_server(void **state) {
  (void)state;
  memcached_server *other;
  char uri[160];
  client c, all = begin();
  if (!memcached_server_start(&other, NULL)) skip();
  snprintf(uri, sizeof uri, "memcached://127.0.0.1:%d,127.0.0.1:%d",
           memcached_server_tcp_port(server), memcached_server_tcp_port(other));
  assert_int_equal(only_open(&c, uri), CORRAL_OK);
  memcached_server_kill(server); /* must not affect the other server */
  assert_int_equal(crl_plugin_memcached.connect_server(c.store, 0, c.host->now_ms() + LIMIT,
                                                       &c.handle, &c.error),
                   CORRAL_EUNAVAILABLE);
  c.handle = NULL;
  assert_int_equal(crl_plugin_memcached.connect_server(c.store, 1, c.host->now_ms() + LIMIT,
                                                       &c.handle, &c.error),
                   CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_non_null(strstr(memcached_server_ask(other, "get k"), "VALUE k"));
  closed(&c);
  closed(&all);
  memcached_server_restart(server);
  memcached_server_stop(other);
}

/* ---- URIs ---------------------------------------------------------------------------------- */

static void a_wrong_uri_is_refused_with_what_is_accepted(void **state) {
  (void)state;
  static const struct {
    const char *uri, *text;
  } wrong[] = {
      {"memcached://user:secret@127.0.0.1", "binary protocol only"},
      {"memcached://127.0.0.1:0", "port"},
      {"memcached://a,b:99999", "host:port"},
      {"memcached://a,b:1x", "host:port"},
      {"memcached://a,[::1", "host:port"},
      {"memcached://a,,b", "a host is empty"},
      {"memcached://a,b,a", "named twice"},
      {"memcached://a,b/0", "nothing but parameters"},
      {"memcached://a,b?weights=1", "a number from 1 to 1000 for each host"},
      {"memcached://a,b?weights=1,2,3", "a number from 1 to 1000 for each host"},
      {"memcached://a,b?weights=1,0", "a number from 1 to 1000 for each host"},
      {"memcached://a?max_item=12", "max_item"},
      {"memcached://a?db=1", "unknown parameter 'db'"},
      {"memcached+unix://host/path", "memcached+unix:///PATH/OF/SOCKET"},
      {"memcached+unix:///path?weights=1", "unknown parameter 'weights'"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    client c;
    int status = only_open(&c, wrong[i].uri);
    if (status != CORRAL_EURI || strstr(c.error.text, wrong[i].text) == NULL)
      fail_msg("%s: %s", wrong[i].uri, c.error.text);
    assert_null(strstr(c.error.text, "secret"));
  }
}

static void a_library_older_than_1_1_4_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *version;
    int status;
  } versions[] = {{"1.0.18", CORRAL_EUNSUPPORTED},
                  {"1.1.3", CORRAL_EUNSUPPORTED},
                  {"0.53", CORRAL_EUNSUPPORTED},
                  {"", CORRAL_EUNSUPPORTED},
                  {"1.1.4", CORRAL_OK},
                  {"1.1.10", CORRAL_OK},
                  {"1.2", CORRAL_OK},
                  {"2.0.0-beta", CORRAL_OK}};
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    corral_error error = {0};
    assert_int_equal(crl_memcached_check_version(crl_registry_host(), versions[i].version, &error),
                     versions[i].status);
    if (versions[i].status != CORRAL_OK)
      assert_non_null(strstr(error.text, "1.1.4 or later is needed"));
  }
}

static void a_name_is_looked_up(void **state) {
  (void)state;
  client c = begin();
  char uri[64];
  closed(&c);
  snprintf(uri, sizeof uri, "memcached://localhost:%d", memcached_server_tcp_port(server));
  c = opened(uri);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  closed(&c);
  assert_int_equal(try_open(&c, "memcached://no-such-host.invalid"), CORRAL_EUNAVAILABLE);
  closed(&c);
}

static void a_hundred_servers_are_the_most(void **state) {
  (void)state;
  for (int count = 100; count <= 101; count++) {
    char uri[4096] = "memcached://h0";
    for (int i = 1; i < count; i++)
      snprintf(uri + strlen(uri), sizeof uri - strlen(uri), ",h%d", i);
    client c;
    assert_int_equal(only_open(&c, uri), count == 100 ? CORRAL_OK : CORRAL_EURI);
    if (count == 100) assert_int_equal(c.info.servers, 100);
    closed(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_value_too_large_for_the_server_leaves_the_old_one),
      cmocka_unit_test(a_full_server_says_so_and_keeps_what_it_has),
      cmocka_unit_test(every_size_comes_back_as_it_was),
      cmocka_unit_test(items_above_a_mebibyte_need_a_server_and_a_uri_that_allow_them),
      cmocka_unit_test(a_key_is_any_bytes),
      cmocka_unit_test(keys_are_encoded_so_that_no_two_are_one),
      cmocka_unit_test(a_server_without_cas_is_refused),
      cmocka_unit_test(a_unix_socket_works_as_well),
      cmocka_unit_test(a_restarted_server_breaks_the_handle_and_its_cas_ids_are_never_used_again),
      cmocka_unit_test(a_restart_between_read_and_write_is_never_bridged),
      cmocka_unit_test(a_stopped_server_is_given_up_at_the_deadline),
      cmocka_unit_test(a_server_that_is_away_is_told),
      cmocka_unit_test(no_connection_leaves_anything_open),
      cmocka_unit_test(a_handle_let_go_in_the_child_of_a_fork_still_serves_its_parent),
      cmocka_unit_test(of_many_that_claim_at_once_each_fill_has_one_lease),
      cmocka_unit_test(keys_spread_over_the_servers_by_their_weights),
      cmocka_unit_test(a_server_more_takes_its_share_and_moves_no_other_key),
      cmocka_unit_test(the_map_is_the_librarys_own),
      cmocka_unit_test(each_handle_talks_to_its_own_server),
      cmocka_unit_test(a_wrong_uri_is_refused_with_what_is_accepted),
      cmocka_unit_test(a_library_older_than_1_1_4_is_refused),
      cmocka_unit_test(a_name_is_looked_up),
      cmocka_unit_test(a_hundred_servers_are_the_most),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
