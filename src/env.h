/* env.h: clock, sleep, randomness, pid. The only file of the core that asks the system for them. */
#ifndef CRL_ENV_H
#define CRL_ENV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Host monotonic clock, ms. */
int64_t crl_env_now_ms(void);
/* The same clock in microseconds, to measure costs. */
int64_t crl_env_now_us(void);
/* Shared by all processes of the host, also counts while it sleeps, ms. */
int64_t crl_env_boot_ms(void);
/* Wall clock, ms since 1970: for display only. */
int64_t crl_env_wall_ms(void);
/* Kernel randomness; CORRAL_OK or CORRAL_EIO. */
int crl_env_random(void *buffer, size_t size);
/* Returns at `until` (crl_env_now_ms) or, by a signal, earlier. */
void crl_env_sleep_until(int64_t until);
/* Returns after so many microseconds or, by a signal, earlier. */
void crl_env_pause_us(int64_t us);
/* How often this process image has been forked since its first ancestor loaded the library. */
unsigned crl_env_forks(void);
/* "host/pid", cut to size, always terminated. */
void crl_env_holder(char *text, size_t size);
/* The calling thread's number, as the system has it. */
long crl_env_thread_id(void);
/* A condition variable that waits by the host monotonic clock. */
void crl_env_cond_init(pthread_cond_t *cond);
/* Waits until signalled or `until`; returns 0 when it was the time. Spurious wake-ups are
 * possible. */
int crl_env_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until);
/* Sleeps while *word is `seen`, until woken or `until`; spurious wake-ups are possible. A word of
 * this process: futex(2). */
void crl_env_word_wait(_Atomic uint32_t *word, uint32_t seen, int64_t until);
/* Wakes so many who sleep on it. */
void crl_env_word_wake(_Atomic uint32_t *word, int count);
/* Starts a joinable thread with all signals blocked; 0 or an errno. */
int crl_env_thread(pthread_t *thread, void *(*run)(void *), void *arg);
/* The calling thread can't be cancelled from now on; returns what it was, for crl_env_cancel_as. */
int crl_env_cancel_off(void);
void crl_env_cancel_as(int before);
/* For a cleanup attribute: crl_env_cancel_as. */
void crl_env_cancel_back(const int *before);
/* A descriptor that this process has just opened: moved away from 0, 1 and 2, where others of
 * the process read and print, and closed on exec. What can't be moved is closed: -1 with errno,
 * as for an `fd` of -1. */
int crl_env_own_fd(int fd);
/* Where 0, 1 or 2 is closed it becomes /dev/null, and stays it, so that nothing that a foreign
 * library opens next is taken for a standard stream. Reading and printing there fails as before:
 * each is opened the other way round. Any thread. */
void crl_env_guard_standard(void);
/* Names the thread that calls it, for debuggers; at most 15 bytes. */
void crl_env_thread_name(const char *name);

#endif
