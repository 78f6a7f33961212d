/* descriptors_kit.h: counts the open descriptors of this process. */
#ifndef DESCRIPTORS_KIT_H
#define DESCRIPTORS_KIT_H

#include <dirent.h>

/* Includes the descriptor that reads the list. */
static inline int open_descriptors(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/fd");
  if (dir == NULL) return 0;
  while (readdir(dir) != NULL) count++;
  closedir(dir);
  return count;
}

#endif
