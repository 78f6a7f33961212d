/* desk.h: the control record of a namespace: reading it, and giving an order. */
#ifndef CRL_CONTROL_DESK_H
#define CRL_CONTROL_DESK_H

#include "context/context.h"
#include "record/order.h"

/* Sets *key to that of the control record; CORRAL_OK: to be given to crl_key_clean. */
int crl_desk_key(const crl_context *context, crl_key *key);

/* The result of a look. */
typedef struct crl_desk_found {
  crl_order order; /* verb NORMAL: none, or no record that is an order */
  int64_t left_ms; /* of its life; 0: none */
  uint64_t print;  /* crl_watch_print of the record */
} crl_desk_found;

/* Asks the store, by `deadline`. CORRAL_OK; else how the store failed. */
int crl_desk_look(crl_context *context, crl_key *key, int64_t deadline, crl_desk_found *ret,
                  corral_error *error);
/* Gives an order, by corral_control_set's arguments, which were checked. */
int crl_desk_give(crl_context *context, corral_control verb, int64_t number, int64_t for_ms,
                  corral_error *error);

#endif
