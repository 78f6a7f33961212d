/* case_streams.c: in a process without standard streams, no socket and no file of the store gets
 * descriptor 0, 1 or 2: whatever the process prints would be written into it. */
#include "conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { STREAMS = 3, ASIDE = 100, ROUNDS = 2 };

typedef struct streams {
  int aside[STREAMS];
} streams;

/* Restores the streams: a leak checker may print at the end. */
static void put_back(void *arg) {
  streams *s = arg;
  for (int i = 0; i < STREAMS; i++) {
    (void)dup2(s->aside[i], i);
    (void)close(s->aside[i]);
  }
}

static void take_away(void) {
  streams *s = room(sizeof *s);
  for (int i = 0; i < STREAMS; i++) {
    s->aside[i] = fcntl(i, F_DUPFD_CLOEXEC, ASIDE);
    check(s->aside[i] >= 0, "this process has no descriptor %d to begin with", i);
  }
  undo_later(put_back, s);
}

static void close_all(void) {
  for (int i = 0; i < STREAMS; i++) (void)close(i);
}

static const char *kind_of(mode_t mode) {
  return S_ISSOCK(mode)   ? "a socket"
         : S_ISREG(mode)  ? "a file"
         : S_ISFIFO(mode) ? "a pipe"
                          : "of the store's";
}

/* Checks that each standard descriptor is closed, or /dev/null. */
static void look_at_all(const char *when) {
  for (int i = 0; i < STREAMS; i++) {
    struct stat st;
    if (fstat(i, &st) != 0) continue;
    check(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3), "%s, descriptor %d is %s", when, i,
          kind_of(st.st_mode));
  }
}

static void use_values(client *c) {
  key *k = key_new("k");
  record *r = record_new(k, 100, 1);
  fill(c, k, 1, r, LONG_MS);
  wants_value("a GET without standard streams", get(c, k), r);
}

static void use_locks(client *c) {
  key *k = lock_new("k");
  wants("a LOCK without standard streams", lock_take(c, k, 1, ALONE, LONG_MS).status, CORRAL_OK);
  wants("an UNLOCK without standard streams", unlock(c, k, 1).status, CORRAL_OK);
}

void case_a_store_takes_no_standard_descriptor(void) {
  take_away();
  for (int round = 0; round < ROUNDS; round++) {
    close_all();
    client *c = client_new();
    wants("connecting without standard streams", client_connect(c, now_ms() + LIMIT_MS), CORRAL_OK);
    look_at_all("connected");
    if (declared()->locks_only)
      use_locks(c);
    else
      use_values(c);
    look_at_all("used");
  }
}

void case_a_watch_takes_no_standard_descriptor(void) {
  key *k = declared()->locks_only ? lock_new("k") : key_new("k");
  take_away();
  close_all();
  watch *w = watch_new(k);
  look_at_all("with a watch opened");
  (void)watch_listen(w, -1, now_ms() + 1);
  look_at_all("with a watch used");
}
