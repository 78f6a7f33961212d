/* memcached_dialogue_kit.h: a scripted memcached, and one operation with it. For tests of
 * replies that a real memcached doesn't give on demand. */
#ifndef MEMCACHED_DIALOGUE_KIT_H
#define MEMCACHED_DIALOGUE_KIT_H

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

enum { SHORT = 500, SEEN = 77 };

#define GREETED                                                                                    \
  "EXPECT settings\\r\\n\nSEND STAT time 1700000000\\r\\nEND\\r\\nSTAT item_size_max "             \
  "1048576\\r\\n"                                                                                  \
  "STAT cas_enabled yes\\r\\nEND\\r\\n\n"
#define GET_K "EXPECT get k\\r\\n\n"
#define GETS_K "EXPECT gets k\\r\\n\n"
#define ADD_K "EXPECT add k 0 3603 88\\r\\n\n"
/* A record of "crl2" and 44 zero bytes, so its state is FREE. Its cas id is 9. */
#define ZEROS                                                                                      \
  "\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"
#define TEN_ZEROS "\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"
#define RECORD_K "SEND VALUE k 0 48 9\\r\\ncrl2" ZEROS TEN_ZEROS "\\0\\0\\0\\r\\nEND\\r\\n\n"
#define CAS_K "EXPECT cas k 0 3603 88 9\\r\\n\n"

typedef struct dialogue {
  client c;
  fake_server *server;
} dialogue;

static inline dialogue with(const char *script) {
  dialogue d = {.server = fake_server_start(script)};
  char text[64];
  snprintf(text, sizeof text, "memcached://127.0.0.1:%d", fake_server_port(d.server));
  assert_int_equal(only_open(&d.c, text), CORRAL_OK);
  return d;
}

static inline dialogue connected(const char *script) {
  dialogue d = with(script);
  if (connects(&d.c, LIMIT) != CORRAL_OK) fail_msg("%s", d.c.error.text);
  return d;
}

static inline void ended(dialogue *d) {
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
static inline outcome answered(const struct way *way, const char *steps, int64_t limit) {
  char script[8192];
  snprintf(script, sizeof script, "%s%s%s", GREETED, way->before, steps);
  dialogue d = connected(script);
  corral_op op = op_of(way->verb, "k", 1);
  outcome o;
  if (op.verb == CORRAL_VERB_CLAIM) op.claim.seen = way->seen;
  memset(&d.c.error, 0, sizeof d.c.error);
  o.performed = perform_for(&d.c, &op, 1, limit);
  o.status = op.status;
  memcpy(o.text, d.c.error.text, sizeof o.text);
  dropped(&op);
  ended(&d);
  return o;
}

static inline outcome answered_line(const struct way *way, const char *line) {
  char steps[4096];
  snprintf(steps, sizeof steps, "SEND %s\\r\\n\n", line);
  return answered(way, steps, LIMIT);
}

static inline void append(char *text, size_t size, const char *more) {
  strncat(text, more, size - strlen(text) - 1);
}

static inline int is_write(const struct way *way) {
  return strcmp(way->command, "add") == 0 || strcmp(way->command, "cas") == 0;
}

/* The default action of SIGPIPE would end this program. */
static inline int default_signals(void **state) {
  (void)state;
  signal(SIGPIPE, SIG_DFL);
  return 0;
}

#endif
