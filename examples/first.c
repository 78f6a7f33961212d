/* first.c: one guarded query. Run it twice, or fifty times at once: the "query" runs once a minute.
 *
 * cc first.c $(pkg-config --cflags --libs corral) && ./a.out lmdb:/tmp/first.corral */
#include <corral.h>
#include <stdio.h>
#include <string.h>

/* The expensive part; here it only prints that it runs. */
static int query(corral_fill *fill, const void *key, size_t key_len, void *database) {
  char row[128];
  fprintf(stderr, "asking %s\n", (const char *)database);
  snprintf(row, sizeof row, "the row of %.*s", (int)key_len, (const char *)key);
  return corral_fill_bytes(fill, row, strlen(row));
}

int main(int argc, char **argv) {
  const char *store = argc > 1 ? argv[1] : "memory:";
  char database[] = "the database";
  corral *users;
  corral_value *value;
  corral_error error = {0};

  if (corral_open(CORRAL_OPTIONS(.store = store, .name_space = "users"), &users, &error) !=
      CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  int status = corral_get_or_compute(
      users, "42", 2,
      CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 60000, .swr_ms = 600000), .error = &error),
      query, database, &value);
  if (status == CORRAL_OK) {
    printf("%.*s (%s)\n", (int)corral_value_size(value), (const char *)corral_value_data(value),
           corral_how_name(corral_value_how(value)));
    corral_value_unref(value);
  } else {
    fprintf(stderr, "%s\n", error.text);
  }
  corral_close(users);
  return status == CORRAL_OK ? 0 : 1;
}
