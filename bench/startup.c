/* startup.c: the time that `corral run` on lmdb: adds to a command, as started from a shell.
 * `corral run -- /bin/true` with a new key each time (a miss: the command runs and its result is
 * stored) and with one key (a hit: the command doesn't run), against the same command run by a
 * shell's exec. The bound is 1.3 times the shell's median plus 2 ms; over it the exit status is 1.
 *
 *   bench_startup [COUNT [CORRAL]]    COUNT runs of each (400), in turns, so that machine load
 *                                     affects all of them equally; medians */
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"

enum { LEAST = 10, MOST = 100000, WARM_UP = 10 };

static char store[sizeof folder + 16];
static const char *command = CORRAL_COMMAND;
static posix_spawn_file_actions_t quiet;

/* Microseconds from before the start to after the end of the command. */
static double spawn_us(const char *const *argv) {
  char *const none[] = {NULL};
  pid_t pid;
  int status = 0;
  double begin = now_us();
  if (posix_spawn(&pid, argv[0], &quiet, NULL, (char *const *)(size_t)argv, none) != 0)
    die("a command doesn't start");
  if (waitpid(pid, &status, 0) != pid || status != 0) die("a command failed");
  return now_us() - begin;
}

static double direct_us(int i) {
  (void)i;
  return spawn_us((const char *const[]){"/bin/true", NULL});
}

static double shell_us(int i) {
  (void)i;
  return spawn_us((const char *const[]){"/bin/sh", "-c", "exec /bin/true", NULL});
}

static double empty_us(int i) {
  (void)i;
  return spawn_us((const char *const[]){command, "--version", NULL});
}

static double run_us(const char *key) {
  return spawn_us((const char *const[]){command, "--store", store, "run", "--ttl", "1h", "--key",
                                        key, "--", "/bin/true", NULL});
}

static double cold_us(int i) {
  char key[32];
  snprintf(key, sizeof key, "cold %d", i);
  return run_us(key);
}

static double warm_us(int i) {
  (void)i;
  return run_us("warm");
}

static struct subject {
  const char *name;
  double (*us)(int i);
  double *times, median;
} subjects[] = {
    {"/bin/true", direct_us, NULL, 0},       {"sh -c 'exec /bin/true'", shell_us, NULL, 0},
    {"corral --version", empty_us, NULL, 0}, {"corral run, miss", cold_us, NULL, 0},
    {"corral run, hit", warm_us, NULL, 0},
};

enum { SUBJECTS = sizeof subjects / sizeof subjects[0], SHELL = 1, FIRST_RUN = 3 };

static void measure(int count) {
  for (int s = 0; s < SUBJECTS; s++)
    if ((subjects[s].times = calloc((size_t)count, sizeof(double))) == NULL) die("no memory");
  for (int i = -WARM_UP; i < count; i++)
    for (int s = 0; s < SUBJECTS; s++) {
      double us = subjects[s].us(i);
      if (i >= 0) subjects[s].times[i] = us;
    }
  for (int s = 0; s < SUBJECTS; s++) subjects[s].median = median(subjects[s].times, (size_t)count);
}

static int report(void) {
  int over = 0;
  double bound = 1.3 * subjects[SHELL].median + 2000;
  for (int s = 0; s < SUBJECTS; s++) {
    printf("%-24s %8.0f us   at best %8.0f us", subjects[s].name, subjects[s].median,
           subjects[s].times[0]);
    if (s >= FIRST_RUN)
      printf("   ratio to the bound of %.0f us %.2f", bound, subjects[s].median / bound);
    printf("\n");
    if (s >= FIRST_RUN && subjects[s].median > bound) over = 1;
    free(subjects[s].times);
  }
  return over;
}

int main(int argc, char **argv) {
  long count = argc > 1 ? strtol(argv[1], NULL, 10) : 400;
  if (count < LEAST || count > MOST) die("COUNT: 10 to 100000");
  if (argc > 2) command = argv[2];
  make_folder();
  snprintf(store, sizeof store, "lmdb:%s/store", folder);
  if (posix_spawn_file_actions_init(&quiet) != 0 ||
      posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) != 0)
    die("no memory");
  measure((int)count);
  posix_spawn_file_actions_destroy(&quiet);
  return report();
}
