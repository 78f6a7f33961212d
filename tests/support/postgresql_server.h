/* postgresql_server.h: a real PostgreSQL for one test, with a folder of its own, removed with the
 * test.
 *
 *   static postgresql_server *server;
 *   if (!postgresql_server_start(&server, NULL)) skip();   prints that postgres is missing
 *   ... postgresql_server_uri(server, "?locks=advisory") ...
 *   ... postgresql_server_ask(server, "SELECT balance FROM account WHERE id = %d", 1) ...
 *   postgresql_server_stop(server);
 *
 * The server listens on a unix socket and on a free port below 32768 of 127.0.0.1, accepts all
 * users without a password, doesn't sync, and is shut down when the test's main thread ends. If the
 * test runs as root, the server runs as the user postgres, or nobody. Its programs are looked for
 * in /usr/lib/postgresql/.../bin, then in PATH. Any error ends the test with a message. */
#ifndef TESTS_POSTGRESQL_SERVER_H
#define TESTS_POSTGRESQL_SERVER_H

#include <sys/types.h>

typedef struct postgresql_server postgresql_server;

/* Makes a database, starts the server and waits until it answers. `settings`: "max_connections=20"
 * and so on, up to NULL, or NULL. Returns 0 when PostgreSQL isn't installed. */
int postgresql_server_start(postgresql_server **ret, const char *const *settings);
/* Copies the primary's data (pg_basebackup), starts a replica that streams from it, and waits until
 * it answers. It is to be stopped before the primary. */
void postgresql_server_replica(postgresql_server **ret, const postgresql_server *primary);
/* Ends the server and removes its folder. NULL is allowed. */
void postgresql_server_stop(postgresql_server *server);

/* "postgresql://postgres@127.0.0.1:PORT/postgres" followed by `params`; the last eight returned
 * texts are valid. */
const char *postgresql_server_uri(const postgresql_server *server, const char *params);
/* The connection string for libpq: "host=127.0.0.1 port=... user=postgres dbname=postgres". */
const char *postgresql_server_conninfo(const postgresql_server *server);
int postgresql_server_port(const postgresql_server *server);
/* The socket's folder. */
const char *postgresql_server_folder(const postgresql_server *server);
/* The database's folder, with its configuration. */
const char *postgresql_server_data(const postgresql_server *server);
pid_t postgresql_server_pid(const postgresql_server *server);
/* The number of the postmaster's segment of System V's shared memory; -1: there is none. */
int postgresql_server_segment(const postgresql_server *server);

/* kill: SIGKILL to all its processes. shut: an orderly shutdown. restart: a new start on the same
 * port, after a kill if it runs. */
void postgresql_server_kill(postgresql_server *server);
void postgresql_server_shut(postgresql_server *server);
void postgresql_server_restart(postgresql_server *server);
/* Replaces the lines of pg_hba.conf for TCP; sockets stay trusted. */
void postgresql_server_hba(postgresql_server *server, const char *lines);

/* Runs printf-formatted SQL as postgres on a connection that only this function uses. Returns the
 * first column of the first row as text, "" when there is none or it is NULL, "ERROR 42P01: ..."
 * after an error; valid until the next call. */
const char *postgresql_server_ask(postgresql_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
