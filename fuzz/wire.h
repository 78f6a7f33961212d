/* wire.h: a server that says what the fuzzer wants, on a socketpair, with a clock of its own:
 * nothing ever really waits.
 *
 * The plugin's socket(), connect() and poll() come here by the linker's --wrap; what it reads and
 * writes are real sockets. Whenever it waits for the server, the next segment of the input is
 * delivered: segments end with FUZZ_WIRE_END. After the last one the server hangs up, or is silent
 * until the time allowed is over. */
#ifndef FUZZ_WIRE_H
#define FUZZ_WIRE_H

#include <corral/plugin.h>

#include "fuzz.h"

enum { FUZZ_WIRE_END = 0x1e };

/* What the server will say: first these texts, each a segment, then the input. `script` is
 * NULL-terminated. */
void fuzz_wire_begin(const char *const *script, fuzz_input *in, int hangs_up);
void fuzz_wire_end(void);
/* The host's services with the clock of the wire. */
const corral_host *fuzz_wire_host(void);
/* The next segment, or NULL: for a wire that isn't a socket. */
const uint8_t *fuzz_wire_segment(size_t *ret_size);
/* Lets time pass. */
void fuzz_wire_pass(int64_t ms);

#endif
