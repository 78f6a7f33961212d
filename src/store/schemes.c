/* schemes.c: the table of schemes. */
#include "store/schemes.h"

#include <corral.h>
#include <stdio.h>
#include <string.h>

#include "policy/text.h"

static const crl_scheme all[] = {
    {"memory", "memory", "values", NULL, NULL},
    {"lmdb", "lmdb", "values", "liblmdb-dev", "liblmdb0"},
    {"redis rediss redis+unix redis+cluster rediss+cluster redis+sentinel rediss+sentinel", "redis",
     "values", "libhiredis-dev and libssl-dev", "libhiredis"},
    {"memcached memcached+unix", "memcached", "values", "libmemcached-dev", "libmemcached11"},
    {"redlock", "redis", "locks", "libhiredis-dev and libssl-dev", "libhiredis"},
    {"sqlite", "sqlite", "locks", "libsqlite3-dev", "libsqlite3-0"},
    {"postgresql", "postgresql", "locks", "libpq-dev", "libpq5"},
    {"mariadb", "mariadb", "locks", "libmariadb-dev", "libmariadb3"},
    {"zookeeper", "zookeeper", "locks", "libzookeeper-mt-dev", "libzookeeper-mt2"},
    {"etcd", "etcd", "locks", "libcurl4-openssl-dev and libcjson-dev", "libcurl4, libcjson1"},
    {"http https", "http", "origin", "libcurl4-openssl-dev", "libcurl4"},
};

enum { ROWS = sizeof all / sizeof all[0], WORD_ROOM = 32 };

/* Takes the next word of *at to `word`; 0: there is none. */
static int next_word(const char **at, char word[WORD_ROOM]) {
  *at += strspn(*at, " ");
  size_t len = strcspn(*at, " ");
  snprintf(word, WORD_ROOM, "%.*s", (int)len, *at);
  *at += len;
  return len > 0;
}

/* Appends the schemes of those that hold such. */
static size_t append(const char *holds, char *text, size_t used, size_t size) {
  for (size_t i = 0; i < ROWS && used < size; i++) {
    if (strcmp(all[i].holds, holds) != 0) continue;
    int n = snprintf(text + used, size - used, "%s%s", used > 0 ? " " : "", all[i].schemes);
    used += n > 0 ? (size_t)n : 0;
  }
  return used;
}

void corral_store_schemes(char *text, size_t size) {
  if (size > 0) text[0] = '\0';
  (void)append("locks", text, append("values", text, 0, size), size);
}

const crl_scheme *crl_schemes_find(const char *scheme) {
  char word[WORD_ROOM];
  for (size_t i = 0; i < ROWS; i++)
    for (const char *at = all[i].schemes; next_word(&at, word);)
      if (strcmp(word, scheme) == 0) return &all[i];
  return NULL;
}

/* The first word of each row, as " a b c". */
static void list_of(const char *holds, char *text, size_t size) {
  char word[WORD_ROOM];
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < ROWS; i++) {
    const char *at = all[i].schemes;
    if (strcmp(all[i].holds, holds) != 0 || !next_word(&at, word) || used >= size) continue;
    int n = snprintf(text + used, size - used, " %s", word);
    used += n > 0 ? (size_t)n : 0;
  }
}

const char *crl_schemes_list(char *text, size_t size) {
  char values[128], locks[128];
  list_of("values", values, sizeof values);
  list_of("locks", locks, sizeof locks);
  snprintf(text, size, "for values:%s; for locks alone:%s", values, locks);
  return text;
}

const char *crl_schemes_meant(const char *scheme, char room[32]) {
  char word[WORD_ROOM];
  unsigned least = 3;
  room[0] = '\0';
  for (size_t i = 0; i < ROWS; i++)
    for (const char *at = all[i].schemes; next_word(&at, word);) {
      unsigned distance = crl_text_distance(scheme, word);
      if (strcmp(all[i].holds, "origin") == 0 || distance >= least) continue;
      if (2 * distance > strlen(word)) continue;
      least = distance;
      snprintf(room, 32, "%s", word);
    }
  return room[0] != '\0' ? room : NULL;
}
