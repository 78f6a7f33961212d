/* hostmap.c: what the processes of a host tell each other of which server has which keys. */
#include "election/hostmap.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/env.h"
#include "os/hash.h"

/* Regions begin behind the host lock's notes; two stores may share one, and then overwrite each
 * other. */
enum { FIRST = 1 << 20, REGION = 1 << 20, REGIONS = 64 };

static const char name[] = "~map";

typedef struct head {
  uint8_t scope[16];
  /* crl_env_boot_ms; 0: never. When the store was asked last; when the map was told; and when the
   * store was asked for that one */
  int64_t asked, told, of;
  uint64_t len, digest;
} head;

void crl_hostmap_init(crl_hostmap *map, crl_hostlock *lock, const char *scope) {
  map->lock = lock;
  crl_digest(scope, strlen(scope), map->scope);
}

static off_t region_of(const crl_hostmap *map) {
  return FIRST + (off_t)(map->scope[0] % REGIONS) * REGION;
}

/* True where a file may grow so far: to exceed the limit would raise a signal. */
static int may_write(void) {
  struct rlimit most;
  return getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur >= FIRST + (rlim_t)REGIONS * REGION;
}

static int writes(int fd, off_t at, const void *data, size_t size) {
  ssize_t done;
  while ((done = pwrite(fd, data, size, at)) < 0 && errno == EINTR) {
  }
  return done == (ssize_t)size;
}

static int reads(int fd, off_t at, void *data, size_t size) {
  ssize_t done;
  while ((done = pread(fd, data, size, at)) < 0 && errno == EINTR) {
  }
  return done == (ssize_t)size;
}

/* True where only this user can have written what is there. */
static int is_own(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int is_recent(int64_t at, int64_t now) { return at <= now && now - at < CRL_HOSTMAP_MS; }

/* Reads the head of this store; 0: another one is there, or none. */
static int read_head(const crl_hostmap *map, int fd, head *ret) {
  return reads(fd, region_of(map), ret, sizeof *ret) &&
         memcmp(ret->scope, map->scope, sizeof ret->scope) == 0;
}

static crl_turn wait_for_byte(crl_hostmap *map, int64_t now) {
  if (map->busy == 0) map->busy = now;
  return now - map->busy < CRL_HOSTMAP_BUSY_MS ? CRL_TURN_LATER : CRL_TURN_ASK;
}

static int read_map(const crl_hostmap *map, int fd, const head *h, void *room, size_t size) {
  return h->len <= size && is_own(fd) &&
         reads(fd, region_of(map) + (off_t)sizeof *h, room, h->len) &&
         crl_digest64(room, h->len) == h->digest;
}

crl_turn crl_hostmap_take(void *arg, int64_t age_ms, void *room, size_t size, size_t *len) {
  crl_hostmap *map = arg;
  head h;
  int64_t now = crl_env_boot_ms();
  int hold, status = crl_hostlock_take(map->lock, name, sizeof name, &hold, NULL);
  if (status == CORRAL_EBUSY) return wait_for_byte(map, now);
  map->busy = 0;
  if (status != CORRAL_OK) return CRL_TURN_ASK;
  crl_turn turn = CRL_TURN_ASK;
  int is_there = read_head(map, hold, &h);
  if (is_there && is_recent(h.told, now) && h.of > now - age_ms &&
      read_map(map, hold, &h, room, size)) {
    *len = h.len;
    turn = CRL_TURN_HAVE;
  } else if (is_there && is_recent(h.asked, now)) {
    turn = CRL_TURN_LATER;
  } else if (may_write()) {
    if (!is_there) h = (head){.asked = 0};
    memcpy(h.scope, map->scope, sizeof h.scope);
    h.asked = map->asked = now;
    (void)writes(hold, region_of(map), &h, sizeof h);
  }
  crl_hostlock_give(hold);
  return turn;
}

/* Tells nothing while another process has the byte: the others ask again then. */
void crl_hostmap_tell(void *arg, const void *bytes, size_t len) {
  crl_hostmap *map = arg;
  head h;
  int hold;
  if (len > REGION - sizeof h || !may_write() ||
      crl_hostlock_take(map->lock, name, sizeof name, &hold, NULL) != CORRAL_OK)
    return;
  if (read_head(map, hold, &h) && map->asked > h.of &&
      writes(hold, region_of(map) + (off_t)sizeof h, bytes, len)) {
    h.told = crl_env_boot_ms();
    h.of = map->asked;
    h.len = len;
    h.digest = crl_digest64(bytes, len);
    (void)writes(hold, region_of(map), &h, sizeof h);
  }
  crl_hostlock_give(hold);
}
