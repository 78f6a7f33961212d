/* flight.h: one attempt to answer one key, from the first look to the last release, as a pure state
 * machine.
 *
 * crl_flight_start and crl_flight_step return the next ask; the driver performs it, and tells the
 * next step its result and the time. One ask is outstanding at a time. The flight does no I/O,
 * reads no clock, allocates nothing and sees no value. ANSWER happens exactly once. A flight may go
 * on after it, without its caller: that gives stale-while-revalidate. A WAIT may be cut short at
 * any time. */
#ifndef CRL_FLIGHT_H
#define CRL_FLIGHT_H

#include "policy/policy.h"

typedef enum crl_ask {
  CRL_ASK_GET = 1, /* look into the store */
  CRL_ASK_CLAIM,   /* try to take the lease, with a fresh lease token each time */
  /* pause until flight->until or shorter; if flight->at_host, until the host lock is free */
  CRL_ASK_WAIT,
  CRL_ASK_COMPUTE, /* run the user's function, the lease kept alive if flight->leased */
  CRL_ASK_SETTLE,  /* store what was computed, if the lease is still ours */
  CRL_ASK_RELEASE, /* end the lease, with a verdict for flight->retry_ms if that is not 0 */
  CRL_ASK_ANSWER,  /* give flight->answer to all callers of the key in this process */
  CRL_ASK_DONE,
  /* take a slot of the limiter, with flight->rank, by flight->until */
  CRL_ASK_SLOT,
  CRL_ASK_HOST,   /* try to take the host lock */
  CRL_ASK_OUTBOX, /* look for a value that this process holds for a store that is away */
  CRL_ASK_PUBLISH /* offer what was computed, whose fill is still to come, to all callers of the key
                     in this process */
} crl_ask;

typedef enum crl_answer {
  CRL_ANSWER_STORED = 1, /* the fresh value (or "no such thing") that the last look found */
  CRL_ANSWER_STALE,      /* the stale value that a look found */
  CRL_ANSWER_VERDICT,    /* the failure of the verdict that the last look found */
  CRL_ANSWER_COMPUTED,   /* the result of compute; flight->kept: whether it was stored */
  CRL_ANSWER_FAILED,     /* the failure of compute */
  CRL_ANSWER_ERROR,      /* the error flight->status */
  CRL_ANSWER_OUTBOX      /* the fresh value that OUTBOX found */
} crl_answer;

/* The findings of a look (GET or CLAIM), judged by crl_envelope_judge; times left in ms. */
typedef struct crl_look {
  crl_lives lives;    /* all 0 when there is no payload */
  int64_t lease_left; /* of another holder's lease; 0: none */
  int64_t retry_left; /* of a verdict; 0: none */
  uint32_t failures;  /* in a row, up to now */
  uint8_t has_value;  /* there is a payload, usable or not */
  int64_t ttl;        /* the payload's whole fresh life */
  uint64_t cost_us;   /* the cost of its compute */
  /* another holder has a lease, and its beginning is known: expect_left is set */
  uint8_t expects;
  /* until that holder's compute should end, by its usual cost (0 if unknown); negative: since
   * then */
  int64_t expect_left;
  /* of the pause after this process's last compute of the key without the store; 0: none */
  int64_t pause_left;
  uint8_t pass;    /* "can't be cached", remembered: no lives */
  uint8_t watched; /* the store will tell the next change */
} crl_look;

typedef struct crl_told {
  int64_t now; /* ms, any monotonic clock, the same throughout */
  /* GET, CLAIM, SETTLE, RELEASE: status of the store's operation; after a GET, EMISS is no failure.
   * SLOT: OK, EBUSY. HOST: OK, EBUSY, or an error: there is no host lock. OUTBOX: OK, EMISS */
  int status;
  /* set by GET, and by CLAIM when OK or EBUSY. When they failed: only retry_left, failures and
   * pause_left, as this process remembers them. Set by OUTBOX when OK: only the lives */
  crl_look look;
  crl_made made;  /* set by COMPUTE */
  uint8_t slow;   /* GET, CLAIM, RELEASE failed, and the store is slow: it may answer yet */
  uint8_t left;   /* the caller has left: corral_cancel_token_cancel */
  uint8_t behind; /* set by PUBLISH: the lease may end behind the answer */
  uint8_t passed; /* HOST was BUSY: a flight of this corral has passed this holder by */
  uint8_t frozen; /* from now on nothing is computed: an operator's order */
} crl_told;

typedef enum crl_alone {
  CRL_ALONE_NOT,
  CRL_ALONE_PASS /* the value can't be cached */,
  CRL_ALONE_DEADLINE, /* the caller's deadline has come */
  CRL_ALONE_OUTBOX,   /* only as a plan: the same, with a slow store: OUTBOX is the first ask */
  CRL_ALONE_VERIFY    /* the value is to be compared, and is nobody's answer: driver/verify.h */
} crl_alone;

/* The caller's conditions for a flight. */
typedef struct crl_flight_plan {
  int64_t deadline;   /* when the caller must have an answer */
  int64_t soft_until; /* from then on a stale value in its grace for errors is accepted; 0: never */
  uint64_t dice;      /* seed of the flight's own random numbers */
  uint8_t can_compute;  /* 0: the flight only looks */
  uint8_t background;   /* compute may run after the answer, without the caller */
  uint8_t limited;      /* computes need a SLOT */
  uint8_t ladder;       /* elections begin with the host lock */
  uint8_t early;        /* rebuild even a fresh value */
  uint8_t anew;         /* the same, but nothing that is stored is an answer, unless that fails */
  uint8_t alone;        /* crl_alone: compute alone from the beginning */
  uint8_t expects_none; /* the store should have nothing: where no rung is before it, CLAIM is the
                           first look */
  uint8_t returns; /* somebody else rebuilds the value: without the store it isn't computed, but an
                      error, with flight->returned */
  uint8_t frozen;  /* nothing is computed, and a value serves in any of its graces */
} crl_flight_plan;

typedef struct crl_flight {
  const corral_policy *policy;
  crl_flight_plan plan;
  uint64_t dice;
  uint8_t ask; /* the outstanding ask */
  uint8_t answered;
  uint8_t leased;   /* the lease is ours, by the last reply of the store */
  uint8_t degraded; /* computing without the store's election */
  uint8_t slow;     /* the store was slow when it was last asked */
  uint8_t recalls;  /* the store didn't answer, and this process remembers a failure of the key */
  /* crl_alone: computing for this caller alone, without any election; nothing will be stored */
  uint8_t alone;
  uint8_t last_look; /* the deadline has come: this look decides the answer */
  uint8_t ran_out;   /* the same, with a slow store: what OUTBOX finds decides */
  uint8_t refresh; /* the value needs a rebuild and nobody has the lease: climb behind the answer */
  uint8_t early;   /* the value is fresh, and is to be rebuilt early */
  uint8_t blind;   /* no look has been answered yet: a CLAIM is the first one */
  uint8_t unsure;  /* the outstanding RELEASE is of a claim whose reply was lost */
  uint8_t lost_claims; /* number of claims whose reply was lost */
  uint8_t settles;     /* number of settles that failed */
  /* SLOT was granted; when this is 0 again, the driver gives the slot back. Always 0 at DONE */
  uint8_t has_slot;
  uint8_t on_host;     /* the host lock was granted; likewise */
  uint8_t at_host;     /* the outstanding WAIT is for the host lock */
  uint8_t passed;      /* the holder of the host lock was passed by: the corral remembers it */
  uint8_t rank;        /* crl_rank, for SLOT */
  uint8_t has_value;   /* the last look found a payload, usable or not */
  uint8_t others_lead; /* the last look found another holder's lease */
  uint8_t answer;      /* crl_answer: for ANSWER, now or after the RELEASE */
  uint8_t kept;        /* corral_kept: for COMPUTED */
  uint8_t returned;    /* ERROR: by plan.returns */
  /* crl_made; 0 before COMPUTE. At DONE a success replaces the stale answer, for callers that still
   * wait */
  uint8_t made;
  int status;        /* for ERROR */
  unsigned looks;    /* number of waits so far */
  uint32_t failures; /* in a row, before this flight */
  /* the failure whose pause it waits out, by their number in a row; 0: none */
  uint32_t outwaits;
  int64_t until; /* for WAIT and SLOT */
  int64_t asked; /* when SLOT was asked for */
  /* how long the host lock was busy without a lease in the store; since when, by the last two
   * looks (0: the last one found a lease, or failed) */
  int64_t shut_ms, shut_at;
  int64_t retry_ms;    /* for RELEASE */
  int64_t pause_until; /* end of the pause after the last compute without the store */
  int64_t admitted;    /* when this flight may compute without the store; 0: not known yet */
  int64_t fresh_until; /* end of the fresh life that was found; 0: none */
  /* end of each grace of the value that was found; 0: none */
  int64_t swr_until, sie_until;
} crl_flight;

/* True if a fresh value that a call's first look found is to be rebuilt early; `early`: the caller
 * wants it. A value that somebody else rebuilds already, or failed to rebuild, is left alone. */
static inline int crl_flight_early(const corral_policy *policy, const crl_look *look, int early,
                                   uint64_t dice) {
  if (look->lease_left > 0 || look->retry_left > 0) return 0;
  return early || crl_policy_early(policy, look->ttl, look->lives.fresh, look->cost_us, dice);
}

crl_ask crl_flight_start(crl_flight *flight, const corral_policy *policy,
                         const crl_flight_plan *plan);
crl_ask crl_flight_step(crl_flight *flight, const crl_told *told);

#endif
