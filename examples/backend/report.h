/* report.h: the expensive query, guarded. */
#ifndef BACKEND_REPORT_H
#define BACKEND_REPORT_H

#include "db.h"

enum { REGION_MOST = 32, REPORT_MS = 20000 }; /* bytes of a region's name; longest compute */

/* Source of the reports. Must outlive the corral that computes from it. */
typedef struct report_source {
  db_pool *pool;
  int stop_fd;
  char pause[16]; /* extra seconds that the query sleeps: "0.250" */
} report_source;

/* Writes "region:NAME" to a room of REPORT_TAG_ROOM bytes; returns its length. */
enum { REPORT_TAG_ROOM = REGION_MOST + 8 };
size_t report_tag(char room[REPORT_TAG_ROOM], const void *region, size_t len);

/* A corral_compute: the key is a region, `source` a report_source; the value is JSON. */
int report_compute(corral_fill *fill, const void *key, size_t key_len, void *source);

#endif
