/* postgresql_server.h: a real PostgreSQL for a test: its own, in its own folder, gone with the
 * test.
 *
 *   static postgresql_server *server;
 *   if (!postgresql_server_start(&server, NULL)) skip();   prints that postgres is missing
 *   ... postgresql_server_uri(server, "?locks=advisory") ...
 *   ... postgresql_server_ask(server, "SELECT balance FROM account WHERE id = %d", 1) ...
 *   postgresql_server_stop(server);
 *
 * It listens on a unix socket and on a free port below 32768 of 127.0.0.1, believes everybody,
 * doesn't sync, and is shut down when the test's main thread ends. The test may be root: the server
 * then runs as the user postgres, or nobody. Found in /usr/lib/postgresql/.../bin, then in PATH.
 * Whatever can't be done ends the test with a message. */
#ifndef TESTS_POSTGRESQL_SERVER_H
#define TESTS_POSTGRESQL_SERVER_H

#include <sys/types.h>

typedef struct postgresql_server postgresql_server;

/* Makes a database, starts the server and waits until it answers. `settings`: "max_connections=20"
 * and so on, up to NULL, or NULL. 0 when there is no PostgreSQL. */
int postgresql_server_start(postgresql_server **ret, const char *const *settings);
/* Ends it and removes its folder. NULL is allowed. */
void postgresql_server_stop(postgresql_server *server);

/* "postgresql://postgres@127.0.0.1:PORT/postgres" and what is to follow; of the last eight. */
const char *postgresql_server_uri(const postgresql_server *server, const char *params);
/* The same for libpq: "host=127.0.0.1 port=... user=postgres dbname=postgres". */
const char *postgresql_server_conninfo(const postgresql_server *server);
int postgresql_server_port(const postgresql_server *server);
/* The socket's folder. */
const char *postgresql_server_folder(const postgresql_server *server);
/* The database's folder: its configuration. */
const char *postgresql_server_data(const postgresql_server *server);
pid_t postgresql_server_pid(const postgresql_server *server);

/* SIGKILL of all of it; a shutdown in good order; start again on the same port, killed before if it
 * runs. */
void postgresql_server_kill(postgresql_server *server);
void postgresql_server_shut(postgresql_server *server);
void postgresql_server_restart(postgresql_server *server);
/* The lines of pg_hba.conf from now on; sockets stay trusted. */
void postgresql_server_hba(postgresql_server *server, const char *lines);

/* Runs printf-like SQL on a connection of its own, as postgres. The first column of the first row
 * as text, "" when there is none or it is NULL, "ERROR 42P01: ..." when it failed. The text is
 * valid until the next ask. */
const char *postgresql_server_ask(postgresql_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
