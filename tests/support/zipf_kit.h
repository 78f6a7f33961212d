/* zipf_kit.h: a load by Zipf's law with the exponent 4/3: of ZIPF_KEYS keys the first one has 30 %
 * of the requests, the second 12 %, the tenth 1.4 %. Seeded: the same in each run. */
#ifndef ZIPF_KIT_H
#define ZIPF_KIT_H

#include <stddef.h>
#include <stdint.h>

enum { ZIPF_KEYS = 1000 };

typedef struct zipf {
  double until[ZIPF_KEYS]; /* sums of the shares */
  uint64_t dice;
} zipf;

/* By Newton. */
static inline double zipf_cube_root(double number) {
  double root = number;
  for (int i = 0; i < 60; i++) root -= (root - number / (root * root)) / 3;
  return root;
}

static inline void zipf_init(zipf *z, uint64_t seed) {
  double sum = 0;
  for (int i = 0; i < ZIPF_KEYS; i++) z->until[i] = sum += 1 / ((i + 1) * zipf_cube_root(i + 1));
  for (int i = 0; i < ZIPF_KEYS; i++) z->until[i] /= sum;
  z->dice = seed;
}

/* SplitMix64. */
static inline uint64_t zipf_dice(zipf *z) {
  uint64_t x = z->dice += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* The next request: the number of its key. */
static inline int zipf_next(zipf *z) {
  double at = (double)(zipf_dice(z) >> 11) / 9007199254740992.0;
  size_t low = 0, high = ZIPF_KEYS - 1;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (z->until[middle] > at)
      high = middle;
    else
      low = middle + 1;
  }
  return (int)low;
}

#endif
