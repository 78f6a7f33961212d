/* zookeeper_server.h: a real ZooKeeper, a single server, for one test, with a folder of its own,
 * removed with the test.
 *
 *   static zookeeper_server *server;
 *   if (!zookeeper_server_start(&server, NULL)) skip();       prints what is missing
 *   ... zookeeper_server_uri(server) ... zookeeper_server_ask(server, "wchs") ...
 *   zookeeper_server_stop(server);
 *
 * The server listens on a free port below 32768 of 127.0.0.1, with a tick of 100 ms, so sessions
 * may be as short as 400 ms, and is killed when the test's main thread ends. Any error ends the
 * test with a message. */
#ifndef TESTS_ZOOKEEPER_SERVER_H
#define TESTS_ZOOKEEPER_SERVER_H

typedef struct zookeeper_server zookeeper_server;

/* Starts the server and waits until it answers. Returns 0 when java or ZooKeeper isn't installed.
 * `option`: one more option of java, or NULL. */
int zookeeper_server_start(zookeeper_server **ret, const char *option);
/* Kills the server and removes its folder. NULL is allowed. */
void zookeeper_server_stop(zookeeper_server *server);

int zookeeper_server_port(const zookeeper_server *server);

/* SIGSTOP; SIGCONT; SIGKILL; a new start on the same port with the same data. */
void zookeeper_server_pause(zookeeper_server *server);
void zookeeper_server_resume(zookeeper_server *server);
void zookeeper_server_kill(zookeeper_server *server);
void zookeeper_server_restart(zookeeper_server *server);

/* Sends a four-letter command. Returns the reply, valid until the next call; "" without a reply. */
const char *zookeeper_server_ask(zookeeper_server *server, const char *word);

#endif
