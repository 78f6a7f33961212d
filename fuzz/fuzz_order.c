/* fuzz_order.c: the payload of a control record (record/order.h), with any content. */
#include "fuzz.h"

#include "record/order.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  uint8_t *bytes = fuzz_bytes(&in, size, &size);
  uint8_t again[CRL_ORDER_BYTES];
  crl_order order;
  if (crl_order_read(bytes, size, &order)) {
    MUST(size >= sizeof again && order.verb < CORRAL_CONTROL_DROP_NEAR);
    MUST(order.verb == CORRAL_CONTROL_LIMIT
             ? order.number >= 1 && order.number <= CORRAL_CONTROL_NUMBER_MOST
             : order.number == 0);
    crl_order_write(&order, again);
    MUST(memcmp(again, bytes, sizeof again) == 0);
  }
  free(bytes);
  return 0;
}
