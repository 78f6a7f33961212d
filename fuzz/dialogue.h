/* dialogue.h: batches of operations through a plugin's table, and checks that hold for every
 * answer, whatever the server sends. */
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

/* Opens the store and connects. Returns 0 when the server's greeting was wrong. */
int fuzz_dialogue_begin(fuzz_dialogue *d, const corral_store *plugin, const char *uri);
/* Performs batches of up to 4 operations made from the first bytes of `in`, until the input's
 * number of batches is reached or the handle breaks. */
void fuzz_dialogue_perform(fuzz_dialogue *d, fuzz_input *in);
void fuzz_dialogue_end(fuzz_dialogue *d);

#endif
