/* order.c: the payload of a control record: 1 byte the verb, 8 the number, 8 the last drop. */
#include "record/order.h"

#include "base/names.h"
#include "record/record.h"

CRL_NAMES(control, corral_control, CORRAL_CONTROL_MAP, CORRAL_CONTROL_COUNT)

void crl_order_write(const crl_order *order, uint8_t payload[CRL_ORDER_BYTES]) {
  payload[0] = (uint8_t)order->verb;
  crl_record_put(payload + 1, (uint64_t)order->number, 8);
  crl_record_put(payload + 9, order->dropped, 8);
}

int crl_order_read(const uint8_t *payload, size_t size, crl_order *ret) {
  if (size < CRL_ORDER_BYTES || payload[0] >= CORRAL_CONTROL_DROP_NEAR) return 0;
  uint64_t number = crl_record_take(payload + 1, 8);
  int is_limit = payload[0] == CORRAL_CONTROL_LIMIT;
  if (is_limit ? number < 1 || number > CORRAL_CONTROL_NUMBER_MOST : number != 0) return 0;
  *ret = (crl_order){.verb = (corral_control)payload[0],
                     .number = (int64_t)number,
                     .dropped = crl_record_take(payload + 9, 8)};
  return 1;
}
