/* doctor_host.c: corral doctor without a URI: limits, clocks, shared memory and processors of this
 * host. */
#include "doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

enum { VALUE_ROOM = 256, FILES_LEAST = 1024 };
static const uint64_t shm_least = 4 << 20;

void doctor_tell(const doctor_facts *facts, const char *name, int verdict, const char *advice,
                 const char *format, ...) {
  char value[VALUE_ROOM];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(value, sizeof value, format, args);
  va_end(args);
  corral_fact fact = {.size = sizeof fact,
                      .server = facts->server,
                      .name = name,
                      .value = value,
                      .verdict = advice != NULL ? verdict : CORRAL_FACT_PLAIN,
                      .advice = advice};
  facts->tell(&fact, facts->arg);
}

static void tell_files(const doctor_facts *facts) {
  struct rlimit most;
  if (getrlimit(RLIMIT_NOFILE, &most) != 0) return;
  doctor_tell(facts, "files_most", CORRAL_FACT_WARNING,
              most.rlim_cur < FILES_LEAST
                  ? "Raise the limit of open files (ulimit -n, LimitNOFILE=): connections to a "
                    "store, and callers' own, share it."
                  : NULL,
              "%llu", (unsigned long long)most.rlim_cur);
}

/* ---- clocks -------------------------------------------------------------------------------- */

/* The first line of a small file; false: there is none. */
static bool read_line(const char *path, char *line, size_t size) {
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  bool has = fgets(line, (int)size, file) != NULL;
  (void)fclose(file);
  if (has) line[strcspn(line, "\n")] = '\0';
  return has;
}

static void tell_clock_source(const doctor_facts *facts) {
  char name[64];
  if (!read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", name,
                 sizeof name))
    return;
  bool is_slow = strcmp(name, "hpet") == 0 || strcmp(name, "acpi_pm") == 0 ||
                 strcmp(name, "jiffies") == 0 || strcmp(name, "xen") == 0;
  doctor_tell(facts, "clock_source", CORRAL_FACT_WARNING,
              is_slow ? "Let the kernel use tsc, or the hypervisor's own clock: each look at this "
                        "one is a system call, and a hit reads the clock."
                      : NULL,
              "%s", name);
}

static void tell_clock(const doctor_facts *facts) {
  struct timex t = {.modes = 0};
  int state = adjtimex(&t);
  if (state < 0) {
    doctor_tell(facts, "clock_synchronised", CORRAL_FACT_PLAIN, NULL, "unknown");
    return;
  }
  bool is_synchronised = state != TIME_ERROR && (t.status & STA_UNSYNC) == 0;
  doctor_tell(facts, "clock_synchronised", CORRAL_FACT_WARNING,
              is_synchronised ? NULL
                              : "Run a time service (chrony, systemd-timesyncd), or ignore this in "
                                "a virtual machine whose host keeps its clock: versions of values "
                                "that are times, and logs, are compared across hosts.",
              is_synchronised ? "yes" : "no");
}

/* ---- memory and processors ----------------------------------------------------------------- */

static void tell_shared_memory(const doctor_facts *facts) {
  struct statvfs fs;
  if (statvfs("/dev/shm", &fs) != 0) {
    doctor_tell(facts, "shm_left", CORRAL_FACT_WARNING,
                "Mount a tmpfs at /dev/shm, or name folders with CORRAL_HOST_DIR and "
                "CORRAL_STATS_DIR: there the processes of this host elect, and count.",
                "unknown");
    return;
  }
  uint64_t left = (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
  doctor_tell(facts, "shm_left", CORRAL_FACT_WARNING,
              left < shm_least ? "Make room in /dev/shm (docker run --shm-size): a process that "
                                 "finds no room there counts for itself alone."
                               : NULL,
              "%llu", (unsigned long long)left);
}

/* The number of times that the processes of this control group stood still because their share of
 * the processors was used up; -1: there is no such limit. */
static long long throttled(void) {
  static const char *const paths[] = {"/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"};
  static const char name[] = "nr_throttled ";
  char line[128];
  long long times = -1;
  for (size_t i = 0; i < 2 && times < 0; i++) {
    FILE *file = fopen(paths[i], "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
      if (strncmp(line, name, sizeof name - 1) == 0)
        times = strtoll(line + sizeof name - 1, NULL, 10);
    if (file != NULL) (void)fclose(file);
  }
  return times;
}

static void tell_processors(const doctor_facts *facts) {
  long long times = throttled();
  if (times < 0) return;
  doctor_tell(facts, "cpu_throttled", CORRAL_FACT_WARNING,
              times > 0 ? "Raise the processor limit, or lease_ms above the pauses: a leader that "
                          "stands still for longer than its lease may be replaced."
                        : NULL,
              "%lld", times);
}

void doctor_host(const doctor_facts *facts) {
  tell_files(facts);
  tell_clock_source(facts);
  tell_clock(facts);
  tell_shared_memory(facts);
  tell_processors(facts);
}
