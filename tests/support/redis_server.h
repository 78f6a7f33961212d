/* redis_server.h: a real redis-server for a test: its own, in its own folder, gone with the test.
 *
 *   static redis_server *server;
 *   if (!redis_server_start(&server, NULL)) skip();   prints that redis-server is missing
 *   ... redis_server_uri(server) ... redis_server_ask(server, "INCR %s", "k") ...
 *   redis_server_stop(server);
 *
 * It listens on a unix socket and on a free port below 32768 of 127.0.0.1, saves nothing, and is
 * killed when the test's main thread ends. Whatever can't be done ends the test with a message. */
#ifndef TESTS_REDIS_SERVER_H
#define TESTS_REDIS_SERVER_H

#include <hiredis/hiredis.h>

typedef struct redis_server redis_server;

/* Starts it and waits until it answers. `args`: further arguments, up to NULL ("--maxmemory",
 * "10mb", NULL), or NULL. 0 when there is no redis-server. */
int redis_server_start(redis_server **ret, const char *const *args);
/* Kills it and removes its folder. NULL is allowed. */
void redis_server_stop(redis_server *server);

/* "redis://127.0.0.1:PORT" and "redis+unix:///PATH"; the server's. */
const char *redis_server_uri(const redis_server *server);
const char *redis_server_unix_uri(const redis_server *server);
const char *redis_server_socket(const redis_server *server);
int redis_server_port(const redis_server *server);
/* A folder of its own, for files of the test; removed by redis_server_stop. */
const char *redis_server_folder(const redis_server *server);

/* SIGSTOP; SIGCONT; SIGKILL, and start again on the same port. */
void redis_server_pause(redis_server *server);
void redis_server_resume(redis_server *server);
void redis_server_kill(redis_server *server);
void redis_server_restart(redis_server *server);

/* A command in hiredis' printf-like form; the reply is the caller's: freeReplyObject. */
redisReply *redis_server_command(redis_server *server, const char *format, ...);
/* The same, as text: a string or error as it is, a number in decimal, "(nil)", an array's elements
 * one a line. The text is valid until the next ask. */
const char *redis_server_ask(redis_server *server, const char *format, ...);
/* A number of INFO, by its name; -1 when there is none. */
long long redis_server_info(redis_server *server, const char *name);

#endif
