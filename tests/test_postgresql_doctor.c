/* test_postgresql_doctor.c: corral doctor on a real PostgreSQL, and what stays of the server. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/doctor_kit.h"
#include "support/postgresql_server.h"

static void postgresql_lacks_a_table_or_rights(void **state) {
  (void)state;
  postgresql_server *server;
  char uri[200];
  if (!postgresql_server_start(&server, NULL)) skip();
  assert_int_equal(doctor("%s", postgresql_server_uri(server, "")), 0);
  tells("role", "primary");
  tells("table", "absent");
  has(": fit\n");
  assert_string_equal(postgresql_server_ask(server, "SELECT to_regclass('corral_lock') IS NULL"),
                      "t");
  assert_int_equal(doctor("%s", postgresql_server_uri(server, "?create=no")), 1);
  has(": table absent. An administrator runs: CREATE TABLE ");
  assert_int_equal(corral_run("--store '%s' lock l -- true", postgresql_server_uri(server, "")), 0);
  assert_int_equal(doctor("%s", postgresql_server_uri(server, "")), 0);
  tells("table", "corral_lock");
  tells("rights", "all");
  postgresql_server_ask(server, "CREATE ROLE poor LOGIN");
  (void)snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres",
                 postgresql_server_port(server));
  assert_int_equal(doctor("%s", uri), 1);
  has(": rights missing. An administrator runs: GRANT SELECT, INSERT, UPDATE ON \"corral_lock\"");
  assert_int_equal(doctor("%s", postgresql_server_uri(server, "?locks=advisory&max_holds=1000")),
                   0);
  has("warning: ");
  has(": connections_most 100. Raise max_connections, or lower max_holds");
  postgresql_server_kill(server);
  assert_int_equal(doctor("%s", postgresql_server_uri(server, "")), 125);
  postgresql_server_stop(server);
}

static void a_server_that_was_killed_leaves_no_shared_memory(void **state) {
  (void)state;
  postgresql_server *server;
  glob_t found = {0};
  char files[100];
  struct shmid_ds segment;
  if (!postgresql_server_start(&server, NULL)) skip();
  (void)snprintf(files, sizeof files, "%s/pg_dynshmem/mmap.*", postgresql_server_data(server));
  assert_int_equal(glob(files, 0, NULL, &found), 0);
  globfree(&found);
  int id = postgresql_server_segment(server);
  postgresql_server_kill(server);
  assert_int_equal(shmctl(id, IPC_STAT, &segment), 0);
  postgresql_server_stop(server);
  /* its backends end a little later, and the segment with the last of them */
  for (int i = 0; i < DOCTOR_LOOKS && shmctl(id, IPC_STAT, &segment) == 0; i++) usleep(20000);
  assert_int_equal(shmctl(id, IPC_STAT, &segment), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(postgresql_lacks_a_table_or_rights),
      cmocka_unit_test(a_server_that_was_killed_leaves_no_shared_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
