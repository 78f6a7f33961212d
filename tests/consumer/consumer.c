/* consumer.c: a program against the installed library: one value, computed once, then found in the
 * store. */
#include <corral.h>

#include <stdio.h>
#include <string.h>

static int query(corral_fill *fill, const void *key, size_t key_len, void *count) {
  (void)key;
  (void)key_len;
  ++*(int *)count;
  return corral_fill_bytes(fill, "answer", 6);
}

int main(int argc, char **argv) {
  corral_error error = {0};
  corral *c = NULL;
  int computed = 0;
  if (argc != 2) return 2;
  if (corral_open(CORRAL_OPTIONS(.store = argv[1]), &c, &error) != CORRAL_OK) {
    fprintf(stderr, "consumer: %s\n", error.text);
    return 1;
  }
  for (int i = 0; i < 2; i++) {
    corral_value *value = NULL;
    int status =
        corral_get_or_compute(c, "key", 3, CORRAL_CALL(.error = &error), query, &computed, &value);
    if (status != CORRAL_OK) {
      fprintf(stderr, "consumer: %s: %s\n", corral_status_text(status), error.text);
      return 1;
    }
    printf("%s %.*s\n", corral_how_name(corral_value_how(value)), (int)corral_value_size(value),
           (const char *)corral_value_data(value));
    corral_value_unref(value);
  }
  corral_close(c);
  return computed == 1 && strcmp(corral_version(), CORRAL_VERSION) == 0 ? 0 : 1;
}
