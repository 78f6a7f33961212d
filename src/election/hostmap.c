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
  int64_t asked, told; /* crl_env_boot_ms; 0: never */
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

crl_turn crl_hostmap_take(void *arg, void *room, size_t size, size_t *len) {
  crl_hostmap *map = arg;
  head h;
  int hold, status = crl_hostlock_take(map->lock, name, sizeof name, &hold, NULL);
  if (status == CORRAL_EBUSY) return CRL_TURN_LATER;
  if (status != CORRAL_OK) return CRL_TURN_ASK;
  int64_t now = crl_env_boot_ms();
  crl_turn turn = CRL_TURN_ASK;
  int is_there = read_head(map, hold, &h);
  if (is_there && is_recent(h.told, now) && h.len <= size && is_own(hold) &&
      reads(hold, region_of(map) + (off_t)sizeof h, room, h.len) &&
      crl_digest64(room, h.len) == h.digest) {
    *len = h.len;
    turn = CRL_TURN_HAVE;
  } else if (is_there && is_recent(h.asked, now)) {
    turn = CRL_TURN_LATER;
  } else if (may_write()) {
    h = (head){.asked = now};
    memcpy(h.scope, map->scope, sizeof h.scope);
    (void)writes(hold, region_of(map), &h, sizeof h);
  }
  crl_hostlock_give(hold);
  return turn;
}

/* Another process has the byte for moments only; if it has it now, it asks for itself. */
void crl_hostmap_tell(void *arg, const void *bytes, size_t len) {
  crl_hostmap *map = arg;
  head h;
  int hold;
  if (len > REGION - sizeof h || !may_write() ||
      crl_hostlock_take(map->lock, name, sizeof name, &hold, NULL) != CORRAL_OK)
    return;
  if (read_head(map, hold, &h) && writes(hold, region_of(map) + (off_t)sizeof h, bytes, len)) {
    h.told = crl_env_boot_ms();
    h.len = len;
    h.digest = crl_digest64(bytes, len);
    (void)writes(hold, region_of(map), &h, sizeof h);
  }
  crl_hostlock_give(hold);
}
