/* fuzz_warm_pass.c: the record of a pass of `corral warm`, and the steps on it. */
#include "fuzz.h"

#include "../src/cli/warm_pass.c"

static void check(const warm_pass *p) {
  MUST(p->next <= p->total && p->range_count <= WARM_PASS_RANGES);
  for (size_t i = 0; i < p->range_count; i++)
    MUST(p->ranges[i].begin < p->ranges[i].end && p->ranges[i].end <= p->next);
  MUST(is_disjoint(p));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static warm_pass p, again;
  static char text[WARM_PASS_TEXT], other[WARM_PASS_TEXT];
  fuzz_input in = {data, size};
  size_t part = 0, steps = fuzz_byte(&in) % 16;
  warm_range range = {0};
  char *record = (char *)fuzz_bytes(&in, in.left, &part);
  warm_pass_read(&p, record, part);
  free(record);
  MUST(p.id != 0 || (p.range_count == 0 && p.warmer_count == 0));
  check(&p);
  if (p.id == 0 || p.range_count > 256) return 0;
  for (size_t i = 0; i < steps && warm_pass_beat(&p, 7, i); i++)
    if (warm_pass_take(&p, 7, 4, &range) && i % 2 == 0) warm_pass_done(&p, range);
  check(&p);
  if (steps > 8) warm_pass_leave(&p, 7);
  size = warm_pass_write(&p, text);
  MUST(size < sizeof text);
  warm_pass_read(&again, text, size);
  MUST(warm_pass_write(&again, other) == size && memcmp(text, other, size) == 0);
  return 0;
}
