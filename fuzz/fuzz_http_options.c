/* fuzz_http_options.c: an HTTP origin's URL with its parameters, and the URLs made of it from keys
 * and redirects. Lines: the origin, then keys, then one redirect; within a key 0x1e stands for a
 * line's end. */
#include "fuzz.h"

#include "store/registry.h"
#include "store/secret.h"
#include "../plugins/http/http.h"

/* The URL made for a key stays on the template's server, below its path. */
static void check_url(const crl_http_origin *o, const crl_http_transfer *t) {
  size_t before = strlen(o->before), after = strlen(o->after), len = strlen(t->url);
  MUST(len <= CRL_HTTP_URL && len >= before + after && memcmp(t->url, o->before, before) == 0);
  MUST(strcmp(t->url + len - after, o->after) == 0);
  MUST(fuzz_is_plain(t->url, len, 0) && strchr(t->url, ' ') == NULL &&
       !crl_http_has_dots(t->url + o->path_at));
  for (const struct curl_slist *field = t->fields; field != NULL; field = field->next)
    MUST(fuzz_is_plain(field->data, strlen(field->data), 0));
}

static void check_key(crl_http_origin *o, char *key, const char *redirect) {
  crl_http_transfer t = {.origin = o, .key = key, .key_len = strlen(key)};
  for (char *at = key; *at != '\0'; at++)
    if (*at == 0x1e) *at = '\n';
  if (crl_http_url_make(&t) == NULL) {
    check_url(o, &t);
    if (redirect != NULL && crl_http_url_follow(&t, redirect) == NULL)
      MUST(strlen(t.url) <= CRL_HTTP_URL);
  }
  free(t.url);
  curl_slist_free_all(t.fields);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const corral_host *host = crl_registry_host();
  fuzz_input in = {data, size};
  crl_http_origin o = {.host = host, .calls = host->fill};
  corral_error error = {0};
  crl_secret_wait_ms = 0; /* a descriptor of the fuzzer itself may never end */
  char *url = fuzz_text(&in, '\n'), *redirect = fuzz_text(&in, '\n');
  int status = crl_http_options(&o, url, 1 << 20, &error);
  MUST_BE_PLAIN(error.text);
  if (status == CORRAL_OK) {
    MUST(o.most <= 1 << 20 && o.connections >= 1 && o.connect_ms >= 1 && o.total_ms >= 1);
    for (int i = 0; i < 8 && in.left > 0; i++) {
      char *key = fuzz_text(&in, '\n');
      check_key(&o, key, redirect);
      free(key);
    }
  } else {
    MUST(error.text[0] != '\0');
  }
  crl_http_options_free(&o);
  free(url);
  free(redirect);
  return 0;
}
