/* memcached_server.h: a real memcached for one test, with a folder of its own, removed with the
 * test.
 *
 *   static memcached_server *server;
 *   if (!memcached_server_start(&server, NULL)) skip();   prints that memcached is missing
 *   ... memcached_server_uri(server) ... memcached_server_ask(server, "delete k") ...
 *   memcached_server_stop(server);
 *
 * The server listens on a free port below 32768 of 127.0.0.1, or on a unix socket, and is killed
 * when the test's main thread ends. Any error ends the test with a message. */
#ifndef TESTS_MEMCACHED_SERVER_H
#define TESTS_MEMCACHED_SERVER_H

typedef struct memcached_server memcached_server;

/* Starts the server and waits until it answers. `args`: further arguments, up to NULL ("-m", "10",
 * NULL), or NULL. Returns 0 when memcached isn't installed. The second function uses a unix socket
 * in the server's folder. */
int memcached_server_start(memcached_server **ret, const char *const *args);
int memcached_server_start_unix(memcached_server **ret, const char *const *args);
/* Kills the server and removes its folder. NULL is allowed. */
void memcached_server_stop(memcached_server *server);

/* "memcached://127.0.0.1:PORT" or "memcached+unix:///PATH"; owned by the server. */
const char *memcached_server_uri(const memcached_server *server);
int memcached_server_tcp_port(const memcached_server *server);
const char *memcached_server_folder(const memcached_server *server);

/* Empties two servers and returns their URI as one store, valid until the next call; NULL when one
 * of them is missing. */
const char *memcached_server_pair_uri(memcached_server *const pair[2]);

/* SIGSTOP; SIGCONT; SIGKILL; a new start with the same port or socket. */
void memcached_server_pause(memcached_server *server);
void memcached_server_resume(memcached_server *server);
void memcached_server_kill(memcached_server *server);
void memcached_server_restart(memcached_server *server);

/* Sends one printf-formatted command of the text protocol, without its last line end; a value
 * follows behind "\r\n". Returns the reply without its last line end, valid until the next call. */
__attribute__((format(printf, 2, 3))) const char *memcached_server_ask(memcached_server *server,
                                                                       const char *format, ...);
/* A number in the reply to `stats`; -1 when there is none of that name. */
long long memcached_server_stat(memcached_server *server, const char *name);

#endif
