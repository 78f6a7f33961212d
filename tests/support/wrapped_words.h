/* wrapped_words.h: for a test that counts how words are waited at and woken. It is linked with
 * --wrap of both functions, and defines those that count. */
#ifndef TESTS_WRAPPED_WORDS_H
#define TESTS_WRAPPED_WORDS_H

#include <stdint.h>

void __real_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until);
void __wrap_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until);
int __real_crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits);
int __wrap_crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits);

#endif
