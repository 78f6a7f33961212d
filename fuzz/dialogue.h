/* dialogue.h: batches of operations by a plugin's table, and what must hold of every answer,
 * whatever the server says. */
#ifndef FUZZ_DIALOGUE_H
#define FUZZ_DIALOGUE_H

#include "wire.h"

typedef struct fuzz_dialogue {
  const corral_host *host;
  const corral_store *plugin;
  void *store, *handle;
  corral_store_info info;
  corral_error error;
} fuzz_dialogue;

enum { FUZZ_LIMIT_MS = 500 };

/* Opens the store and connects. 0 when what the server said to that was no greeting. */
int fuzz_dialogue_begin(fuzz_dialogue *d, const corral_store *plugin, const char *uri);
/* Batches of up to 4 ops made of the first bytes of `in`, until the input says to end or the handle
 * breaks. */
void fuzz_dialogue_perform(fuzz_dialogue *d, fuzz_input *in);
void fuzz_dialogue_end(fuzz_dialogue *d);

#endif
