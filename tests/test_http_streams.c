/* test_http_streams.c: an HTTP origin in a process without standard streams: no socket gets the
 * number of one. */
#include "support/http_kit.h"
#include "support/streams_kit.h"

static int fetch_page(void) {
  void *origin = opened("%s/{key}", http_origin_url(server));
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
  (void)state;
  assert_int_equal(without_streams(fetch_page), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_http_origin_takes_none)};
  return cmocka_run_group_tests(tests, start, stop);
}
