/* mariadb_server.h: a real MariaDB for one test, with a folder of its own, removed with the test.
 *
 *   static mariadb_server *server;
 *   if (!mariadb_server_start(&server)) skip();          prints what is missing
 *   ... mariadb_server_uri(server) ... mariadb_server_ask(server, "SELECT 1") ...
 *   mariadb_server_stop(server);
 *
 * The server listens on a free port below 32768 of 127.0.0.1 and on a unix socket, and is killed
 * when the test's main thread ends. Its users: root, without a password, and "lock user" with the
 * password "p@ss:word/", who may only connect. Any error ends the test with a message. */
#ifndef TESTS_MARIADB_SERVER_H
#define TESTS_MARIADB_SERVER_H

typedef struct mariadb_server mariadb_server;

/* Makes a data folder, starts the server and waits until it answers. Returns 0 when mariadbd or
 * mariadb-install-db isn't installed. */
int mariadb_server_start(mariadb_server **ret);
/* Kills the server and removes its folder. NULL is allowed. */
void mariadb_server_stop(mariadb_server *server);

/* "mariadb://lock%20user:p%40ss%3Aword%2F@127.0.0.1:PORT/"; owned by the server. */
const char *mariadb_server_uri(const mariadb_server *server);
const char *mariadb_server_socket(const mariadb_server *server);
int mariadb_server_port(const mariadb_server *server);

/* SIGSTOP; SIGCONT; SIGKILL; a new start with the same port and folder. */
void mariadb_server_pause(mariadb_server *server);
void mariadb_server_resume(mariadb_server *server);
void mariadb_server_kill(mariadb_server *server);
void mariadb_server_restart(mariadb_server *server);
/* Waits for the end of the second in which the server started. mariadb_server_start does that
 * itself. */
void mariadb_server_settle(mariadb_server *server);

/* Runs one printf-formatted statement as root, on a connection of its own. Returns the first column
 * of the first row, "" without a row; valid until the next call. */
__attribute__((format(printf, 2, 3))) const char *mariadb_server_ask(mariadb_server *server,
                                                                     const char *format, ...);

#endif
