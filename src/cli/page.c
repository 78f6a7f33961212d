/* page.c: pages for corral get and corral inspect: which one a request would get, and what is said
 * of it. What a page has comes from the store: it is written to a terminal escaped. */
#include "page.h"

#include <string.h>
#include <unistd.h>

enum { LOOKS = 5 /* each time the origin's Vary has other names than before, as in the module */ };

bool cli_page_field(cli_page_request *request, const char *name, const char *text) {
  const char *colon = strchr(text, ':');
  if (colon == NULL || colon == text || request->count == CLI_PAGE_FIELDS) {
    cli_say("%s: --field: '%s' is not accepted: up to %d fields of a request, 'NAME: VALUE', are",
            name, text, CLI_PAGE_FIELDS);
    return false;
  }
  const char *value = colon + 1 + strspn(colon + 1, " \t");
  request->fields[request->count++] = (corral_page_field){.name = (const unsigned char *)text,
                                                          .name_len = (size_t)(colon - text),
                                                          .value = (const unsigned char *)value,
                                                          .value_len = strlen(value)};
  return true;
}

/* True when the page is for another request; then `variant` is the name of that one's. */
static bool is_other(const corral_page *page, const cli_page_request *request,
                     char variant[CLI_PAGE_VARIANT]) {
  static const char digits[] = "0123456789abcdef";
  unsigned char hash[CORRAL_PAGE_HASH];
  if (request->count == 0 || page->vary_len == 0) return false;
  corral_page_vary(page->vary, page->vary_len, request->fields, request->count, hash);
  for (size_t i = 0; i < sizeof hash; i++) {
    variant[2 * i] = digits[hash[i] >> 4];
    variant[2 * i + 1] = digits[hash[i] & 15];
  }
  return memcmp(hash, page->hash, sizeof hash) != 0;
}

/* True when the page is past its lives, and kept to be revalidated. */
static bool is_over(const corral_value *value, const corral_page *page) {
  return corral_value_how(value) == CORRAL_STALE &&
         !corral_page_may_be_stale(page, corral_value_age_ms(value));
}

int cli_page_get(corral *c, const void *key, size_t key_len, const cli_page_request *request,
                 corral_error *error, char variant[CLI_PAGE_VARIANT], size_t *variant_len,
                 corral_value **ret) {
  *variant_len = 0;
  for (int looks = 0; looks < LOOKS; looks++) {
    corral_page page;
    int status = corral_get(
        c, key, key_len,
        CORRAL_CALL(.error = error, .variant = variant, .variant_len = *variant_len), ret);
    if (status != CORRAL_OK) return status;
    bool is_page =
        corral_page_read(corral_value_data(*ret), corral_value_size(*ret), &page) == CORRAL_OK;
    bool is_usable = !is_page || !is_over(*ret, &page);
    if (is_usable && !(is_page && is_other(&page, request, variant))) return CORRAL_OK;
    corral_value_unref(*ret);
    *ret = NULL;
    if (!is_usable) break;
    *variant_len = CLI_PAGE_VARIANT;
  }
  return CORRAL_EMISS;
}

/* Fields come from the store, and a pipe wants them as they are; corral_page_read has refused those
 * with line ends. */
bool cli_page_write_header(const corral_page *page) {
  char line[32];
  corral_page_field field;
  int len = snprintf(line, sizeof line, "HTTP/1.1 %u\r\n", (unsigned)page->status);
  bool ok = cli_write(STDOUT_FILENO, line, (size_t)len);
  for (corral_page_cursor at = 0; ok && corral_page_next(page, &at, &field);)
    ok = cli_write(STDOUT_FILENO, field.name, field.name_len) &&
         cli_write(STDOUT_FILENO, ": ", 2) &&
         cli_write(STDOUT_FILENO, field.value, field.value_len) &&
         cli_write(STDOUT_FILENO, "\r\n", 2);
  return ok && cli_write(STDOUT_FILENO, "\r\n", 2);
}

void cli_page_inspect(const corral_page *page, bool json) {
  corral_page_field field;
  size_t count = 0;
  for (corral_page_cursor at = 0; corral_page_next(page, &at, &field);) count++;
  int vary_len = (int)page->vary_len;
  const char *vary = vary_len > 0 ? (const char *)page->vary : "none";
  if (json) {
    (void)printf(",\"status\":%u,\"fields\":%zu,\"fields_bytes\":%zu,\"body_bytes\":%zu,\"vary\":",
                 (unsigned)page->status, count, page->fields_len, page->body_len);
    cli_json_string(stdout, page->vary, page->vary_len);
    return;
  }
  (void)printf("%-10s %u\n", "status", (unsigned)page->status);
  (void)printf("%-10s %zu, %zu bytes\n", "fields", count, page->fields_len);
  (void)printf("%-10s %zu bytes\n", "body", page->body_len);
  (void)printf("%-10s %.*s\n", "vary", vary_len > 0 ? vary_len : 4, vary);
}
