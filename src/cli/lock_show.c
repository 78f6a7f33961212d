/* lock_show.c: shows the holders of a lock. */
#include "lock.h"

#include <stdlib.h>
#include <string.h>

enum { HOLDERS = 64 }; /* room at first; more if there are more */

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

static void print_number(const char *name, int64_t n) {
  if (n >= 0)
    (void)printf(",\"%s\":%lld", name, (long long)n);
  else
    (void)printf(",\"%s\":null", name);
}

static void print_json(const lock_options *o, const corral_lock_holder *holders, size_t count) {
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
  (void)puts("]}");
}

static int list(const locking *l) {
  corral_error error = {0};
  corral_lock_holder *holders = NULL;
  size_t room = HOLDERS;
  size_t count = 0;
  int status = CORRAL_OK;
  for (;;) {
    free(holders);
    holders = calloc(room, sizeof *holders);
    if (holders == NULL) return cli_fail("lock: out of memory");
    status = corral_lock_show(l->corral, l->want.name, strlen(l->want.name), holders, room, &count,
                              &error);
    if (status != CORRAL_OK || count <= room) break;
    room = count + HOLDERS;
  }
  if (status != CORRAL_OK) {
    free(holders);
    (void)cli_report(l->want.name, strlen(l->want.name), status, &error);
    return CLI_FAILED;
  }
  if (l->cli->json) print_json(&l->want, holders, count);
  for (size_t i = 0; !l->cli->json && i < count; i++) print_holder(&holders[i]);
  if (!l->cli->json && count == 0) (void)puts("nobody holds it");
  free(holders);
  return cli_finish(count > 0 ? CLI_OK : CLI_MISS);
}

static int show_absent(const locking *l) {
  if (!l->cli->quiet) cli_say("lock: %s isn't there", l->cli->store);
  if (l->cli->json)
    print_json(&l->want, NULL, 0);
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
