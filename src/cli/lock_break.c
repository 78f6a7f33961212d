/* lock_break.c: corral lock --break: ends the holds of others, after a question. */
#include "lock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* True when the holds that were shown are to end. */
static bool is_confirmed(const locking *l) {
  static const char question[] = "Break it? Its holder isn't asked. [y/N] ";
  char answer[16] = "";
  if (l->want.yes) return true;
  if (l->cli->json || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
    return cli_say("lock: --break asks on a terminal: --yes is needed here"), false;
  (void)fflush(stdout);
  (void)cli_write(STDERR_FILENO, question, strlen(question));
  bool is_read = fgets(answer, sizeof answer, stdin) != NULL;
  answer[strcspn(answer, "\n")] = '\0';
  if (is_read && (strcmp(answer, "y") == 0 || strcmp(answer, "yes") == 0)) return true;
  return cli_say("lock: nothing was broken"), false;
}

/* Breaks those holds, of which *ret_count are left in `holders`: they were not over before. False:
 * one could not be broken, which was reported. */
static bool break_all(const locking *l, corral_lock_holder *holders, size_t *ret_count) {
  const char *name = l->want.name;
  size_t broken = 0;
  int status = CORRAL_OK;
  corral_error error = {0};
  for (size_t i = 0; i < *ret_count && (status == CORRAL_OK || status == CORRAL_EMISS); i++) {
    status = corral_lock_break(l->corral, name, strlen(name), holders[i].fence, &error);
    if (status == CORRAL_OK) holders[broken++] = holders[i];
  }
  *ret_count = broken;
  if (status == CORRAL_OK || status == CORRAL_EMISS) return true;
  (void)cli_report(name, strlen(name), status, &error);
  return false;
}

static int tell_broken(const locking *l, const corral_lock_holder *holders, size_t count) {
  for (size_t i = 0; !l->cli->json && i < count; i++) lock_print_holder("broken: ", &holders[i]);
  if (l->cli->json)
    lock_print_json(l->want.name, strlen(l->want.name), "\"broken\"", holders, count);
  else if (count == 0)
    (void)puts("nobody holds it");
  return cli_finish(count > 0 ? CLI_OK : CLI_MISS);
}

int lock_break_holders(const locking *l, const corral_lock_holder *holders, size_t count) {
  if (count == 0) return tell_broken(l, NULL, 0);
  if (!l->cli->json && !l->want.yes) (void)lock_show_holders(l, holders, count);
  if (!is_confirmed(l)) return CLI_FAILED;
  corral_lock_holder *broken = calloc(count, sizeof *broken);
  if (broken == NULL) return cli_fail("lock: out of memory");
  memcpy(broken, holders, count * sizeof *broken);
  bool is_whole = break_all(l, broken, &count);
  int exit_status = is_whole || count > 0 ? tell_broken(l, broken, count) : CLI_FAILED;
  free(broken);
  return is_whole ? exit_status : CLI_FAILED;
}
