/* allocations_kit.h: a test is told of each allocation. It is linked with --wrap for malloc, calloc
 * and realloc, and defines allocated(). */
#ifndef ALLOCATIONS_KIT_H
#define ALLOCATIONS_KIT_H

#include <stddef.h>

static void allocated(void);

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) {
  allocated();
  return __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
  allocated();
  return __real_calloc(count, size);
}

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size) {
  allocated();
  return __real_realloc(old, size);
}

#endif
