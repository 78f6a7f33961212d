/* test_warm_store.c: corral warm with a store that goes away, or that is shared by warmers of
 * several hosts; on the test's own Redis. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/http_origin.h"
#include "support/redis_server.h"

enum { COMMAND = 4096, PATIENCE = 1500, LOOK_MS = 20 };

static redis_server *server;

/* Runs a shell command in the server's folder. Returns its exit status. */
static int run(const char *text) {
  char command[COMMAND];
  int n =
      snprintf(command, sizeof command, "cd '%s' || exit 1; %s", redis_server_folder(server), text);
  assert_in_range(n, 1, sizeof command - 1);
  int status = system(command);
  if (!WIFEXITED(status)) fail_msg("%s: status %d", command, status);
  return WEXITSTATUS(status);
}

static void await(const char *text) {
  for (int i = 0; i < PATIENCE; i++) {
    if (run(text) == 0) return;
    (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
  }
  (void)run("cat *.err *.status >&2; $CORRAL_COMMAND get first >&2");
  fail_msg("in vain: %s", text);
}

/* With the plugin file that the command loads. */
static void an_http_origin_warms_what_corral_get_finds(void **state) {
  (void)state;
  char text[COMMAND];
  const char *folder = getenv("CORRAL_PLUGINS");
  if (folder == NULL) skip();
  http_origin *origin = http_origin_start();
  http_origin_answer(origin, "/base/a",
                     HTTP_ANSWER(.headers = "Cache-Control: max-age=600\r\n", .body = "the page"));
  http_origin_answer(origin, "/base/sick", HTTP_ANSWER(.status = 503));
  snprintf(text, sizeof text,
           "export CORRAL_PLUGIN_PATH=%s; printf 'a\\nnone\\nsick\\n' | $CORRAL_COMMAND --json "
           "warm --origin '%s/base/{key}' >http.out 2>http.err; "
           "test $? -eq 1 && grep -q '\"computed\":1,' http.out && grep -q '\"negative\":1,' "
           "http.out && grep -q 'sick: failed: HTTP 503' http.err && "
           "test \"$($CORRAL_COMMAND get a)\" = 'the page'",
           folder, http_origin_url(origin));
  int status = run(text);
  int seen = http_origin_seen(origin, "/base/a");
  http_origin_stop(origin);
  if (status != 0) (void)run("cat http.out http.err >&2");
  assert_int_equal(status, 0);
  assert_int_equal(seen, 1);
}

/* The index names a sitemap on its own server, with the password of the given URL and without; what
 * it says behind # is none of corral's parameters. */
static void a_sitemap_index_leads_to_sitemaps_on_its_own_server(void **state) {
  (void)state;
  char text[COMMAND], index[512];
  const char *folder = getenv("CORRAL_PLUGINS");
  if (folder == NULL) skip();
  http_origin *origin = http_origin_start();
  (void)snprintf(index, sizeof index,
                 "<sitemapindex><sitemap><loc>%s/map.xml?page=2#max=1</loc></sitemap>"
                 "</sitemapindex>",
                 http_origin_url(origin));
  http_origin_answer(origin, "/index.xml", HTTP_ANSWER(.body = index));
  http_origin_answer(origin, "/map.xml?page=2",
                     HTTP_ANSWER(.body = "<urlset><url><loc>http://h/a</loc></url><url><loc>"
                                         "http://h/b</loc><priority>1</priority></url></urlset>"));
  http_origin_answer(origin, "/away.xml",
                     HTTP_ANSWER(.body = "<sitemapindex><sitemap><loc>http://127.0.0.1:1/x"
                                         "</loc></sitemap></sitemapindex>"));
  snprintf(text, sizeof text,
           "export CORRAL_PLUGIN_PATH=%s; $CORRAL_COMMAND --json warm -j 1 --sitemap "
           "'http://user:secret@127.0.0.1:%d/index.xml' --exec 'echo $1 >>pages' >map.out "
           "2>map.err && test \"$(tr '\\n' ' ' <pages)\" = 'http://h/b http://h/a '",
           folder, http_origin_port(origin));
  int read = run(text);
  int indexes = http_origin_seen(origin, "/index.xml");
  int maps = http_origin_seen(origin, "/map.xml?page=2");
  (void)snprintf(index, sizeof index,
                 "<sitemapindex><sitemap><loc>%s/index.xml</loc></sitemap></sitemapindex>",
                 http_origin_url(origin));
  http_origin_answer(origin, "/deep.xml", HTTP_ANSWER(.body = index));
  snprintf(
      text, sizeof text,
      "export CORRAL_PLUGIN_PATH=%s; for name in away absent deep; do $CORRAL_COMMAND warm "
      "--sitemap %s/$name.xml --exec 'echo $1 >>none' 2>$name.err; test $? -eq 125 || exit 1; "
      "done; test ! -e none && grep -q '127.0.0.1:1/x is refused' away.err && grep -q "
      "\"absent.xml: the server doesn't have it\" absent.err && grep -q 'an index in an index' "
      "deep.err",
      folder, http_origin_url(origin));
  int refused = run(text);
  http_origin_stop(origin);
  if (read != 0 || refused != 0) (void)run("cat map.out *.err >&2");
  assert_int_equal(read, 0);
  assert_int_equal(refused, 0);
  assert_int_equal(indexes, 1);
  assert_int_equal(maps, 1);
}

/* No compute ends before both have begun one. */
static void two_warmers_without_a_host_in_common_compute_each_key_once(void **state) {
  (void)state;
  assert_int_equal(
      run("seq 1 200 >keys; for i in 1 2; do $CORRAL_COMMAND --no-host-lock -q --json warm keys "
          "--ttl 1h --exec 'echo $1 >>runs; : >begun.'$i'; n=0; until test -e begun.1 -a -e "
          "begun.2 || test $((n += 1)) -gt 300; do sleep 0.1; done; sleep 0.005' >out.$i & done; "
          "wait; "
          "test $(wc -l <runs) -eq 200 && test -z \"$(sort runs | uniq -d)\" && ! grep "
          "'\"computed\":0,' out.1 out.2"),
      0);
}

static void a_store_that_comes_back_within_ten_seconds_is_waited_for(void **state) {
  (void)state;
  assert_int_equal(run("mkfifo pipe; { $CORRAL_COMMAND --json warm pipe -j 1 --exec 'echo $1 "
                       ">>away.runs' >away.out 2>away.err; echo $? >away.status; } &"),
                   0);
  char path[512];
  (void)snprintf(path, sizeof path, "%s/pipe", redis_server_folder(server));
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  (void)fputs("before\n", f);
  (void)fflush(f);
  await("$CORRAL_COMMAND get before >get.out 2>&1");
  redis_server_kill(server);
  (void)fputs("after\n", f);
  (void)fclose(f);
  await("grep -q 'waiting for the store' away.err");
  redis_server_restart(server);
  await("test -s away.status");
  assert_int_equal(run("cat away.err >&2; test $(cat away.status) -eq 0 && grep -q "
                       "'\"computed\":2,' away.out && $CORRAL_COMMAND get after >get.out"),
                   0);
}

static void a_store_that_stays_away_ends_the_run(void **state) {
  (void)state;
  assert_int_equal(run("mkfifo pipe2; { $CORRAL_COMMAND warm pipe2 --patience 5s --exec 'echo $1 "
                       ">>gone.runs' >gone.out 2>gone.err; echo $? >gone.status; } &"),
                   0);
  char path[512];
  (void)snprintf(path, sizeof path, "%s/pipe2", redis_server_folder(server));
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  (void)fputs("first\n", f);
  (void)fflush(f);
  await("$CORRAL_COMMAND get first >get.out 2>&1");
  redis_server_kill(server);
  (void)fputs("second\n", f);
  (void)fclose(f);
  await("test -s gone.status");
  assert_int_equal(run("test $(cat gone.status) -eq 125 && grep -q 'corral: warm: the store: ' "
                       "gone.err && test $(wc -l <gone.runs) -eq 1"),
                   0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_http_origin_warms_what_corral_get_finds),
      cmocka_unit_test(a_sitemap_index_leads_to_sitemaps_on_its_own_server),
      cmocka_unit_test(two_warmers_without_a_host_in_common_compute_each_key_once),
      cmocka_unit_test(a_store_that_comes_back_within_ten_seconds_is_waited_for),
      cmocka_unit_test(a_store_that_stays_away_ends_the_run),
  };
  if (getenv("CORRAL_COMMAND") == NULL)
    return (void)fputs("SKIPPED: CORRAL_COMMAND is not set\n", stderr), 77;
  if (!redis_server_start(&server, NULL)) return 77;
  (void)setenv("CORRAL_STORE", redis_server_uri(server), 1);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
