/* server_process.h: the process of a server started by a test, in a folder of its own, removed with
 * the test. The base of NAME_server.c for each kind of server.
 *
 *   struct nginx_server { server_process process; int port; };
 *
 *   char program[SERVER_PROCESS_PATH];
 *   if (!server_process_find("nginx", "nginx", program)) return 0;   prints that nginx is missing
 *   server_process_init(&server->process, "nginx", room_on_disk());
 *   server->port = server_process_free_port();
 *   server_process_add_args(&server->process, (const char *[]){program, "-c", "nginx.conf", NULL});
 *   server_process_launch(&server->process);
 *   server_process_await(&server->process, is_up, server);
 *   ...
 *   server_process_clean(&server->process);
 *
 * A server runs in its folder, with no input; its output is appended to the file "log" there. The
 * server is killed when the thread that launched it ends. Any error ends the test with a
 * message. */
#ifndef TESTS_SERVER_PROCESS_H
#define TESTS_SERVER_PROCESS_H

#include <netinet/in.h>
#include <stddef.h>
#include <sys/types.h>

#include "support/room.h"

enum { SERVER_PROCESS_PATH = 4096, SERVER_PROCESS_ARGS = 64, SERVER_PROCESS_STEP_MS = 5 };

/* Zeroed; fields with other than the default values are set before server_process_init. */
typedef struct server_process {
  const char *name; /* in messages, and in the folder's name */
  uid_t user;       /* user of the server, and owner of the folder; 0: the test's user */
  gid_t group;
  int death_signal; /* signal sent to the server when its launcher ends; 0: SIGKILL */
  int is_stubborn;  /* launched again when it exits before it is up */
  pid_t pid;        /* 0: not running */
  char folder[64];
  char *args[SERVER_PROCESS_ARGS]; /* begins with the program's absolute path */
  int arg_count;
} server_process;

/* Prints "NAME: WHAT: " and the text of errno, and aborts. */
_Noreturn void server_process_die(const char *name, const char *what);

/* Returns a port below 32768 of 127.0.0.1 that was free a moment ago. */
int server_process_free_port(void);
/* As server_process_free_port, but returns a socket bound to the port. */
int server_process_bind(int *ret_port);
struct sockaddr_in server_process_loopback(int port);
/* Connects to a port of 127.0.0.1. Returns the socket; -1: the port is closed. */
int server_process_dial(int port);
/* Sends a request on a new connection and reads until the other side hangs up, or is silent for 10
 * s. `room` may contain the request; it gets a NUL. Returns the reply's length; 0: no reply. */
size_t server_process_exchange(int port, const char *request, size_t len, char *room, size_t size);

/* Finds the absolute path of a program: in PATH, then in the folders that Debian uses for servers.
 * Returns 0 when it isn't installed, after naming its Debian package on stderr. */
int server_process_find(const char *program, const char *package,
                        char ret_path[SERVER_PROCESS_PATH]);

/* Makes the server's folder, STEM followed by NAME-XXXXXX; stem: room_on_disk() or
 * room_in_memory(). */
void server_process_init(server_process *process, const char *name, const char *stem);
/* Copies the arguments; `args` ends with NULL, or is NULL. */
void server_process_add_arg(server_process *process, const char *arg);
void server_process_add_args(server_process *process, const char *const *args);

/* Starts the server; also for a restart. */
void server_process_launch(server_process *process);
/* Calls `is_up` every SERVER_PROCESS_STEP_MS until it returns true; aborts after 30 s. */
void server_process_await(server_process *process, int (*is_up)(void *arg), void *arg);
/* Runs another program in the server's folder as the server's user; it must succeed. `args` as the
 * server's own. */
void server_process_run(const server_process *process, char *const *args);

/* Sends a signal and waits for the end. Does nothing when the server isn't running. */
void server_process_end(server_process *process, int signal);
/* server_process_end with SIGKILL. */
void server_process_kill(server_process *process);
/* SIGSTOP, and waits until all threads have stopped; SIGCONT. */
void server_process_pause(server_process *process);
void server_process_resume(server_process *process);

/* Kills the server, removes its folder, and frees its memory, but not `process`. */
void server_process_clean(server_process *process);

#endif
