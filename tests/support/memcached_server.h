/* memcached_server.h: a real memcached for a test: its own, in its own folder, gone with the test.
 *
 *   static memcached_server *server;
 *   if (!memcached_server_start(&server, NULL)) skip();   prints that memcached is missing
 *   ... memcached_server_uri(server) ... memcached_server_ask(server, "delete k") ...
 *   memcached_server_stop(server);
 *
 * It listens on a free port below 32768 of 127.0.0.1, or on a unix socket, and is killed when the
 * test's main thread ends. Whatever can't be done ends the test with a message. */
#ifndef TESTS_MEMCACHED_SERVER_H
#define TESTS_MEMCACHED_SERVER_H

typedef struct memcached_server memcached_server;

/* Starts it and waits until it answers. `args`: further arguments, up to NULL ("-m", "10", NULL),
 * or NULL. 0 when there is no memcached. The second: on a unix socket in its folder. */
int memcached_server_start(memcached_server **ret, const char *const *args);
int memcached_server_start_unix(memcached_server **ret, const char *const *args);
/* Kills it and removes its folder. NULL is allowed. */
void memcached_server_stop(memcached_server *server);

/* "memcached://127.0.0.1:PORT" or "memcached+unix:///PATH"; the server's. */
const char *memcached_server_uri(const memcached_server *server);
int memcached_server_tcp_port(const memcached_server *server);
const char *memcached_server_folder(const memcached_server *server);

/* Two servers as one store, both emptied: its URI, valid until the next call; NULL when one of them
 * isn't there. */
const char *memcached_server_pair_uri(memcached_server *const pair[2]);

/* SIGSTOP; SIGCONT; SIGKILL; start again at the same place. */
void memcached_server_pause(memcached_server *server);
void memcached_server_resume(memcached_server *server);
void memcached_server_kill(memcached_server *server);
void memcached_server_restart(memcached_server *server);

/* One command of the text protocol, printf-like, without its last line end; a value goes behind
 * "\r\n". The reply without its last line end, valid until the next ask. */
__attribute__((format(printf, 2, 3))) const char *memcached_server_ask(memcached_server *server,
                                                                       const char *format, ...);
/* A number of `stats`, by its name; -1 when there is none. */
long long memcached_server_stat(memcached_server *server, const char *name);

#endif
