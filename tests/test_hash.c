/* test_hash.c: the two hashes: known answers of the digest, and a table hash that can't be
 * predicted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/hash.h"

typedef void hash_to(const void *data, size_t size, uint8_t ret[CRL_DIGEST]);

static void assert_hashes(hash_to *hash, const char *text, const uint8_t expected[CRL_DIGEST]) {
  uint8_t got[CRL_DIGEST];
  hash(text, strlen(text), got);
  assert_memory_equal(got, expected, CRL_DIGEST);
}

/* BLAKE2b-128; the values are from Python's hashlib.blake2b(data, digest_size=16). */
static void the_digest_is_blake2b_with_16_bytes(void **state) {
  static const uint8_t empty[] = {0xca, 0xe6, 0x69, 0x41, 0xd9, 0xef, 0xbd, 0x40,
                                  0x4e, 0x4d, 0x88, 0x75, 0x8e, 0xa6, 0x76, 0x70};
  static const uint8_t abc[] = {0xcf, 0x4a, 0xb7, 0x91, 0xc6, 0x2b, 0x8d, 0x2b,
                                0x21, 0x09, 0xc9, 0x02, 0x75, 0x28, 0x78, 0x16};
  (void)state;
  assert_hashes(crl_digest, "", empty);
  assert_hashes(crl_digest, "abc", abc);
  assert_true(crl_digest64("abc", 3) == UINT64_C(0x2b8d2bc691b74acf));
}

/* As PHP's hash('xxh128') tells it, too. */
static void the_sum_is_xxh3_with_sixteen_bytes_big_endian(void **state) {
  static const uint8_t empty[] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                  0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
  static const uint8_t abc[] = {0x06, 0xb0, 0x5a, 0xb6, 0x73, 0x3a, 0x61, 0x85,
                                0x78, 0xaf, 0x5f, 0x94, 0x89, 0x2f, 0x39, 0x50};
  (void)state;
  assert_hashes(crl_sum, "", empty);
  assert_hashes(crl_sum, "abc", abc);
}

static void a_table_s_hash_is_the_same_within_a_process_and_depends_on_every_byte(void **state) {
  char text[300];
  (void)state;
  memset(text, 'x', sizeof text);
  for (size_t size = 1; size <= sizeof text; size++) {
    uint64_t hash = crl_hash(text, size);
    assert_true(hash == crl_hash(text, size));
    text[size - 1] ^= 1;
    assert_true(hash != crl_hash(text, size));
    text[size - 1] ^= 1;
  }
}

/* This program and a second instance of it must hash the same key differently. */
static void a_table_s_hash_differs_between_processes(void **state) {
  char other[32] = "", own[32], command[4200];
  char self[4096] = "";
  const char *emulator = getenv("CORRAL_EMULATOR"); /* where this machine can't run the program */
  (void)state;
  assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  snprintf(command, sizeof command, "%s %s --print", emulator != NULL ? emulator : "", self);
  FILE *child = popen(command, "r");
  assert_non_null(child);
  assert_non_null(fgets(other, sizeof other, child));
  assert_int_equal(pclose(child), 0);
  snprintf(own, sizeof own, "%016llx", (unsigned long long)crl_hash("key", 3));
  assert_int_equal(strlen(other), 16);
  assert_string_not_equal(own, other);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_digest_is_blake2b_with_16_bytes),
      cmocka_unit_test(the_sum_is_xxh3_with_sixteen_bytes_big_endian),
      cmocka_unit_test(a_table_s_hash_is_the_same_within_a_process_and_depends_on_every_byte),
      cmocka_unit_test(a_table_s_hash_differs_between_processes),
  };
  if (argc > 1 && strcmp(argv[1], "--print") == 0)
    return printf("%016llx", (unsigned long long)crl_hash("key", 3)) == 16 ? 0 : 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
