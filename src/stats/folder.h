/* folder.h: the stats folder: its path, its vetting, its files, and how many they may be. */
#ifndef CRL_STATS_FOLDER_H
#define CRL_STATS_FOLDER_H

#include <dirent.h>
#include <stddef.h>
#include <sys/stat.h>

/* Files of processes that have ended stay, while there are no more than this in the folder, or 31
 * more. */
enum { CRL_STATS_FOLDER_MOST = 320, CRL_STATS_NAME = 32 };

/* The default folder of a user, of `size` bytes at most. */
void crl_stats_folder_of(char *text, size_t size, unsigned long uid);
/* True for the last part of such a path; *ret_uid: the user. */
int crl_stats_folder_is_users(const char *name, unsigned long *ret_uid);
/* Opens a folder that belongs to `uid`, with no symbolic link at its end, and which nobody else may
 * write to. -1 with errno; EPERM: it isn't so. */
int crl_stats_folder_open(const char *path, unsigned long uid);

/* Names in a folder, in their order; `all` is the caller's to free. */
typedef struct crl_stats_names {
  char (*all)[CRL_STATS_NAME];
  size_t count, room;
} crl_stats_names;

/* Lists the names of stats files ("HASH.N"), or of others that `fits` accepts. 0: no memory. */
int crl_stats_folder_list(DIR *open, crl_stats_names *ret, int (*fits)(const char *name));
int crl_stats_folder_is_file(const char *name);
/* True when the name is still that of this file. */
int crl_stats_folder_has(int dir, const char *name, const struct stat *st);
/* Lists the stats files of a folder that is open. 0: no memory, or the folder can't be read. */
int crl_stats_folder_files(int dir, crl_stats_names *ret);
/* When a file is made: of those that are too many, removes the ones whose processes have ended
 * first. Does so for the first that is too many, and then for each thirty-second: many processes
 * that begin at once don't each look through all files. */
void crl_stats_folder_sweep(int dir);

#endif
