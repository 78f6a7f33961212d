/* answers_live.h: tests that need a server which can be paused; included at the end of
 * test_answers_callers_live.c. */

/* A busy server answers within op_ms; a paused one is away after a single operation. */
static corral *opened_quick(int64_t near_bytes) {
  return opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = 4000,
                               .breaker_failures = 1, .breaker_rest_ms = 30,
                               .near_bytes = near_bytes));
}

static corral_policy holding(void) {
  corral_policy policy = graceful();
  policy.when_away = CORRAL_AWAY_STALE;
  policy.near_ms = 1;
  return policy;
}

static void come_back(corral *c) {
  redis_server_resume(redis);
  wait_for_event(c, CORRAL_EVENT_STORE_UP, corral_counter(c, CORRAL_EVENT_STORE_DOWN));
}

static void a_copy_serves_while_the_store_is_away(void **state) {
  (void)state;
  if (redis == NULL) skip();
  redis_server_ask(redis, "FLUSHALL");
  corral *c = opened_quick(1 << 20), *without = opened_quick(CORRAL_OFF);
  corral_policy policy = holding();
  say s = {.text = "v"};
  asks_by(c, "k", &policy, &s);
  assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_FRESH);
  asks_by(without, "k", &policy, &s);
  redis_server_pause(redis);
  lab_sleep_ms(2); /* longer than near_ms */
  got g = asks_by(c, "k", &policy, &s);
  assert_string_equal(g.text, "v");
  assert_int_equal(g.how, CORRAL_OUTBOX);
  assert_int_equal(asks_by(without, "k", &policy, &s).how, CORRAL_COMPUTED);
  policy.when_away = CORRAL_AWAY_COMPUTE;
  assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_COMPUTED);
  come_back(c);
  corral_close(without);
  corral_close(c);
}

/* A copy with tags may be served only if all its marks are known in this process and haven't
 * changed. */
static void a_copy_whose_tag_was_invalidated_serves_no_more(void **state) {
  (void)state;
  if (redis == NULL) skip();
  redis_server_ask(redis, "FLUSHALL");
  corral *c = opened_quick(1 << 20);
  corral_policy policy = holding();
  say s = {.text = "v", .tags = {"t"}}, other = {.text = "w", .tags = {"u"}};
  for (int i = 0; i < 2; i++) {
    asks_by(c, "k", &policy, &s);
    asks_by(c, "other", &policy, &other);
  }
  assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK);
  redis_server_pause(redis);
  lab_sleep_ms(2); /* longer than near_ms */
  assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_COMPUTED);
  assert_int_equal(asks_by(c, "other", &policy, &other).how, CORRAL_OUTBOX);
  come_back(c);
  corral_close(c);
}

/* A tag may have been invalidated while its mark was out of reach, so such a value can't be offered
 * to the store. */
static void values_with_tags_made_while_the_store_is_away_stay_here(void **state) {
  (void)state;
  if (redis == NULL) skip();
  redis_server_ask(redis, "FLUSHALL");
  corral *c = opened_quick(CORRAL_OFF), *other = opened_quick(CORRAL_OFF);
  corral_policy policy = holding();
  say before = {.text = "before", .tags = {"t"}}, meanwhile = {.text = "meanwhile", .tags = {"t"}},
      plain = {.text = "plain"};
  asks_by(other, "before", &policy, &before);
  redis_server_pause(redis);
  assert_int_equal(asks_by(c, "tagged", &policy, &meanwhile).kept, CORRAL_KEPT_NOT);
  assert_int_equal(asks_by(c, "tagged", &policy, &meanwhile).how, CORRAL_OUTBOX);
  assert_int_equal(asks_by(c, "plain", &policy, &plain).how, CORRAL_COMPUTED);
  assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_EUNAVAILABLE);
  /* not CORRAL_OUTBOX */
  assert_int_equal(asks_by(c, "tagged", &policy, &meanwhile).how, CORRAL_COMPUTED);
  assert_int_equal(asks_by(c, "plain", &policy, &plain).how, CORRAL_OUTBOX);
  redis_server_resume(redis);
  wait_for_event(c, CORRAL_EVENT_REPLAYED, 1); /* the invalidation of the tag */
  wait_for_event(c, CORRAL_EVENT_STORE_UP, 1);
  /* a held fill without a version isn't offered */
  assert_string_equal(inspected(other, "plain").state, "none");
  assert_string_equal(inspected(other, "tagged").state, "none");
  assert_string_equal(inspected(other, "before").state, "void");
  /* The replayed invalidation left a mark, so that computes begun before it are voided. Without a
   * mark the tag would look new to them. */
  assert_string_equal(redis_server_ask(redis, "EXISTS ~tag::t"), "1");
  assert_int_equal(asks_by(other, "before", &policy, &before).how, CORRAL_COMPUTED);
  corral_close(other);
  corral_close(c);
}

/* A renewal leaves the body on the server: a few hundred bytes are sent, and the megabyte stays. */
static void a_renewal_moves_no_bytes(void **state) {
  (void)state;
  static char large[1 << 20];
  if (redis == NULL) skip();
  corral *c = opened_quick(CORRAL_OFF);
  corral_policy policy = graceful();
  memset(large, 'l', sizeof large - 1);
  say whole = {.text = large}, again = {.unmodified = 1};
  asks_by(c, "large", &policy, &whole);
  assert_int_equal(corral_expire(c, "large", 5, NULL), CORRAL_OK);
  long long before = redis_server_info(redis, "total_net_input_bytes");
  assert_int_equal(asks_by(c, "large", &policy, &again).kept, CORRAL_KEPT);
  assert_in_range(redis_server_info(redis, "total_net_input_bytes") - before, 1, 5000);
  assert_string_equal(inspected(c, "large").state, "fresh");
  assert_int_equal(inspected(c, "large").value_size, sizeof large - 1);
  corral_close(c);
}

/* Changes go unnoticed while the watch is broken, so copies looked at before must not answer alone
 * afterwards. */
static void a_watch_that_broke_outdates_the_copies(void **state) {
  (void)state;
  if (redis == NULL) skip();
  redis_server_ask(redis, "FLUSHALL");
  corral *c = opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = 4000,
                                    .near_bytes = 1 << 20)),
         *other = opened_quick(CORRAL_OFF);
  corral_policy policy = usual();
  say s = {.text = "first"};
  policy.near_ms = 86400000;
  while (corral_counter(c, CORRAL_EVENT_NEAR) == 0) asks_by(c, "k", &policy, &s);
  for (int i = 0; i < 3; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    redis_server_ask(redis, "CLIENT KILL TYPE pubsub");
    assert_int_equal(corral_set(other, "k", 1, CORRAL_CALL(.policy = &policy), text, strlen(text)),
                     CORRAL_OK);
    int64_t until = lab_now_us() + 30000000;
    while (strcmp(asks_by(c, "k", &policy, &s).text, text) != 0)
      if (lab_now_us() > until) fail_msg("%s was not seen", text);
    uint64_t near = corral_counter(c, CORRAL_EVENT_NEAR);
    /* the watch works again */
    while (corral_counter(c, CORRAL_EVENT_NEAR) == near) asks_by(c, "k", &policy, &s);
  }
  assert_int_equal(s.ran, 1);
  corral_close(other);
  corral_close(c);
}

#define LIVE_TESTS                                                                                 \
  T(a_copy_whose_tag_was_invalidated_serves_no_more), T(a_watch_that_broke_outdates_the_copies),   \
      T(a_copy_serves_while_the_store_is_away),                                                    \
      T(values_with_tags_made_while_the_store_is_away_stay_here), T(a_renewal_moves_no_bytes),
