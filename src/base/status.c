/* status.c: the table of statuses, and filling a corral_error. */
#include "base/status.h"

#include "base/print.h"

#include <string.h>

const char *corral_status_text(int status) {
  switch (status) {
    case CORRAL_OK: return "ok";
#define CASE(name, number, text)                                                                   \
  case number: return text;
      CORRAL_STATUS_MAP(CASE)
#undef CASE
    default: return "a status that this version does not know";
  }
}

const char *corral_status_name(int status) {
  switch (status) {
    case CORRAL_OK: return "OK";
#define CASE(name, number, text)                                                                   \
  case number: return #name;
      CORRAL_STATUS_MAP(CASE)
#undef CASE
    default: return "?";
  }
}

const char *corral_how_name(corral_how how) {
  switch (how) {
    case CORRAL_FRESH: return "fresh";
    case CORRAL_STALE: return "stale";
    case CORRAL_COMPUTED: return "computed";
    case CORRAL_JOINED: return "joined";
    case CORRAL_OUTBOX: return "outbox";
    default: return "?";
  }
}

const char *corral_version(void) { return CORRAL_VERSION; }
int corral_version_number(void) { return CORRAL_VERSION_NUMBER; }

/* Replaces control characters: texts quote servers, files and callers, and must not move a
 * terminal's cursor or forge a line of a log. */
static void make_plain(char *text) {
  for (; *text != '\0'; text++)
    if ((unsigned char)*text < ' ' || *text == 127) *text = '?';
}

int crl_status_fail(corral_error *error, int status, const char *format, ...) {
  va_list args;
  if (error == NULL) return status;
  memset(error, 0, sizeof *error);
  error->status = status;
  va_start(args, format);
  crl_print(error->text, sizeof error->text, format, args);
  va_end(args);
  make_plain(error->text);
  return status;
}

int crl_status_plain(corral_error *error, int status) {
  return crl_status_fail(error, status, "%s", corral_status_text(status));
}
