/* test_stats.c: the stats file: who has it, what becomes of it, and what is read of one that is
 * damaged, of another version, or not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <corral.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "stats/folder.h"
#include "stats/snapshot.h"
#include "support/events_kit.h"
#include "support/stats_kit.h"

enum { PATH = 256 + ROOM_PATH };

/* ---- one corral ---------------------------------------------------------------------------- */

static void what_a_corral_counts_is_read_back(void **state) {
  corral *c = open_counting(folder, 0, 0);
  (void)state;
  assert_int_equal(count_files(folder), 0); /* the first use makes it */
  compute_some(c, 3);
  compute_some(c, 2);
  seen s = see_host(folder);
  corral_stats *own = read_of(c);
  const corral_stats *both[] = {s.sum, own};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(corral_stats_results(both[i], CORRAL_RESULT_COMPUTED), 3);
    assert_int_equal(corral_stats_results(both[i], CORRAL_RESULT_FRESH), 2);
    assert_int_equal(all_results(both[i]), 5);
    assert_int_equal(corral_stats_events(both[i], CORRAL_EVENT_HIT), 2);
    assert_int_equal(corral_stats_gauge(both[i], CORRAL_GAUGE_SERVERS), 1);
    assert_int_equal(corral_stats_gauge(both[i], CORRAL_GAUGE_FLIGHTS), 0);
    assert_string_equal(corral_stats_cache(both[i]), "n");
    assert_string_equal(corral_stats_store(both[i]), "memory:");
    assert_string_equal(corral_stats_version(both[i]), corral_version());
    assert_non_null(strstr(corral_stats_program(both[i]), "test_stats"));
    assert_int_equal(corral_stats_pid(both[i]), getpid());
    assert_int_equal(corral_stats_uid(both[i]), geteuid());
    assert_int_equal(corral_stats_id(both[i]), s.id);
  }
  assert_int_equal(s.files, 1);
  assert_true(s.id != 0);
  corral_stats_free(own);
  corral_stats_free(s.sum);
  corral_close(c);
  s = see_host(folder);
  assert_int_equal(s.living, 0);
  assert_int_equal(corral_stats_gauge(s.sum, CORRAL_GAUGE_SERVERS), 0);
  assert_int_equal(corral_stats_results(s.sum, CORRAL_RESULT_COMPUTED), 3);
  corral_stats_free(s.sum);
}

static void a_corral_that_was_not_used_has_counted_nothing(void **state) {
  corral *c = open_counting(folder, 0, 0);
  (void)state;
  corral_stats *own = read_of(c);
  assert_int_equal(all_results(own), 0);
  assert_int_equal(corral_stats_id(own), 0);
  assert_int_equal(corral_stats_uid(own), -1);
  corral_stats_free(own);
  corral_close(c);
  assert_int_equal(count_files(folder), 0);
}

static void a_secret_of_the_store_is_not_shown(void **state) {
  corral *c;
  (void)state;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "redis://u:geheim@127.0.0.1:1/0", .stats_dir = folder),
                  &c, NULL),
      CORRAL_OK);
  (void)corral_get(c, "k", 1, CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 1)), NULL);
  corral_value *value = NULL;
  (void)corral_get(c, "k", 1, CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 1)), &value);
  seen s = see_host(folder);
  assert_int_equal(s.files, 1);
  assert_string_equal(corral_stats_store(s.sum), "redis://u:***@127.0.0.1:1/0");
  corral_stats_free(s.sum);
  corral_close(c);
}

/* ---- files of processes that have ended ---------------------------------------------------- */

/* A process that computes, and ends without closing; by a signal, or by its own end. */
static void run_and_end(int computes, int killed) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    corral *c = open_counting(folder, 0, 0);
    compute_some(c, computes);
    if (killed) raise(SIGKILL);
    _exit(0);
  }
  assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_later_process_goes_on_with_the_file_of_one_that_has_ended(void **state) {
  (void)state;
  run_and_end(4, 1);
  seen before = see_host(folder);
  assert_int_equal(before.living, 0);
  assert_int_equal(corral_stats_pid(before.sum), 0);
  run_and_end(5, 0);
  corral *c = open_counting(folder, 0, 0);
  compute_some(c, 6);
  corral_stats *own = read_of(c);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_COMPUTE), 6);
  assert_int_equal(corral_stats_events(own, CORRAL_EVENT_COMPUTE), 6);
  corral_histogram times;
  corral_stats_times(own, CORRAL_TIME_COMPUTE, &times);
  assert_int_equal(times.count, 6);
  corral_stats_free(own);
  seen after = see_host(folder);
  assert_int_equal(after.files, 1);
  assert_int_equal(after.living, 1);
  assert_int_equal(after.id, before.id);
  assert_int_equal(corral_stats_events(after.sum, CORRAL_EVENT_COMPUTE), 15);
  corral_stats_times(after.sum, CORRAL_TIME_COMPUTE, &times);
  assert_int_equal(times.count, 15);
  corral_stats_free(after.sum);
  corral_stats_free(before.sum);
  corral_close(c);
}

static void corrals_at_the_same_time_have_a_file_each(void **state) {
  (void)state;
  for (int round = 0; round < 3; round++) {
    corral *a = open_counting(folder, 0, 0), *b = open_counting(folder, 0, 0);
    compute_some(a, 1);
    compute_some(b, 2);
    assert_int_equal(corral_counter(b, CORRAL_EVENT_COMPUTE), 2);
    assert_int_equal(computes_of_host(folder), 3 * (round + 1));
    corral_close(a);
    corral_close(b);
  }
  assert_int_equal(count_files(folder), 2);
}

static void a_forked_child_leaves_its_parents_file_alone(void **state) {
  corral *c = open_counting(folder, 0, 0);
  int ends[2], begun[2];
  char end;
  (void)state;
  compute_some(c, 2);
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(pipe(begun), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    close(ends[1]);
    if (write(begun[1], "x", 1) != 1) _exit(4);
    if (corral_counter(c, CORRAL_EVENT_COMPUTE) != 2) _exit(1);
    if (get_number(c, 1) != CORRAL_EFORKED) _exit(2);
    _exit(read(ends[0], &end, 1) == 0 ? 0 : 3); /* until the parent has looked */
  }
  close(ends[0]);
  assert_int_equal(read(begun[0], &end, 1), 1);
  close(begun[0]);
  close(begun[1]);
  corral_close(c);
  corral *next = open_counting(folder, 0, 0); /* the child has no lock on the file */
  compute_some(next, 1);
  int status, files = count_files(folder);
  close(ends[1]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_int_equal(files, 1);
  assert_int_equal(computes_of_host(folder), 3);
  corral_close(next);
}

/* A corral that was opened, and not used, before a fork. */
static void each_child_has_a_file_of_its_own(void **state) {
  corral *c = open_counting(folder, 0, 0);
  (void)state;
  for (int i = 0; i < 2; i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      compute_some(c, 3);
      _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
  }
  compute_some(c, 1);
  assert_int_equal(computes_of_host(folder), 7);
  assert_int_equal(count_files(folder), 1);
  corral_close(c);
}

/* Ever new namespaces: those whose corrals ended first are forgotten. */
static void a_folder_has_no_more_files_of_the_past_than_it_may(void **state) {
  enum { MORE = 10 };
  char name[16];
  corral *c, *living = open_counting(folder, 0, 0);
  (void)state;
  compute_some(living, 1);
  for (int i = 0; i < CRL_STATS_FOLDER_MOST + MORE; i++) {
    snprintf(name, sizeof name, "%d", i);
    assert_int_equal(
        corral_open(CORRAL_OPTIONS(.store = "memory:", .name_space = name, .stats_dir = folder), &c,
                    NULL),
        CORRAL_OK);
    compute_some(c, 1);
    corral_close(c);
  }
  assert_int_equal(count_files(folder), CRL_STATS_FOLDER_MOST);
  seen s = see_host(folder);
  assert_int_equal(s.living, 1);
  assert_int_equal(corral_stats_events(s.sum, CORRAL_EVENT_COMPUTE), CRL_STATS_FOLDER_MOST);
  corral_stats_free(s.sum);
  corral_close(living);
}

/* ---- descriptors that the program closes --------------------------------------------------- */

/* The descriptor of this process whose file is in the folder; -1: none. */
static int find_descriptor(void) {
  char path[64], target[PATH];
  for (int fd = 3; fd < 1024; fd++) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(path, target, sizeof target - 1);
    if (len > 0 && strncmp(target, folder, strlen(folder)) == 0) return fd;
  }
  return -1;
}

static void a_process_that_has_closed_all_descriptors_keeps_its_file(void **state) {
  corral *c = open_counting(folder, 0, 0);
  struct stat before, after;
  (void)state;
  compute_some(c, 2);
  int fd = find_descriptor(), null = open("/dev/null", O_RDWR);
  assert_true(fd >= 0 && null >= 0);
  assert_int_equal(dup2(null, fd), fd);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(fcntl(fd, F_GETFD) == -1); /* it is of somebody else by now */
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  seen s = see_host(folder);
  assert_int_equal(s.living, 1);
  corral_stats_free(s.sum);
  run_and_end(3, 0); /* it takes another file */
  corral *own = open_counting(folder, 0, 0);
  compute_some(own, 4); /* this one takes that, too */
  assert_int_equal(count_files(folder), 2);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_COMPUTE), 2);
  assert_int_equal(computes_of_host(folder), 9);
  corral_close(own);
  assert_int_equal(fstat(fd, &before), 0);
  corral_close(c);
  assert_int_equal(fstat(fd, &after), 0); /* of somebody else by now */
  assert_int_equal(before.st_rdev, after.st_rdev);
  close(fd);
  close(null);
  own = open_counting(folder, 0, 0);
  compute_some(own, 1);
  assert_int_equal(count_files(folder), 2);
  corral_close(own);
}

/* ---- what is no stats file ----------------------------------------------------------------- */

static void overwrite(const char *path, off_t at, const char *text) {
  int fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, text, strlen(text), at), strlen(text));
  close(fd);
}

static void damage(int how, const char *path) {
  switch (how) {
    case 0: overwrite(path, 0, "garbage"); break;
    case 1: overwrite(path, 200, "garbage"); break;
    case 2: assert_int_equal(truncate(path, 100), 0); break;
    case 3: assert_int_equal(truncate(path, sizeof(crl_stats_block) - 1), 0); break;
    case 4: assert_int_equal(truncate(path, 64 << 20), 0); break;
    default: fail();
  }
}

static void a_damaged_file_is_left_out_and_made_anew(void **state) {
  char path[PATH];
  (void)state;
  for (int how = 0; how < 5; how++) {
    run_and_end(2, 0);
    find_file(folder, path);
    damage(how, path);
    seen s = see_host(folder);
    if (how != 1) assert_int_equal(s.files, 0); /* a row that has another name is one less */
    corral_stats_free(s.sum);
    run_and_end(3, 0);
    assert_int_equal(count_files(folder), 1);
    assert_int_equal(computes_of_host(folder), 3);
    assert_int_equal(unlink(path), 0);
  }
}

static void an_empty_file_is_finished(void **state) {
  char path[PATH];
  (void)state;
  run_and_end(2, 0);
  find_file(folder, path);
  assert_int_equal(truncate(path, 0), 0);
  run_and_end(3, 0);
  assert_int_equal(count_files(folder), 1);
  assert_int_equal(computes_of_host(folder), 3);
}

/* A hole has no room of its own: where the folder is full, a count in it would be a signal. */
static void holes_of_a_file_are_filled_before_it_is_used(void **state) {
  char path[PATH];
  struct stat st;
  (void)state;
  run_and_end(2, 0);
  find_file(folder, path);
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0 && fstat(fd, &st) == 0);
  off_t parts = (off_t)offsetof(crl_stats_block, parts);
  assert_int_equal(ftruncate(fd, parts), 0);
  assert_int_equal(ftruncate(fd, st.st_size), 0);
  run_and_end(3, 0);
  assert_int_equal(fstat(fd, &st), 0);
  close(fd);
  assert_true(st.st_blocks * 512 >= st.st_size);
  assert_int_equal(computes_of_host(folder), 5);
  assert_int_equal(count_files(folder), 1);
}

static void what_is_no_file_is_stepped_over(void **state) {
  char path[PATH], other[PATH + 8];
  (void)state;
  run_and_end(1, 0);
  find_file(folder, path);
  for (int how = 0; how < 3; how++) {
    assert_int_equal(unlink(path), 0);
    snprintf(other, sizeof other, "%s/other", folder);
    if (how == 0) assert_int_equal(mkdir(path, 0700), 0);
    if (how == 1) assert_int_equal(mkfifo(path, 0600), 0);
    if (how == 2) assert_int_equal(symlink(other, path), 0);
    run_and_end(2, 0);
    assert_int_equal(access(other, F_OK), -1);
    seen s = see_host(folder);
    assert_int_equal(s.files, 1);
    assert_int_equal(corral_stats_events(s.sum, CORRAL_EVENT_COMPUTE), 2 * (how + 1));
    corral_stats_free(s.sum);
    if (how == 0) assert_int_equal(rmdir(path), 0);
    if (how == 0) close(open(path, O_CREAT | O_WRONLY, 0600));
  }
}

static uint8_t *bytes_of_a_file(size_t *ret_size) {
  char path[PATH];
  struct stat st;
  find_file(folder, path);
  int fd = open(path, O_RDONLY);
  assert_true(fd >= 0 && fstat(fd, &st) == 0);
  uint8_t *bytes = malloc((size_t)st.st_size);
  assert_non_null(bytes);
  assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
  close(fd);
  *ret_size = (size_t)st.st_size;
  return bytes;
}

/* Each file here is a block of its own size, so that a reading beyond its end is seen. */
static void any_bytes_are_read_within_their_bounds(void **state) {
  size_t size, told = 0;
  uint64_t dice = 1;
  (void)state;
  run_and_end(2, 0);
  uint8_t *whole = bytes_of_a_file(&size);
  const size_t head = sizeof(crl_stats_head);
  for (int i = 0; i < 4000; i++) {
    size_t len = i % 4 == 0 ? (size_t)i * 37 % size : size;
    uint8_t *bytes = malloc(len + 1);
    corral_stats *s;
    assert_non_null(bytes);
    memcpy(bytes, whole, len);
    for (int k = 0; k < 4 && len > head; k++) {
      dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407u;
      uint8_t value = (uint8_t)(dice >> 56);
      bytes[8 + (dice >> 20) % (head - 8)] = k % 2 == 0 ? value : 0xff;
    }
    if (len >= sizeof(crl_preamble)) memcpy(bytes + 12, &(uint32_t){(uint32_t)len}, 4);
    if (crl_snapshot_parse(bytes, len, &s) == CORRAL_OK) {
      told++;
      corral_stats_free(s);
    }
    free(bytes);
  }
  assert_true(told > 100);
  free(whole);
}

/* ---- another version ----------------------------------------------------------------------- */

/* A file with the same rows in another order, at other places, with one event that this library
 * doesn't know, and rows that are longer. */
static size_t make_other(const uint8_t *own, size_t size, uint8_t *ret) {
  enum { ROW = sizeof(crl_row) + 8, SHIFT = 32768 };
  const crl_stats_head *head = (const crl_stats_head *)(const void *)own;
  crl_preamble p = head->preamble;
  p.rows_at = 64;
  p.row_size = ROW;
  p.row_count = CRL_ROWS + 1;
  p.size = (uint32_t)size + SHIFT;
  memset(ret, 0, SHIFT);
  memcpy(ret, &p, sizeof p);
  memcpy(ret + SHIFT, own, size);
  for (size_t i = 0; i < CRL_ROWS; i++) {
    crl_row row = head->rows[CRL_ROWS - 1 - i];
    row.offset += SHIFT;
    memcpy(ret + 64 + i * ROW, &row, sizeof row);
  }
  crl_row later = {.name = "event.later", .kind = CRL_ROW_COUNTER, .offset = 64, .count = 1};
  memcpy(ret + 64 + (size_t)CRL_ROWS * ROW, &later, sizeof later);
  assert_true(64 + (size_t)(CRL_ROWS + 1) * ROW < SHIFT);
  return p.size;
}

/* So a file of any bytes is read in a bounded time. */
static void a_name_that_stands_twice_counts_once(void **state) {
  size_t size;
  corral_stats *s;
  (void)state;
  run_and_end(7, 0);
  uint8_t *own = bytes_of_a_file(&size);
  crl_stats_head *head = (crl_stats_head *)(void *)own;
  for (size_t i = 0; i < CRL_ROWS; i++)
    if (strcmp(head->rows[i].name, "event.hit") == 0) {
      crl_row twice = {.kind = CRL_ROW_COUNTER};
      for (size_t k = 0; k < CRL_ROWS; k++)
        if (strcmp(head->rows[k].name, "event.compute") == 0) twice = head->rows[k];
      head->rows[i] = twice;
    }
  assert_int_equal(crl_snapshot_parse(own, size, &s), CORRAL_OK);
  assert_int_equal(corral_stats_events(s, CORRAL_EVENT_COMPUTE), 7);
  corral_stats_free(s);
  free(own);
}

static void a_file_of_another_version_is_read_by_names(void **state) {
  size_t size;
  char path[PATH];
  corral_stats *s;
  const char *name;
  (void)state;
  run_and_end(7, 0);
  uint8_t *own = bytes_of_a_file(&size), *other = malloc(size + 65536);
  assert_non_null(other);
  size_t len = make_other(own, size, other);
  assert_int_equal(crl_snapshot_parse(other, len, &s), CORRAL_OK);
  assert_int_equal(corral_stats_events(s, CORRAL_EVENT_COMPUTE), 7);
  assert_int_equal(corral_stats_results(s, CORRAL_RESULT_COMPUTED), 7);
  assert_int_equal(crl_snapshot_event(s, CORRAL_EVENT_COUNT, &name), -1);
  assert_string_equal(name, "later");
  assert_int_equal(crl_snapshot_event(s, CORRAL_EVENT_COUNT - 1, &name), CORRAL_EVENT_HIT);
  assert_string_equal(name, "hit"); /* its rows stand the other way round */
  corral_stats_free(s);
  snprintf(path, sizeof path, "%s/00112233445566ff.0", folder);
  int fd = open(path, O_WRONLY | O_CREAT, 0600);
  assert_int_equal(write(fd, other, len), len);
  close(fd);
  seen both = see_host(folder);
  assert_int_equal(both.files, 2);
  assert_int_equal(corral_stats_events(both.sum, CORRAL_EVENT_COMPUTE), 14);
  corral_histogram times;
  corral_stats_times(both.sum, CORRAL_TIME_COMPUTE, &times);
  assert_int_equal(times.count, 14);
  assert_string_equal(corral_stats_cache(both.sum), "n");
  corral_stats_free(both.sum);
  free(other);
  free(own);
}

/* ---- no file ------------------------------------------------------------------------------- */

/* A corral that gets no file counts in its own memory, and says so once. */
static void counts_without_a_file(const char *dir, int warnings) {
  memset(events_told, 0, sizeof events_told);
  corral *c = open_counting(dir, 0, 1);
  compute_some(c, 3);
  compute_some(c, 2);
  corral_stats *own = read_of(c);
  assert_int_equal(corral_stats_results(own, CORRAL_RESULT_COMPUTED), 3);
  assert_int_equal(corral_stats_results(own, CORRAL_RESULT_FRESH), 2);
  assert_int_equal(corral_stats_id(own), 0);
  assert_int_equal(corral_stats_pid(own), getpid());
  assert_int_equal(events_told[CORRAL_EVENT_WARNING], warnings);
  corral_stats_free(own);
  corral_close(c);
}

static void off_makes_no_file(void **state) {
  char folders[PATH];
  (void)state;
  counts_without_a_file("off", 0);
  assert_int_equal(setenv("CORRAL_STATS_DIR", "off", 1), 0);
  counts_without_a_file(NULL, 0);
  seen none = see_host(NULL);
  assert_int_equal(none.files, 0);
  corral_stats_free(none.sum);
  snprintf(folders, sizeof folders, "%s/env", folder);
  assert_int_equal(setenv("CORRAL_STATS_DIR", folders, 1), 0);
  corral *c = open_counting(NULL, 0, 0);
  compute_some(c, 1);
  assert_int_equal(count_files(folders), 1);
  corral_close(c);
  seen one = see_host(NULL);
  assert_int_equal(one.files, 1);
  corral_stats_free(one.sum);
  assert_int_equal(setenv("CORRAL_STATS_DIR", "near/by", 1), 0);
  counts_without_a_file(NULL, 1);
  corral_error error;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "memory:", .stats_dir = "near/by"), &c, &error),
      CORRAL_EINVAL);
  assert_int_equal(setenv("CORRAL_STATS_DIR", folder, 1), 0);
}

static void a_folder_that_is_not_this_users_alone_is_refused(void **state) {
  char path[PATH], link[PATH];
  (void)state;
  snprintf(path, sizeof path, "%s/open", folder);
  snprintf(link, sizeof link, "%s/link", folder);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_equal(symlink(path, link), 0);
  counts_without_a_file(link, 1);
  assert_int_equal(chmod(path, 0777), 0);
  counts_without_a_file(path, 1);
  if (geteuid() == 0) {
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(chown(path, 65534, 65534), 0);
    counts_without_a_file(path, 1);
  }
  assert_int_equal(count_files(path), 0);
  snprintf(path, sizeof path, "%s/none/here", folder);
  counts_without_a_file(path, 1);
}

static void in_a_child(void (*test)(void)) {
  int status;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    test();
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) skip();
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void limited(void) {
  const struct rlimit least = {.rlim_cur = 4096, .rlim_max = 4096};
  if (setrlimit(RLIMIT_FSIZE, &least) != 0) _exit(1);
  counts_without_a_file(folder, 1);
  if (count_files(folder) != 0) _exit(2);
}

static void a_limit_of_file_sizes_raises_no_signal(void **state) {
  (void)state;
  in_a_child(limited);
}

static void full(void) {
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("none", folder, "tmpfs", 0, "size=64k,mode=700") != 0)
    _exit(77);
  counts_without_a_file(folder, 1);
  if (count_files(folder) != 0) _exit(2);
}

static void a_full_folder_has_no_file_and_no_signal_comes(void **state) {
  (void)state;
  in_a_child(full);
}

/* ---- the first use ------------------------------------------------------------------------- */

enum { THREADS = 8, CALLS = 200 };

static void *use(void *c) {
  for (int i = 0; i < CALLS; i++)
    if (get_number(c, i % 4) != CORRAL_OK) return c;
  return NULL;
}

static void threads_that_begin_together_have_one_file(void **state) {
  pthread_t threads[THREADS];
  void *failed;
  (void)state;
  for (int round = 0; round < 10; round++) {
    corral *c = open_counting(folder, round % 2 == 0 ? 0 : 1 << 20, 0);
    for (int i = 0; i < THREADS; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, use, c), 0);
    for (int i = 0; i < THREADS; i++) {
      assert_int_equal(pthread_join(threads[i], &failed), 0);
      assert_null(failed);
    }
    corral_stats *own = read_of(c);
    assert_int_equal(all_results(own), THREADS * CALLS);
    assert_int_equal(corral_stats_gauge(own, CORRAL_GAUGE_WAITING), 0);
    assert_int_equal(corral_stats_gauge(own, CORRAL_GAUGE_FLIGHTS), 0);
    corral_stats_free(own);
    corral_close(c);
  }
  seen s = see_host(folder);
  assert_int_equal(s.files, 1);
  assert_int_equal(all_results(s.sum), 10 * THREADS * CALLS);
  corral_stats_free(s.sum);
}

/* More threads than have counters of their own. */
enum { COUNTERS = CRL_STATS_SHARDS + 8, EACH = 100000 };

static void *count_many(void *events) {
  for (int i = 0; i < EACH; i++) crl_event_count(events, CORRAL_EVENT_HIT);
  return NULL;
}

static void no_count_of_any_thread_is_lost(void **state) {
  pthread_t threads[COUNTERS];
  crl_events events = events_anew();
  (void)state;
  crl_readers_begin();
  for (int i = 0; i < COUNTERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, count_many, &events), 0);
  for (int i = 0; i < COUNTERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_HIT), COUNTERS * EACH);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(what_a_corral_counts_is_read_back),
      TEST(a_corral_that_was_not_used_has_counted_nothing),
      TEST(a_secret_of_the_store_is_not_shown),
      TEST(a_later_process_goes_on_with_the_file_of_one_that_has_ended),
      TEST(corrals_at_the_same_time_have_a_file_each),
      TEST(a_forked_child_leaves_its_parents_file_alone),
      TEST(each_child_has_a_file_of_its_own),
      TEST(a_folder_has_no_more_files_of_the_past_than_it_may),
      TEST(a_process_that_has_closed_all_descriptors_keeps_its_file),
      TEST(a_damaged_file_is_left_out_and_made_anew),
      TEST(an_empty_file_is_finished),
      TEST(holes_of_a_file_are_filled_before_it_is_used),
      TEST(what_is_no_file_is_stepped_over),
      TEST(any_bytes_are_read_within_their_bounds),
      TEST(a_name_that_stands_twice_counts_once),
      TEST(a_file_of_another_version_is_read_by_names),
      TEST(off_makes_no_file),
      TEST(a_folder_that_is_not_this_users_alone_is_refused),
      TEST(a_limit_of_file_sizes_raises_no_signal),
      TEST(a_full_folder_has_no_file_and_no_signal_comes),
      TEST(threads_that_begin_together_have_one_file),
      TEST(no_count_of_any_thread_is_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
