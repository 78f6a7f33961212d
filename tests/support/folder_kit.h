/* folder_kit.h: a temporary folder for each test group, as setup and teardown. */
#ifndef FOLDER_KIT_H
#define FOLDER_KIT_H

#include <stdio.h>
#include <stdlib.h>

#include "support/room.h"

static char folder[ROOM_PATH];

static inline int make_folder(void **state) {
  (void)state;
  room_folder(folder, "test");
  return 0;
}

static inline int remove_folder(void **state) {
  char command[96];
  (void)state;
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command) == 0 ? 0 : -1;
}

#endif
