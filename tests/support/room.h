/* room.h: folders for a test's files in the room of its run (tests/room.sh), which are removed with
 * the run even if it is killed; without a room in /tmp. */
#ifndef TESTS_ROOM_H
#define TESTS_ROOM_H

#include <stdio.h>
#include <stdlib.h>

enum { ROOM_STEM = 28, ROOM_PATH = 48 };

/* The beginning of a path, to which a name is appended: on disk; in memory where that is
 * possible. */
static inline const char *room_stem(const char *variable) {
  static char stem[ROOM_STEM];
  const char *room = getenv(variable);
  if (room == NULL || snprintf(stem, sizeof stem, "%s/", room) >= ROOM_STEM)
    snprintf(stem, sizeof stem, "/tmp/corral-");
  return stem;
}

static inline const char *room_on_disk(void) { return room_stem("CORRAL_ROOM"); }
static inline const char *room_in_memory(void) { return room_stem("CORRAL_SHM"); }

/* Makes a folder of a unique path; ends the test on an error. The caller removes it. */
static inline void room_folder(char ret_path[ROOM_PATH], const char *name) {
  int len = snprintf(ret_path, ROOM_PATH, "%s%s-XXXXXX", room_on_disk(), name);
  if (len < ROOM_PATH && mkdtemp(ret_path) != NULL) return;
  perror(ret_path);
  abort();
}

#endif
