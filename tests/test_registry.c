/* test_registry.c: the folders in which plugins are looked for: never derived from a caller's
 * argv[0] or a relative path, nor, in a program with more rights than its caller, from the
 * environment. */
#include <corral.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/registry.h"
#include "support/fork_kit.h"
#include "support/room.h"

enum { NOBODY = 65534, LOADED = 10, NOT_FOUND = 11, NOT_SECURE = 12 };

static const char *plugins; /* folder with corral_plugin_longer.so */
static char program[4096], folder[64];

/* Run as a separate program: exits with LOADED when "longer:" is found. */
static int find_longer(const char *mode) {
  const corral_store *store;
  corral_error error = {0};
  if (strcmp(mode, "secure") == 0 && secure_getenv("PATH") != NULL) return NOT_SECURE;
  int status = crl_registry_find("longer", &store, &error);
  if (status != CORRAL_OK) fprintf(stderr, "%s\n", error.text);
  return status == CORRAL_OK ? LOADED : NOT_FOUND;
}

/* Copies a file; the copy belongs to this user and has this mode. */
static void copy(const char *from, const char *to, mode_t mode) {
  static char bytes[1 << 16];
  FILE *in = fopen(from, "r"), *out = fopen(to, "w");
  assert_non_null(in);
  assert_non_null(out);
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
    assert_int_equal(fwrite(bytes, 1, n, out), n);
  assert_int_equal(fclose(in), 0);
  assert_int_equal(fclose(out), 0);
  assert_int_equal(chmod(to, mode), 0);
}

/* Makes a folder with a plugin below `folder`: NAME/plugins/corral_plugin_longer.so. */
static void plant(const char *name) {
  char from[512], to[512];
  snprintf(to, sizeof to, "%s/%s", folder, name);
  assert_int_equal(mkdir(to, 0755), 0);
  snprintf(to, sizeof to, "%s/%s/plugins", folder, name);
  assert_int_equal(mkdir(to, 0755), 0);
  snprintf(from, sizeof from, "%s/corral_plugin_longer.so", plugins);
  snprintf(to, sizeof to, "%s/%s/plugins/corral_plugin_longer.so", folder, name);
  copy(from, to, 0755);
}

static int make_folder(void **state) {
  (void)state;
  room_folder(folder, "registry");
  assert_int_equal(chmod(folder, 0755), 0);
  plant("evil");
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

typedef struct start {
  const char *file, *name, *mode, *path, *in;
  int as_nobody;
} start;

/* Runs the program in a child process. Returns its exit status. */
static int run(start s) {
  int end = 0;
  char *argv[] = {(char *)s.name, (char *)"--find", (char *)s.mode, NULL};
  pid_t pid = fork_at_rest();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (s.path != NULL)
      setenv("CORRAL_PLUGIN_PATH", s.path, 1);
    else
      unsetenv("CORRAL_PLUGIN_PATH");
    if (s.in != NULL && chdir(s.in) != 0) _exit(1);
    if (s.as_nobody && (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
      _exit(2);
    execv(s.file, argv);
    _exit(3);
  }
  assert_int_equal(waitpid(pid, &end, 0), pid);
  assert_true(WIFEXITED(end));
  return WEXITSTATUS(end);
}

static void a_plugin_is_never_sought_by_argv_0(void **state) {
  (void)state;
  char file[128], name[128];
  snprintf(file, sizeof file, "%s/test", folder);
  copy(program, file, 0755);
  snprintf(name, sizeof name, "%s/evil/test", folder);
  assert_int_equal(run((start){file, .name = name, .mode = "any"}), NOT_FOUND);
  snprintf(name, sizeof name, "%s/evil", folder);
  assert_int_equal(run((start){file, .name = "./test", .mode = "any", .in = name}), NOT_FOUND);
}

static void a_program_finds_the_plugins_beside_its_own_file(void **state) {
  (void)state;
  char file[128];
  plant("good");
  snprintf(file, sizeof file, "%s/good/test", folder);
  copy(program, file, 0755);
  assert_int_equal(run((start){file, .name = "/nowhere/test", .mode = "any"}), LOADED);
}

static void
a_program_with_more_rights_than_its_caller_looks_where_it_was_installed_alone(void **state) {
  (void)state;
  char file[128], name[128], path[128];
  plant("secure");
  snprintf(file, sizeof file, "%s/secure/test", folder);
  snprintf(name, sizeof name, "%s/evil/test", folder);
  snprintf(path, sizeof path, "%s/evil/plugins", folder);
  copy(program, file, 04755);
  int end = geteuid() != 0
                ? NOT_SECURE
                : run((start){file, .name = name, .mode = "secure", .path = path, .as_nobody = 1});
  if (end == NOT_SECURE) {
    printf("SKIPPED: no set-user-id program can be made here: this needs root, and a /tmp without "
           "nosuid\n");
    skip();
  }
  assert_int_equal(end, NOT_FOUND);
}

static void a_path_that_is_not_absolute_is_refused_with_its_entry(void **state) {
  (void)state;
  char end[600], begin[600], relative[600];
  snprintf(end, sizeof end, "%s:", plugins);
  snprintf(begin, sizeof begin, ":%s", plugins);
  snprintf(relative, sizeof relative, "%s:here", plugins);
  const char *const rows[][2] = {{".", "'.'"},    {"plugins", "'plugins'"}, {end, "''"},
                                 {begin, "''"},   {relative, "'here'"},     {":", "''"},
                                 {"/a::/b", "''"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const corral_store *store;
    corral_error error = {0};
    setenv("CORRAL_PLUGIN_PATH", rows[i][0], 1);
    assert_int_equal(crl_registry_find("nosuch", &store, &error), CORRAL_ENOPLUGIN);
    assert_non_null(strstr(error.text, "CORRAL_PLUGIN_PATH: "));
    assert_non_null(strstr(error.text, rows[i][1]));
    assert_non_null(strstr(error.text, "accepted: absolute paths"));
  }
  unsetenv("CORRAL_PLUGIN_PATH");
}

static void an_unknown_scheme_is_answered_with_those_there_are_or_the_one_meant(void **state) {
  (void)state;
  static const char list[] = "; for values: memory lmdb redis memcached; for locks alone: "
                             "redlock sqlite postgresql mariadb zookeeper etcd";
  static const char *const rows[][3] = {
      {"nosuch", "no store plugin for 'nosuch:'", list},
      {"redsi", "no store plugin for 'redsi:'", ": did you mean 'redis:'?"},
      {"postgres", "no store plugin for 'postgres:'", ": did you mean 'postgresql:'?"},
  };
  setenv("CORRAL_PLUGIN_PATH", "/nowhere", 1);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const corral_store *store;
    corral_error error = {0};
    assert_int_equal(crl_registry_find(rows[i][0], &store, &error), CORRAL_ENOPLUGIN);
    assert_non_null(strstr(error.text, rows[i][1]));
    assert_non_null(strstr(error.text, rows[i][2]));
    assert_null(strstr(error.text, "..."));
    assert_true(strlen(error.text) < sizeof error.text - 1);
  }
  unsetenv("CORRAL_PLUGIN_PATH");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_unknown_scheme_is_answered_with_those_there_are_or_the_one_meant),
      cmocka_unit_test(a_plugin_is_never_sought_by_argv_0),
      cmocka_unit_test(a_program_finds_the_plugins_beside_its_own_file),
      cmocka_unit_test(
          a_program_with_more_rights_than_its_caller_looks_where_it_was_installed_alone),
      cmocka_unit_test(a_path_that_is_not_absolute_is_refused_with_its_entry),
  };
  if (argc == 3 && strcmp(argv[1], "--find") == 0) return find_longer(argv[2]);
  plugins = getenv("CORRAL_TEST_PLUGINS");
  if (plugins == NULL) {
    printf("SKIPPED: CORRAL_TEST_PLUGINS names no folder\n");
    return 77;
  }
  ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
  if (len <= 0) return 1;
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
