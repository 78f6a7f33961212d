/* plain.c: the plain client of a store: get, set, add and delete over one connection for each
 * thread, each with a time limit, after which the connection is closed. What both servers speak is
 * text: Redis takes inline commands. A file of LMDB: plain_lmdb.c. */
#include "weather.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../kit.h"

enum { OP_US = 250000, ROOM = 256 };

static store_kind kind;
static const char *path;
static _Thread_local int fd = -1;

void plain_open(store_kind of, const char *socket) {
  if (fd >= 0) close(fd);
  fd = -1;
  kind = of;
  path = socket;
  if (kind == STORE_LMDB) plain_lmdb_open(path);
}

/* The number of line ends that the reply needs, by its beginning; 0: not known yet. */
static int lines_of(const char *reply) {
  if (strchr(reply, '\n') == NULL) return 0;
  if (reply[0] == '$' && reply[1] != '-') return 2;
  return strncmp(reply, "VALUE ", 6) == 0 ? 3 : 1;
}

static int is_whole(const char *reply) {
  int lines = 0, wanted = lines_of(reply);
  for (const char *at = reply; (at = strchr(at, '\n')) != NULL; at++) lines++;
  return wanted > 0 && lines >= wanted;
}

/* Sends a command and reads the reply of at most ROOM - 1 bytes. 0: the store is away. */
static int talk(const char *command, char *reply) {
  int64_t until = clock_us() + OP_US;
  size_t len = strlen(command), got = 0;
  if (fd < 0) fd = socket_dial(path);
  if (fd < 0) return 0;
  int fine = send(fd, command, len, MSG_NOSIGNAL) == (ssize_t)len;
  for (reply[0] = '\0'; fine && !is_whole(reply);) {
    fine = got < ROOM - 1 && socket_await(fd, POLLIN, until);
    ssize_t n = fine ? recv(fd, reply + got, ROOM - 1 - got, 0) : 0;
    fine = n > 0;
    if (fine) reply[got += (size_t)n] = '\0';
  }
  if (fine) return 1;
  close(fd);
  fd = -1;
  return 0;
}

plain_status plain_get(const char *key, char *value) {
  char command[ROOM], reply[ROOM];
  if (kind == STORE_LMDB) return plain_lmdb_get(key, value);
  snprintf(command, sizeof command, kind == STORE_REDIS ? "GET %s\r\n" : "get %s\r\n", key);
  if (!talk(command, reply)) return PLAIN_AWAY;
  if (reply[0] != '$' && strncmp(reply, "VALUE ", 6) != 0) return PLAIN_MISS;
  if (strncmp(reply, "$-1", 3) == 0) return PLAIN_MISS;
  const char *begin = strchr(reply, '\n') + 1;
  size_t len = strcspn(begin, "\r");
  if (len >= TEXT) return PLAIN_MISS;
  memcpy(value, begin, len);
  value[len] = '\0';
  return PLAIN_OK;
}

static plain_status store(const char *key, const char *value, int64_t ttl_us, int adds) {
  char command[ROOM], reply[ROOM];
  if (kind == STORE_LMDB) return plain_lmdb_store(key, value, ttl_us, adds);
  if (kind == STORE_REDIS)
    snprintf(command, sizeof command, "SET %s %s PX %lld%s\r\n", key, value,
             (long long)(ttl_us / 1000), adds ? " NX" : "");
  else
    snprintf(command, sizeof command, "%s %s 0 %lld %zu\r\n%s\r\n", adds ? "add" : "set", key,
             (long long)((ttl_us + 999999) / 1000000), strlen(value), value);
  if (!talk(command, reply)) return PLAIN_AWAY;
  return reply[0] == '+' || reply[0] == 'S' ? PLAIN_OK : PLAIN_MISS;
}

plain_status plain_set(const char *key, const char *value, int64_t ttl_us) {
  return store(key, value, ttl_us, 0);
}

plain_status plain_add(const char *key, const char *value, int64_t ttl_us) {
  return store(key, value, ttl_us, 1);
}

plain_status plain_delete(const char *key) {
  char command[ROOM], reply[ROOM];
  if (kind == STORE_LMDB) return plain_lmdb_delete(key);
  snprintf(command, sizeof command, kind == STORE_REDIS ? "DEL %s\r\n" : "delete %s\r\n", key);
  return talk(command, reply) ? PLAIN_OK : PLAIN_AWAY;
}

plain_status plain_flush(void) {
  char reply[ROOM];
  if (kind == STORE_LMDB) return plain_lmdb_flush();
  return talk(kind == STORE_REDIS ? "FLUSHALL\r\n" : "flush_all\r\n", reply) ? PLAIN_OK
                                                                             : PLAIN_AWAY;
}
