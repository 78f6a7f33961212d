/* etcd_server.h: a real etcd of one member for one test, with a folder of its own, removed with the
 * test.
 *
 *   static etcd_server *server;
 *   if (!etcd_server_start(&server, NULL)) skip();       prints that etcd is missing
 *   ... etcd_server_uri(server) ... etcd_server_ask(server, "/v3/kv/range", "{...}") ...
 *   etcd_server_stop(server);
 *
 * The server listens on free ports below 32768 of 127.0.0.1, has a short election timeout, so that
 * leases of 1 s are granted, and is killed when the test's main thread ends. Any error ends the
 * test with a message. */
#ifndef TESTS_ETCD_SERVER_H
#define TESTS_ETCD_SERVER_H

typedef struct etcd_server etcd_server;

/* Starts the server and waits until it answers. `args`: further arguments, up to NULL, or NULL.
 * Returns 0 when etcd isn't installed. */
int etcd_server_start(etcd_server **ret, const char *const *args);
/* Kills the server and removes its folder. NULL is allowed. */
void etcd_server_stop(etcd_server *server);

/* "etcd://127.0.0.1:PORT"; owned by the server. */
const char *etcd_server_uri(const etcd_server *server);
int etcd_server_port(const etcd_server *server);
const char *etcd_server_folder(const etcd_server *server);

/* SIGSTOP; SIGCONT; SIGKILL; a new start with the same data. */
void etcd_server_pause(etcd_server *server);
void etcd_server_resume(etcd_server *server);
void etcd_server_kill(etcd_server *server);
void etcd_server_restart(etcd_server *server);

/* Sends a POST. Returns the reply's body, valid until the next call. Not for a server with TLS. */
const char *etcd_server_ask(etcd_server *server, const char *path, const char *body);

#endif
