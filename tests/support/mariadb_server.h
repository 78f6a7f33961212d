/* mariadb_server.h: a real MariaDB for a test: its own, in its own folder, gone with the test.
 *
 *   static mariadb_server *server;
 *   if (!mariadb_server_start(&server)) skip();          says on stderr what is missing
 *   ... mariadb_server_uri(server) ... mariadb_server_ask(server, "SELECT 1") ...
 *   mariadb_server_stop(server);
 *
 * It listens on a free port below 32768 of 127.0.0.1 and on a unix socket, and is killed when the
 * test's main thread ends. Its users: root, without a password, and "lock user" with the password
 * "p@ss:word/", who may do nothing but connect. Whatever can't be done ends the test with a
 * message. */
#ifndef TESTS_MARIADB_SERVER_H
#define TESTS_MARIADB_SERVER_H

typedef struct mariadb_server mariadb_server;

/* Makes a data folder, starts the server and waits until it answers. 0 when there is no mariadbd or
 * mariadb-install-db. */
int mariadb_server_start(mariadb_server **ret);
/* Kills it and removes its folder. NULL is allowed. */
void mariadb_server_stop(mariadb_server *server);

/* "mariadb://lock%20user:p%40ss%3Aword%2F@127.0.0.1:PORT/"; the server's. */
const char *mariadb_server_uri(const mariadb_server *server);
const char *mariadb_server_socket(const mariadb_server *server);
int mariadb_server_port(const mariadb_server *server);

/* SIGSTOP; SIGCONT; SIGKILL; start again at the same place. */
void mariadb_server_pause(mariadb_server *server);
void mariadb_server_resume(mariadb_server *server);
void mariadb_server_kill(mariadb_server *server);
void mariadb_server_restart(mariadb_server *server);
/* Until the second in which it started is over. Start does that itself. */
void mariadb_server_settle(mariadb_server *server);

/* One statement of root, printf-like, on a connection of its own. The first column of its first
 * row, "" when there is none; valid until the next. */
__attribute__((format(printf, 2, 3))) const char *mariadb_server_ask(mariadb_server *server,
                                                                     const char *format, ...);

#endif
