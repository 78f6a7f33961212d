/* trial.c: runs one case in a process of its own; its verdict and its cleanup. */
#include "conformance.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/env.h"

enum { LONGEST_S = 60, UNDOS = 8192 };

typedef struct undo {
  void (*run)(void *arg);
  void *arg;
} undo;

static report *shared; /* shared by all processes of the case */
static jmp_buf leave;
static undo undos[UNDOS];
static void *rooms[UNDOS]; /* freed after all cleanups */
static size_t undo_count, room_count;

int64_t now_ms(void) { return crl_env_now_ms(); }

void pause_ms(int64_t ms) {
  int64_t until = now_ms() + ms;
  while (now_ms() < until) crl_env_sleep_until(until);
}

/* ---- verdicts ------------------------------------------------------------------------------ */

/* Records a verdict; only the first one of a case's processes counts. */
static void tell(verdict what, const char *format, va_list args) {
  verdict none = VERDICT_NONE;
  char text[sizeof shared->text];
  vsnprintf(text, sizeof text, format, args);
  for (char *at = text; *at != '\0'; at++)
    if ((unsigned char)*at < ' ') *at = ' ';
  if (!atomic_compare_exchange_strong(&shared->verdict, &none, what)) return;
  memcpy(shared->text, text, sizeof text);
}

void failed(const char *format, ...) {
  va_list args;
  va_start(args, format);
  tell(VERDICT_FAILED, format, args);
  va_end(args);
  longjmp(leave, 1);
}

void cant(const char *format, ...) {
  va_list args;
  va_start(args, format);
  tell(VERDICT_CANT, format, args);
  va_end(args);
  longjmp(leave, 1);
}

/* ---- cleanup ------------------------------------------------------------------------------- */

void undo_later(void (*run)(void *arg), void *arg) {
  if (undo_count == UNDOS) failed("this case keeps more than %d things", UNDOS);
  undos[undo_count++] = (undo){run, arg};
}

static void undo_all(void) {
  while (undo_count > 0) {
    undo_count--;
    undos[undo_count].run(undos[undo_count].arg);
  }
  while (room_count > 0) free(rooms[--room_count]);
}

void *room(size_t size) {
  void *memory = room_count < UNDOS ? calloc(1, size) : NULL;
  if (memory == NULL) failed("there is no memory for this case");
  return rooms[room_count++] = memory;
}

void *shared_room(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) failed("there is no memory for this case");
  return memory;
}

/* ---- processes ----------------------------------------------------------------------------- */

static pid_t fork_bound(void) {
  pid_t parent = getpid();
  (void)fflush(NULL);
  pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  return 0;
}

pid_t process_start(void (*run)(void *arg), void *arg) {
  pid_t pid = fork_bound();
  if (pid < 0) failed("this system starts no further process");
  if (pid > 0) return pid;
  undo_count = 0; /* cleanup is done by the first process */
  keys_forget();
  int left = setjmp(leave);
  if (left == 0) run(arg);
  undo_all();
  _exit(left != 0);
}

void process_join(pid_t pid) {
  int end = 0;
  while (waitpid(pid, &end, 0) != pid) continue;
  if (atomic_load(&shared->verdict) != VERDICT_NONE) longjmp(leave, 1);
  if (end != 0)
    failed("a second process of this case was ended by signal %d, or with status %d", WTERMSIG(end),
           WEXITSTATUS(end));
}

void process_kill(pid_t pid) {
  kill(pid, SIGKILL);
  while (waitpid(pid, NULL, 0) != pid) continue;
}

void wait_for(atomic_uint *counter, unsigned least, const char *what) {
  int64_t until = now_ms() + 2 * LIMIT_MS;
  while (atomic_load(counter) < least) {
    if (atomic_load(&shared->verdict) != VERDICT_NONE) longjmp(leave, 1);
    check(now_ms() < until, "waited in vain for another process: %s", what);
    pause_ms(1);
  }
}

/* ---- a trial ------------------------------------------------------------------------------- */

static _Noreturn void run_here(const test_case *test, const char *uri,
                               const corral_store_info *info) {
  static int left;
  static bool good;
  verdict none = VERDICT_NONE;
  alarm(LONGEST_S);
  world_set(uri, info);
  left = setjmp(leave);
  if (left == 0) {
    test->run();
    check(!world_trespassed(), "the plugin wrote beyond its operations");
  }
  good = left == 0;
  if (setjmp(leave) == 0) undo_all();
  if (!good) _exit(0);
  atomic_compare_exchange_strong(&shared->verdict, &none, VERDICT_OK);
  exit(0); /* not _exit: a leak checker may run at the end */
}

/* Fails a case whose process ended otherwise than by exit(0). */
static void judge_end(int end) {
  if (end == 0 || atomic_load(&shared->verdict) == VERDICT_FAILED) return;
  atomic_store(&shared->verdict, VERDICT_FAILED);
  if (WIFSIGNALED(end) && WTERMSIG(end) == SIGALRM)
    snprintf(shared->text, sizeof shared->text, "the case was still running after %d s", LONGEST_S);
  else if (WIFSIGNALED(end))
    snprintf(shared->text, sizeof shared->text, "the process was ended by signal %d (%s)",
             WTERMSIG(end), strsignal(WTERMSIG(end)));
  else
    snprintf(shared->text, sizeof shared->text, "the process ended with status %d",
             WEXITSTATUS(end));
}

const report *trial_run(const test_case *test, const char *uri, const corral_store_info *info) {
  static report none = {.text = "this system starts no further process"};
  atomic_store(&none.verdict, VERDICT_FAILED);
  if (shared == NULL) {
    void *memory =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return &none;
    shared = memory;
  }
  memset(shared, 0, sizeof *shared);
  pid_t pid = fork_bound();
  if (pid < 0) return &none;
  if (pid == 0) run_here(test, uri, info);
  int end = 0;
  while (waitpid(pid, &end, 0) != pid) continue;
  judge_end(end);
  return shared;
}
