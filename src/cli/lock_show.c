/* lock_show.c: looks at a lock, and shows its holders and who waits in turn. */
#include "lock.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 64 }; /* at first; more if there are more */

void lock_print_holder(const char *before, const corral_lock_holder *h) {
  char held[CLI_DURATION_TEXT];
  char left[CLI_DURATION_TEXT];
  char who[4 * sizeof h->who + 8];
  static const char *const kinds[] = {"alone", "shared", "with a permit"};
  (void)printf("%sheld %s by %s, for %s, %s left, fencing token %llu\n", before, kinds[h->shared],
               cli_visible(who, sizeof who, h->who, strlen(h->who)),
               h->held_ms >= 0 ? cli_duration_text(held, h->held_ms) : "an unknown time",
               h->left_ms >= 0 ? cli_duration_text(left, h->left_ms) : "an unknown time",
               (unsigned long long)h->fence);
}

static void print_waiter(const corral_lock_waiter *w, size_t place) {
  char waited[CLI_DURATION_TEXT];
  char who[4 * sizeof w->who + 8];
  static const char *const kinds[] = {"", ", shared", ", a permit"};
  (void)printf("place %zu in the queue%s: %s, for %s\n", place, kinds[w->shared],
               cli_visible(who, sizeof who, w->who, strlen(w->who)),
               w->waited_ms >= 0 ? cli_duration_text(waited, w->waited_ms) : "an unknown time");
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void print_number(const char *name, int64_t n) {
  if (n >= 0)
    (void)printf(",\"%s\":%lld", name, (long long)n);
  else
    (void)printf(",\"%s\":null", name);
}

/* The beginning of an object for a holder or a waiter. */
static void print_who(size_t number, const char *who, int32_t shared) {
  (void)printf("%s{\"who\":", number > 0 ? "," : "");
  cli_json_string(stdout, who, strlen(who));
  (void)printf(",\"shared\":%s,\"permit\":%s", shared == 1 ? "true" : "false",
               shared == 2 ? "true" : "false");
}

static void print_json_holders(const char *name, size_t len, const char *what,
                               const corral_lock_holder *holders, size_t count) {
  (void)printf("{\"name\":");
  cli_json_string(stdout, name, len);
  (void)printf(",%s:[", what);
  for (size_t i = 0; i < count; i++) {
    print_who(i, holders[i].who, holders[i].shared);
    print_number("held_ms", holders[i].held_ms);
    print_number("left_ms", holders[i].left_ms);
    (void)printf(",\"fence\":%llu}", (unsigned long long)holders[i].fence);
  }
  (void)printf("]");
}

void lock_print_json(const char *name, size_t len, const char *what,
                     const corral_lock_holder *holders, size_t count) {
  print_json_holders(name, len, what, holders, count);
  (void)puts("}");
}

static void print_json_waiters(const corral_lock_waiter *waiters, size_t count) {
  (void)printf(",\"waiters\":[");
  for (size_t i = 0; i < count; i++) {
    print_who(i, waiters[i].who, waiters[i].shared);
    print_number("waited_ms", waiters[i].waited_ms);
    (void)printf("}");
  }
  (void)puts("]}");
}

/* ---- looking ------------------------------------------------------------------------------- */

/* Each of these two: true: *ret has *ret_count elements, the caller's to free. False: it was
 * reported. They look until all have room: there may be more at each look. */
static bool read_holders(const locking *l, corral_lock_holder **ret, size_t *ret_count) {
  corral_error error = {0};
  size_t room;
  int status;
  do {
    room = *ret_count + ROOM;
    free(*ret);
    *ret = calloc(room, sizeof **ret);
    if (*ret == NULL) return cli_say("lock: out of memory"), false;
    status = corral_lock_show(l->corral, l->want.name, strlen(l->want.name), *ret, room, ret_count,
                              &error);
  } while (status == CORRAL_OK && *ret_count > room);
  if (status != CORRAL_OK) (void)cli_report(l->want.name, strlen(l->want.name), status, &error);
  return status == CORRAL_OK;
}

static bool read_waiters(const locking *l, corral_lock_waiter **ret, size_t *ret_count) {
  corral_error error = {0};
  size_t room;
  int status;
  do {
    room = *ret_count + ROOM;
    free(*ret);
    *ret = calloc(room, sizeof **ret);
    if (*ret == NULL) return cli_say("lock: out of memory"), false;
    status = corral_lock_waiters(l->corral, l->want.name, strlen(l->want.name), *ret, room,
                                 ret_count, &error);
  } while (status == CORRAL_OK && *ret_count > room);
  if (status != CORRAL_OK) (void)cli_report(l->want.name, strlen(l->want.name), status, &error);
  return status == CORRAL_OK;
}

int lock_show_holders(const locking *l, const corral_lock_holder *holders, size_t count) {
  corral_lock_waiter *waiters = NULL;
  size_t waiting = 0;
  bool is_known = l->corral == NULL || read_waiters(l, &waiters, &waiting);
  if (is_known && l->cli->json) {
    print_json_holders(l->want.name, strlen(l->want.name),
                       count > 0 ? "\"held\":true,\"holders\"" : "\"held\":false,\"holders\"",
                       holders, count);
    print_json_waiters(waiters, waiting);
  } else if (is_known) {
    for (size_t i = 0; i < count; i++) lock_print_holder("", &holders[i]);
    if (count == 0) (void)puts("nobody holds it");
    for (size_t i = 0; i < waiting; i++) print_waiter(&waiters[i], i + 1);
  }
  free(waiters);
  if (!is_known) return CLI_FAILED;
  return cli_finish(count > 0 ? CLI_OK : CLI_MISS);
}

int lock_look(locking *l, lock_tell_fn *tell) {
  bool is_absent;
  corral_lock_holder *holders = NULL;
  size_t count = 0;
  int exit_status = CLI_FAILED;
  corral_options options = {.size = sizeof options};
  if (!cli_open_to_look(l->cli, &options, &l->corral, &is_absent)) return CLI_FAILED;
  if (is_absent && !l->cli->quiet) cli_say("lock: %s isn't there", l->cli->store);
  if (is_absent) { /* any request would make it */
    corral_close(l->corral);
    l->corral = NULL;
  }
  if (is_absent || read_holders(l, &holders, &count)) exit_status = tell(l, holders, count);
  free(holders);
  corral_close(l->corral);
  return exit_status;
}
