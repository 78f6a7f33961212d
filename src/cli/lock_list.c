/* lock_list.c: corral lock --list: the locks that are held, and their holders. */
#include "lock.h"

#include <string.h>

enum { NAME_ROOM = 2048 };

typedef struct listing {
  const cli_globals *cli;
  size_t count;
} listing;

static int tell(const void *name, size_t len, const corral_lock_holder *holders, size_t count,
                void *arg) {
  listing *l = arg;
  char shown[NAME_ROOM];
  char before[NAME_ROOM + 2];
  l->count++;
  if (l->cli->json) lock_print_json(name, len, "\"held\":true,\"holders\"", holders, count);
  (void)snprintf(before, sizeof before, "%s: ", cli_visible(shown, sizeof shown, name, len));
  for (size_t i = 0; !l->cli->json && i < count; i++) lock_print_holder(before, &holders[i]);
  return 0;
}

/* The exit status after so many locks. */
static int end(const listing *l) {
  if (l->count == 0 && !l->cli->json) (void)puts("no lock is held");
  return cli_finish(l->count > 0 ? CLI_OK : CLI_MISS);
}

int lock_list(locking *l) {
  bool is_absent;
  corral_error error = {0};
  const char *prefix = l->want.name != NULL ? l->want.name : "";
  listing told = {.cli = l->cli};
  corral_options options = {.size = sizeof options};
  if (!cli_open_to_look(l->cli, &options, &l->corral, &is_absent)) return CLI_FAILED;
  if (is_absent && !l->cli->quiet) cli_say("lock: %s isn't there", l->cli->store);
  int status = is_absent ? CORRAL_OK
                         : corral_lock_list(l->corral, prefix, strlen(prefix), tell, &told, &error);
  corral_close(l->corral);
  if (status == CORRAL_OK) return end(&told);
  (void)cli_report_as("lock: --list", status, &error);
  return CLI_FAILED;
}
