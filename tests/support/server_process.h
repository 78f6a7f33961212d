/* server_process.h: the process of a server that a test starts: in a folder of its own, gone with
 * the test. What each server's own file stands on.
 *
 *   struct nginx_server { server_process process; int port; };
 *
 *   char program[SERVER_PROCESS_PATH];
 *   if (!server_process_find("nginx", "nginx", program)) return 0;   prints that nginx is missing
 *   server_process_init(&server->process, "nginx", "/tmp");
 *   server->port = server_process_free_port();
 *   server_process_add_args(&server->process, (const char *[]){program, "-c", "nginx.conf", NULL});
 *   server_process_launch(&server->process);
 *   server_process_await(&server->process, is_up, server);
 *   ...
 *   server_process_clean(&server->process);
 *
 * A server runs in its folder, with no input; what it prints is added to the file "log" there. It
 * is killed when the thread that launched it ends. Whatever can't be done ends the test with a
 * message. */
#ifndef TESTS_SERVER_PROCESS_H
#define TESTS_SERVER_PROCESS_H

#include <netinet/in.h>
#include <stddef.h>
#include <sys/types.h>

enum { SERVER_PROCESS_PATH = 4096, SERVER_PROCESS_ARGS = 64, SERVER_PROCESS_STEP_MS = 5 };

/* Zeroed; what isn't the test's own way is set before server_process_init. */
typedef struct server_process {
  const char *name; /* in messages, and in the folder's name */
  uid_t user;       /* to run as, and the folder's owner; 0: as the test */
  gid_t group;
  int death_signal; /* it gets this when its launcher ends; 0: SIGKILL */
  int is_stubborn;  /* when it ends before it is up, it is launched again */
  pid_t pid;        /* 0: it doesn't run */
  char folder[64];
  char *args[SERVER_PROCESS_ARGS]; /* from the program's whole path */
  int arg_count;
} server_process;

/* Prints "NAME: WHAT: " and the meaning of errno, and aborts. */
_Noreturn void server_process_die(const char *name, const char *what);

/* A port below 32768 of 127.0.0.1 that was free a moment ago. */
int server_process_free_port(void);
/* The same, still taken: a socket bound to it. */
int server_process_bind(int *ret_port);
struct sockaddr_in server_process_loopback(int port);
/* A connection to a port of 127.0.0.1; -1: nobody listens. */
int server_process_dial(int port);
/* Sends a request on a connection of its own and reads until the other side hangs up, or says
 * nothing for 10 s. `room` may be where the request stands; it gets a NUL. Returns the reply's
 * length, 0: there was none. */
size_t server_process_exchange(int port, const char *request, size_t len, char *room, size_t size);

/* The whole path of a program: in PATH, then where Debian keeps servers. 0 when it isn't there;
 * then stderr says which Debian package it is from. */
int server_process_find(const char *program, const char *package,
                        char ret_path[SERVER_PROCESS_PATH]);

/* Makes its folder, PARENT/corral-NAME-XXXXXX. */
void server_process_init(server_process *process, const char *name, const char *parent);
/* Copies; `args` ends with NULL, or is NULL. */
void server_process_add_arg(server_process *process, const char *arg);
void server_process_add_args(server_process *process, const char *const *args);

/* Starts it, once and again. */
void server_process_launch(server_process *process);
/* Until `is_up` says so, which is asked every SERVER_PROCESS_STEP_MS; dies after 30 s. */
void server_process_await(server_process *process, int (*is_up)(void *arg), void *arg);
/* Another program as that user in that folder, to its end, which is to be a success. `args` as
 * those of the server. */
void server_process_run(const server_process *process, char *const *args);

/* Ends it by a signal and waits for that. Nothing when it doesn't run. */
void server_process_end(server_process *process, int signal);
/* By SIGKILL. */
void server_process_kill(server_process *process);
/* SIGSTOP, until all of its threads stand; SIGCONT. */
void server_process_pause(server_process *process);
void server_process_resume(server_process *process);

/* Kills it, removes its folder, and frees what it has, but not `process`. */
void server_process_clean(server_process *process);

#endif
