/* flight.h: one attempt to answer one key, from the first look to the last release, as a pure state
 * machine.
 *
 * crl_flight_start and crl_flight_step return the next ask; the driver does it and tells what came
 * of it, with the time. One ask is outstanding at a time. The flight does no I/O, reads no clock,
 * allocates nothing and sees no value. ANSWER happens exactly once. A flight may go on after it,
 * without its caller: that gives stale-while-revalidate. A WAIT may be cut short at any time. */
#ifndef CRL_FLIGHT_H
#define CRL_FLIGHT_H

#include "gate.h"
#include "policy.h"

typedef enum crl_ask {
  CRL_ASK_GET = 1, /* look into the store */
  CRL_ASK_CLAIM,   /* try to take the lease, under a fresh token each time */
  /* until flight->until, or shorter; if flight->at_host, until the host's lock is free */
  CRL_ASK_WAIT,
  CRL_ASK_COMPUTE, /* run the user's function, the lease kept alive if flight->leased */
  CRL_ASK_SETTLE,  /* store what was computed, if the lease is still ours */
  CRL_ASK_RELEASE, /* end the lease; with a verdict of flight->retry_ms if that is not 0 */
  CRL_ASK_ANSWER,  /* give flight->answer to whoever wants the key in this process */
  CRL_ASK_DONE,
  /* a place among the computes that may run at once, of flight->rank, by flight->until */
  CRL_ASK_SLOT,
  CRL_ASK_HOST, /* try to take the host's lock */
  CRL_ASK_HELD  /* look at what this process holds for a store that is away */
} crl_ask;

typedef enum crl_answer {
  CRL_ANSWER_STORED = 1, /* the fresh value (or "no such thing") that the last look found */
  CRL_ANSWER_STALE,      /* the stale value that a look found */
  CRL_ANSWER_VERDICT,    /* the remembered failure that the last look found */
  CRL_ANSWER_COMPUTED,   /* what compute gave; flight->kept tells what became of its fill */
  CRL_ANSWER_FAILED,     /* compute's failure */
  CRL_ANSWER_ERROR,      /* flight->status */
  CRL_ANSWER_HELD        /* what the look at HELD found */
} crl_answer;

/* What a look (GET or CLAIM) found, judged by crl_policy_judge; times left in ms. */
typedef struct crl_look {
  crl_lives lives;    /* all 0 when there is no payload */
  int64_t lease_left; /* of somebody's lease; 0 nobody's */
  int64_t retry_left; /* of a remembered failure; 0 none */
  uint32_t failures;  /* in a row, up to now */
  uint8_t has_value;  /* there is a payload, usable or not */
  int64_t ttl;        /* its whole fresh life */
  uint64_t cost_us;   /* what computing it took */
  /* somebody is at it, and it is known since when. By what it usually costs, nothing if that is
   * unknown: */
  uint8_t expects;
  int64_t expect_left; /* until it should be done; negative: since then */
  uint8_t pass;        /* "can't be cached", remembered: no lives */
  uint8_t watched;     /* the store will tell when this changes */
} crl_look;

typedef enum crl_made {
  CRL_MADE_VALUE = 1,
  CRL_MADE_UNKEPT, /* for those who wait; not to be stored */
  CRL_MADE_FAILURE,
  CRL_MADE_PASS,  /* for its own caller; that is what is to be stored */
  CRL_MADE_OLDER, /* the store has a later version */
  CRL_MADE_FENCED /* one of its tags was invalidated meanwhile */
} crl_made;

typedef struct crl_told {
  int64_t now; /* ms, any monotonic clock, the same throughout */
  /* GET, CLAIM, SETTLE, RELEASE: of the store's operation; GET: EMISS is a status like OK. SLOT,
   * HOST: OK, EBUSY, HOST also an error: there is no such lock. HELD: OK or EMISS */
  int status;
  /* GET; CLAIM when OK or EBUSY. When they failed: retry_left and failures, of this process's own
   * memory */
  crl_look look;
  crl_made made; /* COMPUTE */
  uint8_t left;  /* the caller has left: corral_cancel */
} crl_told;

typedef enum crl_alone {
  CRL_ALONE_NOT,
  CRL_ALONE_PASS /* it can't be cached */,
  CRL_ALONE_DEADLINE /* the caller's deadline has come */
} crl_alone;

/* How the caller wants it. */
typedef struct crl_flight_plan {
  int64_t deadline;    /* by then the caller wants an answer */
  int64_t soft_until;  /* from then on a stale one of the grace for errors will do; 0 never */
  uint64_t dice;       /* seed of the flight's own random numbers */
  uint8_t can_compute; /* else it only looks */
  uint8_t background;  /* compute may run after the answer, without the caller */
  uint8_t limited;     /* computes need a SLOT */
  uint8_t ladder;      /* elections begin at the HOST */
  uint8_t early;       /* a fresh value is to be rebuilt all the same */
  uint8_t alone;       /* crl_alone: begin so */
} crl_flight_plan;

typedef struct crl_flight {
  const corral_policy *policy;
  crl_flight_plan plan;
  uint64_t dice;
  uint8_t ask; /* the outstanding one */
  uint8_t answered;
  uint8_t leased;   /* the lease is ours, as far as we were told */
  uint8_t degraded; /* computing without the store's election */
  /* crl_alone: computing for this caller alone, without any election; nothing will be stored */
  uint8_t alone;
  uint8_t last_look;   /* the deadline has come: what this look finds is the end */
  uint8_t refresh;     /* the answer can be served and nobody is at it: climb behind the answer */
  uint8_t early;       /* the value is fresh, and shall be rebuilt all the same */
  uint8_t unsure;      /* the outstanding RELEASE is of a claim whose reply was lost */
  uint8_t lost_claims; /* how many there were */
  /* SLOT was granted; when it is 0 again, the driver gives it back. Always 0 at DONE */
  uint8_t has_slot;
  uint8_t on_host;   /* the host's lock was granted; likewise */
  uint8_t at_host;   /* the outstanding WAIT is for the host's lock */
  uint8_t rank;      /* crl_rank, for SLOT */
  uint8_t has_value; /* the last look found a payload, usable or not */
  uint8_t answer;    /* crl_answer: for ANSWER, now or after the RELEASE */
  uint8_t kept;      /* corral_kept: for COMPUTED */
  /* crl_made, 0 before COMPUTE: what an owner that is still there gets instead of a stale answer */
  uint8_t made;
  int status;        /* for ERROR */
  unsigned looks;    /* waits done */
  uint32_t failures; /* in a row, before this flight */
  int64_t until;     /* for WAIT and SLOT */
  int64_t asked;     /* when SLOT was asked for */
  /* since when the host's lock was held without a lease to be seen; 0 it wasn't */
  int64_t shut_since;
  int64_t retry_ms;    /* for RELEASE */
  int64_t fresh_until; /* end of the fresh life that was found; 0 none was */
  /* when the stale value that was found may no longer be served; 0 none was found */
  int64_t swr_until, sie_until;
} crl_flight;

crl_ask crl_flight_start(crl_flight *flight, const corral_policy *policy,
                         const crl_flight_plan *plan);
crl_ask crl_flight_step(crl_flight *flight, const crl_told *told);

#endif
