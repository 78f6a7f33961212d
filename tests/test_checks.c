/* test_checks.c: a broken invariant ends the process with its text (base/check.h), and none of the
 * library is without a story that breaks it. */
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks/checks.h"

enum { TEXTS = 512 };

/* The texts that the stories were told, and those of the sources. */
static char *told[TEXTS], *written[TEXTS];
static size_t told_count, written_count;

static void add(char **texts, size_t *count, const char *text, size_t len) {
  assert_true(*count < TEXTS);
  assert_non_null(texts[(*count)++] = strndup(text, len));
}

static int has(char *const *texts, size_t count, const char *text) {
  while (count > 0 && strcmp(texts[count - 1], text) != 0) count--;
  return count > 0;
}

/* Reads all that the child says on its stderr; returns how it ended. */
static int run(void (*story)(int), int which, char *text, size_t size) {
  int out[2], how = 0;
  size_t len = 0;
  assert_int_equal(pipe(out), 0);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    signal(SIGABRT, SIG_DFL);
    dup2(out[1], 2);
    story(which);
    _exit(0);
  }
  close(out[1]);
  for (ssize_t n; len < size - 1 && (n = read(out[0], text + len, size - 1 - len)) > 0;)
    len += (size_t)n;
  text[len] = '\0';
  close(out[0]);
  assert_int_equal(waitpid(pid, &how, 0), pid);
  return how;
}

void breaks(void (*story)(int), int which, const char *says) {
  static const char mark[] = "broken: ";
  char text[4096];
  size_t len = strlen(says);
  int how = run(story, which, text, sizeof text);
  const char *what = strstr(text, mark);
  what = what == NULL ? "" : what + sizeof mark - 1;
  if (!WIFSIGNALED(how) || WTERMSIG(how) != SIGABRT || strncmp(what, says, len) != 0 ||
      what[len] != '\n')
    fail_msg("'%s' is not said; the child ended with %d: %s", says, how, text);
  add(told, &told_count, says, len);
}

/* ---- the sources --------------------------------------------------------------------------- */

/* An invariant is CRL_MUST(holds, "what"). */
static void read_source(const char *path) {
  static char text[1 << 18];
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  size_t len = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  assert_true(len < sizeof text - 1);
  text[len] = '\0';
  for (const char *at = text; (at = strstr(at, "CRL_MUST(")) != NULL;) {
    const char *what = strchr(at, '"'), *end = what == NULL ? NULL : strchr(what + 1, '"');
    if (end == NULL) fail_msg("%s: an invariant without a text", path);
    add(written, &written_count, what + 1, (size_t)(end - what - 1));
    at = end;
  }
}

static int is_source(const char *name) {
  size_t len = strlen(name);
  return len > 2 && (strcmp(name + len - 2, ".c") == 0 || strcmp(name + len - 2, ".h") == 0) &&
         strcmp(name, "check.h") != 0;
}

static void read_folder(const char *path) {
  char below[4096];
  DIR *folder = opendir(path);
  assert_non_null(folder);
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    assert_true(snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < (int)sizeof below);
    if (entry->d_type == DT_DIR) read_folder(below);
    if (is_source(entry->d_name)) read_source(below);
  }
  closedir(folder);
}

/* Runs after all stories: they fill `told`. */
static void each_invariant_of_the_sources_was_broken(void **state) {
  (void)state;
  char path[4096];
  const char *root = getenv("CORRAL_SOURCE_DIR");
  size_t unbroken = 0;
  assert_true(snprintf(path, sizeof path, "%s/src", root == NULL ? "." : root) < (int)sizeof path);
  read_folder(path);
  assert_true(written_count > 0);
  for (size_t i = 0; i < written_count; i++) {
    if (has(written, i, written[i])) fail_msg("two invariants are the same: %s", written[i]);
    if (has(told, told_count, written[i])) continue;
    print_error("no story breaks: %s\n", written[i]);
    unbroken++;
  }
  assert_int_equal(unbroken, 0);
}

static int drop_texts(void **state) {
  (void)state;
  while (told_count > 0) free(told[--told_count]);
  while (written_count > 0) free(written[--written_count]);
  return 0;
}

int main(void) {
#ifndef CORRAL_CHECKS
  printf("SKIPPED: built without CORRAL_CHECKS\n");
  return 77;
#endif
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_the_cancel_token),
      cmocka_unit_test(of_the_due),
      cmocka_unit_test(of_the_flight),
      cmocka_unit_test(of_the_follower),
      cmocka_unit_test(of_the_heap),
      cmocka_unit_test(of_the_herd),
      cmocka_unit_test(each_function_of_the_herd_checks),
      cmocka_unit_test(of_the_hot_keys),
      cmocka_unit_test(of_the_limbo),
      cmocka_unit_test(of_the_limiter),
      cmocka_unit_test(of_the_lock_steps),
      cmocka_unit_test(of_the_locks),
      cmocka_unit_test(of_the_looks),
      cmocka_unit_test(of_the_loop),
      cmocka_unit_test(of_the_near_tier),
      cmocka_unit_test(of_the_notifier),
      cmocka_unit_test(of_stats_files),
      cmocka_unit_test(of_the_outbox),
      cmocka_unit_test(of_the_quota),
      cmocka_unit_test(of_the_renewer),
      cmocka_unit_test(of_the_scheduler),
      cmocka_unit_test(of_the_server),
      cmocka_unit_test(of_the_table),
      cmocka_unit_test(of_the_tag_memory),
      cmocka_unit_test(of_the_task),
      cmocka_unit_test(of_the_timers),
      cmocka_unit_test(of_the_watch),
      cmocka_unit_test(of_the_workers),
      cmocka_unit_test(each_invariant_of_the_sources_was_broken),
  };
  return cmocka_run_group_tests_name("checks", tests, NULL, drop_texts);
}
