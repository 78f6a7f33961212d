/* test_http_streams.c: an HTTP origin in a process without standard streams: no socket may get
 * descriptor 0, 1 or 2. */
#include "support/http_kit.h"
#include "support/streams_kit.h"

static int told[2]; /* pipe that sends the origin's URL to the child */

static int fetch_page(void) {
  char url[64] = "";
  ssize_t len = read(told[0], url, sizeof url - 1);
  if (len <= 0) return 2;
  void *origin = opened("%s/{key}", url);
  int bad = 0;
  fill_free(fetched(origin, "p"));
  for (int fd = 0; fd <= 2; fd++) bad |= !is_null(fd);
  for (int fd = 0; fd <= 2; fd++) close(fd);
  fill_free(fetched(origin, "q"));
  fill_free(fetched(origin, "r"));
  for (int fd = 0; fd <= 2; fd++) bad |= !is_null(fd) && !is_closed(fd);
  return bad;
}

static void an_http_origin_takes_none(void **state) {
  assert_int_equal(pipe(told), 0);
  pid_t pid = begin_without_streams(fetch_page);
  start(state);
  const char *url = http_origin_url(server);
  assert_int_equal(write(told[1], url, strlen(url)), (ssize_t)strlen(url));
  assert_int_equal(exit_status_of(pid), 0);
  stop(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_http_origin_takes_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
