/* folder.h: a temporary folder for a benchmark, removed when the benchmark ends. */
#ifndef BENCH_FOLDER_H
#define BENCH_FOLDER_H

#include <unistd.h>

#include "kit.h"

static char folder[] = "/tmp/corral-bench-XXXXXX";

static inline void remove_folder(void) {
  char line[128];
  snprintf(line, sizeof line, "rm -rf %s", folder);
  if (system(line) != 0)
    fprintf(stderr, "%s: %s stays behind\n", program_invocation_short_name, folder);
}

static inline void make_folder(void) {
  if (mkdtemp(folder) == NULL) die("no temporary folder");
  atexit(remove_folder);
}

#endif
