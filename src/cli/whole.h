/* whole.h: a file that appears, or is replaced, when it is whole: it is written beside its place,
 * and takes its name by a rename. */
#ifndef CORRAL_CLI_WHOLE_H
#define CORRAL_CLI_WHOLE_H

#include <limits.h>
#include <stdio.h>

/* Zero before its first use. */
typedef struct whole_file {
  FILE *file;              /* NULL: not open */
  char path[PATH_MAX];     /* behind symbolic links */
  char part[PATH_MAX + 8]; /* of the file beside it; "": none */
} whole_file;

/* These two answer NULL, or why they failed. A file that is there keeps its mode. */
const char *whole_open(whole_file *w, const char *path);
const char *whole_end(whole_file *w);
/* Removes the part of a file that was not ended. */
void whole_drop(whole_file *w);

#endif
