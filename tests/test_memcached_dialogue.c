/* test_memcached_dialogue.c: replies that a real memcached doesn't give on demand, from a scripted
 * server. libmemcached would end the process at many of these replies; the plugin must return a
 * status and a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <signal.h>

#include "../plugins/memcached/memcached.h"
#include "support/fake_server.h"
#include "support/memcached_kit.h"

enum { SHORT = 100, SEEN = 77 };

#define GREETED                                                                                    \
  "EXPECT settings\\r\\n\nSEND STAT time 1700000000\\r\\nEND\\r\\nSTAT item_size_max "             \
  "1048576\\r\\n"                                                                                  \
  "STAT cas_enabled yes\\r\\nEND\\r\\n\n"
#define GET_K "EXPECT get k\\r\\n\n"
#define GETS_K "EXPECT gets k\\r\\n\n"
#define ADD_K "EXPECT add k 0 3601 88\\r\\n\n"
/* A record of "crl2" and 44 zero bytes, so its state is FREE. Its cas id is 9. */
#define ZEROS                                                                                      \
  "\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"
#define TEN_ZEROS "\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"
#define RECORD_K "SEND VALUE k 0 48 9\\r\\ncrl2" ZEROS TEN_ZEROS "\\0\\0\\0\\r\\nEND\\r\\n\n"
#define CAS_K "EXPECT cas k 0 3601 88 9\\r\\n\n"

typedef struct dialogue {
  client c;
  fake_server *server;
} dialogue;

static dialogue with(const char *script) {
  dialogue d = {.server = fake_server_start(script)};
  char text[64];
  snprintf(text, sizeof text, "memcached://127.0.0.1:%d", fake_server_port(d.server));
  assert_int_equal(only_open(&d.c, text), CORRAL_OK);
  return d;
}

static dialogue connected(const char *script) {
  dialogue d = with(script);
  if (connects(&d.c, LIMIT) != CORRAL_OK) fail_msg("%s", d.c.error.text);
  return d;
}

static void ended(dialogue *d) {
  closed(&d->c);
  assert_true(fake_server_stop(d->server));
}

/* The operation that causes each command, and the dialogue before that command's reply. */
static const struct way {
  const char *command, *before;
  corral_verb verb;
  uint64_t seen;
} ways[] = {
    {"get", GET_K, CORRAL_VERB_GET, 0},
    {"add", ADD_K, CORRAL_VERB_CLAIM, 0},
    {"gets", GETS_K, CORRAL_VERB_INVALIDATE, 0},
    {"cas", GETS_K RECORD_K CAS_K, CORRAL_VERB_CLAIM, SEEN},
};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct outcome {
  int performed, status;
  char text[240];
} outcome;

/* Performs the operation of a way; `steps` is the reply to its last command. */
static outcome answered(const struct way *way, const char *steps, int64_t limit) {
  char script[8192];
  snprintf(script, sizeof script, "%s%s%s", GREETED, way->before, steps);
  dialogue d = connected(script);
  corral_op op = op_of(way->verb, "k", 1);
  outcome o;
  op.seen = way->seen;
  memset(&d.c.error, 0, sizeof d.c.error);
  o.performed = perform_for(&d.c, &op, 1, limit);
  o.status = op.status;
  memcpy(o.text, d.c.error.text, sizeof o.text);
  dropped(&op);
  ended(&d);
  return o;
}

static outcome answered_line(const struct way *way, const char *line) {
  char steps[4096];
  snprintf(steps, sizeof steps, "SEND %s\\r\\n\n", line);
  return answered(way, steps, LIMIT);
}

static void append(char *text, size_t size, const char *more) {
  strncat(text, more, size - strlen(text) - 1);
}

/* ---- malformed replies --------------------------------------------------------------------- */

static int is_write(const struct way *way) {
  return strcmp(way->command, "add") == 0 || strcmp(way->command, "cas") == 0;
}

/* One reply of every class that memcached has, and some that it doesn't have. */
static const char *const strange[] = {
    "OK",
    "DELETED",
    "TOUCHED",
    "STAT time 5",
    "ITEM k [5 b; 0 s]",
    "VERSION",
    "VERSION 1.6.18",
    "VERSION x",
    "42",
    "0",
    "99999999999999999999999",
    "RESET",
    "BUSY",
    "BADCLASS",
    "HD",
    "EN",
    "MN",
    "VA 5",
    "",
    " ",
    "END x",
    "ENDS",
    "STOREDX",
    "stored",
    "STORED ",
    "NOT_",
    "VALU",
    "VALUE",
    "VALUE ",
    "VALUE k",
    "VALUE k 0",
    "VALUE k 0 ",
    "VALUE k x 5",
    "VALUE k 0 x",
    "VALUE k 0 -1",
    "VALUE k 0 18446744073709551614 1",
    "VALUE k 0 18446744073709551615 1",
    "VALUE k 0 99999999999999999999 1",
    "VALUE k 0 2000000000 1",
    "VALUE  0 5 1",
    "VALUE other 0 1 1\\r\\nx",
    "VALUE K 0 1 1\\r\\nx",
    "VALUE k 0 1 1 1\\r\\nx",
    "VALUE k 0 1 99999999999999999999\\r\\nx",
    "VALUE k 0 1 -1\\r\\nx",
    "VALUE k 0 1 1\\r\\nxy",
    "VALUE k 0 3 1\\r\\nx\\r\\nEND",
    "\\0\\0\\0",
    "\\xff\\xfe\\x81\\0",
    "HTTP/1.1 400 Bad Request",
    "-ERR unknown command",
    "SSH-2.0-OpenSSH_9.2",
    "VALUE k 0 1 1\\r\\nx\\r\\nVALUE k 0 1 2\\r\\ny\\r\\nEND",
    "VALUE k 0 1 1\\r\\nx\\r\\nSTORED",
};

static void a_reply_that_makes_no_sense_breaks_the_handle_and_nothing_else(void **state) {
  (void)state;
  for (size_t w = 0; w < WAYS; w++)
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
      outcome o = answered_line(&ways[w], strange[i]);
      int expected = is_write(&ways[w]) || ways[w].verb == CORRAL_VERB_GET ? CORRAL_EUNKNOWN
                                                                           : CORRAL_EUNAVAILABLE;
      if (o.performed != CORRAL_EPROTOCOL || o.status != expected ||
          strstr(o.text, "127.0.0.1") == NULL)
        fail_msg("%s, answered by '%s': %s, the op %s: %s", ways[w].command, strange[i],
                 corral_status_name(o.performed), corral_status_name(o.status), o.text);
    }
}

static void a_reply_of_another_class_breaks_the_handle(void **state) {
  (void)state;
  static const char *const classes[] = {"END", "STORED", "NOT_STORED", "EXISTS", "NOT_FOUND"};
  static const char *const wrong[WAYS] = {"STORED NOT_STORED EXISTS NOT_FOUND",
                                          "END EXISTS NOT_FOUND",
                                          "STORED NOT_STORED EXISTS NOT_FOUND", "END"};
  for (size_t w = 0; w < WAYS; w++)
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
      const char *at = strstr(wrong[w], classes[i]);
      while (at != NULL && at > wrong[w] && at[-1] != ' ') at = strstr(at + 1, classes[i]);
      if (at == NULL) continue;
      outcome o = answered_line(&ways[w], classes[i]);
      if (o.performed != CORRAL_EPROTOCOL)
        fail_msg("%s, answered by %s: %s", ways[w].command, classes[i],
                 corral_status_name(o.performed));
    }
}

static void a_key_of_any_length_is_refused(void **state) {
  (void)state;
  for (size_t len = 200; len <= 2000; len += 60) {
    char line[2200];
    memcpy(line, "VALUE ", 6);
    memset(line + 6, 'k', len);
    snprintf(line + 6 + len, sizeof line - 6 - len, " 0 1 1\\r\\nx\\r\\nEND");
    for (size_t w = 0; w < WAYS; w++)
      assert_int_equal(answered_line(&ways[w], line).performed, CORRAL_EPROTOCOL);
  }
}

static void a_line_without_end_is_not_read_for_ever(void **state) {
  (void)state;
  char steps[6000] = "SEND ";
  memset(steps + 5, 'S', 5000);
  memcpy(steps + 5005, "\n", 2);
  for (size_t w = 0; w < WAYS; w++) {
    outcome o = answered(&ways[w], steps, LIMIT);
    assert_int_equal(o.performed, CORRAL_EPROTOCOL);
    assert_non_null(strstr(o.text, "endless line"));
  }
}

static void a_cas_id_of_zero_is_never_used(void **state) {
  (void)state;
  outcome o = answered_line(&ways[2], "VALUE k 0 1 0\\r\\nx\\r\\nEND");
  assert_int_equal(o.performed, CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(o.text, "without cas (-C)"));
  o = answered_line(&ways[2], "VALUE k 0 1\\r\\nx\\r\\nEND");
  assert_int_equal(o.performed, CORRAL_EPROTOCOL);
}

static void a_surplus_reply_breaks_the_handle(void **state) {
  (void)state;
  outcome o = answered_line(&ways[0], "END\\r\\nEND");
  assert_int_equal(o.performed, CORRAL_EPROTOCOL);
  assert_int_equal(o.status, CORRAL_EMISS);
  assert_int_equal(answered_line(&ways[1], "STORED\\r\\nSTORED").performed, CORRAL_EPROTOCOL);
  assert_int_equal(answered_line(&ways[3], "STORED\\r\\nEND").performed, CORRAL_EPROTOCOL);
  assert_int_equal(answered_line(&ways[2], "END\\r\\nEND").performed, CORRAL_EPROTOCOL);
}

static void a_surplus_reply_between_batches_is_seen_before_the_next(void **state) {
  (void)state;
  /* The surplus bytes are sent before the second connection is greeted. */
  dialogue d = connected(
      GREETED GET_K
      "SEND END\\r\\n\nEXPECT get again\\r\\n\nSEND END\\r\\nEND\\r\\n\nACCEPT\n" GREETED);
  corral_op first = op_of(CORRAL_VERB_GET, "k", 0), second = op_of(CORRAL_VERB_GET, "again", 0);
  corral_op third = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(perform(&d.c, &first, 1), CORRAL_OK);
  int status = perform(&d.c, &second, 1); /* the surplus bytes may arrive with the reply or later */
  assert_int_equal(second.status, CORRAL_EMISS);
  void *handle = d.c.handle;
  assert_int_equal(connects(&d.c, LIMIT), CORRAL_OK);
  void *other = d.c.handle;
  d.c.handle = handle;
  if (status == CORRAL_OK) {
    assert_int_not_equal(perform(&d.c, &third, 1), CORRAL_OK);
    assert_int_equal(third.status, CORRAL_EUNAVAILABLE);
  }
  crl_plugin_memcached.disconnect(other);
  ended(&d);
}

/* Replies of random pieces, cut off at random. */
static void nonsense_of_any_kind_ends_with_a_status(void **state) {
  (void)state;
  static const char *const pieces[] = {"VALUE",
                                       "STORED",
                                       "NOT_",
                                       "END",
                                       "EXISTS",
                                       "k",
                                       "0",
                                       "1",
                                       "48",
                                       "-1",
                                       "18446744073709551615",
                                       " ",
                                       " ",
                                       " ",
                                       "\\r\\n",
                                       "\\r\\n",
                                       "\\r\\n",
                                       "\\n",
                                       "\\0",
                                       "\\xff",
                                       "crl2" ZEROS,
                                       ZEROS,
                                       "SERVER_ERROR",
                                       "STAT",
                                       "OK",
                                       "VERSION"};
  uint32_t seed;
  crl_registry_host()->random(&seed, sizeof seed);
  print_message("seed %u\n", (unsigned)seed);
  for (int round = 0; round < 400; round++) {
    char steps[2048] = "SEND ";
    size_t count = 1 + seed % 12;
    for (size_t i = 0; i < count; i++) {
      seed = seed * 1664525 + 1013904223;
      append(steps, sizeof steps, pieces[(seed >> 16) % (sizeof pieces / sizeof *pieces)]);
    }
    append(steps, sizeof steps, "\nCLOSE\n");
    outcome o = answered(&ways[round % WAYS], steps, LIMIT);
    assert_true(o.performed <= 0 && o.status <= 0);
  }
}

/* ---- error lines --------------------------------------------------------------------------- */

static const struct refusal {
  const char *line;
  int read, write, broken;
} refusals[] = {
    {"SERVER_ERROR object too large for cache", CORRAL_ETOOBIG, CORRAL_ETOOBIG, 0},
    {"SERVER_ERROR out of memory storing object", CORRAL_EREFUSED, CORRAL_EREFUSED, 0},
    {"SERVER_ERROR Out of memory during read", CORRAL_EREFUSED, CORRAL_EREFUSED, 0},
    {"SERVER_ERROR Connection timed out", CORRAL_EUNAVAILABLE, CORRAL_EUNKNOWN, 0},
    {"SERVER_ERROR", CORRAL_EUNAVAILABLE, CORRAL_EUNKNOWN, 0},
    {"SERVER_ERROR \\xff\\x01\\0", CORRAL_EUNAVAILABLE, CORRAL_EUNKNOWN, 0},
    {"CLIENT_ERROR bad data chunk", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 1},
    {"CLIENT_ERROR", CORRAL_EPROTOCOL, CORRAL_EPROTOCOL, 1},
    {"CLIENT_ERROR unauthenticated", CORRAL_EAUTH, CORRAL_EAUTH, 1},
    {"ERROR", CORRAL_EUNSUPPORTED, CORRAL_EUNSUPPORTED, 1},
};

static void each_error_line_has_its_status(void **state) {
  (void)state;
  for (size_t w = 0; w < WAYS; w++)
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
      const struct refusal *r = &refusals[i];
      outcome o = answered_line(&ways[w], r->line);
      int expected = is_write(&ways[w]) ? r->write : r->read;
      int right =
          r->broken ? o.performed == expected : o.performed == CORRAL_OK && o.status == expected;
      if (!right || strstr(o.text, "_ERROR") == NULL)
        if (!right || strcmp(r->line, "ERROR") != 0)
          fail_msg("%s, answered by '%s': %s, the op %s: %s", ways[w].command, r->line,
                   corral_status_name(o.performed), corral_status_name(o.status), o.text);
    }
}

static void after_a_refusal_the_connection_is_used_on(void **state) {
  (void)state;
  dialogue d = connected(GREETED ADD_K "SEND SERVER_ERROR out of memory\\r\\n\n" GETS_K
                                       "SEND SERVER_ERROR no\\r\\n\n" GET_K "SEND END\\r\\n\n");
  assert_int_equal(does(&d.c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EREFUSED);
  assert_int_equal(does(&d.c, CORRAL_VERB_INVALIDATE, "k", 1), CORRAL_EUNAVAILABLE);
  assert_int_equal(does(&d.c, CORRAL_VERB_GET, "k", 1), CORRAL_EMISS);
  ended(&d);
}

/* ---- endless races ------------------------------------------------------------------------- */

static void a_key_that_others_change_all_the_time_is_given_up(void **state) {
  (void)state;
  char script[16384] = GREETED;
  for (int i = 0; i < 16; i++)
    append(script, sizeof script, GETS_K RECORD_K CAS_K "SEND EXISTS\\r\\n\n");
  dialogue d = connected(script);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  op.seen = SEEN;
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EBUSY);
  assert_null(op.found);
  ended(&d);
}

/* ---- users' locks -------------------------------------------------------------------------- */

/* The head of a free lock, and the command that adds one hold to it. The end of the hold isn't
 * checked, because the time is the server's. */
#define HEAD_ZEROS                                                                                 \
  "\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"
#define LOCK_K "SEND VALUE k 0 32 9\\r\\ncrk1" HEAD_ZEROS "\\r\\nEND\\r\\n\n"
#define TAKE_K "EXPECT cas k 0 3661 160 9\\r\\n\n"

static corral_op take_op(void) {
  corral_op op = op_of(CORRAL_VERB_LOCK, "k", 1);
  op.ttl_ms = 0;
  return op;
}

static void a_lock_that_others_change_is_tried_again(void **state) {
  (void)state;
  char script[32768] = GREETED;
  for (int i = 0; i < 40; i++)
    append(script, sizeof script, GETS_K LOCK_K TAKE_K "SEND EXISTS\\r\\n\n");
  append(script, sizeof script, GETS_K LOCK_K TAKE_K "SEND NOT_FOUND\\r\\n\n");
  append(script, sizeof script,
         GETS_K "SEND END\\r\\n\nEXPECT add k 0 3661 160\\r\\n\nSEND NOT_STORED\\r\\n\n");
  append(script, sizeof script, GETS_K LOCK_K TAKE_K "SEND STORED\\r\\n\n");
  dialogue d = connected(script);
  corral_op op = take_op();
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(op.until_ms, HOUR);
  ended(&d);
}

static corral_host late_host;
static int asked;

/* The first call returns the real time, each later call a time after any deadline. */
static int64_t late_now_ms(void) {
  return crl_registry_host()->now_ms() + (asked++ > 0 ? HOUR : 0);
}

/* Adds a reply to gets: a lock held by token 1. */
static void append_held(char *script, size_t size) {
  corral_hold hold = {.mode = CORRAL_LOCK_EXCLUSIVE, .until = INT64_MAX / 4, .fence = 7};
  uint8_t record[CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD];
  char byte[8];
  memcpy(hold.token, token(1), CORRAL_TOKEN);
  crl_registry_host()->lock_write(7, &hold, 1, record);
  append(script, size, GETS_K "SEND VALUE k 0 160 9\\r\\n");
  for (size_t i = 0; i < sizeof record; i++) {
    snprintf(byte, sizeof byte, "\\x%02x", record[i]);
    append(script, size, byte);
  }
  append(script, size, "\\r\\nEND\\r\\n\nEXPECT cas k 0\nEXPECT  9\\r\\n\n");
}

/* No write succeeded, so the status must say that nothing changed. */
static void a_race_that_is_lost_until_the_deadline_has_changed_nothing(void **state) {
  (void)state;
  static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND,
                                      CORRAL_VERB_UNLOCK};
  for (size_t i = 0; i < 3; i++) {
    char script[4096] = GREETED;
    append_held(script, sizeof script);
    append(script, sizeof script, "SEND EXISTS\\r\\n\n");
    dialogue d = connected(script);
    late_host = *crl_registry_host();
    late_host.now_ms = late_now_ms;
    asked = 0;
    ((crl_memcached_handle *)d.c.handle)->host = &late_host;
    corral_op op = op_of(verbs[i], "k", 1);
    assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, verbs[i] == CORRAL_VERB_LOCK ? CORRAL_EBUSY : CORRAL_EUNAVAILABLE);
    if (verbs[i] == CORRAL_VERB_LOCK) assert_int_equal(op.until_ms, -1);
    assert_non_null(strstr(d.c.error.text, "others changed the lock"));
    ended(&d);
  }
}

static void
a_lock_verb_whose_reply_is_lost_is_unknown_and_one_that_was_not_sent_is_not(void **state) {
  (void)state;
  static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND,
                                      CORRAL_VERB_UNLOCK};
  for (size_t i = 0; i < 6; i++) {
    char script[4096] = GREETED;
    if (i < 3)
      append_held(script, sizeof script);
    else
      append(script, sizeof script, GETS_K);
    append(script, sizeof script, "CLOSE\n");
    dialogue d = connected(script);
    corral_op op = op_of(verbs[i % 3], "k", 1);
    assert_int_not_equal(perform(&d.c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, i < 3 ? CORRAL_EUNKNOWN : CORRAL_EUNAVAILABLE);
    ended(&d);
  }
}

static void
a_lock_verb_whose_server_doesnt_know_is_unknown_and_one_without_memory_refused(void **state) {
  (void)state;
  dialogue d = connected(GREETED GETS_K LOCK_K TAKE_K
                         "SEND SERVER_ERROR proxy lost it\\r\\n\n" GETS_K LOCK_K TAKE_K
                         "SEND SERVER_ERROR object too large for cache\\r\\n\n" GETS_K
                         "SEND SERVER_ERROR no\\r\\n\n");
  corral_op op = take_op();
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EUNKNOWN);
  op = take_op();
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EREFUSED);
  /* the record wasn't read */
  assert_int_equal(does(&d.c, CORRAL_VERB_UNLOCK, "k", 1), CORRAL_EUNAVAILABLE);
  ended(&d);
}

/* An impossible server time is treated as unknown. */
static void a_time_that_no_clock_has_isnt_believed(void **state) {
  (void)state;
  static const char *const times[] = {"9223372036854775807",
                                      "-9223372036854775808",
                                      "99999999999999999999",
                                      "9223372036854775",
                                      "-1",
                                      "0",
                                      "x"};
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    char script[1024];
    snprintf(script, sizeof script,
             "EXPECT settings\\r\\n\nSEND STAT time %s\\r\\nEND\\r\\nSTAT item_size_max "
             "1048576\\r\\nEND\\r\\n\n" GETS_K LOCK_K TAKE_K "SEND STORED\\r\\n\n",
             times[i]);
    int64_t before = crl_registry_host()->wall_ms();
    dialogue d = connected(script);
    corral_op op = take_op();
    assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_OK);
    assert_in_range(op.seen / 1000, before - 1, crl_registry_host()->wall_ms() + 1);
    ended(&d);
  }
}

/* ---- closed connections -------------------------------------------------------------------- */

static void a_reply_cut_in_the_middle_leaves_the_fate_of_a_write_unknown(void **state) {
  (void)state;
  static const char *const cuts[] = {"CLOSE\n", "SEND S\nCLOSE\n", "SEND STORED\nCLOSE\n",
                                     "SEND VALUE k 0 50 1\\r\\nxx\nCLOSE\n",
                                     "SEND VALUE k 0 1 1\\r\\nx\\r\\n\nCLOSE\n"};
  for (size_t w = 0; w < WAYS; w++)
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
      outcome o = answered(&ways[w], cuts[i], LIMIT);
      assert_true(o.performed == CORRAL_EUNAVAILABLE ||
                  (i >= 3 && o.performed == CORRAL_EPROTOCOL));
      if (is_write(&ways[w])) assert_int_equal(o.status, CORRAL_EUNKNOWN);
    }
}

static void a_connection_closed_while_idle_is_seen_before_sending(void **state) {
  (void)state;
  dialogue d = connected(GREETED "CLOSE\nACCEPT\n" GREETED);
  void *first = d.c.handle;
  assert_int_equal(connects(&d.c, LIMIT), CORRAL_OK);
  void *second = d.c.handle;
  corral_op op = op_of(CORRAL_VERB_INVALIDATE, "k", 0);
  d.c.handle = first;
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_EUNAVAILABLE);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  crl_plugin_memcached.disconnect(second);
  ended(&d);
}

static void what_was_not_sent_for_a_broken_connection_is_told_so(void **state) {
  (void)state;
  dialogue d = connected(GREETED ADD_K "CLOSE\n");
  corral_op ops[] = {op_of(CORRAL_VERB_CLAIM, "k", 1), op_of(CORRAL_VERB_CLAIM, "other", 1),
                     op_of(CORRAL_VERB_GET, "k", 1)};
  assert_int_equal(perform(&d.c, ops, 3), CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[0].status, CORRAL_EUNKNOWN);
  assert_true(ops[1].status == CORRAL_EUNKNOWN || ops[1].status == CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[2].status, CORRAL_EUNAVAILABLE);
  ended(&d);
}

static void in_time(const struct way *way, const char *steps) {
  int64_t before = crl_registry_host()->now_ms();
  outcome o = answered(way, steps, SHORT);
  int64_t took = crl_registry_host()->now_ms() - before;
  assert_int_equal(o.performed, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(o.text, "the time allowed is over"));
  if (took < SHORT || took > SHORT + 150)
    fail_msg("%s: it took %lld ms", way->command, (long long)took);
}

static void a_silent_server_is_given_up_at_the_deadline(void **state) {
  (void)state;
  for (size_t w = 0; w < WAYS; w++) in_time(&ways[w], "HANG\n");
}

static void a_trickle_does_not_stretch_the_deadline(void **state) {
  (void)state;
  for (size_t w = 0; w < WAYS; w++)
    in_time(&ways[w], "TRICKLE 10 SERVER_ERROR aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n");
  in_time(&ways[0], "TRICKLE 10 VALUE k 0 100 "
                    "1\\r\\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n");
}

static void a_reply_byte_by_byte_is_read_when_there_is_time(void **state) {
  (void)state;
  outcome o = answered(&ways[1], "TRICKLE 1 STORED\\r\\n\n", LIMIT);
  assert_int_equal(o.performed, CORRAL_OK);
  assert_int_equal(o.status, CORRAL_OK);
}

/* Sends 800,000 bytes to a server that reads none of them, or hangs up. */
static void large_fill_against(const char *steps, int64_t limit, int64_t most) {
  char script[2048];
  uint8_t *record = record_of(800000, 1);
  snprintf(script, sizeof script, "%s%s%s", GREETED, ADD_K "SEND STORED\\r\\n\n" GETS_K, steps);
  dialogue d = connected(script);
  corral_op ops[] = {op_of(CORRAL_VERB_CLAIM, "k", 1), op_of(CORRAL_VERB_CLAIM, "k", 1)};
  assert_int_equal(perform(&d.c, ops, 1), CORRAL_OK);
  dropped(ops);
  ops[0] = op_of(CORRAL_VERB_SETTLE, "k", 1);
  ops[0].record = record;
  ops[0].record_len = CORRAL_HEAD + 800000;
  int64_t before = d.c.host->now_ms();
  int status = perform_for(&d.c, ops, 2, limit);
  assert_true(status != CORRAL_OK);
  assert_true(d.c.host->now_ms() - before <= most);
  assert_true(ops[0].status == CORRAL_EUNKNOWN || ops[0].status == CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[1].status, CORRAL_EUNAVAILABLE);
  closed(&d.c);
  fake_server_stop(d.server);
  free(record);
}

/* A record leased by token 1 until the year 2100. */
#define TOKEN_1 "\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02"
#define LEASED_K                                                                                   \
  "SEND VALUE k 0 88 9\\r\\ncrl2\\x01" ZEROS TEN_ZEROS "\\0\\0\\x28\\0\\0\\0\\x10\\x27\\0\\0"      \
  "\\0\\x70\\xd5\\x84\\xbb\\x03\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0" TOKEN_1 "\\r\\nEND\\r\\n\n"

static void a_server_that_fails_within_a_large_fill_costs_no_more_than_the_deadline(void **state) {
  (void)state;
  large_fill_against(LEASED_K "EXPECT cas k\nCLOSE\n", LIMIT, 1000);
  large_fill_against(LEASED_K "EXPECT cas k\nEXPECT never sent\n", SHORT, SHORT + 150);
  large_fill_against(LEASED_K "EXPECT cas k\nSEND SURPLUS\\r\\n\nEXPECT never sent\n", SHORT,
                     SHORT + 150);
}

static void a_deadline_that_has_passed_sends_nothing(void **state) {
  (void)state;
  dialogue d = connected(GREETED GET_K "SEND END\\r\\n\n");
  corral_op late = op_of(CORRAL_VERB_INVALIDATE, "k", 0), get = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(perform_for(&d.c, &late, 1, -1), CORRAL_OK);
  assert_int_equal(late.status, CORRAL_EUNAVAILABLE);
  assert_int_equal(perform(&d.c, &get, 1), CORRAL_OK);
  assert_int_equal(get.status, CORRAL_EMISS);
  ended(&d);
}

/* ---- greetings ----------------------------------------------------------------------------- */

static void a_bad_greeting_is_told_for_what_it_is(void **state) {
  (void)state;
  static const struct {
    const char *script, *text;
    int status;
  } greetings[] = {
      {"EXPECT stats\nSEND ERROR Too many open connections\\r\\n\nCLOSE\n", "Too many open",
       CORRAL_EUNAVAILABLE},
      {"EXPECT stats\nSEND CLIENT_ERROR unauthenticated\\r\\n\n", "unauthenticated", CORRAL_EAUTH},
      {"EXPECT stats\nSEND STAT time 5\\r\\nEND\\r\\nSTAT cas_enabled no\\r\\nEND\\r\\n\n",
       "without cas (-C)", CORRAL_EUNSUPPORTED},
      {"EXPECT stats\nSEND SSH-2.0-OpenSSH_9.2\\r\\n\n", "is it a memcached server?",
       CORRAL_EPROTOCOL},
      {"EXPECT stats\nSEND -ERR unknown command\\r\\n\n", "is it a memcached server?",
       CORRAL_EPROTOCOL},
      {"EXPECT stats\nSEND VALUE k 0 5\\r\\n\n", "is it a memcached server?", CORRAL_EPROTOCOL},
      {"EXPECT stats\nSEND STAT time 5\\r\\n\nCLOSE\n", "closed", CORRAL_EUNAVAILABLE},
      {"HANG\n", "time allowed", CORRAL_EUNAVAILABLE},
  };
  for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++) {
    dialogue d = with(greetings[i].script);
    int hangs = strcmp(greetings[i].script, "HANG\n") == 0;
    int status = connects(&d.c, hangs ? SHORT : LIMIT);
    if (status != greetings[i].status || strstr(d.c.error.text, greetings[i].text) == NULL)
      fail_msg("%s gave %s: %s", greetings[i].script, corral_status_name(status), d.c.error.text);
    ended(&d);
  }
}

static void a_proxy_without_stats_is_used_by_our_own_clock(void **state) {
  (void)state;
  static const char *const scripts[] = {
      "EXPECT settings\\r\\n\nSEND ERROR\\r\\nERROR\\r\\n\n" GET_K "SEND END\\r\\n\n",
      "EXPECT settings\\r\\n\nSEND CLIENT_ERROR no\\r\\nSERVER_ERROR no\\r\\n\n" GET_K
      "SEND END\\r\\n\n",
      "EXPECT settings\\r\\n\nCLOSE\nACCEPT\n" GET_K "SEND END\\r\\n\n",
  };
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
    dialogue d = connected(scripts[i]);
    assert_int_equal(does(&d.c, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
    ended(&d);
  }
}

static void
the_clock_is_our_own_where_it_agrees_with_the_servers_and_else_the_servers(void **state) {
  (void)state;
  static const int64_t aheads[] = {-3600, -10, 0, 1, 10, 3600};
  for (size_t i = 0; i < sizeof aheads / sizeof *aheads; i++) {
    char script[512];
    int64_t wall = crl_registry_host()->wall_ms(), server = wall / 1000 + aheads[i];
    snprintf(script, sizeof script,
             "EXPECT settings\\r\\n\nSEND STAT time %lld\\r\\nEND\\r\\nEND\\r\\n\n",
             (long long)server);
    dialogue d = connected(script);
    int agrees = aheads[i] >= -1 && aheads[i] <= 1;
    int64_t off = crl_memcached_now(d.c.handle) -
                  (agrees ? crl_registry_host()->wall_ms() : server * 1000 + 500);
    if (off < -50 || off > 1000)
      fail_msg("a server %lld s ahead: off by %lld ms", (long long)aheads[i], (long long)off);
    ended(&d);
  }
}

/* The default action of SIGPIPE would end this program. */
static int default_signals(void **state) {
  (void)state;
  signal(SIGPIPE, SIG_DFL);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_reply_that_makes_no_sense_breaks_the_handle_and_nothing_else),
      cmocka_unit_test(a_reply_of_another_class_breaks_the_handle),
      cmocka_unit_test(a_key_of_any_length_is_refused),
      cmocka_unit_test(a_line_without_end_is_not_read_for_ever),
      cmocka_unit_test(a_cas_id_of_zero_is_never_used),
      cmocka_unit_test(a_surplus_reply_breaks_the_handle),
      cmocka_unit_test(a_surplus_reply_between_batches_is_seen_before_the_next),
      cmocka_unit_test(nonsense_of_any_kind_ends_with_a_status),
      cmocka_unit_test(each_error_line_has_its_status),
      cmocka_unit_test(after_a_refusal_the_connection_is_used_on),
      cmocka_unit_test(a_key_that_others_change_all_the_time_is_given_up),
      cmocka_unit_test(a_lock_that_others_change_is_tried_again),
      cmocka_unit_test(a_race_that_is_lost_until_the_deadline_has_changed_nothing),
      cmocka_unit_test(a_lock_verb_whose_reply_is_lost_is_unknown_and_one_that_was_not_sent_is_not),
      cmocka_unit_test(
          a_lock_verb_whose_server_doesnt_know_is_unknown_and_one_without_memory_refused),
      cmocka_unit_test(a_time_that_no_clock_has_isnt_believed),
      cmocka_unit_test(a_reply_cut_in_the_middle_leaves_the_fate_of_a_write_unknown),
      cmocka_unit_test(a_connection_closed_while_idle_is_seen_before_sending),
      cmocka_unit_test(what_was_not_sent_for_a_broken_connection_is_told_so),
      cmocka_unit_test(a_silent_server_is_given_up_at_the_deadline),
      cmocka_unit_test(a_trickle_does_not_stretch_the_deadline),
      cmocka_unit_test(a_reply_byte_by_byte_is_read_when_there_is_time),
      cmocka_unit_test(a_server_that_fails_within_a_large_fill_costs_no_more_than_the_deadline),
      cmocka_unit_test(a_deadline_that_has_passed_sends_nothing),
      cmocka_unit_test(a_bad_greeting_is_told_for_what_it_is),
      cmocka_unit_test(a_proxy_without_stats_is_used_by_our_own_clock),
      cmocka_unit_test(the_clock_is_our_own_where_it_agrees_with_the_servers_and_else_the_servers),
  };
  return cmocka_run_group_tests(tests, default_signals, NULL);
}
