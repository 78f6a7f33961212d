/* zk.h: declarations shared by the files of the ZooKeeper plugin.
 *
 *   zookeeper.c  the table, the URI, the watch
 *   session.c    a session: its thread, requests and events
 *   lock.c       the verbs: places in queues
 *   node.c       names, paths and data of nodes. Pure */
#ifndef CRL_ZK_H
#define CRL_ZK_H

#include <corral/plugin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <zookeeper.h>

enum { CRL_ZK_CHROOT = 200, CRL_ZK_PATH = 640, CRL_ZK_NODE = 52, CRL_ZK_TEXT = 192 };
enum { CRL_ZK_CONNECTING = 0, CRL_ZK_CONNECTED, CRL_ZK_EXPIRED, CRL_ZK_REFUSED, CRL_ZK_UNRESOLVED };

typedef struct zk_store zk_store;
typedef struct zk_session zk_session;
typedef struct zk_watch zk_watch;
typedef struct zk_request zk_request;

struct zk_store {
  const corral_host *host;
  char *servers, *auth; /* auth: "user:password"; NULL: none */
  char root[CRL_ZK_CHROOT + 32], name[192];
  int64_t session_ms;
  pid_t pid;
  /* Two functions for the sessions' threads. tell: reports to all watches that the lock with this
   * key hash was released; 0: any lock. sweep: removes the places whose end has come, and returns
   * when the next end comes; called with the session's mutex held, which it releases meanwhile. */
  void (*tell)(zk_store *st, uint64_t hash);
  int64_t (*sweep)(zk_session *s);
  pthread_mutex_t mutex; /* guards what follows; taken after a session's mutex, never before */
  zk_session *sessions;
  zk_watch *watches;
};

/* A token's place in a queue: a hold, a waiter, or a create without a reply. */
typedef struct zk_place {
  struct zk_place *next;
  uint8_t token[CORRAL_TOKEN];
  uint64_t hash, fence; /* `hash` is the key's */
  /* one operation works with it, without the mutex; all fields but `before` are that operation's */
  int busy;
  int shared, held;
  int doubt;    /* a node of unknown name may exist */
  int doomed;   /* the place is to be removed (see lock.c) */
  int64_t ends; /* when the place is doomed, host->now_ms */
  /* when the hold began, by the server's wall clock; 0: when its node was last written */
  int64_t since;
  size_t note_len;
  char note[CORRAL_LOCK_NOTE];
  /* `before`: name of the node in the same dir that is watched; "": none */
  char dir[CRL_ZK_PATH], node[CRL_ZK_NODE], before[CRL_ZK_NODE];
} zk_place;

typedef struct zk_child {
  int32_t number;
  char name[CRL_ZK_NODE];
} zk_child;

typedef struct zk_reply {
  int rc;
  struct Stat stat;
  char text[CRL_ZK_TEXT]; /* last part of a new node's path, or a node's data; terminated */
  size_t len, count;
  zk_child *children; /* the caller's to free, as are the names */
  char *names;        /* of `count` nodes, each with its NUL */
} zk_reply;

struct zk_session {
  zk_session *next; /* under the store's mutex */
  zk_store *store;
  pthread_t thread;
  atomic_int over;       /* the thread has nothing more to do */
  pthread_mutex_t mutex; /* guards what follows; not held while anything blocks */
  pthread_cond_t changed, wake;
  zhandle_t *zh;
  int state, stop;
  int64_t granted_ms; /* session timeout, as the server granted it */
  int64_t due;        /* when the thread looks at the places next, host->now_ms */
  zk_request *requests;
  zk_place *places;
};

/* ---- session.c ----------------------------------------------------------------------------- */

zk_session *crl_zk_session_new(zk_store *st);
/* Tells the session's thread to close it. crl_zk_session_join waits for that, and frees the
 * session. */
void crl_zk_session_stop(zk_session *s);
void crl_zk_session_join(zk_session *s);
/* Waits until the session is connected. ZOK, ZCONNECTIONLOSS (not by the deadline),
 * ZSESSIONEXPIRED, ZAUTHFAILED, ZBADARGUMENTS (no such host). */
int crl_zk_session_wait(zk_session *s, int64_t deadline);
int64_t crl_zk_now(const zk_session *s);
/* Waits for a condition; 0: `until` (host->now_ms) came first. */
int crl_zk_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until);

/* Requests. Each returns the reply's rc, or ZOPERATIONTIMEOUT when none came by the deadline. */
int crl_zk_create(zk_session *s, const char *path, const char *data, int len, int mode,
                  int64_t deadline, zk_reply *ret);
int crl_zk_delete(zk_session *s, const char *path, int64_t deadline);
int crl_zk_set(zk_session *s, const char *path, const char *data, int len, int64_t deadline,
               zk_reply *ret);
/* Reads a node. `watched`: places whose `before` is this node are woken when it goes, and shared
 * ones also when its hold becomes a shared one. */
int crl_zk_get(zk_session *s, const char *path, int watched, int64_t deadline, zk_reply *ret);
/* Lists the queue in order; empty when there is no such node. `synced`: as the leader of the
 * ensemble knows it, since a server may lag behind. */
int crl_zk_list(zk_session *s, const char *dir, int synced, int64_t deadline, zk_reply *ret);
/* Lists the names of all children; empty when there is no such node. */
int crl_zk_names(zk_session *s, const char *dir, int64_t deadline, zk_reply *ret);

/* ---- lock.c -------------------------------------------------------------------------------- */

void crl_zk_perform(zk_session *s, corral_op *op, int64_t deadline);
int64_t crl_zk_sweep(zk_session *s); /* zk_store.sweep */

/* ---- node.c -------------------------------------------------------------------------------- */

void crl_zk_dir(const zk_store *st, const void *key, size_t key_len, char dir[CRL_ZK_PATH]);
/* The key of the lock with this node name, of *key_len bytes in the room of the name; NULL: the
 * name has a hash of it. */
const void *crl_zk_key(char *name, size_t *key_len);
void crl_zk_path(const char *dir, const char *node, char path[CRL_ZK_PATH]);
/* Writes "x-TOKEN-" or "s-TOKEN-", to which the server adds the number. */
void crl_zk_stem(const uint8_t *token, int shared, char node[CRL_ZK_NODE]);
int crl_zk_is_of(const zk_child *c, const uint8_t *token);
/* Parses a node's name; 0: it is not the name of a place. */
int crl_zk_read_node(const char *name, zk_child *to);
int crl_zk_by_number(const void *a, const void *b);
/* Writes a node's data: "x" or "s", the hold's life, its beginning, and the note; returns its
 * length. */
int crl_zk_write_data(const zk_place *p, int64_t lease_ms, char data[CRL_ZK_TEXT]);
void crl_zk_read_hold(const zk_child *c, const zk_reply *got, int64_t wall, corral_hold *hold);

#endif
