/* flight_story.h: runs a flight through a story: lines with the results told to the flight, and the
 * log of its asks.
 *
 * A line of a story: how many ms passed (1 when left out), the result, and what a look found:
 *   "3 ok swr 50 sie 90 lease 20"   words: fresh swr sie lease retry failures value ttl expect pass
 *                                   watched left slow pause passed frozen, each with a number
 * For a WAIT the line is "till" (it lasted to its end), or only the number of ms after which it was
 * cut short. */
#ifndef TESTS_FLIGHT_STORY_H
#define TESTS_FLIGHT_STORY_H

#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flight/flight.h"

enum { DEADLINE = 1000, LEASE = 200 };

static const corral_policy usual = {.size = sizeof usual,
                                    .ttl_ms = 1000,
                                    .retry_ms = 100,
                                    .retry_max_ms = 300,
                                    .lease_ms = LEASE,
                                    .compute_ms = 5000,
                                    .wait_ms = DEADLINE,
                                    .poll_ms = 4,
                                    .poll_max_ms = 64};

static const char *const ask_names[] = {"?",      "get",     "claim",  "wait", "compute",
                                        "settle", "release", "answer", "done", "slot",
                                        "host",   "held",    "publish"};
static const char *const answer_names[] = {"?",        "stored", "stale", "verdict",
                                           "computed", "failed", "error", "held"};
static const char *const kept_names[] = {"kept", "fenced", "not kept", "perhaps kept", "older"};

/* ---- telling a story ----------------------------------------------------------------------- */

typedef struct story {
  crl_flight flight;
  int64_t now;
  crl_ask ask;
  int published, behind; /* behind: told to each PUBLISH */
  char log[2048];
  size_t used;
} story;

static inline void note(story *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(s->log + s->used, sizeof s->log - s->used, format, args);
  va_end(args);
  s->used += (size_t)n;
  assert_true(s->used < sizeof s->log);
}

static inline void note_answer(story *s) {
  const crl_flight *f = &s->flight;
  note(s, " %s", answer_names[f->answer]);
  if (f->answer == CRL_ANSWER_COMPUTED) note(s, ", %s", kept_names[f->kept]);
  if (f->answer == CRL_ANSWER_ERROR) note(s, " %s", corral_status_name(f->status));
}

static inline void note_ask(story *s) {
  note(s, "%lld %s", (long long)s->now, ask_names[s->ask]);
  if (s->ask == CRL_ASK_COMPUTE && !s->flight.leased)
    note(s, s->flight.alone ? " alone" : " without a lease");
  if (s->ask == CRL_ASK_WAIT && s->flight.at_host) note(s, " at the host");
  if (s->ask == CRL_ASK_RELEASE && s->flight.retry_ms > 0) note(s, " with a verdict");
  if (s->ask == CRL_ASK_ANSWER) note_answer(s);
  note(s, s->ask == CRL_ASK_DONE || s->ask == CRL_ASK_ANSWER ? "\n" : ": ");
}

/* Logs the next ask; answers each ANSWER at once, with no time passed, and likewise each PUBLISH,
 * which isn't logged. */
static inline void go_on(story *s) {
  for (;;) {
    if (s->ask != CRL_ASK_PUBLISH) note_ask(s);
    if (s->ask != CRL_ASK_ANSWER && s->ask != CRL_ASK_PUBLISH) return;
    crl_told told = {.now = s->now, .behind = s->ask == CRL_ASK_PUBLISH && s->behind};
    s->published += s->ask == CRL_ASK_PUBLISH;
    s->ask = crl_flight_step(&s->flight, &told);
  }
}

static inline int status_of(const char *word) {
  if (strcmp(word, "miss") == 0) return CORRAL_EMISS;
  if (strcmp(word, "busy") == 0) return CORRAL_EBUSY;
  if (strcmp(word, "unknown") == 0) return CORRAL_EINDOUBT;
  if (strcmp(word, "lost") == 0) return CORRAL_ELOST;
  if (strcmp(word, "error") == 0) return CORRAL_EIO;
  if (strcmp(word, "away") == 0) return CORRAL_EUNAVAILABLE;
  return CORRAL_OK;
}

static inline void set_word(crl_told *told, const char *word, int64_t number) {
  if (strcmp(word, "fresh") == 0)
    told->look.lives.fresh = number;
  else if (strcmp(word, "swr") == 0)
    told->look.lives.swr = number;
  else if (strcmp(word, "sie") == 0)
    told->look.lives.sie = number;
  else if (strcmp(word, "lease") == 0)
    told->look.lease_left = number;
  else if (strcmp(word, "retry") == 0)
    told->look.retry_left = number;
  else if (strcmp(word, "failures") == 0)
    told->look.failures = (uint32_t)number;
  else if (strcmp(word, "ttl") == 0)
    told->look.ttl = number;
  else if (strcmp(word, "expect") == 0)
    told->look.expects = 1, told->look.expect_left = number;
  else if (strcmp(word, "pass") == 0)
    told->look.pass = number != 0;
  else if (strcmp(word, "watched") == 0)
    told->look.watched = number != 0;
  else if (strcmp(word, "passed") == 0)
    told->passed = number != 0;
  else if (strcmp(word, "left") == 0)
    told->left = number != 0;
  else if (strcmp(word, "frozen") == 0)
    told->frozen = number != 0;
  else if (strcmp(word, "slow") == 0)
    told->slow = number != 0;
  else if (strcmp(word, "pause") == 0)
    told->look.pause_left = number;
  else if (strcmp(word, "value") == 0)
    told->look.has_value = 1;
  else
    fail_msg("unknown word %s", word);
}

static inline void tell(story *s, const char *text) {
  char copy[128], *save = NULL;
  crl_told told = {.made = CRL_MADE_VALUE};
  int64_t passed = 1;
  snprintf(copy, sizeof copy, "%s", text);
  char *word = strtok_r(copy, " ", &save);
  if (*word >= '0' && *word <= '9') {
    passed = strtoll(word, NULL, 10);
    word = strtok_r(NULL, " ", &save);
  }
  if (word == NULL) word = copy;
  if (strcmp(word, "till") == 0) passed = s->flight.until - s->now;
  if (strcmp(word, "failure") == 0) told.made = CRL_MADE_FAILURE;
  if (strcmp(word, "unkept") == 0) told.made = CRL_MADE_UNKEPT;
  if (strcmp(word, "private") == 0) told.made = CRL_MADE_PASS;
  if (strcmp(word, "older") == 0) told.made = CRL_MADE_OLDER;
  if (strcmp(word, "voided") == 0) told.made = CRL_MADE_FENCED;
  told.status = status_of(word);
  for (char *name = strtok_r(NULL, " ", &save); name != NULL; name = strtok_r(NULL, " ", &save))
    set_word(&told, name, strtoll(strtok_r(NULL, " ", &save), NULL, 10));
  told.now = s->now += passed;
  note(s, "%s\n", text);
  s->ask = crl_flight_step(&s->flight, &told);
  go_on(s);
}

static inline story begin_with(const corral_policy *policy, crl_flight_plan plan) {
  story s;
  memset(&s, 0, sizeof s);
  plan.deadline = DEADLINE;
  plan.dice = 7;
  s.ask = crl_flight_start(&s.flight, policy, &plan);
  go_on(&s);
  return s;
}

static inline story begin(int can_compute, int background) {
  return begin_with(
      &usual, (crl_flight_plan){.can_compute = can_compute != 0, .background = background != 0});
}

/* Tells the flight each line; the list ends with NULL. */
static inline void play(story *s, const char *const *lines) {
  for (; *lines != NULL; lines++) tell(s, *lines);
}

/* A whole story: may the flight compute, may it compute in the background, the expected log, the
 * lines. */
#define STORY(can_compute, background, expected, ...)                                              \
  do {                                                                                             \
    story s_ = begin(can_compute, background);                                                     \
    play(&s_, (const char *const[]){__VA_ARGS__, NULL});                                           \
    assert_string_equal(s_.log, expected);                                                         \
  } while (0)

#endif
