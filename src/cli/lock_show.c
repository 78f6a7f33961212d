/* lock_show.c: looks at a lock, and shows its holders. */
#include "lock.h"

#include <stdlib.h>
#include <string.h>

enum { HOLDERS = 64 }; /* room at first; more if there are more */

void lock_print_holder(const char *before, const corral_lock_holder *h) {
  char held[CLI_DURATION_TEXT];
  char left[CLI_DURATION_TEXT];
  char who[4 * sizeof h->who + 8];
  (void)printf("%sheld %s by %s, for %s, %s left, fencing token %llu\n", before,
               h->shared ? "shared" : "alone", cli_visible(who, sizeof who, h->who, strlen(h->who)),
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

void lock_print_json(const char *name, size_t len, const char *what,
                     const corral_lock_holder *holders, size_t count) {
  (void)printf("{\"name\":");
  cli_json_string(stdout, name, len);
  (void)printf(",%s:[", what);
  for (size_t i = 0; i < count; i++) {
    (void)printf("%s{\"who\":", i > 0 ? "," : "");
    cli_json_string(stdout, holders[i].who, strlen(holders[i].who));
    (void)printf(",\"shared\":%s", holders[i].shared ? "true" : "false");
    print_number("held_ms", holders[i].held_ms);
    print_number("left_ms", holders[i].left_ms);
    (void)printf(",\"fence\":%llu}", (unsigned long long)holders[i].fence);
  }
  (void)puts("]}");
}

/* True: *ret has *ret_count holders of NAME, the caller's to free. False: it was reported. */
static bool read_holders(const locking *l, corral_lock_holder **ret, size_t *ret_count) {
  corral_error error = {0};
  corral_lock_holder *holders = NULL;
  size_t room = HOLDERS;
  size_t count = 0;
  int status = CORRAL_OK;
  for (;;) {
    free(holders);
    holders = calloc(room, sizeof *holders);
    if (holders == NULL) return cli_say("lock: out of memory"), false;
    status = corral_lock_show(l->corral, l->want.name, strlen(l->want.name), holders, room, &count,
                              &error);
    if (status != CORRAL_OK || count <= room) break;
    room = count + HOLDERS;
  }
  *ret = holders;
  *ret_count = count;
  if (status == CORRAL_OK) return true;
  free(holders);
  (void)cli_report(l->want.name, strlen(l->want.name), status, &error);
  return false;
}

int lock_show_holders(const locking *l, const corral_lock_holder *holders, size_t count) {
  if (l->cli->json)
    lock_print_json(l->want.name, strlen(l->want.name),
                    count > 0 ? "\"held\":true,\"holders\"" : "\"held\":false,\"holders\"", holders,
                    count);
  for (size_t i = 0; !l->cli->json && i < count; i++) lock_print_holder("", &holders[i]);
  if (!l->cli->json && count == 0) (void)puts("nobody holds it");
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
  if (is_absent || read_holders(l, &holders, &count)) {
    exit_status = tell(l, holders, count);
    free(holders);
  }
  corral_close(l->corral);
  return exit_status;
}
