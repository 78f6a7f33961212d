/* uri.c: parses a store URI (the generic syntax of RFC 3986, with a list of hosts). Pure. */
#include "store/uri.h"

#include <ctype.h>
#include <stdlib.h>

#include "base/status.h"
#include "policy/text.h"

static int bad(corral_error *error, const crl_uri *uri, const char *what) {
  return crl_status_fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->view.text, what);
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* Percent-decodes in place; 0 when a sequence is wrong or gives a NUL. */
static int decode(char *text) {
  char *to = text;
  for (const char *from = text; *from != '\0'; from++) {
    if (*from != '%') {
      *to++ = *from;
      continue;
    }
    int high = hex(from[1]), low = high < 0 ? -1 : hex(from[2]);
    if (low < 0 || high * 16 + low == 0) return 0;
    *to++ = (char)(high * 16 + low);
    from += 2;
  }
  *to = '\0';
  return 1;
}

/* ---- the text for messages ----------------------------------------------------------------- */

static const char hidden[] = "***";

/* A text that grows within bounds. */
typedef struct shown {
  char *at, *end; /* one byte is left for the terminator */
} shown;

static void show(shown *to, const char *text, size_t len) {
  if (len > (size_t)(to->end - to->at)) len = (size_t)(to->end - to->at);
  memcpy(to->at, text, len);
  to->at += len;
}

/* True when a parameter of this name may have a secret as its value. */
static int is_secret(const char *name, size_t len) {
  static const char *const words[] = {"pass", "pw",   "secret", "token",
                                      "auth", "cred", "header", "%"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    for (size_t at = 0, size = strlen(words[i]); at + size <= len; at++)
      if (strncasecmp(name + at, words[i], size) == 0) return 1;
  return 0;
}

/* The text behind "://"; the whole text if there is none. */
static const char *behind_scheme(const char *text) {
  const char *at = text;
  while (isalnum((unsigned char)*at) || (*at != '\0' && strchr("+-.", *at) != NULL)) at++;
  return at > text && strncmp(at, "://", 3) == 0 ? at + 3 : text;
}

/* The ':' of a host whose port is no number, for a URI without '@': a password whose '@' was
 * forgotten or encoded. NULL: none. */
static const char *odd_port(const char *host) {
  const char *end = host + strcspn(host, "/?#");
  int is_address = 0;
  for (const char *at = host; at < end; at++) {
    is_address = *at == '[' || (is_address && *at != ']');
    if (*at != ':' || is_address) continue;
    const char *behind = at + 1 + strspn(at + 1, "0123456789");
    if (behind < end && *behind != ',') return at;
  }
  return NULL;
}

/* Shows the text up to the end of the password, which is hidden; returns the rest. Also hidden: a
 * password that should have been percent-encoded; a user alone, since a password is often written
 * without its ':'; all before an '@' in a text that is no URI. */
static const char *show_user(shown *to, const char *text) {
  const char *user = behind_scheme(text), *at = strrchr(user, '@');
  const char *colon = at != NULL     ? memchr(user, ':', (size_t)(at - user))
                      : user != text ? odd_port(user)
                                     : NULL;
  if (at == NULL && colon == NULL) return text;
  show(to, text, (size_t)((colon != NULL ? colon + 1 : user) - text));
  show(to, hidden, sizeof hidden - 1);
  return at != NULL ? at : text + strlen(text);
}

void corral_uri_show(const char *uri, char *text, size_t size) {
  if (size == 0) return;
  shown to = {text, text + size - 1};
  const char *at = show_user(&to, uri);
  size_t len = strcspn(at, "?#");
  show(&to, at, len);
  for (at += len; *at != '\0'; at += len) {
    show(&to, at++, 1);
    len = strcspn(at, "&#");
    size_t name = strcspn(at, "=&#");
    int hides = is_secret(at, name);
    show(&to, at, !hides ? len : at[name] == '=' ? name + 1 : 0);
    if (hides) show(&to, hidden, sizeof hidden - 1);
  }
  *to.at = '\0';
}

/* ---- parsing ------------------------------------------------------------------------------- */

static int parse_scheme(crl_uri *uri, char *text, char **rest, corral_error *error) {
  char *colon = strchr(text, ':');
  if (colon == NULL || colon == text)
    return bad(error, uri,
               "no scheme; accepted are for example memory:, lmdb:PATH, redis://HOST:PORT/DB");
  for (char *p = text; p < colon; p++) {
    if (!isalnum((unsigned char)*p) && strchr("+-.", *p) == NULL)
      return bad(error, uri,
                 "the scheme has a character that is not a letter, digit, '+', '-' or '.'");
    *p = (char)tolower((unsigned char)*p);
  }
  if (colon - text > CRL_URI_SCHEME) return bad(error, uri, "a scheme has at most 63 characters");
  *colon = '\0';
  uri->view.scheme = text;
  *rest = colon + 1;
  return CORRAL_OK;
}

static int parse_params(crl_uri *uri, char *query, corral_error *error) {
  for (char *save = NULL, *pair = strtok_r(query, "&", &save); pair != NULL;
       pair = strtok_r(NULL, "&", &save)) {
    char *equal = strchr(pair, '=');
    if (equal == NULL || equal == pair)
      return bad(error, uri, "each parameter after '?' must be name=value");
    if (uri->view.param_count == CRL_URI_PARAMS) return bad(error, uri, "more than 32 parameters");
    *equal = '\0';
    if (!decode(pair) || !decode(equal + 1))
      return bad(error, uri, "a '%' must be followed by two hex digits, not 00");
    if (crl_uri_get(&uri->view, pair) != NULL) return bad(error, uri, "a parameter is given twice");
    uri->params[uri->view.param_count].name = pair;
    uri->params[uri->view.param_count++].value = equal + 1;
  }
  return CORRAL_OK;
}

/* Parses host, [v6] or host:port, and cuts `host` at its end. */
static int parse_host(crl_uri *uri, char *host, corral_error *error) {
  char *port = NULL;
  if (*host == '[') {
    char *close = strchr(host, ']');
    if (close == NULL) return bad(error, uri, "'[' without ']'");
    if (close[1] == ':')
      port = close + 2;
    else if (close[1] != '\0')
      return bad(error, uri, "only ':port' may follow ']'");
    *close = '\0';
    host++;
  } else if ((port = strchr(host, ':')) != NULL) {
    *port++ = '\0';
  }
  if (port != NULL) {
    char *end;
    long number = strtol(port, &end, 10);
    if (!isdigit((unsigned char)*port) || *end != '\0' || number < 1 || number > 65535)
      return bad(error, uri, "the port must be a number from 1 to 65535");
    uri->view.port = (int)number;
  }
  if (!decode(host)) return bad(error, uri, "a '%' must be followed by two hex digits, not 00");
  uri->view.host = host;
  return CORRAL_OK;
}

static int parse_user(crl_uri *uri, char *user, corral_error *error) {
  char *colon = strchr(user, ':');
  if (colon != NULL) {
    *colon = '\0';
    if (!decode(colon + 1))
      return bad(error, uri, "a '%' must be followed by two hex digits, not 00");
    uri->view.password = colon + 1;
  }
  if (!decode(user)) return bad(error, uri, "a '%' must be followed by two hex digits, not 00");
  if (*user != '\0') uri->view.user = user;
  return CORRAL_OK;
}

static int parse_authority(crl_uri *uri, char *authority, char *spare, corral_error *error) {
  int status = CORRAL_OK;
  char *at = strrchr(authority, '@');
  char *hosts = authority;
  if (at != NULL) {
    *at = '\0';
    hosts = at + 1;
    status = parse_user(uri, authority, error);
  }
  uri->view.hosts = hosts;
  memcpy(spare, hosts, strlen(hosts) + 1);
  spare[strcspn(spare, ",")] = '\0';
  return status == CORRAL_OK ? parse_host(uri, spare, error) : status;
}

/* `rest`: the text behind the scheme's colon; `spare`: room for twice that. */
static int parse_rest(crl_uri *uri, char *rest, char *spare, corral_error *error) {
  int status = CORRAL_OK;
  char *query = strchr(rest, '?');
  if (query != NULL) {
    *query = '\0';
    status = parse_params(uri, query + 1, error);
    if (status != CORRAL_OK) return status;
  }
  if (strncmp(rest, "//", 2) != 0) {
    uri->view.path = rest;
  } else {
    char *authority = rest + 2;
    size_t len = strcspn(authority, "/");
    memcpy(spare, authority, len);
    spare[len] = '\0';
    uri->view.path = authority + len;
    status = parse_authority(uri, spare, spare + len + 1, error);
  }
  if (status == CORRAL_OK && !decode(rest + (uri->view.path - rest)))
    status = bad(error, uri, "a '%' must be followed by two hex digits, not 00");
  return status;
}

int crl_uri_parse(crl_uri *uri, const char *text, corral_error *error) {
  char *rest = NULL;
  memset(uri, 0, sizeof *uri);
  if (text == NULL)
    return crl_status_fail(
        error, CORRAL_EURI,
        "no store URI; accepted are for example memory:, lmdb:PATH, redis://HOST:PORT/DB");
  size_t len = strlen(text) + 1, shown_room = 2 * len + 8;
  char *memory = malloc(3 * len + shown_room);
  if (memory == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  uri->memory = memory;
  uri->room = 3 * len + shown_room;
  memcpy(memory, text, len); /* for the parser, which cuts it up */
  corral_uri_show(text, memory + len, shown_room);
  uri->view.text = memory + len;
  uri->view.host = uri->view.path = "";
  uri->view.params = uri->params;
  int status = parse_scheme(uri, memory, &rest, error);
  if (status == CORRAL_OK) status = parse_rest(uri, rest, memory + len + shown_room, error);
  if (status != CORRAL_OK) crl_uri_free(uri);
  return status;
}

/* Wipes and frees memory that may have a secret in it. */
static void wipe(char *memory, size_t size) {
  if (memory != NULL) explicit_bzero(memory, size);
  free(memory);
}

void crl_uri_free(crl_uri *uri) {
  wipe(uri->memory, uri->room);
  wipe(uri->secret, uri->secret == NULL ? 0 : strlen(uri->secret));
  uri->memory = uri->secret = NULL;
}

const char *crl_uri_get(const corral_uri *uri, const char *name) {
  for (size_t i = 0; i < uri->param_count; i++)
    if (strcmp(uri->params[i].name, name) == 0) return uri->params[i].value;
  return NULL;
}

/* True when `name` is one of the words in `names`. */
static int listed(const char *names, const char *name) {
  size_t len = strlen(name);
  for (const char *at = names; *at != '\0'; at += strspn(at, " ")) {
    size_t word = strcspn(at, " ");
    if (word == len && memcmp(at, name, len) == 0) return 1;
    at += word;
  }
  return 0;
}

int crl_uri_check(const corral_uri *uri, const char *names, corral_error *error) {
  for (size_t i = 0; i < uri->param_count; i++)
    if (!listed(names, uri->params[i].name))
      return crl_status_fail(error, CORRAL_EURI,
                             "store URI '%.80s': unknown parameter '%.40s'; accepted: %.100s",
                             uri->text, uri->params[i].name, *names == '\0' ? "none" : names);
  return CORRAL_OK;
}

/* A bare number is in seconds, in milliseconds for a name that ends in _ms. */
static int parse_number(const char *name, const char *unit, const char *text, int64_t *ret) {
  size_t len = strlen(name);
  int is_ms = len > 3 && strcmp(name + len - 3, "_ms") == 0;
  if (strcmp(unit, "ms") == 0) return crl_text_duration(text, is_ms ? 1 : 1000, ret);
  return strcmp(unit, "bytes") == 0 ? crl_text_size(text, ret) : crl_text_number(text, ret);
}

int crl_uri_number(const corral_uri *uri, const char *name, const char *unit, int64_t least,
                   int64_t most, int64_t *value, corral_error *error) {
  const char *text = crl_uri_get(uri, name);
  int64_t number = 0;
  if (text == NULL) return CORRAL_OK;
  if (parse_number(name, unit, text, &number) != 0 || number == INT64_MAX || number < least ||
      number > most)
    return crl_status_fail(error, CORRAL_EURI,
                           "store URI '%.80s': %s=%.30s; accepted: %lld to %lld%s", uri->text, name,
                           text, (long long)least, (long long)most,
                           strcmp(unit, "ms") == 0      ? " ms, with a unit: 500ms 2s 1h30m"
                           : strcmp(unit, "bytes") == 0 ? " bytes, or with a unit: 64k 10m 2g 1t"
                                                        : "");
  *value = number;
  return CORRAL_OK;
}
