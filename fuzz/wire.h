/* wire.h: a server whose bytes come from the fuzzer, on a socketpair, with a simulated clock:
 * nothing really waits.
 *
 * The linker's --wrap replaces the plugin's socket(), connect() and poll(), and a recv() that may
 * block, with functions of wire.c; other reads and writes go to a real socket. Each wait for the
 * server delivers the next segment of the input; a segment ends with FUZZ_WIRE_END. After the last
 * one the server hangs up, or is silent until the plugin's time limit. */
#ifndef FUZZ_WIRE_H
#define FUZZ_WIRE_H

#include <corral/plugin.h>

#include "fuzz.h"

enum { FUZZ_WIRE_END = 0x1e };

/* Sets the server's bytes: first the texts of `script`, each a segment, then the input. `script` is
 * NULL-terminated. `hangs_up`: the server hangs up after the last segment. */
void fuzz_wire_begin(const char *const *script, fuzz_input *in, int hangs_up);
void fuzz_wire_end(void);
/* The host's services with the wire's clock. */
const corral_host *fuzz_wire_host(void);
/* The next segment, or NULL; for a transport other than a socket. */
const uint8_t *fuzz_wire_segment(size_t *ret_size);
/* Advances the wire's clock. */
void fuzz_wire_pass(int64_t ms);

#endif
