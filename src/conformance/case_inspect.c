/* case_inspect.c: what a store tells of its servers, and of its locks. */
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

/* ---- list ---------------------------------------------------------------------------------- */

enum { LOCKS = 3 };

typedef struct heard {
  const key *locks[LOCKS];
  size_t times[LOCKS], calls, most; /* `most`: it is ended then */
} heard;

static int hear(void *arg, const void *bytes, size_t len) {
  heard *h = arg;
  check(h->most == 0 || h->calls < h->most, "list goes on when tell has ended it");
  for (size_t i = 0; i < LOCKS; i++)
    h->times[i] += len == h->locks[i]->len && memcmp(bytes, h->locks[i]->bytes, len) == 0;
  return ++h->calls == h->most;
}

/* Lists what begins with the first lock's key. */
static void list(heard *h, size_t most) {
  corral_error error = {0};
  corral_listing listing = {.size = sizeof listing,
                            .op_ms = LIMIT_MS,
                            .prefix = h->locks[0]->bytes,
                            .prefix_len = h->locks[0]->len,
                            .tell = hear,
                            .arg = h};
  h->calls = 0;
  h->most = most;
  int status = world_list(&listing, &error);
  if (status == CORRAL_EUNSUPPORTED) cant("the store keeps no names: %s", error.text);
  check(status == CORRAL_OK, "list: %s: %s", corral_status_name(status), error.text);
}

/* A lock whose name is another's with more behind it. */
static const key *lock_behind(const key *before, const char *more) {
  char text[300];
  check(before->len + strlen(more) < sizeof text, "the lock's name is too long");
  memcpy(text, before->bytes, before->len);
  memcpy(text + before->len, more, strlen(more));
  key *k = key_of(text, before->len + strlen(more));
  k->is_lock = true;
  return k;
}

/* The last of the three locks is another's. */
void case_the_locks_that_are_held_are_listed(void) {
  client *c = client_new();
  heard *h = room(sizeof *h);
  h->locks[0] = lock_new("listed");
  h->locks[1] = lock_behind(h->locks[0], "*[?\\ \xff");
  h->locks[2] = lock_new("list");
  for (unsigned i = 0; i < LOCKS; i++)
    wants("LOCK", lock_take(c, h->locks[i], OWNER, ALONE, LONG_MS).status, CORRAL_OK);
  list(h, 0);
  check(h->times[0] > 0 && h->times[1] > 0, "list leaves out a lock that is held");
  check(h->times[2] == 0, "list tells a lock whose key doesn't begin with the prefix");
  list(h, 1);
  check(h->calls == 1, "list told %zu keys, of which one was wanted", h->calls);
  for (unsigned i = 0; i < LOCKS; i++)
    wants("LOCK_EXTEND after list", lock_extend(c, h->locks[i], OWNER, ALONE, LONG_MS).status,
          CORRAL_OK);
}
