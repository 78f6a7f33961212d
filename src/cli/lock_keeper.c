/* lock_keeper.c: a lock for a script's own section: corral lock --take, --check and --release.
 *
 *   script -- corral lock --take        script -- corral lock --check
 *                  |  forks                            |  asks, by a socket
 *               keeper  <------------------------------+
 *
 * The keeper takes the lock, extends it, and gives it up when the script has ended, however it did,
 * or asks for that. It is a process of its own session without streams, and no signal but SIGKILL
 * ends it: then nobody extends the hold, which ends by its ttl. */
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASKED_MS = 1000 }; /* for a question, once somebody has connected */

typedef enum question { ASK_CHECK = 1, ASK_RELEASE } question;

/* The answer to one. */
typedef struct answer {
  int32_t is_lost;
  int64_t left_ms;
  uint64_t fence;
  char why[LOCK_WHY_ROOM]; /* it is lost, or was not released; else empty */
} answer;

typedef struct keeper {
  locking *l;
  lock_script script;
  int link;   /* to the `corral lock --take` that waits */
  int socket; /* for those who ask */
} keeper;

/* ---- the keeper ---------------------------------------------------------------------------- */

static void tell_script(const keeper *k) {
  int signo = k->l->want.lost_signal;
  if (signo != 0) (void)syscall(SYS_pidfd_send_signal, k->script.pidfd, signo, NULL, 0);
}

/* A hold that has --grace left and could not be extended counts as lost: so what the script then
 * does to end still has the lock. */
static void notice_loss(keeper *k) {
  locking *l = k->l;
  char why[LOCK_WHY_ROOM];
  if (l->is_lost) return;
  if (!lock_hear_lost(l, why)) {
    if (lock_left_ms(l) > l->want.grace_ms) return;
    lock_ending_text(l, "it counts as lost", why);
  }
  lock_say_lost(l, why);
  tell_script(k);
}

static answer answer_of(const locking *l) {
  answer a = {.is_lost = l->is_lost, .fence = l->fence};
  a.left_ms = l->lock != NULL && !l->is_lost ? lock_left_ms(l) : 0;
  memcpy(a.why, l->why, sizeof a.why);
  return a;
}

/* True when the lock was given up. A question that isn't understood is answered by the end of the
 * connection. */
static bool reply(keeper *k) {
  int32_t asked = 0;
  int fd = accept4(k->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  struct pollfd news = {fd, POLLIN, 0};
  if (fd < 0) return false;
  bool is_asked = lock_script_is_own(fd) && poll(&news, 1, ASKED_MS) > 0 &&
                  recv(fd, &asked, sizeof asked, 0) == (ssize_t)sizeof asked;
  notice_loss(k);
  if (is_asked && asked == ASK_RELEASE) (void)lock_release(k->l, CLI_OK);
  answer a = answer_of(k->l);
  if (is_asked) (void)send(fd, &a, sizeof a, MSG_NOSIGNAL);
  (void)close(fd);
  return k->l->lock == NULL;
}

/* Until the script ends, or gives the lock up. */
static void serve(keeper *k) {
  locking *l = k->l;
  struct pollfd fds[3] = {
      {k->socket, POLLIN, 0}, {k->script.pidfd, POLLIN, 0}, {l->lost[0], POLLIN, 0}};
  for (;;) {
    (void)poll(fds, l->is_lost ? 2 : 3, l->is_lost ? -1 : (int)(l->want.ttl_ms / LOCK_TICKS));
    notice_loss(k);
    if (fds[1].revents != 0) break;
    if (fds[0].revents != 0 && reply(k)) return;
  }
  (void)lock_release(l, CLI_OK);
}

/* The wait for the lock is interrupted by the end of the script, or of the command that waits. */
static int interrupts(const keeper *k) {
  struct epoll_event event = {.events = EPOLLIN};
  int fd = epoll_create1(EPOLL_CLOEXEC);
  bool ok = fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, k->link, &event) == 0 &&
            epoll_ctl(fd, EPOLL_CTL_ADD, k->script.pidfd, &event) == 0;
  return ok ? fd : -1;
}

/* Tells the one who waits, who then says that the script has the lock; else it is given up. */
static bool is_wanted(const keeper *k) {
  int32_t exit_status = CLI_OK;
  char word;
  if (listen(k->socket, SOMAXCONN) != 0) return false;
  (void)send(k->link, &exit_status, sizeof exit_status, MSG_NOSIGNAL);
  return recv(k->link, &word, 1, 0) == 1;
}

/* Returns the exit status for the one who waits. */
static int take_and_serve(keeper *k) {
  locking *l = k->l;
  int exit_status = CLI_FAILED;
  l->interrupt = interrupts(k);
  if (l->interrupt < 0 || pipe2(l->lost, O_CLOEXEC | O_NONBLOCK) != 0)
    return cli_fail("lock: no keeper: %s", strerror(errno));
  if (lock_take(l, &exit_status)) {
    bool wanted = is_wanted(k);
    cli_take_null(true);
    if (wanted)
      serve(k);
    else
      (void)lock_release(l, CLI_OK);
    exit_status = CLI_OK;
  }
  corral_close(l->corral);
  corral_close(l->counters);
  return exit_status;
}

static void be_keeper(keeper *k) {
  sigset_t all;
  (void)sigfillset(&all);
  (void)sigprocmask(SIG_BLOCK, &all, NULL);
  (void)setsid();
  cli_take_null(false);
  if (k->l->cli->json) cli_say_json();
  int32_t exit_status = cli_say_end(take_and_serve(k));
  (void)send(k->link, &exit_status, sizeof exit_status, MSG_NOSIGNAL);
  _exit(0);
}

/* ---- the one who takes --------------------------------------------------------------------- */

/* The keeper must not hold what the script has open, such as the end of a pipe. */
static void close_others(void) {
  if (syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX, 0) == 0) return;
  for (int fd = STDERR_FILENO + 1; fd < 65536; fd++) (void)close(fd);
}

/* From the keeper's message on no signal but SIGKILL comes between the script and the news. */
static int hear_keeper(int link) {
  int32_t exit_status = 0;
  sigset_t all;
  struct pollfd news = {link, POLLIN, 0};
  while (poll(&news, 1, -1) < 0) continue;
  (void)sigfillset(&all);
  (void)sigprocmask(SIG_BLOCK, &all, NULL);
  if (recv(link, &exit_status, sizeof exit_status, 0) != (ssize_t)sizeof exit_status)
    return cli_fail("lock: the keeper of the lock was killed");
  if (exit_status == CLI_OK) (void)send(link, "", 1, MSG_NOSIGNAL);
  return exit_status;
}

static int print_fence(const locking *l);

/* A keeper's end before it is heard is reaped by whoever gets it: this process ends, too. */
static int wait_for_keeper(locking *l, const int link[2], pid_t pid) {
  (void)close(link[1]);
  int exit_status = pid > 0 ? hear_keeper(link[0]) : cli_fail("lock: %s", strerror(errno));
  (void)close(link[0]);
  return exit_status == CLI_OK && l->want.fence ? print_fence(l) : exit_status;
}

int lock_keep(locking *l) {
  char text[CLI_KEY_TEXT];
  keeper k = {.l = l};
  int link[2];
  close_others();
  if (!lock_script_find(l, &k.script)) return CLI_FAILED;
  k.socket = lock_script_socket(l, &k.script);
  if (k.socket < 0 && errno == EADDRINUSE)
    return cli_fail("%s: process %d has, or is taking, that lock already",
                    cli_key_text(text, l->want.name, strlen(l->want.name)), k.script.pid);
  if (k.socket < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) != 0)
    return cli_fail("lock: no socket: %s", strerror(errno));
  pid_t pid = fork();
  if (pid == 0) {
    (void)close(link[0]);
    k.link = link[1];
    be_keeper(&k);
  }
  (void)close(k.socket);
  (void)close(k.script.pidfd);
  return wait_for_keeper(l, link, pid);
}

/* ---- those who ask ------------------------------------------------------------------------- */

static bool ask(const locking *l, question what, answer *ret) {
  int32_t asked = (int32_t)what;
  int fd = lock_script_connect(l);
  if (fd < 0) return false;
  bool ok = send(fd, &asked, sizeof asked, MSG_NOSIGNAL) == (ssize_t)sizeof asked &&
            recv(fd, ret, sizeof *ret, 0) == (ssize_t)sizeof *ret;
  (void)close(fd);
  ret->why[sizeof ret->why - 1] = '\0';
  return ok;
}

bool lock_is_kept(const locking *l) {
  answer a = {0};
  return ask(l, ASK_CHECK, &a) && !a.is_lost;
}

static void print_json(const locking *l, const answer *a, bool is_held) {
  (void)printf("{\"name\":");
  cli_json_string(stdout, l->want.name, strlen(l->want.name));
  if (is_held)
    (void)printf(",\"held\":true,\"left_ms\":%lld,\"fence\":%llu}\n", (long long)a->left_ms,
                 (unsigned long long)a->fence);
  else
    (void)printf(",\"held\":false}\n");
}

static int print_fence(const locking *l) {
  answer a = {0};
  if (!ask(l, ASK_CHECK, &a)) return cli_fail("lock: the keeper of the lock was killed");
  (void)printf("%llu\n", (unsigned long long)a.fence);
  return cli_finish(CLI_OK);
}

int lock_ask(locking *l) {
  char text[CLI_KEY_TEXT];
  answer a = {0};
  bool is_check = l->want.verb == LOCK_CHECK;
  bool ok = ask(l, is_check ? ASK_CHECK : ASK_RELEASE, &a);
  (void)cli_key_text(text, l->want.name, strlen(l->want.name));
  if (!ok)
    cli_say("%s: this script doesn't have that lock: it was not taken, or its keeper was killed",
            text);
  else if (a.is_lost)
    cli_say("%s: lost: %s", text, a.why);
  else if (a.why[0] != '\0' && !l->cli->quiet)
    cli_note("%s: %s", text, a.why);
  bool is_held = ok && !a.is_lost;
  if (is_check && l->cli->json) print_json(l, &a, is_held);
  if (is_check && is_held && l->want.fence && !l->cli->json)
    (void)printf("%llu\n", (unsigned long long)a.fence);
  return cli_finish(is_held ? CLI_OK : (int)l->want.lost_exit);
}
