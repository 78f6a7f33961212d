/* fuzz.h: shared helpers of the fuzz targets: reading an input, and checks that abort.
 *
 * A target is one file, fuzz_NAME.c, with LLVMFuzzerTestOneInput; its corpus is corpus/NAME/.
 * Linked with libFuzzer it explores inputs (./run.sh fuzz); linked with replay.c it runs over its
 * corpus (./run.sh test). A target keeps no state from one input to the next. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      (void)fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition);        \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)

/* The rest of an input. Bytes read beyond its end are zero. */
typedef struct fuzz_input {
  const uint8_t *at;
  size_t left;
} fuzz_input;

static inline uint8_t fuzz_byte(fuzz_input *in) {
  if (in->left == 0) return 0;
  in->left--;
  return *in->at++;
}

static inline uint64_t fuzz_number(fuzz_input *in, unsigned bytes) {
  uint64_t number = 0;
  for (unsigned i = 0; i < bytes; i++) number |= (uint64_t)fuzz_byte(in) << (8 * i);
  return number;
}

/* A number of 64 bits; half of the results are from -128 to 127. */
static inline int64_t fuzz_any(fuzz_input *in) {
  uint8_t kind = fuzz_byte(in);
  return kind < 128 ? (int64_t)fuzz_number(in, 8) : (int8_t)fuzz_byte(in);
}

/* Returns the next bytes, at most `most`, in an allocation of exactly that size, so that a read
 * beyond the end is detected. */
static inline uint8_t *fuzz_bytes(fuzz_input *in, size_t most, size_t *ret_size) {
  size_t size = in->left < most ? in->left : most;
  uint8_t *bytes = calloc(1, size > 0 ? size : 1);
  if (bytes == NULL) abort();
  if (size > 0) memcpy(bytes, in->at, size);
  in->at += size;
  in->left -= size;
  *ret_size = size;
  return bytes;
}

/* Returns the next bytes up to `end`, which is skipped, or all, as a text in an allocation of
 * exactly that size. A NUL ends the text too. */
static inline char *fuzz_text(fuzz_input *in, int end) {
  const uint8_t *stop = in->left > 0 ? memchr(in->at, end, in->left) : NULL;
  size_t size = stop != NULL ? (size_t)(stop - in->at) : in->left;
  char *text = malloc(size + 1);
  if (text == NULL) abort();
  if (size > 0) memcpy(text, in->at, size);
  text[size] = '\0';
  in->at += size + (stop != NULL);
  in->left -= size + (stop != NULL);
  return text;
}

/* True without control characters, which could move a terminal's cursor or forge a line; `but` is
 * allowed. */
static inline int fuzz_is_plain(const char *text, size_t size, int but) {
  for (size_t i = 0; i < size; i++)
    if (((unsigned char)text[i] < ' ' || text[i] == 127) && text[i] != but) return 0;
  return 1;
}

/* The text of a corral_error must be terminated and plain. */
#define MUST_BE_PLAIN(text)                                                                        \
  MUST(memchr(text, 0, sizeof(text)) != NULL && fuzz_is_plain(text, strlen(text), 0))

#endif
