/* file.h: the stats file of a corral, in the stats folder.
 *
 * A file is named by what it counts, and a number: "HASH.N". The hash is of the layout, the
 * namespace and the store. A process takes a number whose file no other process has locked, made
 * anew or left by a process that has ended: of the first 32 the lowest, of more any one. The lock
 * is one of the open file description (fcntl(2)): the descriptor holds it and, in a file system
 * without layers, the mapping, too, when a program has closed the descriptor. It ends with the
 * process; a forked child gives up both.
 *
 * The room is reserved before the file is mapped: a full folder is no file, never a signal. */
#ifndef CRL_STATS_FILE_H
#define CRL_STATS_FILE_H

#include "stats/stats.h"

typedef struct crl_stats_options {
  const char *dir;   /* option stats_dir; NULL: default */
  const char *cache; /* namespace */
  const char *store; /* URI without secrets */
} crl_stats_options;

/* The files of one layout, namespace and store. */
enum { CRL_STATS_FILES = 4096 };

/* After crl_stats_open: remembers the options, which are copied. No I/O. CORRAL_ENOMEM. */
int crl_stats_file_open(crl_stats *stats, const crl_stats_options *options);
/* At the first use, before anything is counted: the block becomes the mapping of a file. CORRAL_OK:
 * also where it is to have none. Else *error says why there is none, and the block stays as it
 * is. */
int crl_stats_file_begin(crl_stats *stats, corral_error *error);
/* At the end: gives the file up to later processes. */
void crl_stats_file_close(crl_stats *stats);

#endif
