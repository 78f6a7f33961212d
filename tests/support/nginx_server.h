/* nginx_server.h: a real nginx for a test: its own, in its own folder, gone with the test.
 *
 *   static nginx_server *server;
 *   if (!nginx_server_start(&server, &(nginx_plan){
 *         .workers = 2, .http = "server { listen 127.0.0.1:%PORT%; }"})) skip();
 *   ... http_client_new(nginx_server_address(server)) ...
 *   assert_int_equal(nginx_server_quit(server), 0);
 *   nginx_server_stop(server);
 *
 * In the plan's texts %PORT% is a port below 32768 that was free a moment ago, %SOCKET% a path for
 * a unix socket and %FOLDER% the server's folder, which has an empty folder `www`. Everything that
 * nginx writes is in that folder. When the test's main thread ends, nginx ends with all its
 * workers. Run as root, its workers stay root. Whatever can't be done ends the test with a message,
 * nginx's log in it. */
#ifndef TESTS_NGINX_SERVER_H
#define TESTS_NGINX_SERVER_H

#include <sys/types.h>

typedef struct nginx_server nginx_server;

typedef struct nginx_plan {
  /* what stands in http { }; one of its servers listens on 127.0.0.1:%PORT% or unix:%SOCKET% */
  const char *http;
  const char *main;               /* lines before it, as load_module; NULL for none */
  int workers;                    /* 0: one */
  int connections;                /* of a worker; 0: 2048 */
  const char *level;              /* of the error log; NULL: "info" */
  const char *const *environment; /* "NAME=VALUE"..., up to NULL, or NULL; workers have these too */
} nginx_plan;

/* Starts it and waits until it accepts and all its workers are there. 0 when there is no nginx,
 * then it has said "SKIPPED: ..." on stderr. */
int nginx_server_start(nginx_server **ret, const nginx_plan *plan);
/* Kills it if it still lives, removes its folder. NULL is allowed. */
void nginx_server_stop(nginx_server *server);

/* "127.0.0.1:PORT", or "unix:PATH" when the plan's text has no %PORT%: for http_client_new. */
const char *nginx_server_address(const nginx_server *server);
int nginx_server_port(const nginx_server *server);
const char *nginx_server_folder(const nginx_server *server);
pid_t nginx_server_pid(const nginx_server *server); /* of the master */

/* The pids of workers that take requests, into `pids`; how many they are, at most `most`. */
int nginx_server_workers(const nginx_server *server, pid_t *pids, int most);
/* How many processes the master has, those that shut down included; waits until they are `count`
 * (after a reload: until the old ones are gone). */
int nginx_server_children(const nginx_server *server);
void nginx_server_await_children(const nginx_server *server, int count);
/* HUP; waits until as many new workers take requests. `http`: the text from now on; NULL: as it
 * was. */
void nginx_server_reload(nginx_server *server, const char *http);

/* QUIT: what is under way is answered first. Waits for its end; its exit status, or -1 when a
 * signal ended it. */
int nginx_server_quit(nginx_server *server);
/* SIGKILL, the workers too. */
void nginx_server_kill(nginx_server *server);
/* Starts it again at the same place. */
void nginx_server_restart(nginx_server *server);

/* The error log; what it wrote to stderr, as sanitizers do. Valid until the next call of either. */
const char *nginx_server_log(nginx_server *server);
const char *nginx_server_stderr(nginx_server *server);
#endif
