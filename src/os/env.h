/* env.h: clock, sleep, randomness, pid. The only file of the core that asks the system for them. */
#ifndef CRL_ENV_H
#define CRL_ENV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Host monotonic clock, ms. */
int64_t crl_env_now_ms(void);
/* The same clock as of the kernel's last tick: up to CRL_COARSE_MS behind, for a third of the
 * cost. */
int64_t crl_env_coarse_ms(void);
enum { CRL_COARSE_MS = 20 };
/* The same clock in microseconds, to measure costs. */
int64_t crl_env_now_us(void);
/* Clock shared by all processes of the host, ms; it also counts while the host sleeps. */
int64_t crl_env_boot_ms(void);
/* Wall clock, ms since 1970: for display only. */
int64_t crl_env_wall_ms(void);
/* The same clock in microseconds. */
int64_t crl_env_wall_us(void);
/* Kernel randomness; CORRAL_OK or CORRAL_EIO. Each thread draws 256 bytes at a time, for several
 * calls; a forked child draws its own. */
int crl_env_random(void *buffer, size_t size);
/* A random number, for jitter only: each thread has a generator of its own, with a seed of the
 * kernel's. Source: SplitMix64 of G. L. Steele and others, OOPSLA 2014. */
uint64_t crl_env_dice(void);
/* Returns at `until` (crl_env_now_ms) or, by a signal, earlier. */
void crl_env_sleep_until(int64_t until);
/* Returns after `us` microseconds or, by a signal, earlier. */
void crl_env_pause_us(int64_t us);
/* Number of forks between the process that loaded the library and this one. */
unsigned crl_env_forks(void);
/* "host/pid", and "host/pid/thread" of the calling thread, cut to size, always terminated; returns
 * the length. The system is asked once per thread and process. */
size_t crl_env_holder(char *text, size_t size);
size_t crl_env_holder_thread(char *text, size_t size);
/* A condition variable that waits by the host monotonic clock. */
void crl_env_cond_init(pthread_cond_t *cond);
/* Waits until signalled or `until`; returns 0 when `until` has come. Spurious wake-ups are
 * possible. */
int crl_env_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until);
/* Sleeps while *word equals `seen`, until woken or `until` (crl_env_now_ms; INT64_MAX: no limit).
 * Spurious wake-ups are possible. The word must be this process's own: futex(2), private. */
void crl_env_word_wait(_Atomic uint32_t *word, uint32_t seen, int64_t until);
/* Wakes up to `count` threads that sleep on the word. */
void crl_env_word_wake(_Atomic uint32_t *word, int count);
/* The same for sleepers that have bits: those are woken that share one with `bits`. Returns the
 * number of those. */
void crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits, int64_t until);
int crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits);
/* The number of processors, as it was at the first call. */
int crl_env_processors(void);
/* Starts a joinable thread with all signals blocked; 0 or an errno. */
int crl_env_thread(pthread_t *thread, void *(*run)(void *), void *arg);
/* Disables cancellation of the calling thread; returns the state before, for crl_env_cancel_as. */
int crl_env_cancel_off(void);
void crl_env_cancel_as(int before);
/* crl_env_cancel_as in a form for the cleanup attribute. */
void crl_env_cancel_back(const int *before);
/* Moves a descriptor that was just opened away from 0, 1 and 2, which other code of the process
 * uses as standard streams. Returns `fd`, or its new number, closed on exec. -1 with errno: it
 * could not be moved and was closed, or `fd` is -1. */
int crl_env_own_fd(int fd);
/* Opens /dev/null at each of 0, 1 and 2 that is closed, and leaves it open, so that no descriptor
 * that a foreign library opens next becomes a standard stream. Each is opened for the opposite
 * direction, so that reading or printing there still fails. Any thread. */
void crl_env_guard_standard(void);
/* Names the calling thread, for debuggers; at most 15 bytes. */
void crl_env_thread_name(const char *name);

#endif
