/* history_room.h: the lab and the history of one test, made and freed around it. */
#ifndef TESTS_HISTORY_ROOM_H
#define TESTS_HISTORY_ROOM_H

#include "support/history_kit.h"

static lab *current;
static history *entries;

static inline int history_room_open(void **state) {
  (void)state;
  current = lab_new();
  entries = history_new();
  return 0;
}

static inline int history_room_close(void **state) {
  (void)state;
  lab_free(current);
  history_free(entries);
  return 0;
}

#endif
