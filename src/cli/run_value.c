/* run_value.c: the value that `corral run` stores: a header (magic, version, exit status, length of
 * stdout, length of stderr; numbers little-endian), then stdout, then stderr. */
#include "run.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
  HEADER = 28, /* bytes before stdout */
  FORMAT = 1   /* version of the header */
};

static const char magic[4] = {'C', 'R', 'U', 'N'};
static const uint64_t most_value = CORRAL_VALUE_MAX;

static void put_number(unsigned char *at, uint64_t n, int bytes) {
  for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(n >> (8 * i));
}

static uint64_t take_number(const unsigned char *at, int bytes) {
  uint64_t n = 0;
  for (int i = 0; i < bytes; i++) n |= (uint64_t)at[i] << (8 * i);
  return n;
}

bool run_take_result(const void *data, size_t size, run_result *ret) {
  const unsigned char *at = data;
  if (size < HEADER || memcmp(at, magic, sizeof magic) != 0 || take_number(at + 4, 4) != FORMAT)
    return false;
  uint64_t exit_status = take_number(at + 8, 4);
  uint64_t out_size = take_number(at + 12, 8);
  uint64_t err_size = take_number(at + 20, 8);
  uint64_t body = size - HEADER;
  if (exit_status > 255 || out_size > body || err_size != body - out_size) return false;
  const char *out = (const char *)data + HEADER;
  *ret = (run_result){(int)exit_status, out, (size_t)out_size, out + out_size, (size_t)err_size};
  return true;
}

bool run_read_spool(int fd, void *ret, uint64_t size) {
  unsigned char *to = ret;
  for (uint64_t done = 0; done < size;) {
    ssize_t n = pread(fd, to + done, (size_t)(size - done), (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += (uint64_t)n;
  }
  return true;
}

bool run_fill_result(corral_fill *fill, const run_child *child) {
  uint64_t size = HEADER + child->size[0] + child->size[1];
  unsigned char *at = size <= most_value ? corral_fill_reserve(fill, (size_t)size) : NULL;
  if (at == NULL) return false;
  memcpy(at, magic, sizeof magic);
  put_number(at + 4, FORMAT, 4);
  put_number(at + 8, (uint64_t)child->number, 4);
  put_number(at + 12, child->size[0], 8);
  put_number(at + 20, child->size[1], 8);
  return run_read_spool(child->spool[0], at + HEADER, child->size[0]) &&
         run_read_spool(child->spool[1], at + HEADER + child->size[0], child->size[1]);
}
