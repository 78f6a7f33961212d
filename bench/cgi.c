/* cgi.c: the time that corral adds to a CGI program whose page is in the store, for a whole process
 * from before its start to after its end. Compares examples/cgi with a warm page to the same
 * program without corral, linked in the same way, which takes the page from a constant
 * (cgi_plain.c). The programs run in turns, so that machine load affects both equally. The bound is
 * 1.5 times the plain program's median; over it the exit status is 1.
 *
 *   bench_cgi [COUNT [PROGRAM...]]    COUNT runs of each (400); further programs are measured
 *                                     besides, as CGI programs with the same page */
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"

enum { LEAST = 10, MOST = 100000, WARM_UP = 20, SUBJECTS = 8 };

static posix_spawn_file_actions_t quiet;
static const double BOUND = 1.5;

static struct subject {
  const char *program;
  double *times, median;
} subjects[SUBJECTS] = {{.program = BENCH_PLAIN}, {.program = BENCH_CGI}};

static double spawn_us(const char *program, char *const *with) {
  char *const args[] = {(char *)(size_t)program, NULL};
  pid_t pid;
  int status = 0;
  double begin = now_us();
  if (posix_spawn(&pid, program, &quiet, NULL, args, with) != 0) die("a program doesn't start");
  if (waitpid(pid, &status, 0) != pid || status != 0) die("a program failed");
  return now_us() - begin;
}

static void measure(int subject_count, int count) {
  char store[80], computes[80];
  snprintf(store, sizeof store, "CORRAL_STORE=lmdb:%s/pages", folder);
  snprintf(computes, sizeof computes, "PAGE_COUNT=%s/count", folder);
  char *const with[] = {"REQUEST_METHOD=GET",
                        "PATH_INFO=/page",
                        "QUERY_STRING=a=1",
                        "SERVER_PROTOCOL=HTTP/1.1",
                        "PAGE_TTL_MS=3600000",
                        store,
                        computes,
                        NULL};
  for (int s = 0; s < subject_count; s++)
    if ((subjects[s].times = calloc((size_t)count, sizeof(double))) == NULL) die("no memory");
  for (int i = -WARM_UP; i < count; i++)
    for (int s = 0; s < subject_count; s++) {
      double us = spawn_us(subjects[s].program, with);
      if (i >= 0) subjects[s].times[i] = us;
    }
  for (int s = 0; s < subject_count; s++)
    subjects[s].median = median(subjects[s].times, (size_t)count);
}

/* Number of computes; 1 when all runs but the first were hits. */
static int computes(void) {
  char path[80];
  int lines = 0, c;
  snprintf(path, sizeof path, "%s/count", folder);
  FILE *file = fopen(path, "re");
  while (file != NULL && (c = getc(file)) != EOF) lines += c == '\n';
  if (file != NULL) fclose(file);
  return lines;
}

int main(int argc, char **argv) {
  long count = argc > 1 ? strtol(argv[1], NULL, 10) : 400;
  int subject_count = 2;
  if (count < LEAST || count > MOST) die("COUNT: 10 to 100000");
  for (int i = 2; i < argc && subject_count < SUBJECTS; i++)
    subjects[subject_count++].program = argv[i];
  make_folder();
  if (posix_spawn_file_actions_init(&quiet) != 0 ||
      posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) != 0)
    die("no memory");
  measure(subject_count, (int)count);
  posix_spawn_file_actions_destroy(&quiet);
  if (computes() != 1) die("not all runs but the first were hits");
  for (int s = 0; s < subject_count; s++) {
    const char *name = strrchr(subjects[s].program, '/');
    printf("%-24s %8.0f us   at best %8.0f us   ratio %.2f\n",
           name != NULL ? name + 1 : subjects[s].program, subjects[s].median, subjects[s].times[0],
           subjects[s].median / subjects[0].median);
    free(subjects[s].times);
  }
  return subjects[1].median > BOUND * subjects[0].median;
}
