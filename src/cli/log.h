/* log.h: shared by the files of corral log. */
#ifndef CORRAL_CLI_LOG_H
#define CORRAL_CLI_LOG_H

#include "cli.h"

#include <corral/log.h>
#include <corral/stats.h>

enum { LOG_NAME = 40, LOG_DETAIL = 256, LOG_PROGRAM = 64, LOG_CACHE = 256 };

typedef struct log_wish {
  const char *key; /* a prefix, or a pattern; NULL: all */
  bool has_events, events[CORRAL_EVENT_COUNT];
  int64_t min_ms;
  int64_t for_ms; /* -1: until a signal */
  bool past;      /* also the events before the beginning */
} log_wish;

/* An event, with the texts that it has beside its own. */
typedef struct log_line {
  corral_logged logged; /* `name` and `detail` aren't valid */
  uint64_t missed;      /* events of its process between the one before and this one */
  bool is_wanted;
  char name[LOG_NAME], detail[LOG_DETAIL], program[LOG_PROGRAM], cache[LOG_CACHE], store[LOG_CACHE];
} log_line;

/* log.c: prints a line, and what was missed before it. */
void log_print(const cli_globals *cli, const log_line *line);

/* ---- log_files.c: reads the stats files ---------------------------------------------------- */

/* A stats file, and how far it was read. */
typedef struct log_file {
  uint64_t id, number; /* of the last event that was read */
  uint64_t look;       /* the last look that found the file */
} log_file;

typedef struct log_files {
  const cli_globals *cli;
  const log_wish *wish;
  log_file *files; /* by id */
  size_t count, room;
  log_line *lines; /* of this look */
  size_t filled;
  uint64_t look; /* number of this look, from 1 on */
  bool failed;   /* which was reported */
  /* of the file that is being read */
  const corral_stats *stats;
  log_file *file;
} log_files;

/* Reads what is new in all files, and prints it in the order of time. False: it failed. */
bool log_look(log_files *files);
void log_files_clean(log_files *files);

#endif
