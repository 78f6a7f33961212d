/* stats_kit.h: corrals that count in the folder of the test (folder_kit.h), and what is read there.
 * Include it after cmocka.h. */
#ifndef STATS_KIT_H
#define STATS_KIT_H

#include <corral/stats.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder_kit.h"

static int events_told[CORRAL_EVENT_COUNT];

static inline void on_event_told(const corral_event_info *info, void *arg) {
  (void)arg;
  events_told[info->event]++;
}

/* A corral with a store of its own; its options are those of the test. */
static inline corral *open_counting(const char *dir, int64_t near_bytes, int hooked) {
  corral *c;
  corral_error error;
  if (corral_open(CORRAL_OPTIONS(.store = "memory:", .name_space = "n", .stats_dir = dir,
                                 .near_bytes = near_bytes,
                                 .policy = CORRAL_POLICY(.ttl_ms = 3600000),
                                 .on_event = hooked ? on_event_told : NULL),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static inline int compute_one(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "1", 1);
}

/* One call for the key "NUMBER". */
static inline int get_number(corral *c, int number) {
  char key[16];
  corral_value *value = NULL;
  int len = snprintf(key, sizeof key, "%d", number);
  int status = corral_get_or_compute(c, key, (size_t)len, NULL, compute_one, NULL, &value);
  corral_value_unref(value);
  return status;
}

/* So many calls, each of which computes. */
static inline void compute_some(corral *c, int count) {
  for (int i = 0; i < count; i++) assert_int_equal(get_number(c, i), CORRAL_OK);
}

/* ---- what is in the folder ----------------------------------------------------------------- */

static inline int count_files(const char *dir) {
  int count = 0;
  DIR *open = opendir(dir);
  if (open == NULL) return 0;
  for (const struct dirent *e; (e = readdir(open)) != NULL;) count += e->d_name[0] != '.';
  closedir(open);
  return count;
}

/* The path of one file of the folder. */
static inline void find_file(const char *dir, char ret[256 + ROOM_PATH]) {
  DIR *open = opendir(dir);
  assert_non_null(open);
  ret[0] = '\0';
  for (const struct dirent *e; (e = readdir(open)) != NULL;)
    if (e->d_name[0] != '.') snprintf(ret, 256 + ROOM_PATH, "%s/%s", dir, e->d_name);
  closedir(open);
  assert_true(ret[0] != '\0');
}

typedef struct seen {
  corral_stats *sum;
  int files, living;
  uint64_t id;
} seen;

static inline int see(const corral_stats *stats, void *arg) {
  seen *s = arg;
  s->files++;
  s->living += corral_stats_pid(stats) != 0;
  s->id = corral_stats_id(stats);
  return corral_stats_add(s->sum, stats);
}

/* The caller frees the sum. */
static inline seen see_host(const char *dir) {
  corral_error error;
  seen s = {.sum = corral_stats_new()};
  assert_non_null(s.sum);
  if (corral_stats_host(dir, see, &s, &error) != CORRAL_OK) fail_msg("%s", error.text);
  return s;
}

static inline uint64_t computes_of_host(const char *dir) {
  seen s = see_host(dir);
  uint64_t computes = corral_stats_events(s.sum, CORRAL_EVENT_COMPUTE);
  corral_stats_free(s.sum);
  return computes;
}

static inline corral_stats *read_of(corral *c) {
  corral_stats *stats;
  corral_error error;
  if (corral_stats_read(c, &stats, &error) != CORRAL_OK) fail_msg("%s", error.text);
  return stats;
}

/* All calls whose end was counted. */
static inline uint64_t all_results(const corral_stats *stats) {
  uint64_t sum = 0;
  for (int i = 0; i < CORRAL_RESULT_COUNT; i++)
    sum += corral_stats_results(stats, (corral_result)i);
  return sum;
}

#endif
