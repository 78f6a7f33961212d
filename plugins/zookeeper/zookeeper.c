/* zookeeper.c: locks on Apache ZooKeeper, by its recipe for locks: the table, the URI, the watch.
 *
 *   zookeeper://[user:password@]host[:port][,host[:port]...][/chroot][?session=10s]
 *
 * Default port 2181. Servers 3.5 or later. With user and password (scheme "digest") only that user
 * may access the nodes, else any user may.
 *
 * The queue. A lock is the container node CHROOT/corral-locks/NAME (the server removes it once it
 * is empty); NAME is the key with all bytes but A-Z a-z 0-9 _ - . as %XX, or "%h" and a 128-bit
 * hash where that is longer than 200 bytes. A token's place in the queue is an ephemeral sequential
 * child x-TOKEN-NUMBER (exclusive) or s-TOKEN-NUMBER (shared). An exclusive place is granted when
 * no lower number is left, a shared one when no exclusive place is below it. A waiter watches only
 * the next lower node that is in its way, so a release wakes one waiter. A node whose create got no
 * reply is found again by its token.
 *
 * The fencing token is the zxid of the write that made the node. On an ensemble it grows for ever,
 * even when the container is made anew and numbers begin again. Numbers of one queue and their
 * zxids grow together, and a hold begins when nothing is in its way: an exclusive hold began after
 * all lower nodes were gone and before the hold of any higher one, so its zxid is larger than that
 * of each earlier hold. Shared holds that overlap have their zxids in the order of their nodes,
 * whichever of them learned first that it was granted.
 *
 * End of a hold. Nodes live as long as the session of the process that made them (one session for
 * each corral), not for lease_ms. So a hold ends
 *   - when its process is dead, stopped or cut off for the session timeout: by the server;
 *   - when lease_ms have passed without LOCK_EXTEND: by a thread of this process, on the monotonic
 *     clock, which removes the node as soon as the server can be reached.
 * The second end can't happen while the first one's condition holds, so other processes wait for
 * the longer of the two at most. The holder can rely on the shorter one: left_ms is no more than
 * the session timeout that the server granted (2 to 20 of its ticks, unless configured otherwise).
 * LOCK_EXTEND writes to the node, so the ensemble's leader itself confirms that session and node
 * still exist. The same thread removes the place of a waiter whose wish (ttl_ms) has been over for
 * seconds, and that of a token of which it isn't known whether it has a node.
 *
 * The client library repairs a lost connection, and the session with its holds goes on; operations
 * under way are EINDOUBT. When the server says that the session is over, so are all its holds:
 * their tokens are ELOST (left_ms -1, since the next in the queue may have the lock), and the
 * handle is broken.
 *
 * LOCK_SHOW has no server's clock to ask: its store time is this host's wall clock, its times are
 * those of the servers' writes. A store is not usable across a fork, since the library's threads
 * stay behind. Resolving a host's name knows no limit, so a thread does it, and only close waits
 * for that. */
#include "zk.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PORT = 2181, HOSTS_MOST = 64, HOST_MOST = 255, SESSION_MS = 10000, NEWS = 256 };

struct zk_watch {
  zk_watch *next;
  zk_store *store;
  int fd;
  size_t count; /* hashes in `news`; NEWS + 1: there were more */
  uint64_t news[NEWS];
};

/* ---- the URI ------------------------------------------------------------------------------- */

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

/* Length of "host" or "[address]" before a port or the end; 0: it is neither. */
static size_t host_len(const char *text, size_t len) {
  const char *stop = memchr(text, text[0] == '[' ? ']' : ':', len);
  size_t used = stop == NULL ? len : (size_t)(stop - text);
  if (text[0] == '[') used = stop == NULL || used < 3 ? 0 : used + 1;
  for (size_t i = 0; i < used; i++)
    if (!isalnum((unsigned char)text[i]) && strchr("-._:[]", text[i]) == NULL) return 0;
  return used <= HOST_MOST ? used : 0;
}

/* Appends "host:port" to `to`, with the default port if none is given; 0: the text is neither. */
static int add_server(char *to, size_t room, const char *text, size_t len) {
  size_t used = len > 0 ? host_len(text, len) : 0, at = strlen(to);
  long port = PORT;
  char *end;
  if (used == 0) return 0;
  if (used < len) {
    port = strtol(text + used + 1, &end, 10);
    if (text[used] != ':' || !isdigit((unsigned char)text[used + 1]) || end != text + len ||
        port < 1 || port > 65535)
      return 0;
  }
  /* the library takes the text behind the last colon for the port, and knows no brackets */
  int bracketed = text[0] == '[';
  return snprintf(to + at, room - at, "%s%.*s:%ld", at > 0 ? "," : "", (int)used - 2 * bracketed,
                  text + bracketed, port) < (int)(room - at);
}

static int read_hosts(zk_store *st, const corral_uri *uri, corral_error *error) {
  const char *text = uri->hosts != NULL && uri->hosts[0] != '\0' ? uri->hosts : "127.0.0.1";
  size_t room = strlen(text) + 1, count = 1;
  for (const char *at = text; *at != '\0'; at++) count += *at == ',';
  if (count > HOSTS_MOST) return bad_uri(st->host, uri, error, "more than 64 hosts");
  room += count * sizeof ":65535,";
  st->servers = calloc(1, room);
  if (st->servers == NULL) return st->host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  for (size_t len;; text += len + 1) {
    len = strcspn(text, ",");
    if (!add_server(st->servers, room, text, len))
      return bad_uri(st->host, uri, error,
                     "accepted are host, host:port, [address]:port, separated by commas");
    if (text[len] == '\0') break;
  }
  return CORRAL_OK;
}

/* "", "/" or "/a/b": elements that ZooKeeper accepts. */
static int read_chroot(zk_store *st, const corral_uri *uri, corral_error *error) {
  size_t len = strlen(uri->path);
  if (len > 0 && uri->path[len - 1] == '/') len--;
  if (len > CRL_ZK_CHROOT) return bad_uri(st->host, uri, error, "the chroot has 200 bytes at most");
  for (size_t i = 0; i < len; i++) {
    const char *part = uri->path + i + 1;
    if ((unsigned char)uri->path[i] < ' ' || (unsigned char)uri->path[i] > '~')
      return bad_uri(st->host, uri, error, "the chroot has a byte that is no printable ASCII");
    if (uri->path[i] != '/') continue;
    size_t part_len = i + 1 < len ? strcspn(part, "/") : 0;
    if (part_len == 0 || (part[0] == '.' && (part_len == 1 || (part[1] == '.' && part_len == 2))))
      return bad_uri(st->host, uri, error,
                     "a chroot is /NAME/NAME..., without empty names, . and ..");
  }
  snprintf(st->root, sizeof st->root, "%.*s/corral-locks", (int)len, uri->path);
  return CORRAL_OK;
}

static int read_user(zk_store *st, const corral_uri *uri, corral_error *error) {
  if (uri->user == NULL && uri->password == NULL) return CORRAL_OK;
  if (uri->user == NULL || uri->password == NULL || strchr(uri->user, ':') != NULL)
    return bad_uri(st->host, uri, error,
                   "accepted is user:password, both or none, and no ':' in the user");
  size_t room = strlen(uri->user) + strlen(uri->password) + 2;
  st->auth = malloc(room);
  if (st->auth == NULL) return st->host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  snprintf(st->auth, room, "%s:%s", uri->user, uri->password);
  return CORRAL_OK;
}

static int read_uri(zk_store *st, const corral_uri *uri, corral_error *error) {
  int status = st->host->uri_check(uri, "session", error);
  if (status == CORRAL_OK) status = read_hosts(st, uri, error);
  if (status == CORRAL_OK) status = read_chroot(st, uri, error);
  if (status == CORRAL_OK) status = read_user(st, uri, error);
  st->session_ms = SESSION_MS;
  return status != CORRAL_OK
             ? status
             : st->host->uri_number(uri, "session", "ms", 400, 600000, &st->session_ms, error);
}

/* ---- open, close, connect, disconnect ------------------------------------------------------ */

/* Joins and frees the sessions whose threads have ended; `all`: waits for the other threads too. */
static void reap(zk_store *st, int all) {
  zk_session *over = NULL;
  pthread_mutex_lock(&st->mutex);
  for (zk_session **at = &st->sessions, *s; (s = *at) != NULL;) {
    if (!all && !atomic_load(&s->over)) {
      at = &s->next;
      continue;
    }
    *at = s->next;
    s->next = over;
    over = s;
  }
  pthread_mutex_unlock(&st->mutex);
  for (zk_session *s; (s = over) != NULL;) {
    over = s->next;
    crl_zk_session_join(s);
  }
}

static void close_store(void *arg) {
  zk_store *st = arg;
  /* in a child of a fork, without the threads */
  if (st->pid != getpid() && st->sessions != NULL) return;
  reap(st, 1);
  pthread_mutex_destroy(&st->mutex);
  free(st->servers);
  if (st->auth != NULL) explicit_bzero(st->auth, strlen(st->auth));
  free(st->auth);
  free(st);
}

static void tell(zk_store *st, uint64_t hash) {
  static const uint64_t one = 1;
  pthread_mutex_lock(&st->mutex);
  for (zk_watch *w = st->watches; w != NULL; w = w->next) {
    if (w->count < NEWS) w->news[w->count] = hash;
    if (w->count <= NEWS) w->count++;
    if (w->count == 1) (void)!write(w->fd, &one, sizeof one);
  }
  pthread_mutex_unlock(&st->mutex);
}

static int open_store(const corral_host *host, const corral_uri *uri, void **ret_store,
                      corral_store_info *info, corral_error *error) {
  if (host->size < sizeof *host)
    return host->fail(error, CORRAL_EUNSUPPORTED, "the zookeeper plugin is newer than this corral");
  zk_store *st = calloc(1, sizeof *st);
  if (st == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  st->host = host;
  st->pid = getpid();
  st->tell = tell;
  st->sweep = crl_zk_sweep;
  pthread_mutex_init(&st->mutex, NULL);
  int status = read_uri(st, uri, error);
  if (status != CORRAL_OK) {
    close_store(st);
    return status;
  }
  snprintf(st->name, sizeof st->name, "zookeeper %.170s", st->servers);
  info->handles = 1;
  info->locks_only = 1;
  info->turns = 1; /* always */
  info->reach = CORRAL_REACH_FLEET;
  info->name = st->name;
  *ret_store = st;
  return CORRAL_OK;
}

static void disconnect(void *handle) {
  zk_session *s = handle;
  if (s->store->pid == getpid()) crl_zk_session_stop(s);
}

static int fail_session(const zk_store *st, int rc, corral_error *error) {
  switch (rc) {
    case ZAUTHFAILED:
      return st->host->fail(error, CORRAL_EAUTH, "%s: user and password are refused", st->name);
    case ZSESSIONEXPIRED:
      return st->host->fail(error, CORRAL_EUNAVAILABLE,
                            "%s: the session is over, and its holds with it", st->name);
    case ZBADARGUMENTS:
      return st->host->fail(error, CORRAL_EUNAVAILABLE, "%s: a host's name can't be resolved",
                            st->name);
    default:
      return st->host->fail(error, CORRAL_EUNAVAILABLE, "%s: no server gave a session in time",
                            st->name);
  }
}

static int connect_store(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  zk_store *st = store;
  if (st->pid != getpid()) st->pid = getpid();
  reap(st, 0);
  zk_session *s = crl_zk_session_new(st);
  if (s == NULL) return st->host->fail(error, CORRAL_ENOMEM, "no memory, or no thread, to connect");
  pthread_mutex_lock(&st->mutex);
  s->next = st->sessions;
  st->sessions = s;
  pthread_mutex_unlock(&st->mutex);
  int rc = crl_zk_session_wait(s, deadline);
  if (rc == ZOK) {
    *ret_handle = s;
    return CORRAL_OK;
  }
  crl_zk_session_stop(s);
  return fail_session(st, rc, error);
}

static int perform(void *handle, const corral_batch *batch, int64_t deadline, corral_error *error) {
  zk_session *s = handle;
  for (size_t i = 0; i < batch->count; i++) crl_zk_perform(s, corral_batch_op(batch, i), deadline);
  int rc = crl_zk_session_wait(s, 0);
  return rc == ZSESSIONEXPIRED || rc == ZAUTHFAILED ? fail_session(s->store, rc, error) : CORRAL_OK;
}

static void tell_names(zk_reply *got, const corral_listing *l) {
  char *name = got->names;
  size_t len;
  int ends = 0;
  for (size_t i = 0; i < got->count && !ends; i++) {
    char *next = name + strlen(name) + 1;
    const void *key = crl_zk_key(name, &len);
    ends = key != NULL && len >= l->prefix_len && memcmp(key, l->prefix, l->prefix_len) == 0 &&
           l->tell(l->arg, key, len) != 0;
    name = next;
  }
}

static int list(void *store, const corral_listing *l, corral_error *error) {
  zk_store *st = store;
  void *handle;
  zk_reply got;
  int64_t until = st->host->now_ms() + l->op_ms;
  int status = connect_store(st, until, &handle, error);
  if (status != CORRAL_OK) return status;
  int rc = crl_zk_names(handle, st->root, until, &got);
  if (rc == ZOK)
    tell_names(&got, l);
  else if (rc == ZNOAUTH)
    status = st->host->fail(error, CORRAL_EAUTH, "%s: this user may not list the locks", st->name);
  else
    status = fail_session(st, rc, error);
  free(got.names);
  disconnect(handle);
  return status;
}

/* ---- the watch ----------------------------------------------------------------------------- */

static int open_watch(void *arg, size_t server, int64_t deadline, void **ret_watch,
                      corral_error *error) {
  zk_store *st = arg;
  zk_watch *w = calloc(1, sizeof *w);
  (void)server, (void)deadline;
  if (w == NULL) return st->host->fail(error, CORRAL_ENOMEM, "no memory for a watch");
  w->store = st;
  w->fd = st->host->own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (w->fd < 0) {
    free(w);
    return st->host->fail(error, CORRAL_EIO, "eventfd: %s", strerror(errno));
  }
  pthread_mutex_lock(&st->mutex);
  w->next = st->watches;
  st->watches = w;
  pthread_mutex_unlock(&st->mutex);
  *ret_watch = w;
  return CORRAL_OK;
}

static size_t take_news(zk_watch *w, uint64_t news[NEWS]) {
  uint64_t number;
  pthread_mutex_lock(&w->store->mutex);
  size_t count = w->count;
  if (count > 0) (void)!read(w->fd, &number, sizeof number);
  memcpy(news, w->news, (count < NEWS ? count : NEWS) * sizeof *news);
  w->count = 0;
  pthread_mutex_unlock(&w->store->mutex);
  return count;
}

static int changes(void *arg, int stop_fd, int64_t until, void (*told)(void *arg, uint64_t hash),
                   void *told_arg, corral_error *error) {
  zk_watch *w = arg;
  const corral_host *host = w->store->host;
  struct pollfd fds[] = {{.fd = w->fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
  uint64_t news[NEWS];
  for (;;) {
    size_t count = take_news(w, news);
    for (size_t i = 0; i < count && count <= NEWS; i++) told(told_arg, news[i]);
    if (count > NEWS) told(told_arg, 0);
    int64_t left = until - host->now_ms();
    if (count > 0) return CORRAL_OK;
    int ready = poll(fds, 2, left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left);
    if (ready < 0 && errno != EINTR)
      return host->fail(error, CORRAL_EIO, "waiting for changes: %s", strerror(errno));
    if ((ready > 0 && fds[1].revents != 0) || (ready == 0 && left <= INT_MAX)) return CORRAL_OK;
  }
}

static void unwatch(void *arg) {
  zk_watch *w = arg, **at = &w->store->watches;
  if (w->store->pid == getpid()) {
    pthread_mutex_lock(&w->store->mutex);
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    pthread_mutex_unlock(&w->store->mutex);
  }
  close(w->fd);
  if (w->store->pid == getpid()) free(w);
}

const corral_store crl_plugin_zookeeper = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_PARALLEL,
    .op_size = sizeof(corral_op),
    .name = "zookeeper",
    .schemes = "zookeeper",
    .summary = "Apache ZooKeeper: locks only, with fair queues, freed with their process's session",
    .open = open_store,
    .close = close_store,
    .connect = connect_store,
    .disconnect = disconnect,
    .perform = perform,
    .watch = open_watch,
    .changes = changes,
    .unwatch = unwatch,
    .list = list,
};

CORRAL_PLUGIN(crl_plugin_zookeeper)
