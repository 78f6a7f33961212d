/* fuzz_memcached.c: replies of a memcached server, or of a proxy: to the greeting, and to batches
 * of every verb. */
#include "dialogue.h"

extern const corral_store crl_plugin_memcached;

/* Byte 0: 1: a correct greeting comes first; 2: the server hangs up at the end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const right[] = {"STAT time 1700001000\r\nEND\r\nSTAT item_size_max "
                                      "1048576\r\nSTAT cas_enabled yes\r\nEND\r\n",
                                      NULL};
  static const char *const none[] = {NULL};
  fuzz_input in = {data, size};
  fuzz_dialogue d;
  uint8_t how = fuzz_byte(&in);
  fuzz_wire_begin(how & 1 ? right : none, &in, how >> 1 & 1);
  if (fuzz_dialogue_begin(&d, &crl_plugin_memcached, "memcached+unix:///fuzz"))
    fuzz_dialogue_perform(&d, &in);
  fuzz_dialogue_end(&d);
  fuzz_wire_end();
  return 0;
}
