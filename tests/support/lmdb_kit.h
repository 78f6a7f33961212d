/* lmdb_kit.h: files and processes for tests of the lmdb: store. */
#ifndef LMDB_KIT_H
#define LMDB_KIT_H

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork_kit.h"
#include "support/descriptors_kit.h"
#include "support/folder_kit.h"
#include "support/store_kit.h"

/* The path of a file in the test's folder; the last four returned paths are valid. */
static inline const char *file(const char *name) {
  static char rooms[4][160];
  static unsigned next;
  char *room = rooms[next++ % 4];
  snprintf(room, 160, "%s/%s", folder, name);
  return room;
}

static inline const char *address(const char *name, const char *params) {
  static char room[256];
  snprintf(room, sizeof room, "lmdb:%s%s", file(name), params);
  return room;
}

static inline void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static inline pid_t child(void) {
  pid_t pid = fork_at_rest();
  assert_true(pid >= 0);
  if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return pid;
}

static inline int ended(pid_t pid) {
  int end = -1;
  assert_int_equal(waitpid(pid, &end, 0), pid);
  return end;
}

/* A process that claims `key`, reports readiness, and then does nothing. With `heir` it forks a
 * child, *heir_pid, which lives until the test's own process ends. */
static inline pid_t stuck_leader(const char *uri, const char *key, int heir, pid_t *heir_pid) {
  int ready[2], life[2];
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(life), 0);
  pid_t pid = child();
  if (pid == 0) {
    kit k;
    close(life[1]);
    if (kit_open(&k, uri, NULL) != CORRAL_OK || verb(&k, CORRAL_VERB_CLAIM, key, 99) != CORRAL_OK)
      _exit(1);
    pid_t other = heir ? fork_at_rest() : 0;
    /* reports for itself: by then its start-up code has closed the inherited descriptors */
    if (heir && other == 0) {
      other = getpid();
      if (write(ready[1], &other, sizeof other) != (ssize_t)sizeof other) _exit(1);
      /* the heir may outlive the leader, but not the test */
      _exit(read(life[0], &other, 1) == 0 ? 0 : 1);
    }
    if (!heir && write(ready[1], &other, sizeof other) != (ssize_t)sizeof other) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  pid_t other;
  assert_int_equal(read(ready[0], &other, sizeof other), sizeof other);
  close(ready[0]);
  close(life[0]); /* the other end stays open as long as this process lives */
  if (heir_pid != NULL) *heir_pid = other;
  return pid;
}

/* A process that stays inside a transaction on the store's file: a read transaction (MDB_RDONLY),
 * which pins its snapshot, or a write transaction (0). */
static inline pid_t stuck_process(const char *path, unsigned kind) {
  int ready[2];
  char byte = 0;
  assert_int_equal(pipe(ready), 0);
  pid_t pid = child();
  if (pid == 0) {
    MDB_env *env;
    MDB_txn *txn;
    if (mdb_env_create(&env) != 0 ||
        mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOTLS, 0600) != 0 ||
        mdb_txn_begin(env, NULL, kind, &txn) != 0 || write(ready[1], &byte, 1) != 1)
      _exit(1);
    for (;;) pause();
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

static inline void refused(const char *uri, int status, const char *word) {
  kit k;
  corral_error error = {0};
  int got = kit_open(&k, uri, &error);
  if (got != status || strstr(error.text, word) == NULL)
    fail_msg("%s: %d: %s", uri, got, error.text);
  if (k.store != NULL) k.plugin->close(k.store);
}

/* Counters in memory shared by processes. */
typedef struct board {
  atomic_uint inside, wrong, led;
} board;

static inline board *new_board(void) {
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(b, MAP_FAILED);
  return b;
}

#endif
