/* sized.c: structs of the public headers that may grow. */
#include "base/sized.h"

#include <string.h>

#include "base/status.h"

static size_t size_of(const void *user) { return *(const size_t *)user; }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

int crl_sized_check(const void *user, size_t known, const char *name, corral_error *error) {
  size_t size = size_of(user);
  if (size < sizeof size)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "%s: its size is not set; the macros of corral.h set it", name);
  for (size_t i = known; i < size; i++)
    if (((const char *)user)[i] != 0)
      return crl_status_fail(error, CORRAL_EOPTION,
                             "%s: it sets an option that corral %s does not know", name,
                             CORRAL_VERSION);
  return CORRAL_OK;
}

int crl_sized_read(void *ret, const void *user, size_t known, const char *name,
                   corral_error *error) {
  int status = crl_sized_check(user, known, name, error);
  if (status != CORRAL_OK) return status;
  size_t common = smaller(size_of(user), known);
  memcpy(ret, user, common);
  memset((char *)ret + common, 0, known - common);
  return CORRAL_OK;
}

void crl_sized_write(void *user, const void *from, size_t known) {
  size_t size = size_of(user), common = smaller(size, known);
  memcpy((char *)user + sizeof size, (const char *)from + sizeof size, common - sizeof size);
  memset((char *)user + common, 0, size - common);
}
