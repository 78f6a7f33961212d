/* folder_kit.h: a temporary folder in /tmp for each test group, as setup and teardown. */
#ifndef FOLDER_KIT_H
#define FOLDER_KIT_H

#include <stdio.h>
#include <stdlib.h>

static char folder[64];

static inline int make_folder(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/corral-test-XXXXXX");
  return mkdtemp(folder) != NULL ? 0 : -1;
}

static inline int remove_folder(void **state) {
  char command[96];
  (void)state;
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command) == 0 ? 0 : -1;
}

#endif
