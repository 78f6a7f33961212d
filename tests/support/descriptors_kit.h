/* descriptors_kit.h: how many descriptors this process has open. */
#ifndef DESCRIPTORS_KIT_H
#define DESCRIPTORS_KIT_H

#include <dirent.h>

/* The one that counts them is among them. */
static inline int open_descriptors(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/fd");
  if (dir == NULL) return 0;
  while (readdir(dir) != NULL) count++;
  closedir(dir);
  return count;
}

#endif
