/* odd_clock.c: preloaded into a server, it makes the server's clock differ from the host's by
 * CORRAL_ODD_CLOCK_MS. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

enum { SECOND = 1000000000 };

static long long off_ms(void) {
  const char *text = getenv("CORRAL_ODD_CLOCK_MS");
  return text != NULL ? strtoll(text, NULL, 10) : 0;
}

static int is_of_day(clockid_t id) { return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE; }

SEEN int clock_gettime(clockid_t id, struct timespec *ret) {
  if (syscall(SYS_clock_gettime, id, ret) != 0) return -1;
  if (!is_of_day(id)) return 0;
  long long ns = ret->tv_nsec + off_ms() % 1000 * 1000000;
  ret->tv_sec += off_ms() / 1000 + (ns >= SECOND) - (ns < 0);
  ret->tv_nsec = (ns + SECOND) % SECOND;
  return 0;
}

SEEN int gettimeofday(struct timeval *restrict ret, void *restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  *ret = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}

SEEN time_t time(time_t *ret) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
  if (ret != NULL) *ret = now.tv_sec;
  return now.tv_sec;
}
