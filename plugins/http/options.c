/* options.c: parses an origin's URL: its template and, behind '#', its parameters. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "http.h"

enum { PARAMS = 48, TEMPLATE_MOST = 4096, DAY_MS = 86400000 };

/* At most 100 bytes are shown in a message. */
static const char names[] =
    "connect total max connections redirects keep negative page tags path_tags "
    "allow deny vary header ca compressed password_file password_fd "
    "password_env";
static const char flags_accepted[] = "accepted: 0, 1";

/* An origin's URL being parsed. */
typedef struct parse {
  crl_http_origin *o;
  corral_uri uri;
  corral_uri_param params[PARAMS];
  char shown[100]; /* the URL for messages, without fragment and password */
  corral_error *error;
} parse;

__attribute__((format(printf, 2, 3))) static int bad(parse *p, const char *format, ...) {
  char text[200];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return p->o->host->fail(p->error, CORRAL_EURI, "origin '%.60s': %s", p->shown, text);
}

/* ---- parameters ---------------------------------------------------------------------------- */

static int hex(char c) {
  return isdigit((unsigned char)c)    ? c - '0'
         : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                      : -1;
}

static int decode(char *text) {
  char *to = text;
  for (const char *at = text; *at != '\0'; at++) {
    if (*at != '%') {
      *to++ = *at;
      continue;
    }
    int high = hex(at[1]), low = high < 0 ? -1 : hex(at[2]);
    if (low < 0 || high + low == 0) return 0;
    *to++ = (char)(high * 16 + low);
    at += 2;
  }
  *to = '\0';
  return 1;
}

static int split(parse *p, char *fragment) {
  char *save = NULL;
  for (char *param = strtok_r(fragment, "&", &save); param != NULL;
       param = strtok_r(NULL, "&", &save)) {
    char *value = strchr(param, '=');
    if (p->uri.param_count == PARAMS) return bad(p, "more than %d parameters", PARAMS);
    /* not shown: odd text may be the rest of a password that has a '#' */
    if (value == NULL || strspn(param, "abcdefghijklmnopqrstuvwxyz_") != (size_t)(value - param))
      return bad(p, "what is behind '#' must be name=value, with '&' between");
    *value++ = '\0';
    if (!decode(value))
      return bad(p, "%.20s: a '%%' must be followed by two hex digits, not 00", param);
    p->params[p->uri.param_count++] = (corral_uri_param){param, value};
  }
  return CORRAL_OK;
}

/* CORRAL_EURI if a parameter other than header= is given twice. */
static int check_once(parse *p) {
  for (size_t i = 0; i < p->uri.param_count; i++)
    for (size_t j = 0; j < i; j++)
      if (strcmp(p->params[i].name, p->params[j].name) == 0 &&
          strcmp(p->params[i].name, "header") != 0)
        return bad(p, "%.20s= is given twice", p->params[i].name);
  return CORRAL_OK;
}

static int read_flag(parse *p, const char *name, int64_t *flag) {
  const char *value = p->o->host->uri_get(&p->uri, name);
  if (value == NULL) return CORRAL_OK;
  if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
    return bad(p, "%s=%.20s; %s", name, value, flags_accepted);
  *flag = *value == '1';
  return CORRAL_OK;
}

static int read_numbers(parse *p, uint64_t max_value) {
  crl_http_origin *o = p->o;
  const corral_host *host = o->host;
  int status = read_flag(p, "page", &o->is_page);
  const struct {
    const char *name, *unit;
    int64_t least, most, preset, *value;
  } rows[] = {
      {"connect", "ms", 1, DAY_MS, 5000, &o->connect_ms},
      {"total", "ms", 1, DAY_MS, 30000, &o->total_ms},
      {"max", "bytes", 1, INT64_MAX, (int64_t)max_value, &o->most},
      {"connections", "", 1, 100000, 256, &o->connections},
      {"redirects", "", 0, 20, o->is_page ? 0 : 3, &o->redirects},
      {"path_tags", "", 0, CRL_HTTP_LEVELS, 0, &o->path_tags},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows && status == CORRAL_OK; i++) {
    *rows[i].value = rows[i].preset;
    status = host->uri_number(&p->uri, rows[i].name, rows[i].unit, rows[i].least, rows[i].most,
                              rows[i].value, p->error);
  }
  if ((uint64_t)o->most > max_value) o->most = (int64_t)max_value;
  return status == CORRAL_OK ? read_flag(p, "compressed", &o->is_compressed) : status;
}

int crl_http_has_status(const crl_http_statuses *list, int status) {
  for (size_t i = 0; i < list->count; i++)
    if (list->status[i] == status) return 1;
  return 0;
}

static int read_statuses(parse *p, const char *name, const char *preset, crl_http_statuses *list) {
  const char *value = p->o->host->uri_get(&p->uri, name), *at = value != NULL ? value : preset;
  while (*at != '\0') {
    size_t len = strcspn(at, ",");
    int status = 0;
    for (size_t i = 0; i < len && len == 3; i++)
      status = isdigit((unsigned char)at[i]) ? status * 10 + (at[i] - '0') : 9999;
    if (status < 200 || status > 599 || status == 304 || list->count == CRL_HTTP_STATUSES)
      return bad(
          p, "%s=%.40s; accepted: up to %d statuses from 200 to 599, not 304, with commas between",
          name, value, CRL_HTTP_STATUSES);
    list->status[list->count++] = status;
    at += len + (at[len] == ',');
  }
  return CORRAL_OK;
}

static int read_nets(parse *p, const char *name, crl_http_nets *nets) {
  const char *value = p->o->host->uri_get(&p->uri, name), *member = "";
  if (value == NULL) return CORRAL_OK;
  char *copy = strdup(value);
  if (copy == NULL) return CORRAL_ENOMEM;
  int status = CORRAL_OK;
  if (!crl_http_nets_read(nets, copy, &member))
    status = bad(p,
                 "%s=: '%.50s'; accepted: up to %d networks (10.0.0.0/8, ::1) and the words "
                 "loopback, private, link-local, with commas between",
                 name, member, CRL_HTTP_NETS);
  free(copy);
  return status;
}

/* Adds a name in lower case to a list; 0: there is no room. */
static int add_name(char list[CRL_HTTP_NAMES], const char *name, size_t len) {
  size_t used = strlen(list);
  if (used + len + 2 > CRL_HTTP_NAMES) return 0;
  if (used > 0) list[used++] = ' ';
  for (size_t i = 0; i < len; i++) list[used + i] = (char)tolower((unsigned char)name[i]);
  list[used + len] = '\0';
  return 1;
}

static int read_vary(parse *p) {
  const char *at = p->o->host->uri_get(&p->uri, "vary");
  for (size_t len; at != NULL && *at != '\0'; at += len + (at[len] == ',')) {
    len = strcspn(at, ",");
    if (!crl_http_is_token(at, len) || crl_http_is_own_field(at, len) ||
        (len == 4 && strncasecmp(at, "host", 4) == 0))
      return bad(p,
                 "vary=: '%.*s'; accepted: names of request header fields, with commas between, "
                 "that corral doesn't set by itself",
                 (int)(len < 40 ? len : 40), at);
    if (!add_name(p->o->vary, at, len))
      return bad(p, "vary=: the names are longer than %d bytes", CRL_HTTP_NAMES);
  }
  return CORRAL_OK;
}

static int read_tags(parse *p) {
  const char *at = p->o->host->uri_get(&p->uri, "tags");
  if (!p->o->is_page && (at != NULL || p->o->path_tags > 0))
    return bad(p, "%s= is for page=1", at != NULL ? "tags" : "path_tags");
  for (size_t len; at != NULL && *at != '\0'; at += len + (at[len] == ',')) {
    len = strcspn(at, ",");
    if (!crl_http_is_token(at, len) || !add_name(p->o->tags, at, len))
      return bad(p,
                 "tags=: '%.*s'; accepted: names of response header fields, with commas between, "
                 "of %d bytes together",
                 (int)(len < 40 ? len : 40), at, CRL_HTTP_NAMES);
  }
  return CORRAL_OK;
}

static int read_headers(parse *p) {
  crl_http_origin *o = p->o;
  for (size_t i = 0; i < p->uri.param_count; i++) {
    if (strcmp(p->params[i].name, "header") != 0) continue;
    const char *text = p->params[i].value;
    size_t name = strcspn(text, ":"), at = name + 1;
    int is_well = text[name] == ':' && crl_http_is_token(text, name) &&
                  !crl_http_is_own_field(text, name) && o->header_count < CRL_HTTP_HEADERS;
    while (is_well && text[at] == ' ') at++;
    if (is_well && text[at] == '\0') is_well = 0;
    for (; is_well && text[at] != '\0'; at++)
      is_well = (unsigned char)text[at] >= ' ' && text[at] != 127;
    if (!is_well)
      return bad(p,
                 "header=%.*s...; accepted: Name:value, up to %d times, of fields that corral "
                 "doesn't set by itself",
                 (int)(name < 40 ? name : 40), text, CRL_HTTP_HEADERS);
    if (crl_http_names_have(o->vary, text, name))
      return bad(p, "%.*s is in header= and in vary=", (int)(name < 40 ? name : 40), text);
    if (!add_name(o->alike, text, name))
      return bad(p, "header=: the names are longer than %d bytes", CRL_HTTP_NAMES);
    o->headers[o->header_count++] = text;
  }
  o->is_authorized = crl_http_names_have(o->alike, "authorization", 13) ||
                     crl_http_names_have(o->vary, "authorization", 13);
  return CORRAL_OK;
}

static int read_params(parse *p, uint64_t max_value) {
  crl_http_origin *o = p->o;
  int status = o->host->uri_check(&p->uri, names, p->error);
  if (status == CORRAL_OK) status = check_once(p);
  if (status == CORRAL_OK) status = read_numbers(p, max_value);
  if (status == CORRAL_OK)
    status =
        read_statuses(p, "keep", o->is_page ? "200,203,204,300,301,308" : "200,203,204", &o->kept);
  if (status == CORRAL_OK) status = read_statuses(p, "negative", "404,410", &o->negative);
  for (size_t i = 0; i < o->kept.count && status == CORRAL_OK; i++)
    if (crl_http_has_status(&o->negative, o->kept.status[i]))
      status = bad(p, "%d is in keep= and in negative= (404 and 410 are, unless it is given)",
                   o->kept.status[i]);
  if (status == CORRAL_OK) status = read_nets(p, "allow", &o->allowed);
  if (status == CORRAL_OK) status = read_nets(p, "deny", &o->denied);
  if (status == CORRAL_OK) status = read_vary(p);
  if (status == CORRAL_OK) status = read_headers(p);
  if (status == CORRAL_OK) status = read_tags(p);
  o->ca = o->host->uri_get(&p->uri, "ca");
  return status;
}

/* ---- the template -------------------------------------------------------------------------- */

/* Cuts the template in two around {key} or {key:raw}. */
static int find_key(parse *p, char *template) {
  crl_http_origin *o = p->o;
  char *at = strchr(template, '{');
  if (at == NULL)
    return bad(p, "it has no {key}, which the key takes the place of: https://HOST/PATH/{key}");
  o->is_uri = strncmp(at, "{uri}", 5) == 0;
  o->is_raw = o->is_uri || strncmp(at, "{key:raw}", 9) == 0;
  size_t len = o->is_uri || strncmp(at, "{key}", 5) == 0 ? 5 : o->is_raw ? 9 : 0;
  if (len == 0 || strpbrk(at + len, "{}") != NULL)
    return bad(p, "accepted in braces: {key}, {key:raw} or {uri}, once");
  char *authority = strstr(template, "://");
  size_t host = authority == NULL ? 0 : strcspn(authority + 3, "/?{"),
         path_at = authority == NULL ? 0 : (size_t)(authority + 3 - template) + host;
  if (host == 0 || template + path_at > at || (template + path_at == at && !o->is_uri))
    return bad(p, "%s must be behind the host: https://HOST%s", o->is_uri ? "{uri}" : "{key}",
               o->is_uri ? "{uri}" : "/PATH/{key}");
  o->path_at = path_at;
  *at = '\0';
  o->before = template;
  o->after = at + len;
  return CORRAL_OK;
}

/* Wipes and frees memory that may hold a secret. */
static void forget(char *memory, size_t size) {
  if (memory != NULL) explicit_bzero(memory, size);
  free(memory);
}

/* Reads a password that stands elsewhere than in the URL. */
static int read_secret(parse *p) {
  crl_http_origin *o = p->o;
  p->uri.password = o->password;
  int status = o->host->uri_secret(&p->uri, &o->secret, p->error);
  if (status == CORRAL_OK && o->secret != NULL && o->user == NULL)
    return bad(p, "a password without a user; accepted: https://USER@HOST/...");
  return status;
}

static int read_server(parse *p, CURLU *url) {
  crl_http_origin *o = p->o;
  char *scheme = NULL, *server = NULL, *port = NULL;
  int status = CORRAL_OK;
  if (curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
      curl_url_get(url, CURLUPART_HOST, &server, 0) != CURLUE_OK ||
      (strcasecmp(scheme, "http") != 0 && strcasecmp(scheme, "https") != 0)) {
    status = bad(p, "accepted: http://HOST/... and https://HOST/...");
  } else if (strlen(server) >= sizeof o->server) {
    status = bad(p, "the host is longer than %zu bytes", sizeof o->server - 1);
  } else {
    snprintf(o->server, sizeof o->server, "%s", server);
    o->is_https = strcasecmp(scheme, "https") == 0;
    if (curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK)
      o->port = (int)strtol(port, NULL, 10);
    curl_url_get(url, CURLUPART_USER, &o->user, CURLU_URLDECODE);
    curl_url_get(url, CURLUPART_PASSWORD, &o->password, CURLU_URLDECODE);
    status = read_secret(p);
    if (o->user != NULL) o->is_authorized = 1;
  }
  curl_free(scheme);
  curl_free(server);
  curl_free(port);
  return status;
}

static int read_template(parse *p, char *template) {
  crl_http_origin *o = p->o;
  for (const char *at = template; *at != '\0'; at++)
    if (*at <= ' ' || *at > 126)
      return bad(
          p,
          "a URL has no spaces, control characters or bytes above 126: they are percent-encoded");
  int status = find_key(p, template);
  if (status != CORRAL_OK) return status;
  size_t size = strlen(o->before) + strlen(o->after) + 3;
  char *sample = malloc(size);
  CURLU *url = curl_url();
  if (sample == NULL || url == NULL) {
    status = CORRAL_ENOMEM;
  } else {
    snprintf(sample, size, "%s%sk%s", o->before, o->is_uri ? "/" : "", o->after);
    CURLUcode code = curl_url_set(url, CURLUPART_URL, sample, CURLU_NON_SUPPORT_SCHEME);
    if (code != CURLUE_OK)
      status = bad(p, "%s", curl_url_strerror(code));
    else
      status = read_server(p, url);
    if (status == CORRAL_OK && crl_http_has_dots(sample + o->path_at))
      status = bad(p, "its path has a segment that is '.' or '..'");
  }
  curl_url_cleanup(url);
  forget(sample, size);
  return status;
}

int crl_http_options(crl_http_origin *o, const char *url, uint64_t max_value, corral_error *error) {
  parse p = {.o = o, .error = error};
  p.uri.params = p.params;
  o->text = strdup(url);
  if (o->text == NULL) return o->host->fail(error, CORRAL_ENOMEM, "out of memory");
  o->text_size = strlen(url);
  char *fragment = strchr(o->text, '#');
  if (fragment != NULL) *fragment++ = '\0';
  o->host->uri_show(o->text, p.shown, sizeof p.shown);
  p.uri.text = p.shown;
  snprintf(o->alike, sizeof o->alike, "accept accept-encoding host user-agent");
  size_t len = strlen(o->text);
  int status =
      len > TEMPLATE_MOST ? bad(&p, "it is longer than %d bytes", TEMPLATE_MOST) : CORRAL_OK;
  if (status == CORRAL_OK && fragment != NULL) status = split(&p, fragment);
  if (status == CORRAL_OK) status = read_params(&p, max_value);
  if (status == CORRAL_OK) status = read_template(&p, o->text);
  if (status == CORRAL_ENOMEM) o->host->fail(error, CORRAL_ENOMEM, "out of memory");
  o->hash =
      corral_digest_number(o->host, o->text, len) ^ (uint64_t)(o->is_page * 2 + o->is_compressed);
  return status;
}

void crl_http_options_free(crl_http_origin *o) {
  if (o->password != NULL) explicit_bzero(o->password, strlen(o->password));
  curl_free(o->user);
  curl_free(o->password);
  forget(o->secret, o->secret == NULL ? 0 : strlen(o->secret));
  forget(o->text, o->text_size);
}
