/* zookeeper_server.h: a real ZooKeeper for a test: one server, its own, in its own folder, gone
 * with the test.
 *
 *   static zookeeper_server *server;
 *   if (!zookeeper_server_start(&server, NULL)) skip();       says on stderr what is missing
 *   ... zookeeper_server_uri(server) ... zookeeper_server_ask(server, "wchs") ...
 *   zookeeper_server_stop(server);
 *
 * It listens on a free port below 32768 of 127.0.0.1, with a tick of 100 ms, so sessions may be as
 * short as 400 ms, and is killed when the test's main thread ends. Whatever can't be done ends the
 * test with a message. */
#ifndef TESTS_ZOOKEEPER_SERVER_H
#define TESTS_ZOOKEEPER_SERVER_H

typedef struct zookeeper_server zookeeper_server;

/* Starts it and waits until it answers; 0 when there is no java or no ZooKeeper. `option`: one more
 * of java's, or NULL. */
int zookeeper_server_start(zookeeper_server **ret, const char *option);
/* Kills it and removes its folder. NULL is allowed. */
void zookeeper_server_stop(zookeeper_server *server);

int zookeeper_server_port(const zookeeper_server *server);

/* SIGSTOP; SIGCONT; SIGKILL; start again at the same place, with the same data. */
void zookeeper_server_pause(zookeeper_server *server);
void zookeeper_server_resume(zookeeper_server *server);
void zookeeper_server_kill(zookeeper_server *server);
void zookeeper_server_restart(zookeeper_server *server);

/* The reply to a command of four letters, valid until the next one; "" when there is none. */
const char *zookeeper_server_ask(zookeeper_server *server, const char *word);

#endif
