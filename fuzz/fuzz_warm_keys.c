/* fuzz_warm_keys.c: the key lists of `corral warm`, read in pieces of any size. */
#include "fuzz.h"

#include "../src/cli/warm_keys.c"

static bool never(void *arg) {
  (void)arg;
  return false;
}

static void check_keys(warm_keys *k, const warm_options *o, size_t most) {
  size_t i = 0;
  int end = o->nul ? '\0' : '\n';
  k->is_complete = true;
  for (warm_key *key; (key = warm_keys_get(k, i, never, NULL)) != NULL; i++) {
    MUST(key->size >= 1 && key->size <= WARM_KEY && memchr(key->bytes, end, key->size) == NULL);
    MUST(!o->comments || key->bytes[0] != '#');
  }
  MUST(i == k->count && i <= most);
}

/* Byte 0: 1: keys end with NUL; 2: comments; 4: a single piece. Byte 1: size of the pieces, less
 * one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static line l;
  fuzz_input in = {data, size};
  uint8_t how = fuzz_byte(&in);
  size_t piece = 1 + fuzz_byte(&in), most = in.left + 1;
  warm_options o = {.nul = how & 1, .comments = how >> 1 & 1};
  warm_keys k = {.o = &o};
  warm_input input = {.path = "keys"};
  (void)pthread_mutex_init(&k.mutex, NULL);
  (void)pthread_cond_init(&k.more, NULL);
  k.inputs = &input;
  k.input_count = 1;
  l = (line){.k = &k, .input = &input};
  while (in.left > 0) {
    size_t part;
    char *bytes = (char *)fuzz_bytes(&in, how & 4 ? in.left : piece, &part);
    MUST(add_text(&l, bytes, part));
    free(bytes);
  }
  MUST(l.size == 0 || end_line(&l));
  check_keys(&k, &o, most);
  input_clear(&input);
  (void)pthread_cond_destroy(&k.more);
  (void)pthread_mutex_destroy(&k.mutex);
  return 0;
}
