/* test_mariadb_doctor.c: corral doctor on a real MariaDB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/doctor_kit.h"
#include "support/mariadb_server.h"

static void mariadb_has_a_connection_for_each_hold(void **state) {
  (void)state;
  mariadb_server *server;
  if (!mariadb_server_start(&server)) skip();
  mariadb_server_ask(server, "CREATE USER 'doctor'@'%%' IDENTIFIED BY 'secret'");
  mariadb_server_ask(server, "SET GLOBAL max_connections = 50");
  char uri[120];
  (void)snprintf(uri, sizeof uri, "mariadb://doctor:secret@127.0.0.1:%d/",
                 mariadb_server_port(server));
  assert_int_equal(doctor("%s", uri), 0);
  has("  version ");
  tells("connections_most", "50");
  has(": connections_most 50. Raise max_connections, or lower connections= in the URI");
  lacks("secret");
  assert_int_equal(doctor("%s?connections=20", uri), 0);
  lacks("warning: ");
  mariadb_server_stop(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mariadb_has_a_connection_for_each_hold)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
