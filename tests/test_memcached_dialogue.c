/* test_memcached_dialogue.c: replies of a scripted memcached: malformed ones, error lines and
 * greetings. libmemcached would end the process at many of these replies; the plugin must return a
 * status and a text. */
#include "support/memcached_dialogue_kit.h"

/* ---- malformed replies --------------------------------------------------------------------- */

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
      int expected = is_write(&ways[w]) || ways[w].verb == CORRAL_VERB_GET ? CORRAL_EINDOUBT
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
                                       ("crl2" ZEROS),
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
    {"SERVER_ERROR Connection timed out", CORRAL_EUNAVAILABLE, CORRAL_EINDOUBT, 0},
    {"SERVER_ERROR", CORRAL_EUNAVAILABLE, CORRAL_EINDOUBT, 0},
    {"SERVER_ERROR \\xff\\x01\\0", CORRAL_EUNAVAILABLE, CORRAL_EINDOUBT, 0},
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
    int64_t off, took;
    do { /* anew where the server's answer was old when it was read */
      char script[512];
      int64_t wall = crl_registry_host()->wall_ms(), server = wall / 1000 + aheads[i];
      snprintf(script, sizeof script,
               "EXPECT settings\\r\\n\nSEND STAT time %lld\\r\\nEND\\r\\nEND\\r\\n\n",
               (long long)server);
      dialogue d = connected(script);
      int agrees = aheads[i] >= -1 && aheads[i] <= 1;
      off = crl_memcached_now(d.c.handle) -
            (agrees ? crl_registry_host()->wall_ms() : server * 1000 + 500);
      took = crl_registry_host()->wall_ms() - wall;
      ended(&d);
    } while (took > 1000);
    if (off < -50 - took || off > 1000)
      fail_msg("a server %lld s ahead: off by %lld ms", (long long)aheads[i], (long long)off);
  }
}

/* The rest of the answer takes four seconds: that says nothing of the server's clock. */
static void a_time_that_was_read_late_is_no_other_clock(void **state) {
  (void)state;
  char script[512];
  snprintf(script, sizeof script,
           "EXPECT settings\\r\\n\nSEND STAT time %lld\\r\\nEND\\r\\nEN\nTRICKLE 2000 D\\r\\n\n",
           (long long)(crl_registry_host()->wall_ms() / 1000));
  dialogue d = connected(script);
  int64_t before = crl_registry_host()->wall_ms(), now = crl_memcached_now(d.c.handle);
  assert_in_range(now, before - 50, crl_registry_host()->wall_ms() + 50);
  ended(&d);
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
      cmocka_unit_test(a_bad_greeting_is_told_for_what_it_is),
      cmocka_unit_test(a_proxy_without_stats_is_used_by_our_own_clock),
      cmocka_unit_test(the_clock_is_our_own_where_it_agrees_with_the_servers_and_else_the_servers),
      cmocka_unit_test(a_time_that_was_read_late_is_no_other_clock),
  };
  return cmocka_run_group_tests(tests, default_signals, NULL);
}
