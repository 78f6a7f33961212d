/* lock_watch.c: corral lock --watch: a line for each change of a lock's holders, until a signal. */
#include "lock.h"

#include <string.h>
#include <time.h>

enum { WHEN_ROOM = 40 };

/* Local time, as in corral inspect. */
static const char *now_text(char when[WHEN_ROOM]) {
  struct timespec now;
  struct tm parts;
  when[0] = '\0';
  (void)clock_gettime(CLOCK_REALTIME, &now);
  if (localtime_r(&now.tv_sec, &parts) != NULL)
    (void)strftime(when, WHEN_ROOM, "%Y-%m-%d %H:%M:%S %z", &parts);
  return when;
}

static int tell(const void *name, size_t len, const corral_lock_holder *holders, size_t count,
                void *arg) {
  const locking *l = arg;
  char when[WHEN_ROOM];
  char before[2 * WHEN_ROOM];
  (void)now_text(when);
  if (l->cli->json) {
    (void)snprintf(before, sizeof before, "\"time\":\"%s\",\"held\":%s,\"holders\"", when,
                   count > 0 ? "true" : "false");
    lock_print_json(name, len, before, holders, count);
  } else {
    (void)snprintf(before, sizeof before, "%s: ", when);
    for (size_t i = 0; i < count; i++) lock_print_holder(before, &holders[i]);
    if (count == 0) (void)printf("%snobody holds it\n", before);
  }
  return fflush(stdout) != 0;
}

/* Nothing is to be undone: a signal ends the process. */
int lock_watch(locking *l) {
  corral_error error = {0};
  corral_options options = {.size = sizeof options};
  if (!cli_open(l->cli, false, &options, &l->corral)) return CLI_FAILED;
  int status =
      corral_lock_watch(l->corral, l->want.name, strlen(l->want.name), NULL, tell, l, &error);
  corral_close(l->corral);
  if (status == CORRAL_OK) return cli_finish(CLI_OK);
  (void)cli_report(l->want.name, strlen(l->want.name), status, &error);
  return CLI_FAILED;
}
