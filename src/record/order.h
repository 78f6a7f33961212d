/* order.h: the payload of a control record: an operator's order. Pure. Described in
 * docs/record.md. */
#ifndef CRL_ORDER_H
#define CRL_ORDER_H

#include <corral/control.h>

typedef struct crl_order {
  corral_control verb; /* never DROP_NEAR */
  int64_t number;      /* of LIMIT; else 0 */
  uint64_t dropped;    /* another number with each DROP_NEAR; 0: there was none */
} crl_order;

enum { CRL_ORDER_BYTES = 17 };

void crl_order_write(const crl_order *order, uint8_t payload[CRL_ORDER_BYTES]);
/* 0: this is no order; a longer payload, of a later version, is read as far as it is known. */
int crl_order_read(const uint8_t *payload, size_t size, crl_order *ret);

#endif
