/* test_secrets.c: no message of any store shows a password, however malformed its URI is; and the
 * sources of a password. */
#include <corral.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/secret.h"
#include "support/room.h"

/* @ at the start stands for the scheme. */
static const char *const rows[] = {
    "@://u:s3cr3t@h:99999",
    "@://u:s3cr3t@h:x/0",
    "@://:s3cr3t@[::1",
    "@://u:s3cr3t@h/%",
    "@://u:s3cr3t@h/a/b/c?bad",
    "@://u:%s3cr3t@h",
    "@://u:s3cr3t",
    "@://u:s3cr3t%40h:6379/0",
    "@://h:1,u:s3cr3t",
    "@://s3cr3t@h/1/2?x=1",
    "@://s3cr3t@h",
    "@://u:a/s3cr3t@h:x",
    "@://u:a?s3cr3t@h",
    "@://u:a#s3cr3t@h",
    "@://u:a@s3cr3t@h:1x",
    "@://u:s3cr3t@h?nonsense=1",
    "@://u:s3cr3t@h?db=x&size=x&session=x&sslmode=x&tls=x&tls_verify=x",
    "@://h?password=s3cr3t",
    "@://h?pw=s3cr3t&x=1",
    "@://h?pass%77ord=s3cr3t",
    "@://h?password_file=/nowhere/s3cr3t",
    "@://h?password_env=s3cr3t",
    "@://h?password_fd=s3cr3t",
    "@://u:s3cr3t@h?password_fd=3",
    "@:/u:s3cr3t@h",
    "@//u:s3cr3t@h",
    "@:u:s3cr3t@h",
    "u:s3cr3t@h",
    "s3cr3t@h",
    "//u:s3cr3t@h",
    "://u:s3cr3t@h",
    "re_dis://u:s3cr3t@h",
    "nosuch://u:s3cr3t@h",
    "@://u:s3cr3t@",
    "@://u:s3cr3t@,",
    "@://u:s3cr3t@h,h",
    "@://u:s3cr3t@[h]:1",
};

static void no_store_shows_a_password(void **state) {
  static const char *const schemes[] = {
      "redis",   "rediss", "redis+unix", "redlock", "memcached", "memcached+unix", "postgresql",
      "mariadb", "etcd",   "zookeeper",  "lmdb",    "sqlite",    "memory"};
  size_t refused = 0;
  (void)state;
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
    for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
      char uri[300];
      corral *c = NULL;
      corral_error error = {0};
      snprintf(uri, sizeof uri, "%s%s", rows[j][0] == '@' ? schemes[i] : "",
               rows[j] + (rows[j][0] == '@'));
      int status = corral_open(CORRAL_OPTIONS(.store = uri), &c, &error);
      if (strstr(error.text, "s3cr3t") != NULL) fail_msg("%s: %s", uri, error.text);
      if (status == CORRAL_OK)
        corral_close(c);
      else
        refused++;
    }
  assert_true(refused > sizeof schemes / sizeof *schemes * 20);
}

static void no_origin_shows_a_password(void **state) {
  static const char *const urls[] = {
      "https://u:s3cr3t@h/",
      "https://u:a/s3cr3t@h/{key}",
      "https://u:a?s3cr3t@h/{key}",
      "https://u:s3#s3cr3t@h/{key}",
      "https://u:s3#a@s3cr3t=1/{key}",
      "://u:s3cr3t@h/{key}",
      "https://u:s3cr3t@h/{key}#header=Cookie:s3cr3t&max=x",
      "https://u:s3cr3t@h/{key}#nonsense=1",
      "https://h/{key}#password_env=s3cr3t",
      "https://u:s3cr3t@h/{key}#password_fd=0",
      "https://h/{key}#password=s3cr3t",
      "ftp://u:s3cr3t@h/{key}",
      "https://u:s3cr3t/{key}",
      "https://u:s3cr3t@h:x/{key}",
  };
  (void)state;
  for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
    corral *c = NULL;
    corral_error error = {0};
    if (corral_open(CORRAL_OPTIONS(.store = "memory:", .origin = urls[i]), &c, &error) == CORRAL_OK)
      fail_msg("opened: %s", urls[i]);
    if (strstr(error.text, "s3cr3t") != NULL) fail_msg("%s: %s", urls[i], error.text);
  }
}

/* ---- sources of the password --------------------------------------------------------------- */

/* The password that a plugin gets, freed by the caller; NULL with the reason in *error. */
static char *resolved(const char *text, corral_error *error) {
  crl_uri uri;
  memset(error, 0, sizeof *error);
  assert_int_equal(crl_uri_parse(&uri, text, error), CORRAL_OK);
  int status = crl_secret_resolve(&uri, error);
  char *copy = status == CORRAL_OK && uri.view.password != NULL ? strdup(uri.view.password) : NULL;
  if (copy != NULL && strstr(text, "db=") != NULL)
    assert_string_equal(crl_uri_get(&uri.view, "db"), "1");
  assert_null(copy != NULL ? crl_uri_get(&uri.view, "password_env") : NULL);
  crl_uri_free(&uri);
  return copy;
}

static void gives(const char *text, const char *wanted) {
  corral_error error;
  char *password = resolved(text, &error);
  if (password == NULL) fail_msg("%s: %s", text, error.text);
  assert_string_equal(password, wanted);
  free(password);
}

static void a_pipe_gives_it_once_and_a_file_as_often_as_is_wished(void **state) {
  int pipes[2];
  char uri[100], path[ROOM_PATH];
  corral_error error;
  (void)state;
  assert_int_equal(pipe(pipes), 0);
  assert_int_equal(write(pipes[1], "one\ntwo\n", 8), 8);
  close(pipes[1]);
  snprintf(uri, sizeof uri, "redis://h?password_fd=%d&db=1", pipes[0]);
  gives(uri, "one\ntwo");
  assert_null(resolved(uri, &error));
  assert_non_null(strstr(error.text, "it is empty"));
  close(pipes[0]);
  snprintf(path, sizeof path, "%ssecret-XXXXXX", room_on_disk());
  int fd = mkstemp(path);
  assert_int_equal(write(fd, "word\n\n", 6), 6);
  snprintf(uri, sizeof uri, "redis://h?password_fd=%d", fd);
  for (int i = 0; i < 3; i++) gives(uri, "word\n");
  snprintf(uri, sizeof uri, "redis://h?db=1&password_file=%s", path);
  for (int i = 0; i < 3; i++) gives(uri, "word\n");
  close(fd);
  unlink(path);
}

static void a_pipe_without_an_end_is_an_error(void **state) {
  int pipes[2];
  char uri[100];
  corral_error error;
  (void)state;
  assert_int_equal(pipe(pipes), 0);
  assert_int_equal(write(pipes[1], "half", 4), 4);
  snprintf(uri, sizeof uri, "redis://h?password_fd=%d", pipes[0]);
  crl_secret_wait_ms = 20;
  assert_null(resolved(uri, &error));
  assert_non_null(strstr(error.text, "it did not come to its end"));
  crl_secret_wait_ms = 10000;
  close(pipes[1]);
  close(pipes[0]);
}

static void a_variable_gives_it_to_a_uri_with_a_host_alone(void **state) {
  crl_uri uri;
  (void)state;
  setenv("TEST_SECRET", "p@ss/w?rd", 1);
  gives("redis://h?password_env=TEST_SECRET", "p@ss/w?rd");
  gives("postgresql://user@h/db?password_env=TEST_SECRET&db=1", "p@ss/w?rd");
  assert_int_equal(crl_uri_parse(&uri, "lmdb:/a?password_env=TEST_SECRET", NULL), CORRAL_OK);
  assert_int_equal(crl_secret_resolve(&uri, NULL), CORRAL_OK);
  assert_null(uri.view.password);
  assert_int_equal(uri.view.param_count, 1);
  crl_uri_free(&uri);
  unsetenv("TEST_SECRET");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_store_shows_a_password),
      cmocka_unit_test(no_origin_shows_a_password),
      cmocka_unit_test(a_pipe_gives_it_once_and_a_file_as_often_as_is_wished),
      cmocka_unit_test(a_pipe_without_an_end_is_an_error),
      cmocka_unit_test(a_variable_gives_it_to_a_uri_with_a_host_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
