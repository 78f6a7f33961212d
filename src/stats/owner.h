/* owner.h: the process that has a stats file: how it signs, and its forks. */
#ifndef CRL_STATS_OWNER_H
#define CRL_STATS_OWNER_H

#include <sys/stat.h>

#include "stats/stats.h"

/* A file of this process. */
typedef struct crl_stats_owned {
  struct crl_stats_owned *next, **link;
  crl_stats_block *block;
  int fd;
  dev_t dev;
  ino_t ino;
} crl_stats_owned;

/* Between these, nothing is forked, and the files of this process stay. */
void crl_stats_files_lock(void);
void crl_stats_files_unlock(void);
/* Between those: takes the descriptor over, which holds the lock: a forked child closes it, and has
 * the block as memory of its own. */
void crl_stats_own_file(crl_stats_owned *owned, crl_stats_block *block, int fd,
                        const struct stat *st);
/* Gives up the lock: closes the descriptor, unless the program has closed it, and opened another
 * one, and puts memory of this process, all zero, in place of the mapping. */
void crl_stats_disown_file(crl_stats_owned *owned);

/* The part of a block that is kept while it becomes that of a file. */
typedef struct crl_stats_sign {
  int64_t gauges[CORRAL_GAUGE_COUNT];
  char cache[CRL_TEXT_SIZE], store[CRL_TEXT_SIZE];
} crl_stats_sign;

void crl_stats_keep(crl_stats_block *block, crl_stats_sign *ret);
/* This process has the block from now on: writes who it is, and what was kept. A file's block has
 * its head then, and zero in all parts but the ring. */
void crl_stats_sign_block(crl_stats_block *block, const crl_stats_sign *kept, int is_file);
/* It has it no longer. */
void crl_stats_unsign_block(crl_stats_block *block);

/* True when a process has the file that was opened as `fd`. */
int crl_stats_file_is_owned(int fd);

#endif
