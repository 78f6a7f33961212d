/* lock_show.c: shows the holders of a lock, and who waits in turn. */
#include "lock.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 64 }; /* at first; more if there are more */

static void print_holder(const corral_lock_holder *h) {
  char held[CLI_DURATION_TEXT];
  char left[CLI_DURATION_TEXT];
  char who[4 * sizeof h->who + 8];
  static const char *const kinds[] = {"alone", "shared", "with a permit"};
  (void)printf("held %s by %s, for %s, %s left, fencing token %llu\n", kinds[h->shared],
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

static void print_number(const char *name, int64_t n) {
  if (n >= 0)
    (void)printf(",\"%s\":%lld", name, (long long)n);
  else
    (void)printf(",\"%s\":null", name);
}

/* A lock as it is shown. */
typedef struct sight {
  corral_lock_holder *holders;
  size_t held;
  corral_lock_waiter *waiters;
  size_t waiting;
} sight;

static void print_json(const lock_options *o, const sight *s) {
  const corral_lock_holder *holders = s->holders;
  size_t count = s->held;
  (void)printf("{\"name\":");
  cli_json_string(stdout, o->name, strlen(o->name));
  (void)printf(",\"held\":%s,\"holders\":[", count > 0 ? "true" : "false");
  for (size_t i = 0; i < count; i++) {
    (void)printf("%s{\"who\":", i > 0 ? "," : "");
    cli_json_string(stdout, holders[i].who, strlen(holders[i].who));
    (void)printf(",\"shared\":%s,\"permit\":%s", holders[i].shared == 1 ? "true" : "false",
                 holders[i].shared == 2 ? "true" : "false");
    print_number("held_ms", holders[i].held_ms);
    print_number("left_ms", holders[i].left_ms);
    (void)printf(",\"fence\":%llu}", (unsigned long long)holders[i].fence);
  }
  (void)printf("],\"waiters\":[");
  for (size_t i = 0; i < s->waiting; i++) {
    (void)printf("%s{\"who\":", i > 0 ? "," : "");
    cli_json_string(stdout, s->waiters[i].who, strlen(s->waiters[i].who));
    (void)printf(",\"shared\":%s,\"permit\":%s", s->waiters[i].shared == 1 ? "true" : "false",
                 s->waiters[i].shared == 2 ? "true" : "false");
    print_number("waited_ms", s->waiters[i].waited_ms);
    (void)printf("}");
  }
  (void)puts("]}");
}

/* Looks until all have room: there may be more at each look. */
static int look_at_holders(const locking *l, sight *s, corral_error *error) {
  size_t room;
  int status;
  do {
    room = s->held + ROOM;
    free(s->holders);
    s->holders = calloc(room, sizeof *s->holders);
    if (s->holders == NULL) return CORRAL_ENOMEM;
    status = corral_lock_show(l->corral, l->want.name, strlen(l->want.name), s->holders, room,
                              &s->held, error);
  } while (status == CORRAL_OK && s->held > room);
  return status;
}

static int look_at_waiters(const locking *l, sight *s, corral_error *error) {
  size_t room;
  int status;
  do {
    room = s->waiting + ROOM;
    free(s->waiters);
    s->waiters = calloc(room, sizeof *s->waiters);
    if (s->waiters == NULL) return CORRAL_ENOMEM;
    status = corral_lock_waiters(l->corral, l->want.name, strlen(l->want.name), s->waiters, room,
                                 &s->waiting, error);
  } while (status == CORRAL_OK && s->waiting > room);
  return status;
}

static void print(const locking *l, const sight *s) {
  if (l->cli->json) {
    print_json(&l->want, s);
    return;
  }
  for (size_t i = 0; i < s->held; i++) print_holder(&s->holders[i]);
  if (s->held == 0) (void)puts("nobody holds it");
  for (size_t i = 0; i < s->waiting; i++) print_waiter(&s->waiters[i], i + 1);
}

static int list(const locking *l) {
  corral_error error = {0};
  sight s = {0};
  int status = look_at_holders(l, &s, &error);
  if (status == CORRAL_OK) status = look_at_waiters(l, &s, &error);
  if (status == CORRAL_OK)
    print(l, &s);
  else
    (void)cli_report(l->want.name, strlen(l->want.name), status, &error);
  free(s.holders);
  free(s.waiters);
  if (status != CORRAL_OK) return CLI_FAILED;
  return cli_finish(s.held > 0 ? CLI_OK : CLI_MISS);
}

static int show_absent(const locking *l) {
  if (!l->cli->quiet) cli_say("lock: %s isn't there", l->cli->store);
  if (l->cli->json)
    print_json(&l->want, &(sight){0});
  else
    (void)puts("nobody holds it");
  return cli_finish(CLI_MISS);
}

int lock_show(locking *l) {
  bool is_absent;
  corral_options options = {.size = sizeof options};
  if (!cli_open_to_look(l->cli, &options, &l->corral, &is_absent)) return CLI_FAILED;
  int exit_status = is_absent ? show_absent(l) : list(l);
  corral_close(l->corral);
  return exit_status;
}
