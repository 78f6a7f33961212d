/* etcd_server.h: a real etcd of one member for a test: its own, in its own folder, gone with the
 * test.
 *
 *   static etcd_server *server;
 *   if (!etcd_server_start(&server, NULL)) skip();       says on stderr that etcd is missing
 *   ... etcd_server_uri(server) ... etcd_server_ask(server, "/v3/kv/range", "{...}") ...
 *   etcd_server_stop(server);
 *
 * It listens on free ports below 32768 of 127.0.0.1, has a short election timeout, so that leases
 * of 1 s are granted, and is killed when the test's main thread ends. Whatever can't be done ends
 * the test with a message. */
#ifndef TESTS_ETCD_SERVER_H
#define TESTS_ETCD_SERVER_H

typedef struct etcd_server etcd_server;

/* Starts it and waits until it serves. `args`: further arguments, up to NULL, or NULL. 0 when there
 * is no etcd. */
int etcd_server_start(etcd_server **ret, const char *const *args);
/* Kills it and removes its folder. NULL is allowed. */
void etcd_server_stop(etcd_server *server);

/* "etcd://127.0.0.1:PORT"; the server's. */
const char *etcd_server_uri(const etcd_server *server);
int etcd_server_port(const etcd_server *server);
const char *etcd_server_folder(const etcd_server *server);

/* SIGSTOP; SIGCONT; SIGKILL; start again with the same data. */
void etcd_server_pause(etcd_server *server);
void etcd_server_resume(etcd_server *server);
void etcd_server_kill(etcd_server *server);
void etcd_server_restart(etcd_server *server);

/* A POST; the reply's body, valid until the next ask. Not for a server with TLS. */
const char *etcd_server_ask(etcd_server *server, const char *path, const char *body);

#endif
