/* fuzz_options.c: options by name and text: what is accepted is in its range and can be shown, what
 * is refused is told in one plain line and changes nothing.
 *
 * Input: a byte for the kind of struct, a name, NUL, a text. */
#include "fuzz.h"

#include "policy/options.h"
#include "policy/policy.h"

/* Each number that is set must be in its range, and shown as a text that sets it. */
static void check_shown(void *user, const crl_option *rows, size_t count, size_t at,
                        int (*set)(void *user, const char *name, const char *text)) {
  const int64_t *fields = (const int64_t *)(const void *)((const char *)user + at);
  for (size_t i = 0; i < count; i++) {
    char text[32];
    int64_t number = fields[i];
    if (number == 0) continue;
    MUST(number >= rows[i].least && number <= rows[i].most);
    MUST(set(user, rows[i].name, crl_option_show(&rows[i], number, text)) == CORRAL_OK);
    MUST(fields[i] == number);
  }
}

static int set_policy(void *user, const char *name, const char *text) {
  return corral_policy_set(user, name, text, NULL);
}

static int set_options(void *user, const char *name, const char *text) {
  return corral_options_set(user, name, text, NULL);
}

static int set_lock(void *user, const char *name, const char *text) {
  return corral_lock_options_set(user, name, text, NULL);
}

static void check_result(int status, const corral_error *error) {
  MUST(status == CORRAL_OK || status == CORRAL_EINVAL || status == CORRAL_EOPTION);
  MUST((status == CORRAL_OK) == (error->text[0] == '\0'));
  MUST_BE_PLAIN(error->text);
}

static void check_duration(const char *text) {
  corral_error error = {0};
  char shown[32];
  int64_t ms = 0, again = 0;
  int status = corral_duration_parse("x", text, 0, INT64_MAX, &ms, &error);
  check_result(status, &error);
  if (status != CORRAL_OK) return;
  corral_duration_show(ms, shown, sizeof shown);
  MUST(corral_duration_parse("x", shown, 0, INT64_MAX, &again, NULL) == CORRAL_OK && again == ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  corral_error error = {0};
  corral_policy policy = {.size = sizeof policy};
  corral_options options = {.size = sizeof options, .policy = &policy};
  corral_lock_options lock = {.size = sizeof lock};
  size_t count, at;
  uint8_t kind = fuzz_byte(&in) % 3;
  char *name = fuzz_text(&in, '\0'), *text = fuzz_text(&in, '\0');
  check_result(kind == 0   ? corral_policy_set(&policy, name, text, &error)
               : kind == 1 ? corral_options_set(&options, name, text, &error)
                           : corral_lock_options_set(&lock, name, text, &error),
               &error);
  const crl_option *rows = crl_options_of_policy(&count, &at);
  check_shown(&policy, rows, count, at, set_policy);
  rows = crl_options_of_corral(&count, &at);
  check_shown(&options, rows, count, at, set_options);
  rows = crl_options_of_lock(&count, &at);
  check_shown(&lock, rows, count, at, set_lock);
  check_duration(text);
  free(name);
  free(text);
  return 0;
}
