/* ramp.h: how many computes at once an origin bears, learned from how fast it answers: an admission
 * ramp. Pure: times are arguments.
 *
 * The limit begins at 2 and doubles with each good round, until the first bad one; from then on it
 * grows by 1. A bad round halves it, to 2 at the least: so one compute that hangs doesn't keep back
 * all others. (Additive increase, multiplicative decrease: Chiu, Jain,
 * "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in Computer Networks",
 * 1989; the beginning is TCP's slow start, RFC 5681.)
 *
 * A round is as many computes as the limit, at least 4, that all began after its last change: so
 * each limit is judged by its own computes. A round is bad when its fastest compute took over twice
 * as long as the fastest one known, or when over half of its computes failed. The fastest counts,
 * since a queue at the origin delays each compute, and an expensive key only its own. (Nichols,
 * Jacobson, "Controlling Queue Delay", ACM Queue, 2012; the factor is that of Netflix's
 * concurrency-limits: "Performance Under Load", 2018.)
 *
 * Under a queue that has stood for 100 ms the newest caller goes first: those who came before are
 * about to give up, and would get their place too late. (Adaptive LIFO: Maurer, "Fail at Scale",
 * ACM Queue, 2015.)
 *
 * A limit that nobody reached doesn't grow. A round that is bad at a limit of 2 shows an origin
 * that is slow by itself: its time is the fastest one known then. After 10 s without computes all
 * begins anew. */
#ifndef CRL_RAMP_H
#define CRL_RAMP_H

#include <stdint.h>

typedef struct crl_ramp {
  int64_t most, limit;
  int64_t changed_us; /* of the limit; computes that began before don't count */
  int64_t known_us;   /* the fastest compute known; 0: none yet */
  int64_t last_us;    /* the last compute's end */
  int64_t queued_us;  /* since then somebody waits; INT64_MAX: nobody does */
  /* the round under way */
  int64_t count, failures, fastest_us;
  int reached, slow_start;
} crl_ramp;

/* `most`: the limit's upper end. */
void crl_ramp_init(crl_ramp *ramp, int64_t most);
/* The limit. Called before each use of it. `inside`: computes under way. */
int64_t crl_ramp_limit(crl_ramp *ramp, int64_t inside, int64_t now_us);
/* From now on that end is another. */
void crl_ramp_cap(crl_ramp *ramp, int64_t most, int64_t now_us);
/* Somebody waits because of the limit. */
void crl_ramp_reached(crl_ramp *ramp);
/* Somebody waits since then; INT64_MAX: nobody does. */
void crl_ramp_queue(crl_ramp *ramp, int64_t since_us);
/* True while the queue stands. */
int crl_ramp_newest_first(const crl_ramp *ramp, int64_t now_us);
/* A compute has ended. */
void crl_ramp_ended(crl_ramp *ramp, int64_t began_us, int64_t ended_us, int failed);

#endif
