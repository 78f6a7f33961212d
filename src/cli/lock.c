/* lock.c: corral lock: runs a command under a lock.
 *
 * The hold is extended until the command has ended. As far as this host's clocks can tell, the
 * command never runs without it: it starts after the taking, is ended by the end of a hold that
 * can't be extended, or by --max, and the lock is released after it. lock_child.c runs it. */
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- while the command runs ---------------------------------------------------------------- */

static void hear_lost(locking *l) {
  char why[LOCK_WHY_ROOM];
  if (!lock_hear_lost(l, why)) return;
  lock_say_lost(l, why);
  lock_child_stop(&l->child);
}

static void hand_on(locking *l) {
  bool told = false;
  int signo = lock_child_caught(&l->child, &told);
  if (signo == 0) return;
  l->caught = signo;
  lock_child_signal(&l->child, signo, told);
}

/* Until the guard's last message; *number as the guard reported it. */
static lock_child_said watch(locking *l, int *number) {
  char why[LOCK_WHY_ROOM];
  struct pollfd fds[3] = {
      {l->child.link, POLLIN, 0}, {l->child.signals, POLLIN, 0}, {l->lost[0], POLLIN, 0}};
  int64_t tick = l->want.ttl_ms / LOCK_TICKS;
  for (;;) {
    int ready = poll(fds, 3, (int)lock_warn(l, lock_left_ms(l), tick));
    if (!l->is_lost) lock_child_extend(&l->child, lock_left_ms(l));
    if (ready <= 0) continue;
    if (fds[2].revents != 0) hear_lost(l);
    if (fds[1].revents != 0) hand_on(l);
    if (fds[0].revents == 0) continue;
    lock_child_said said = lock_child_hear(&l->child, number);
    if (said != LOCK_CHILD_ENDING) return said;
    lock_ending_text(l, "the command is ended", why);
    lock_say_lost(l, why);
  }
}

static int exit_of(locking *l, lock_child_said said, int number) {
  const char *command = l->want.command[0];
  if (said == LOCK_CHILD_NOT_STARTED && number == ENOENT)
    return cli_say("lock: command not found: %s", command), CLI_NOCOMMAND;
  if (said == LOCK_CHILD_NOT_STARTED)
    return cli_say("lock: can't execute %s: %s", command, strerror(number)), CLI_NOEXEC;
  if (said == LOCK_CHILD_GONE)
    return cli_fail("lock: the guard of the command was killed, and the command with it");
  return WIFSIGNALED(number) ? CLI_SIGNAL + WTERMSIG(number) : WEXITSTATUS(number);
}

/* The lock is held. A signal that came during the wait ends this process, without starting the
 * command. */
static int run(locking *l) {
  bool told;
  int number = 0;
  l->caught = lock_child_caught(&l->child, &told);
  if (l->caught != 0) return lock_release(l, CLI_SIGNAL + l->caught);
  lock_child_go(&l->child, l->fence, l->ticket, l->want.ticket, lock_left_ms(l));
  lock_child_said said = watch(l, &number);
  lock_child_finish(&l->child);
  l->leaves = l->want.leave && said == LOCK_CHILD_ENDED;
  return lock_release(l, exit_of(l, said, number));
}

static int take_and_run(locking *l) {
  bool told;
  int exit_status;
  if (lock_take(l, &exit_status)) return run(l);
  l->caught = lock_child_caught(&l->child, &told);
  return l->caught != 0 ? CLI_SIGNAL + l->caught : exit_status;
}

static int lock_command(locking *l) {
  lock_child_heir heir = {.end = lock_end_orphan, .arg = l};
  bool ready = setenv("CORRAL_LOCK_NAME", l->want.name, 1) == 0 &&
               pipe2(l->lost, O_CLOEXEC | O_NONBLOCK) == 0 &&
               lock_child_begin(&l->child, l->want.command, l->want.grace_ms, &heir);
  if (!ready) return cli_fail("lock: can't run a command: %s", strerror(errno));
  l->interrupt = l->child.signals;
  int exit_status = take_and_run(l);
  corral_close(l->corral);
  corral_close(l->counters);
  lock_child_finish(&l->child);
  if (l->caught != 0 && exit_status == CLI_SIGNAL + l->caught) cli_die_of(l->caught);
  return exit_status;
}

/* ---- lock ---------------------------------------------------------------------------------- */

/* True when this command runs under that lock, and would wait for itself, unless it takes it over.
 * A lock's key differs from that of a run of the same name. */
static bool is_nested(const locking *l) {
  static char key[LOCK_NAME_MOST + 8];
  int n = snprintf(key, sizeof key, "lock:%s", l->want.name);
  if (l->want.lock.adopt == NULL && (lock_is_kept(l) || cli_nested(l->cli, key, (size_t)n)))
    return true;
  if (l->want.verb == LOCK_RUN) cli_nest(l->cli, key, (size_t)n);
  return false;
}

/* True when the store of --fence-store, if there is one, can count. */
static bool counts(const locking *l) {
  const char *by = l->want.fence_store;
  if (by != NULL && strncmp(by, "memory:", 7) == 0)
    cli_say("lock: --fence-store memory: forgets at the end of this process: a store that doesn't "
            "forget is accepted, such as postgresql: or sqlite:");
  else if (by != NULL && strcmp(by, l->cli->store) == 0)
    cli_say("lock: --fence-store: the lock's own store can't count beside the lock: another store "
            "is accepted");
  else
    return true;
  return false;
}

int cli_lock(const cli_globals *cli, int argc, char **argv) {
  static locking l;
  char text[CLI_KEY_TEXT];
  l = (locking){.cli = cli, .lost = {-1, -1}, .child = {.guard = -1, .link = -1, .signals = -1}};
  int exit_status = lock_options_parse(&l.want, argc, argv);
  if (exit_status >= 0) return exit_status;
  if (strncmp(cli->store, "memory:", 7) == 0)
    return cli_fail("lock: --store memory: is of one process alone: a lock in it keeps nobody out; "
                    "lmdb:PATH or a "
                    "server is accepted");
  if (!counts(&l)) return CLI_FAILED;
  if (l.want.verb == LOCK_SHOW) return lock_look(&l, lock_show_holders);
  if (l.want.verb == LOCK_LIST) return lock_list(&l);
  if (l.want.verb == LOCK_WATCH) return lock_watch(&l);
  if (l.want.verb == LOCK_BREAK) return lock_look(&l, lock_break_holders);
  if (l.want.verb == LOCK_CHECK || l.want.verb == LOCK_RELEASE) return lock_ask(&l);
  if (is_nested(&l))
    return cli_fail("%s: this command runs under that lock already, and would wait for itself",
                    cli_key_text(text, l.want.name, strlen(l.want.name)));
  return l.want.verb == LOCK_TAKE ? lock_keep(&l) : lock_command(&l);
}
