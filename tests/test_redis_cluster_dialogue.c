/* test_redis_cluster_dialogue.c: what a cluster's nodes don't say on demand, by a scripted one: its
 * plugin, and a pool that follows its replies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <unistd.h>

#include "../plugins/redis/cluster.h"
#include "../plugins/redis/inspect.h"
#include "store/pool.h"
#include "support/client_kit.h"
#include "support/fake_server.h"
#include "support/record_kit.h"
#include "support/scripted_pool.h"

enum { LIMIT = 20000, HOPS = 5 };

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define ID_C "cccccccccccccccccccccccccccccccccccccccc"
/* Key "k" has slot 7629. Without TIME each look has its PTTL. */
#define GREETED_AS(id)                                                                             \
  "EXPECT TIME\\r\\n\nSEND +OK\\r\\n$40\\r\\n" id "\\r\\n@INFO-NOPERM no\\r\\n\n"
#define GREETED GREETED_AS(ID_A)
#define ASKED "EXPECT SLOTS\\r\\n\n"
#define RANGE(host, port, id)                                                                      \
  "*3\\r\\n:0\\r\\n:16383\\r\\n*3\\r\\n" host ":" port "\\r\\n$40\\r\\n" id "\\r\\n"
#define NAMED(name, len) "$" len "\\r\\n" name "\\r\\n"
#define HERE NAMED("127.0.0.1", "9")
#define GET_K "EXPECT PTTL\\r\\n$1\\r\\nk\\r\\n\n"
#define NONE "SEND $0\\r\\n\\r\\n:-2\\r\\n\n"

/* ---- maps, read without a server ------------------------------------------------------------ */

/* Opens a cluster without asking for anything. */
static client with_hosts(const char *hosts) {
  client c;
  char uri[200];
  snprintf(uri, sizeof uri, "redis+cluster://%s/", hosts);
  if (client_open(&c, &crl_plugin_redis_cluster, uri) != CORRAL_OK) fail_msg("%s", c.error.text);
  return c;
}

/* Reads a map that the first host of the URI sends. */
static int reads(client *c, const char *map, int *changed) {
  crl_redis_cluster *cluster = c->store;
  return crl_redis_slots_read(cluster, cluster->seeds[0],
                              (crl_redis_message){.at = map, .size = strlen(map)}, changed,
                              &c->error);
}

/* The address of the node that has this slot, as "host:port"; "" when none has it. */
static const char *home(const client *c, unsigned slot) {
  static char text[300];
  crl_redis_cluster *cluster = c->store;
  size_t number = crl_redis_slot_number(crl_redis_slot_entry(cluster, slot));
  const crl_redis_node *node = cluster->nodes[number];
  snprintf(text, sizeof text, "%s:%d", number == 0 ? "" : node->host,
           number == 0 ? 0 : node->store.port);
  return number == 0 ? "" : text;
}

static const char *tls_name(const client *c, unsigned slot) {
  crl_redis_cluster *cluster = c->store;
  return cluster->nodes[crl_redis_slot_number(crl_redis_slot_entry(cluster, slot))]->tls_name;
}

static void a_key_has_the_slot_of_its_hash_tag(void **state) {
  (void)state;
  static const struct {
    const char *key;
    unsigned slot;
  } keys[] = {
      {"123456789", 12739}, {"k", 7629}, {"foo", 12182}, {"{foo}bar", 12182}, {"bar{foo}", 12182}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    assert_int_equal(crl_redis_slot_of(keys[i].key, strlen(keys[i].key)), keys[i].slot);
  assert_int_equal(crl_redis_slot_of("{foo{bar}}x", 11), crl_redis_slot_of("foo{bar", 7));
  assert_int_not_equal(crl_redis_slot_of("{}foo", 5), crl_redis_slot_of("foo", 3));
}

/* CRC-16/XMODEM by its definition, bit by bit. */
static unsigned slot_by_bits(const uint8_t *at, size_t len) {
  unsigned crc = 0;
  for (; len > 0; len--, at++) {
    crc ^= (unsigned)*at << 8;
    for (int bit = 0; bit < 8; bit++) crc = crc << 1 ^ ((crc & 0x8000) != 0 ? 0x11021 : 0);
  }
  return crc % CRL_REDIS_SLOTS;
}

static void the_slot_of_a_key_of_any_length_is_by_its_checksum(void **state) {
  (void)state;
  uint8_t key[64];
  for (unsigned dice = 1, byte = 0; byte < 256; byte++)
    for (size_t len = 1; len <= sizeof key; len++) {
      for (size_t i = 0; i < len; i++) {
        dice = dice * 1664525u + 1013904223u;
        key[i] = (uint8_t)(dice >> 24 == '{' ? 'x' : dice >> 24);
      }
      key[len - 1] = (uint8_t)(byte == '{' ? 'x' : byte);
      assert_int_equal(crl_redis_slot_of(key, len), slot_by_bits(key, len));
    }
}

#define R(host, port, id) "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n" host ":" port "\r\n$40\r\n" id "\r\n"

static void an_endpoint_that_is_not_told_is_the_host_that_was_asked(void **state) {
  (void)state;
  static const char *const maps[] = {R("$0\r\n\r\n", "7001", ID_A), R("$-1\r\n", "7001", ID_A),
                                     R("_\r\n", "7001", ID_A), R("$1\r\n?\r\n", "7001", ID_A)};
  for (size_t i = 0; i < 4; i++) {
    int changed;
    client c = with_hosts("seed.example:7000");
    assert_int_equal(reads(&c, maps[i], &changed), CORRAL_OK);
    assert_string_equal(home(&c, 5), "seed.example:7001");
    client_end(&c);
  }
}

static void an_endpoint_is_an_address_of_either_family_or_a_name(void **state) {
  (void)state;
  static const struct {
    const char *map, *home, *tls_name;
  } maps[] = {
      {R("$3\r\n::1\r\n", "7001", ID_A), "::1:7001", "::1"},
      {R("$9\r\nnode.test\r\n", "7001", ID_A), "node.test:7001", "node.test"},
      /* Redis 7: a list of names and values follows the id */
      {"*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$8\r\n10.0.0.1\r\n:7001\r\n$40\r\n" ID_A
       "\r\n*2\r\n$8\r\nhostname\r\n$9\r\nnode.test\r\n",
       "10.0.0.1:7001", "node.test"},
      {"*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$1\r\n?\r\n:7001\r\n$40\r\n" ID_A
       "\r\n*2\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n",
       "10.0.0.1:7001", "10.0.0.1"},
      {"*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\nnode.test\r\n:7001\r\n$40\r\n" ID_A "\r\n*0\r\n",
       "node.test:7001", "node.test"},
  };
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
    int changed;
    client c = with_hosts("10.9.9.9");
    if (reads(&c, maps[i].map, &changed) != CORRAL_OK) fail_msg("%zu: %s", i, c.error.text);
    assert_string_equal(home(&c, 16383), maps[i].home);
    assert_string_equal(tls_name(&c, 16383), maps[i].tls_name);
    client_end(&c);
  }
}

static void slots_that_nobody_has_are_asked_for_at_the_front_door(void **state) {
  (void)state;
  int changed;
  client c = with_hosts("10.0.0.1");
  assert_int_equal(reads(&c,
                         "*2\r\n*3\r\n:0\r\n:99\r\n*3\r\n$1\r\na\r\n:1\r\n$40\r\n" ID_A
                         "\r\n*3\r\n:200\r\n:16383\r\n*3\r\n$1\r\nb\r\n:2\r\n$40\r\n" ID_B "\r\n",
                         &changed),
                   CORRAL_OK);
  assert_string_equal(home(&c, 99), "a:1");
  assert_string_equal(home(&c, 100), "");
  assert_string_equal(home(&c, 200), "b:2");
  client_end(&c);
}

static void of_a_map_that_is_unsound_nothing_is_taken_over(void **state) {
  (void)state;
  static const char *const maps[] = {
      "*0\r\n", /* empty */
      "+OK\r\n",
      "$5\r\nslots\r\n",
      "*1\r\n:5\r\n",
      "*1\r\n*2\r\n:0\r\n:5\r\n",                            /* no primary */
      "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n", /* no such slot */
      "*1\r\n*3\r\n:6\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",     /* backwards */
      "*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",
      "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n:65536\r\n",          /* no such port */
      "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$3\r\na b\r\n:1\r\n",            /* no host */
      "*1\r\n*3\r\n:0\r\n:5\r\n*3\r\n$1\r\na\r\n:1\r\n$3\r\nabc\r\n", /* no id */
      "*1\r\n*3\r\n:0\r\n:5\r\n*4\r\n$1\r\na\r\n:1\r\n$40\r\n" ID_A "\r\n*1\r\n$2\r\nip\r\n",
      "*2\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n", /* cut short */
  };
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
    int changed = 0;
    client c = with_hosts("10.0.0.1");
    assert_int_equal(reads(&c, R("$1\r\nx\r\n", "7", ID_A), &changed), CORRAL_OK);
    if (reads(&c, maps[i], &changed) == CORRAL_OK) fail_msg("map %zu was taken over", i);
    assert_int_equal(changed, 0);
    assert_string_equal(home(&c, 3), "x:7");
    client_end(&c);
  }
}

static void a_map_of_another_cluster_is_refused(void **state) {
  (void)state;
  int changed;
  client c = with_hosts("10.0.0.1");
  assert_int_equal(reads(&c, R("$1\r\nx\r\n", "7", ID_A), &changed), CORRAL_OK);
  assert_int_equal(changed, 1);
  assert_int_equal(reads(&c, R("$1\r\ny\r\n", "8", ID_C), &changed), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "another cluster"));
  assert_string_equal(home(&c, 3), "x:7");
  client_end(&c);
}

/* The id of a replica is as good as that of a primary: after a failover only it may be left. */
static void a_map_that_shares_a_replica_is_the_same_clusters(void **state) {
  (void)state;
  int changed;
  client c = with_hosts("10.0.0.1");
  assert_int_equal(reads(&c,
                         "*1\r\n*4\r\n:0\r\n:16383\r\n*3\r\n$1\r\na\r\n:1\r\n$40\r\n" ID_A
                         "\r\n*3\r\n$1\r\nb\r\n:2\r\n$40\r\n" ID_B "\r\n",
                         &changed),
                   CORRAL_OK);
  assert_int_equal(reads(&c, R("$1\r\nb\r\n", "2", ID_B), &changed), CORRAL_OK);
  assert_int_equal(changed, 1);
  assert_string_equal(home(&c, 3), "b:2");
  assert_int_equal(reads(&c, R("$1\r\nb\r\n", "2", ID_B), &changed), CORRAL_OK);
  assert_int_equal(changed, 0);
  client_end(&c);
}

/* ---- a pool on a scripted node --------------------------------------------------------------- */

typedef struct dialogue {
  client c;
  fake_server *server;
  crl_pool *pool;
  corral_error error;
} dialogue;

/* A pool on a scripted node, which is the one that the URI names. */
static dialogue with(const char *script) {
  dialogue d = {.server = fake_server_start(script)};
  char hosts[40];
  snprintf(hosts, sizeof hosts, "localhost:%d", fake_server_port(d.server));
  d.c = with_hosts(hosts);
  d.pool = scripted_pool(&d.c, LIMIT);
  return d;
}

static void ended(dialogue *d) {
  crl_pool_free(d->pool);
  assert_true(fake_server_stop(d->server));
}

static int performs(dialogue *d, corral_op *op) {
  op->error = &d->error;
  crl_pool_perform(d->pool, op, 1, INT64_MAX);
  if (op->found.drop != NULL) op->found.drop(op->found.owner);
  return op->status;
}

static int looks(dialogue *d) {
  corral_op op = {.verb = CORRAL_VERB_GET, .key = "k", .key_len = 1};
  int status = performs(d, &op);
  assert_int_equal(op.flags & CORRAL_OP_ASKING, 0);
  return status;
}

/* The map has one node, at 127.0.0.1 and the port of this server, with the id A. */
#define ENTERED GREETED ASKED "SEND *1\\r\\n" RANGE(HERE, "@PORT", ID_A) "\n"
#define TO(word, port)                                                                             \
  "SEND -" word " 7629 127.0.0.1:" port "\\r\\n-" word " 7629 127.0.0.1:" port "\\r\\n\n"

static void a_key_that_was_moved_is_asked_for_there_from_then_on(void **state) {
  (void)state;
  char script[2000];
  fake_server *other = fake_server_start(GREETED_AS(ID_B) GET_K NONE GET_K NONE);
  snprintf(script, sizeof script, ENTERED GET_K TO("MOVED", "%d"), fake_server_port(other),
           fake_server_port(other));
  dialogue d = with(script);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
  assert_true(fake_server_stop(other));
}

/* Dialogues over a name, without a host, and by an address of IPv6. */
static void a_place_may_be_named_by_a_name_by_ipv6_or_by_its_port_alone(void **state) {
  (void)state;
  static const char *const hosts[] = {"127.0.0.1", "localhost", "", "?", "::ffff:127.0.0.1"};
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
    char script[2000];
    if (strchr(hosts[i], ':') != NULL && access("/proc/net/if_inet6", R_OK) != 0) continue;
    fake_server *other = fake_server_start(GREETED_AS(ID_B) GET_K NONE GET_K NONE);
    snprintf(script, sizeof script,
             ENTERED GET_K "SEND -MOVED 7629 %s:%d\\r\\n-MOVED 7629 %s:%d\\r\\n\n", hosts[i],
             fake_server_port(other), hosts[i], fake_server_port(other));
    dialogue d = with(script);
    if (looks(&d) != CORRAL_EMISS) fail_msg("%s: %s", hosts[i], d.error.text);
    assert_int_equal(looks(&d), CORRAL_EMISS);
    ended(&d);
    assert_true(fake_server_stop(other));
  }
}

static void a_key_on_its_way_is_asked_for_there_once_before_each_command(void **state) {
  (void)state;
  char script[2000];
  fake_server *other = fake_server_start(
      GREETED_AS(ID_B) "EXPECT $6\\r\\nASKING\\r\\n*4\\r\\n$8\\r\\nGETRANGE\nEXPECT "
                       "$6\\r\\nASKING\\r\\n*2\\r\\n$4\\r\\nPTTL\\r\\n$1\\r\\nk\\r\\n\n"
                       "SEND +OK\\r\\n$0\\r\\n\\r\\n+OK\\r\\n:-2\\r\\n\n");
  snprintf(script, sizeof script, ENTERED GET_K TO("ASK", "%d") "ACCEPT\n" GREETED GET_K NONE,
           fake_server_port(other), fake_server_port(other));
  dialogue d = with(script);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  assert_int_equal(looks(&d), CORRAL_EMISS); /* where the map has it */
  ended(&d);
  assert_true(fake_server_stop(other));
}

/* The node was restarted elsewhere, and its former address is another's. */
static void a_node_that_moves_a_key_to_itself_is_connected_to_anew(void **state) {
  (void)state;
  dialogue d = with(ENTERED GET_K TO("MOVED", "@PORT") "ACCEPT\n" GREETED GET_K TO(
      "MOVED", "@PORT") "HANG\nACCEPT\n" GREETED GET_K NONE);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
}

static void nodes_that_send_a_key_to_one_another_are_not_followed_for_ever(void **state) {
  (void)state;
  char script[8000];
  size_t len = (size_t)snprintf(script, sizeof script, ENTERED GET_K TO("MOVED", "@PORT"));
  for (int i = 0; i < HOPS; i++)
    len += (size_t)snprintf(script + len, sizeof script - len,
                            "ACCEPT\n" GREETED GET_K TO("MOVED", "@PORT"));
  dialogue d = with(script);
  assert_int_equal(looks(&d), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(d.error.text, "to one another"));
  ended(&d);
}

/* It is asked for once more where the map has the slot. */
static void a_place_that_cannot_be_read_is_not_gone_to(void **state) {
  (void)state;
  static const char *const replies[] = {
      "MOVED", "MOVED 7629", "MOVED 7629 127.0.0.1", "MOVED 7629 127.0.0.1:0",
      "MOVED 7629 127.0.0.1:65536", "MOVED 16384 127.0.0.1:7001", "MOVED x 127.0.0.1:7001",
      /* another key's slot */
      "MOVED 1 127.0.0.1:7001", "ASK 1 127.0.0.1:7001", "CLUSTERDOWN The cluster is down",
      "TRYAGAIN Multiple keys request during rehashing of slot"};
  for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
    char script[2000];
    snprintf(script, sizeof script,
             ENTERED GET_K "SEND -%s\\r\\n-%s\\r\\n\n"
                           "ACCEPT\n" GREETED GET_K "SEND -%s\\r\\n-%s\\r\\n\n",
             replies[i], replies[i], replies[i], replies[i]);
    dialogue d = with(script);
    int status = looks(&d);
    if (status != CORRAL_EUNAVAILABLE) fail_msg("%s: %s", replies[i], corral_status_name(status));
    assert_null(strstr(d.error.text, "redis+cluster://"));
    ended(&d);
  }
}

static void a_refused_command_is_answered_with_all_that_a_cluster_wants(void **state) {
  (void)state;
  static const char refusal[] = "NOPERM this user has no permissions to run the 'getrange' command";
  char script[2000];
  snprintf(script, sizeof script, ENTERED GET_K "SEND -%s\\r\\n-%s\\r\\n\n", refusal, refusal);
  dialogue d = with(script);
  assert_int_not_equal(looks(&d), CORRAL_OK);
  assert_non_null(strstr(d.error.text, "getrange"));
  assert_non_null(strstr(d.error.text, "+asking +cluster, for locks"));
  assert_null(strstr(d.error.text, "+select"));
  assert_non_null(strstr(d.error.text, "+wait"));
  ended(&d);
}

static void nothing_is_sent_to_another_node_that_has_an_address(void **state) {
  (void)state;
  dialogue d = with(ENTERED GET_K TO("MOVED", "@PORT") "ACCEPT\n" GREETED_AS(ID_C));
  assert_int_equal(looks(&d), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(d.error.text, "another node"));
  ended(&d);
}

/* The name of the staged record isn't there yet, so both commands are refused. */
static void a_large_record_whose_slot_is_on_its_way_goes_without_staging(void **state) {
  (void)state;
  static const uint8_t token[CORRAL_TOKEN] = {1};
  size_t len;
  uint8_t *record = record_make((corral_header){0}, 10000, 'x', &len);
  dialogue d =
      with(ENTERED "EXPECT EVALSHA\nEXPECT \\r\\n$1\\r\\n2\\r\\n\nSEND -ASK 7629 "
                   "127.0.0.1:@PORT\\r\\n-TRYAGAIN Multiple keys\\r\\n\n"
                   "EXPECT EVALSHA\nEXPECT \\r\\n$1\\r\\n1\\r\\n$1\\r\\nk\\r\\n\nSEND :0\\r\\n\n");
  corral_op op = {.verb = CORRAL_VERB_SETTLE, .key = "k", .key_len = 1, .token = token};
  op.settle = (corral_settle_args){.record = record, .record_len = len, .ttl_ms = 1000};
  if (performs(&d, &op) != CORRAL_OK) fail_msg("%s", d.error.text);
  ended(&d);
  free(record);
}

static void a_replica_is_taken_for_what_it_is(void **state) {
  (void)state;
  dialogue d = with(ENTERED "EXPECT EVALSHA\nSEND -READONLY You can't write against a read only "
                            "replica.\\r\\n\n"
                            "ACCEPT\n" GREETED
                            "EXPECT EVALSHA\nSEND -READONLY You can't write against a read only "
                            "replica.\\r\\n\n");
  corral_op op = {.verb = CORRAL_VERB_INVALIDATE, .key = "k", .key_len = 1};
  assert_int_equal(performs(&d, &op), CORRAL_EUNAVAILABLE);
  ended(&d);
}

/* ---- a cluster that starts, grows and shrinks ------------------------------------------------ */

/* The map has these slots, at 127.0.0.1 and this port. */
#define SLOTS_AT(first, last, port, id)                                                            \
  "*3\\r\\n:" first "\\r\\n:" last "\\r\\n*3\\r\\n" HERE ":" port "\\r\\n$40\\r\\n" id "\\r\\n"

static int no_key(void *arg, const void *key, size_t len) {
  (void)arg, (void)key, (void)len;
  return 0;
}

/* Lists keys by the plugin's own function. */
static int lists(dialogue *d) {
  corral_listing listing = {
      .size = sizeof listing, .op_ms = LIMIT, .prefix = "p", .prefix_len = 1, .tell = no_key};
  return crl_redis_cluster_list(d->c.store, &listing, &d->error);
}

static void what_a_slot_without_a_node_keeps_is_not_listed_as_nothing(void **state) {
  (void)state;
  dialogue d = with(GREETED ASKED "SEND *1\\r\\n" SLOTS_AT(
      "0", "8191", "@PORT", ID_A) "\n"
                                  "ACCEPT\n" GREETED ASKED "SEND *1\\r\\n" SLOTS_AT(
                                      "0", "16383", "@PORT",
                                      ID_A) "\n"
                                            "ACCEPT\n" GREETED
                                            "EXPECT SCAN\nSEND *2\\r\\n$1\\r\\n0\\r\\n*0\\r\\n\n");
  assert_int_equal(lists(&d), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(d.error.text, "which node"));
  if (lists(&d) != CORRAL_OK) fail_msg("%s", d.error.text);
  ended(&d);
}

static int refreshes(dialogue *d, corral_error *why) {
  *why = (corral_error){0};
  return crl_plugin_redis_cluster.refresh(d->c.store, d->c.host->now_ms() + LIMIT, why);
}

/* The answers of a node that has just been started. */
#define SAYS(what) "SEND -" what "\\r\\n-" what "\\r\\n-" what "\\r\\n\n"
static const char *const starting[] = {
    "EXPECT TIME\\r\\n\n" SAYS("LOADING Redis is loading the dataset in memory"),
    GREETED ASKED "SEND *0\\r\\n\n",
    GREETED ASKED "SEND -LOADING Redis is loading the dataset in memory\\r\\n\n",
    GREETED ASKED "SEND -MASTERDOWN Link with MASTER is down\\r\\n\n",
    GREETED ASKED "SEND -CLUSTERDOWN The cluster is down\\r\\n\n",
};

static void a_node_that_starts_is_passed_over(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof starting / sizeof *starting; i++) {
    char hosts[80];
    fake_server *first = fake_server_start(starting[i]);
    dialogue d = {.server = fake_server_start(ENTERED GET_K NONE)};
    snprintf(hosts, sizeof hosts, "127.0.0.1:%d,127.0.0.1:%d", fake_server_port(first),
             fake_server_port(d.server));
    d.c = with_hosts(hosts);
    d.pool = scripted_pool(&d.c, LIMIT);
    if (looks(&d) != CORRAL_EMISS) fail_msg("%zu: %s", i, d.error.text);
    ended(&d);
    assert_true(fake_server_stop(first));
  }
}

static void a_cluster_that_starts_is_asked_again_by_the_next_call(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof starting / sizeof *starting; i++) {
    char script[2000];
    snprintf(script, sizeof script, "%sACCEPT\n" ENTERED GET_K NONE, starting[i]);
    dialogue d = with(script);
    if (looks(&d) != CORRAL_EUNAVAILABLE) fail_msg("%zu: %s", i, d.error.text);
    if (looks(&d) != CORRAL_EMISS) fail_msg("%zu: %s", i, d.error.text);
    ended(&d);
  }
}

static void a_look_that_meets_a_node_which_is_not_ready_is_asked_where_the_map_has_it(void **s) {
  (void)s;
  static const char *const replies[] = {
      "LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down",
      "CLUSTERDOWN The cluster is down", "TRYAGAIN Multiple keys request during rehashing of slot"};
  for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
    char script[2000];
    snprintf(script, sizeof script,
             ENTERED GET_K "SEND -%s\\r\\n-%s\\r\\n\nACCEPT\n" GREETED GET_K NONE, replies[i],
             replies[i]);
    dialogue d = with(script);
    if (looks(&d) != CORRAL_EMISS) fail_msg("%s: %s", replies[i], d.error.text);
    ended(&d);
  }
}

static void a_slot_that_nobody_has_is_served_once_somebody_has_it(void **state) {
  (void)state;
  corral_error why;
  dialogue d = with(GREETED ASKED "SEND *1\\r\\n" SLOTS_AT(
      "0", "99", "@PORT", ID_A) "\n" GET_K
                                "SEND -CLUSTERDOWN Hash slot not served\\r\\n-CLUSTERDOWN\\r\\n\n"
                                "ACCEPT\n" ENTERED "ACCEPT\n" GREETED GET_K NONE);
  assert_int_equal(looks(&d), CORRAL_EUNAVAILABLE);
  assert_string_equal(home(&d.c, 7629), "");
  assert_int_equal(refreshes(&d, &why), CORRAL_OK);
  assert_string_equal(why.text, "other nodes have some of the keys");
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
}

static void after_a_scale_down_keys_are_asked_for_at_the_nodes_that_are_left(void **state) {
  (void)state;
  char script[2000], before[300];
  corral_error why;
  fake_server *leaving = fake_server_start(GREETED_AS(ID_B) GET_K NONE "CLOSE\n");
  int port = fake_server_port(leaving);
  snprintf(script, sizeof script,
           GREETED ASKED "SEND *2\\r\\n" SLOTS_AT("0", "8191", "%d", ID_B)
               SLOTS_AT("8192", "16383", "@PORT", ID_A) "\n" GET_K TO(
                   "MOVED", "%d") "ACCEPT\n" ENTERED "ACCEPT\n" GREETED GET_K NONE,
           port, port, port);
  dialogue d = with(script);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  snprintf(before, sizeof before, "%s", home(&d.c, 7629));
  assert_string_not_equal(before, home(&d.c, 8192));
  assert_true(fake_server_stop(leaving));
  assert_int_equal(refreshes(&d, &why), CORRAL_OK);
  assert_string_equal(why.text, "other nodes have some of the keys");
  assert_string_not_equal(before, home(&d.c, 7629));
  assert_int_equal(looks(&d), CORRAL_EMISS);
  ended(&d);
}

/* Known nodes are asked, then the host of the URI; all have become another cluster's. */
static void the_map_of_another_cluster_changes_nothing(void **state) {
  (void)state;
  enum { ASKED_FOR_IT = 4 };
  char script[4000];
  corral_error why;
  size_t len = (size_t)snprintf(script, sizeof script, ENTERED GET_K NONE);
  for (int i = 0; i < ASKED_FOR_IT; i++)
    len += (size_t)snprintf(script + len, sizeof script - len,
                            "ACCEPT\n" GREETED ASKED
                            "SEND *1\\r\\n" SLOTS_AT("0", "16383", "7001", ID_C) "\n");
  dialogue d = with(script);
  assert_int_equal(looks(&d), CORRAL_EMISS);
  char before[300];
  snprintf(before, sizeof before, "%s", home(&d.c, 7629));
  assert_int_equal(refreshes(&d, &why), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(why.text, "another cluster"));
  assert_string_equal(home(&d.c, 7629), before);
  ended(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_key_has_the_slot_of_its_hash_tag),
      cmocka_unit_test(the_slot_of_a_key_of_any_length_is_by_its_checksum),
      cmocka_unit_test(an_endpoint_that_is_not_told_is_the_host_that_was_asked),
      cmocka_unit_test(an_endpoint_is_an_address_of_either_family_or_a_name),
      cmocka_unit_test(slots_that_nobody_has_are_asked_for_at_the_front_door),
      cmocka_unit_test(of_a_map_that_is_unsound_nothing_is_taken_over),
      cmocka_unit_test(a_map_of_another_cluster_is_refused),
      cmocka_unit_test(a_map_that_shares_a_replica_is_the_same_clusters),
      cmocka_unit_test(a_key_that_was_moved_is_asked_for_there_from_then_on),
      cmocka_unit_test(a_place_may_be_named_by_a_name_by_ipv6_or_by_its_port_alone),
      cmocka_unit_test(a_key_on_its_way_is_asked_for_there_once_before_each_command),
      cmocka_unit_test(a_node_that_moves_a_key_to_itself_is_connected_to_anew),
      cmocka_unit_test(nodes_that_send_a_key_to_one_another_are_not_followed_for_ever),
      cmocka_unit_test(a_place_that_cannot_be_read_is_not_gone_to),
      cmocka_unit_test(a_refused_command_is_answered_with_all_that_a_cluster_wants),
      cmocka_unit_test(nothing_is_sent_to_another_node_that_has_an_address),
      cmocka_unit_test(a_large_record_whose_slot_is_on_its_way_goes_without_staging),
      cmocka_unit_test(a_replica_is_taken_for_what_it_is),
      cmocka_unit_test(a_node_that_starts_is_passed_over),
      cmocka_unit_test(a_cluster_that_starts_is_asked_again_by_the_next_call),
      cmocka_unit_test(a_look_that_meets_a_node_which_is_not_ready_is_asked_where_the_map_has_it),
      cmocka_unit_test(a_slot_that_nobody_has_is_served_once_somebody_has_it),
      cmocka_unit_test(after_a_scale_down_keys_are_asked_for_at_the_nodes_that_are_left),
      cmocka_unit_test(the_map_of_another_cluster_changes_nothing),
      cmocka_unit_test(what_a_slot_without_a_node_keeps_is_not_listed_as_nothing),
  };
  return cmocka_run_group_tests_name("redis_cluster_dialogue", tests, default_signals, NULL);
}
