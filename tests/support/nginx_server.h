/* nginx_server.h: a real nginx for one test, with a folder of its own, removed with the test.
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
 * workers. Run as root, its workers stay root. Any error ends the test with a message that includes
 * nginx's log. With a folder as CORRAL_NGINX in the environment, its file `nginx` is the server,
 * instead of the one that is installed. */
#ifndef TESTS_NGINX_SERVER_H
#define TESTS_NGINX_SERVER_H

#include <sys/types.h>

#include "support/server_process.h"

typedef struct nginx_server nginx_server;

typedef struct nginx_plan {
  /* text inside http { }; one of its servers listens on 127.0.0.1:%PORT% or unix:%SOCKET% */
  const char *http;
  const char *main;               /* lines before http { }, such as load_module; NULL for none */
  int workers;                    /* 0: one */
  int connections;                /* worker_connections; 0: 2048 */
  const char *level;              /* level of the error log; NULL: "info" */
  int is_daemon;                  /* 1: for nginx_server_upgrade */
  const char *const *environment; /* "NAME=VALUE"..., up to NULL, or NULL; workers inherit these */
} nginx_plan;

/* Finds nginx: its absolute path. Returns 0 when it isn't installed, after "SKIPPED: ..." on
 * stderr. */
int nginx_server_find(char ret_path[SERVER_PROCESS_PATH]);
/* Its version as nginx itself writes it: 1029003 is 1.29.3. 0 when it isn't installed. */
int nginx_server_version(void);

/* Starts the server and waits until it accepts and all its workers run. Returns 0 when nginx isn't
 * installed, after "SKIPPED: ..." on stderr. */
int nginx_server_start(nginx_server **ret, const nginx_plan *plan);
/* Kills the server if it still runs, and removes its folder. NULL is allowed. */
void nginx_server_stop(nginx_server *server);

/* "127.0.0.1:PORT", or "unix:PATH" when the plan has no %PORT%; for http_client_new. */
const char *nginx_server_address(const nginx_server *server);
int nginx_server_port(const nginx_server *server);
const char *nginx_server_folder(const nginx_server *server);
pid_t nginx_server_pid(const nginx_server *server); /* the master's pid */

/* Stores the pids of workers that take requests, at most `most`. Returns how many were stored. */
int nginx_server_workers(const nginx_server *server, pid_t *pids, int most);
/* Number of processes of the master, workers that are shutting down included; the second function
 * waits until it is `count` (after a reload: until the old workers are gone). */
int nginx_server_children(const nginx_server *server);
void nginx_server_await_children(const nginx_server *server, int count);
/* SIGHUP; waits until as many new workers take requests. `http`: the new text; NULL: unchanged. */
void nginx_server_reload(nginx_server *server, const char *http);

/* Executes the binary anew (SIGUSR2), waits until the new master's workers take requests, and lets
 * the old one end (SIGQUIT), which takes no request any more. Returns the old master's pid. */
pid_t nginx_server_upgrade(nginx_server *server);
/* Waits for the end of that master, before anything else is done to the new one. Returns its exit
 * status, or -1 when a signal ended it. */
int nginx_server_await_old(nginx_server *server, pid_t old);

/* SIGQUIT: requests under way are answered first. Waits for the end. Returns the exit status, or -1
 * when a signal ended nginx. */
int nginx_server_quit(nginx_server *server);
/* SIGKILL, to the workers too. */
void nginx_server_kill(nginx_server *server);
/* Starts the server again with the same port and folder. */
void nginx_server_restart(nginx_server *server);

/* The error log; the text on stderr, such as sanitizer reports. Valid until the next call of
 * either. */
const char *nginx_server_log(nginx_server *server);
const char *nginx_server_stderr(nginx_server *server);
#endif
