/* test_sqlite_doctor.c: corral doctor on a file of SQLite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/doctor_kit.h"
#include "support/room.h"

static void an_sqlite_file_that_is_not_there_is_not_made(void **state) {
  (void)state;
  char path[ROOM_PATH + 16];
  (void)snprintf(path, sizeof path, "%sdoctor.db", room_on_disk());
  assert_int_equal(doctor("sqlite:%s", path), 0);
  tells("file", "absent");
  assert_int_not_equal(access(path, F_OK), 0);
  assert_int_equal(corral_run("--store 'sqlite:%s' lock l -- true", path), 0);
  assert_int_equal(doctor("sqlite:%s", path), 0);
  tells("file", "there");
  has(": fit\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_sqlite_file_that_is_not_there_is_not_made)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
