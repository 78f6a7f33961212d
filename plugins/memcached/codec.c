/* codec.c: requests, by libmemcached. The only file that calls it, but for the map of servers.
 *
 * The library trusts its server with the process. 1.1.4 as packaged, answered by a scripted server: add and cas end the process
 * by an assertion at OK, END, DELETED, TOUCHED, STAT, ITEM, VERSION, VALUE or a number, cas also with an id of 0; get and cas crash at
 * a VERSION without number, get at a VALUE whose key is longer than 251 bytes (it is copied into so many) or whose length
 * is near 2^64, and takes the value of any other key for the one it asked for. Its time limits hold for each read, not for
 * the whole.
 *
 * So it never meets a server. The connection it has is to us: a socket pair, whose other end (`inlet`) holds, before each call,
 * the tamest reply there is to that request. The library writes the request, reads that reply and is content; the
 * request is then taken from the inlet and sent by wire.c, and the true reply is read by reply.c. What the
 * library sees never fails, never waits and never changes: it can't reconnect, retry, or meet an answer that it doesn't
 * like, and a cas id goes to the connection that it came from, as there is no other.
 *
 * To get that connection it is let connect to a port of ours on the loopback, once; its descriptor is then found by the two
 * addresses, which nobody else has, and the pair is put in its place.
 *
 * A large request doesn't fit into the pair: then the library writes from a thread of its own, for that one call, while
 * this one reads. When the server fails meanwhile, the rest is read and dropped, so that the library still notices nothing. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memcached.h"

enum {
  LARGE = 32 << 10,      /* values from here on are written by a thread */
  PAIR_BYTES = 212992,   /* Linux' default; less elsewhere would block the small requests */
  PATIENCE_MS = 5000     /* that the library would wait for us, should anything here be wrong */
};

static int no_codec(const crl_memcached_handle *h, corral_error *error, const char *what) {
  char why[128];
  return h->host->fail(error, CORRAL_EIO, "%s: libmemcached: %s: %s", h->server->name, what, strerror_r(errno, why, sizeof why));
}

/* ---- the library's connection ---------------------------------------------------------------------------- */

static int listen_here(struct sockaddr_in *at) {
  socklen_t len = sizeof *at;
  *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && listen(fd, 16) == 0 &&
      getsockname(fd, (struct sockaddr *)at, &len) == 0)
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static int is_at(int (*ask)(int, struct sockaddr *, socklen_t *), int fd, const struct sockaddr_in *at) {
  struct sockaddr_in is = {0};
  socklen_t len = sizeof is;
  return ask(fd, (struct sockaddr *)&is, &len) == 0 && is.sin_family == AF_INET && is.sin_port == at->sin_port &&
         is.sin_addr.s_addr == at->sin_addr.s_addr;
}

/* The descriptor of the connection from `from` to `to`, both on this host; -1 when there is none. */
static int descriptor_of(const struct sockaddr_in *from, const struct sockaddr_in *to) {
  struct rlimit most = {.rlim_cur = 1024};
  getrlimit(RLIMIT_NOFILE, &most);
  int end = most.rlim_cur > 1 << 20 ? 1 << 20 : (int)most.rlim_cur;
  for (int fd = 0; fd < end; fd++)
    if (is_at(getpeername, fd, to) && is_at(getsockname, fd, from)) return fd;
  return -1;
}

static int is_ready(int fd) {
  struct pollfd ready = {.fd = fd, .events = POLLIN};
  int n;
  do n = poll(&ready, 1, PATIENCE_MS);
  while (n < 0 && errno == EINTR);
  return n > 0;
}

/* Takes the library's connection, which is among those that wait at `listener`; -1 when it isn't. */
static int descriptor_behind(const crl_memcached_handle *h, int listener, const struct sockaddr_in *at) {
  in_port_t port = memcached_server_srcport(memcached_server_instance_by_position(h->codec, 0));
  for (;;) {
    struct sockaddr_in from = {0};
    socklen_t len = sizeof from;
    if (!is_ready(listener)) return -1;
    int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED)) continue;
    if (fd < 0) return -1;
    /* A stranger may connect as well, but not from the library's own port. */
    int found = ntohs(from.sin_port) == port ? descriptor_of(&from, at) : -1;
    close(fd);
    if (found >= 0 || ntohs(from.sin_port) == port) return found;
  }
}

/* Puts a socket pair in the place of the library's connection. */
static int take_over(crl_memcached_handle *h, int listener, const struct sockaddr_in *at) {
  const int room = PAIR_BYTES;
  const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
  int pair[2], fd = descriptor_behind(h, listener, at);
  if (fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return 0;
  setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  fcntl(pair[0], F_SETFL, 0); /* our end waits; the library's doesn't, as it expects */
  int taken = dup3(pair[1], fd, O_CLOEXEC) == fd;
  close(pair[1]);
  if (!taken) {
    close(pair[0]);
    return 0;
  }
  h->inlet = pair[0];
  h->outlet = fd;
  return 1;
}

static int put(const crl_memcached_handle *h, const char *reply) {
  size_t len = strlen(reply);
  return send(h->inlet, reply, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Reads the canned END: the library now awaits nothing. */
static int ends(crl_memcached_handle *h) {
  memcached_return_t rc;
  return memcached_fetch_result(h->codec, &h->result, &rc) == NULL && (rc == MEMCACHED_END || rc == MEMCACHED_NOTFOUND);
}

static int configure(memcached_st *codec) {
  static const struct {
    memcached_behavior_t name;
    uint64_t value;
  } settings[] = {
      {MEMCACHED_BEHAVIOR_NO_BLOCK, 1},     {MEMCACHED_BEHAVIOR_TCP_NODELAY, 1},
      {MEMCACHED_BEHAVIOR_VERIFY_KEY, 1},   {MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, PATIENCE_MS},
      {MEMCACHED_BEHAVIOR_SUPPORT_CAS, 0},  {MEMCACHED_BEHAVIOR_POLL_TIMEOUT, PATIENCE_MS},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (memcached_failed(memcached_behavior_set(codec, settings[i].name, settings[i].value))) return 0;
  return 1;
}

int crl_memcached_codec_open(crl_memcached_handle *h, corral_error *error) {
  const char *const key = "k";
  const size_t len = 1;
  struct sockaddr_in at;
  h->codec = memcached_create(NULL);
  if (h->codec == NULL || memcached_result_create(h->codec, &h->result) == NULL)
    return h->host->fail(error, CORRAL_ENOMEM, "no memory to connect");
  int listener = listen_here(&at);
  if (listener < 0) return no_codec(h, error, "no port on the loopback");
  int ok = configure(h->codec) && memcached_success(memcached_server_add(h->codec, "127.0.0.1", ntohs(at.sin_port))) &&
           memcached_success(memcached_mget(h->codec, &key, &len, 1)) && take_over(h, listener, &at) &&
           put(h, "END\r\n") && ends(h);
  if (!ok) no_codec(h, error, "it can't connect to us over the loopback");
  close(listener);
  return ok ? CORRAL_OK : CORRAL_EIO;
}

/* The library says goodbye and shuts its connection down. It does so on another one that nobody reads: in the child of a fork
 * the pair is still the parent's. */
static void part(crl_memcached_handle *h) {
  int pair[2];
  if (h->inlet < 0) return;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0) {
    dup3(pair[0], h->outlet, O_CLOEXEC);
    close(pair[0]);
    close(pair[1]);
  }
  close(h->inlet);
  h->inlet = -1;
}

void crl_memcached_codec_close(crl_memcached_handle *h) {
  part(h);
  if (h->codec == NULL) return;
  memcached_result_free(&h->result);
  memcached_free(h->codec);
  h->codec = NULL;
}

/* ---- requests -------------------------------------------------------------------------------------------- */

/* One call of the library; `said`: whether it did what it should. */
typedef struct call {
  crl_memcached_handle *h;
  const crl_memcached_request *request;
  int said;
} call;

static int say_get(crl_memcached_handle *h, const crl_memcached_request *r) {
  const char *keys[CRL_MEMCACHED_KEYS];
  size_t lens[CRL_MEMCACHED_KEYS];
  for (size_t i = 0; i < r->count; i++) {
    keys[i] = r->keys[i]->text;
    lens[i] = r->keys[i]->len;
  }
  return memcached_success(memcached_behavior_set(h->codec, MEMCACHED_BEHAVIOR_SUPPORT_CAS, r->command == CRL_MEMCACHED_GETS)) &&
         memcached_success(memcached_mget(h->codec, keys, lens, r->count)) && ends(h);
}

static void say(call *c) {
  const crl_memcached_request *r = c->request;
  const crl_memcached_key *key = r->keys[0];
  memcached_return_t rc = MEMCACHED_FAILURE;
  if (r->command == CRL_MEMCACHED_ADD) {
    rc = memcached_add(c->h->codec, key->text, key->len, r->value, r->size, (time_t)r->exptime, 0);
  } else if (r->command == CRL_MEMCACHED_CAS && r->cas != 0) {
    rc = memcached_cas(c->h->codec, key->text, key->len, r->value, r->size, (time_t)r->exptime, 0, r->cas);
  } else if (r->command == CRL_MEMCACHED_GET || r->command == CRL_MEMCACHED_GETS) {
    c->said = say_get(c->h, r);
    return;
  }
  c->said = rc == MEMCACHED_NOTSTORED;
}

static void *say_aside(void *arg) {
  call *c = arg;
  say(c);
  return NULL;
}

/* Sends on what the library writes, `size` bytes. When the server fails, the rest is dropped, and the first failure is told. */
static int forward(crl_memcached_handle *h, size_t size, int64_t deadline, corral_error *error) {
  int status = CORRAL_OK;
  while (size > 0) {
    /* Waits for all of it: the library writes 8 KiB at a time, and each would wake us. */
    ssize_t n = recv(h->inlet, h->out, size < sizeof h->out ? size : sizeof h->out, MSG_WAITALL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return no_codec(h, error, "a request came to no end");
    size -= (size_t)n;
    if (status == CORRAL_OK) status = crl_memcached_wire_write(&h->wire, h->out, (size_t)n, deadline, error);
  }
  return status;
}

static size_t digits(uint64_t number) {
  size_t count = 1;
  for (; number >= 10; number /= 10) count++;
  return count;
}

/* How many bytes the request has: "gets KEY KEY\r\n", or "cas KEY 0 EXPTIME SIZE CAS\r\nVALUE\r\n". */
static size_t length_of(const crl_memcached_request *r) {
  size_t keys = 0;
  for (size_t i = 0; i < r->count; i++) keys += 1 + r->keys[i]->len;
  if (r->command == CRL_MEMCACHED_GET) return 3 + keys + 2;
  if (r->command == CRL_MEMCACHED_GETS) return 4 + keys + 2;
  size_t cas = r->command == CRL_MEMCACHED_CAS ? 1 + digits(r->cas) : 0;
  return 3 + keys + 2 + 1 + digits((uint64_t)r->exptime) + 1 + digits(r->size) + cas + 2 + r->size + 2;
}

static int start(pthread_t *thread, call *c) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(thread, NULL, say_aside, c);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return failed == 0;
}

int crl_memcached_send(crl_memcached_handle *h, const crl_memcached_request *request, int64_t deadline, int *ret_sent,
                       corral_error *error) {
  int is_get = request->command == CRL_MEMCACHED_GET || request->command == CRL_MEMCACHED_GETS;
  call c = {.h = h, .request = request};
  pthread_t thread;
  int status;
  *ret_sent = 0;
  if (!put(h, is_get ? "END\r\n" : "NOT_STORED\r\n")) return no_codec(h, error, "no room for a reply");
  if (request->size < LARGE) {
    say(&c);
    if (!c.said) return no_codec(h, error, "it refused a request");
    status = forward(h, length_of(request), deadline, error);
  } else {
    if (!start(&thread, &c)) return no_codec(h, error, "no thread to write a large record");
    status = forward(h, length_of(request), deadline, error);
    if (status == CORRAL_EIO) shutdown(h->inlet, SHUT_RDWR); /* what never happens shall not hang either */
    pthread_join(thread, NULL);
  }
  if (!c.said) return no_codec(h, error, "it refused a request");
  *ret_sent = status == CORRAL_OK;
  return status;
}
