/* storm_schedule.c: the schedule of `corral storm`: when each request is due, and for which key.
 *
 * It is drawn before the run, from a fixed seed, and is the same for both modes. So callers come as
 * users do, whatever the answers do: a slow system can't make them ask less often. */
#include "storm.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SEED_MOMENTS = 1, SEED_KEYS = 2 };

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
uint64_t storm_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* At least 0, less than 1. */
static double next_share(uint64_t *state) {
  return (double)(storm_random(state) >> 11) / 9007199254740992.0;
}

/* ---- keys ---------------------------------------------------------------------------------- */

/* Sets the odds of the keys by Zipf's law. */
static bool make_odds(storm *s) {
  size_t keys = (size_t)s->options.keys;
  double sum = 0;
  s->odds = malloc(keys * sizeof *s->odds);
  if (s->odds == NULL) return false;
  for (size_t i = 0; i < keys; i++) s->odds[i] = sum += pow((double)(i + 1), -s->options.zipf);
  for (size_t i = 0; i < keys; i++) s->odds[i] /= sum;
  return true;
}

unsigned storm_schedule_key(const storm *s, size_t request) {
  uint64_t state = (uint64_t)SEED_KEYS << 32 | request;
  double share = next_share(&state);
  size_t low = 0;
  size_t high = (size_t)s->options.keys - 1;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (s->odds[middle] > share)
      high = middle;
    else
      low = middle + 1;
  }
  return (unsigned)low;
}

/* ---- moments ------------------------------------------------------------------------------- */

/* Draws a Poisson process, whose gaps are exponential, and returns its number of requests; with
 * `due_us` NULL it only counts. */
static size_t draw(const storm_options *o, uint32_t *due_us) {
  uint64_t random = SEED_MOMENTS;
  double mean_us = 1e6 / (double)o->rate;
  double end_us = 1e3 * (double)o->duration_ms;
  size_t count = 0;
  for (double us = 0; (us -= log1p(-next_share(&random)) * mean_us) < end_us; count++)
    if (due_us != NULL) due_us[count] = (uint32_t)us;
  return count;
}

static bool fits(const storm *s) {
  const storm_options *o = &s->options;
  double wanted = (double)o->rate * (double)o->duration_ms / 1000;
  if (wanted > STORM_REQUESTS)
    cli_say("storm: %.0f requests are too many: %d in --duration at --rate are the most", wanted,
            STORM_REQUESTS);
  return wanted <= STORM_REQUESTS;
}

/* Zeroed memory that the herd shares. */
static bool make_answered(storm *s) {
  s->answered_size = s->due_count * sizeof *s->answered[0];
  for (int mode = 0; mode < STORM_MODES; mode++) {
    if (!s->options.modes[mode]) continue;
    void *memory =
        mmap(NULL, s->answered_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    s->answered[mode] = memory;
  }
  return true;
}

bool storm_schedule_make(storm *s) {
  if (!fits(s)) return false;
  s->due_count = draw(&s->options, NULL);
  if (s->due_count == 0) {
    cli_say("storm: no request is due within --duration: give a higher --rate");
    return false;
  }
  s->due_us = malloc(s->due_count * sizeof *s->due_us);
  bool ok = s->due_us != NULL && make_odds(s) && make_answered(s);
  if (ok)
    (void)draw(&s->options, s->due_us);
  else
    cli_say("storm: out of memory");
  return ok;
}

void storm_schedule_free(storm *s) {
  for (int mode = 0; mode < STORM_MODES; mode++) {
    if (s->answered[mode] != NULL) (void)munmap(s->answered[mode], s->answered_size);
    free(s->waits[mode].us);
  }
  free(s->due_us);
  free(s->odds);
}
