/* redis_server.h: a real redis-server for one test, with a folder of its own, removed with the
 * test. CORRAL_REDIS_SERVER in the environment names another program, such as valkey-server.
 *
 *   static redis_server *server;
 *   if (!redis_server_start(&server, NULL)) skip();   prints that redis-server is missing
 *   ... redis_server_uri(server) ... redis_server_ask(server, "INCR %s", "k") ...
 *   redis_server_stop(server);
 *
 * The server listens on a unix socket and on a free port below 32768 of 127.0.0.1, saves nothing,
 * and is killed when the test's main thread ends. Any error ends the test with a message. */
#ifndef TESTS_REDIS_SERVER_H
#define TESTS_REDIS_SERVER_H

#include <hiredis/hiredis.h>

typedef struct redis_server redis_server;

/* Starts the server and waits until it answers. `args`: further arguments, up to NULL
 * ("--maxmemory", "10mb", NULL), or NULL. Returns 0 when redis-server isn't installed. */
int redis_server_start(redis_server **ret, const char *const *args);
/* The same as a sentinel, whose configuration is `config`. */
int redis_server_start_sentinel(redis_server **ret, const char *config);
/* From now on the server may close the test's connection: a command is sent once more then. */
void redis_server_may_hang_up(redis_server *server);
/* Kills the server and removes its folder. NULL is allowed. */
void redis_server_stop(redis_server *server);

/* "redis://127.0.0.1:PORT" and "redis+unix:///PATH"; owned by the server. */
const char *redis_server_uri(const redis_server *server);
const char *redis_server_unix_uri(const redis_server *server);
const char *redis_server_socket(const redis_server *server);
int redis_server_port(const redis_server *server);
/* The server's folder, also for files of the test; removed by redis_server_stop. */
const char *redis_server_folder(const redis_server *server);

/* SIGSTOP; SIGCONT; SIGKILL; SIGKILL and a new start on the same port. */
void redis_server_pause(redis_server *server);
void redis_server_resume(redis_server *server);
void redis_server_kill(redis_server *server);
void redis_server_restart(redis_server *server);

/* Sends a command in hiredis' printf-like form. Returns the reply, owned by the caller:
 * freeReplyObject. */
redisReply *redis_server_command(redis_server *server, const char *format, ...);
/* The same, with the reply as text: a string or error unchanged, a number in decimal, "(nil)", an
 * array as one element per line. Valid until the next call. */
const char *redis_server_ask(redis_server *server, const char *format, ...);
/* A number in the reply to INFO; -1 when there is none of that name. */
long long redis_server_info(redis_server *server, const char *name);

#endif
