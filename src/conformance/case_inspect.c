/* case_inspect.c: what a store tells of its servers. */
#include "conformance.h"

#include <string.h>

enum { FACTS = 1024, OWNER = 1 };

/* The facts that were told. */
typedef struct facts {
  size_t count;
  char servers[FACTS][CORRAL_FACT_TEXT];
  char names[FACTS][CORRAL_FACT_NAME + 1];
} facts;

static void check_texts(const corral_fact *f) {
  size_t len = f->name != NULL ? strspn(f->name, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
  check(len >= 1 && len <= CORRAL_FACT_NAME && f->name[len] == '\0',
        "a fact is called '%s': a word of 1 to %d letters of a-z, digits and _ is a name",
        f->name != NULL ? f->name : "", CORRAL_FACT_NAME);
  check(f->server != NULL && strlen(f->server) < CORRAL_FACT_TEXT, "%s: no server, or too long",
        f->name);
  check(f->value != NULL && f->value[0] != '\0' && strlen(f->value) < CORRAL_FACT_TEXT,
        "%s: no value, or too long", f->name);
}

static void take(const corral_fact *f, void *arg) {
  facts *all = arg;
  check_texts(f);
  check(f->verdict >= CORRAL_FACT_PLAIN && f->verdict <= CORRAL_FACT_UNFIT, "%s: verdict %d",
        f->name, f->verdict);
  check((f->advice != NULL && f->advice[0] != '\0') == (f->verdict != CORRAL_FACT_PLAIN),
        "%s: a plain fact has no advice, any other one has", f->name);
  for (size_t i = 0; i < all->count; i++)
    check(strcmp(all->servers[i], f->server) != 0 || strcmp(all->names[i], f->name) != 0,
          "%s: told twice of %s", f->name, f->server);
  check(all->count < FACTS, "more than %d facts", FACTS);
  memcpy(all->servers[all->count], f->server, strlen(f->server) + 1);
  memcpy(all->names[all->count++], f->name, strlen(f->name) + 1);
}

static void inspect(const key *k, unsigned flags) {
  corral_error error = {0};
  facts *all = room(sizeof *all);
  corral_inquiry inquiry = {.size = sizeof inquiry,
                            .op_ms = LIMIT_MS,
                            .flags = flags,
                            .key = k->bytes,
                            .key_len = k->len,
                            .tell = take,
                            .arg = all};
  int status = world_inspect(&inquiry, &error);
  check(status == CORRAL_OK, "inspect: %s: %s", corral_status_name(status), error.text);
  check(all->count > 0, "inspect tells nothing");
}

void case_facts_are_bounded_and_nothing_is_changed(void) {
  client *c = client_new();
  if (declared()->locks_only) {
    const key *lock = lock_new("inspected");
    inspect(lock, CORRAL_INSPECT_LOCKS);
    wants("a lock after an inspection", lock_show(c, lock).status, CORRAL_EMISS);
    return;
  }
  const key *k = key_new("k"), *absent = key_new("absent");
  const record *r = record_new(k, 100, 1);
  fill(c, k, OWNER, r, LONG_MS);
  inspect(absent, 0);
  wants_nothing("a key after an inspection", get(c, absent));
  wants_value("after an inspection", get(c, k), r);
}
