/* transfer.c: one fetch: its requests, one after the other as it is redirected, and their
 * responses. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

#include "http.h"

void crl_http_transfer_free(crl_http_transfer *t) {
  if (t->easy != NULL) curl_easy_cleanup(t->easy);
  curl_slist_free_all(t->fields);
  curl_slist_free_all(t->sent);
  free(t->url);
  free(t->body);
  free(t);
}

/* ---- response ------------------------------------------------------------------------------ */

static size_t most_of(const crl_http_transfer *t) { return (size_t)t->origin->most; }

/* Appends to the body; 0: it would be too big, or there is no memory. */
static int append(crl_http_transfer *t, const char *bytes, size_t size) {
  if (size > most_of(t) - t->len) {
    t->is_too_big = 1;
    return 0;
  }
  if (size > t->room - t->len) {
    size_t room = t->room < 2048 ? 4096 : 2 * t->room;
    while (room - t->len < size) room *= 2;
    if (room > most_of(t)) room = most_of(t);
    char *more = realloc(t->body, room);
    if (more == NULL) return 0;
    t->body = more;
    t->room = room;
  }
  if (size > 0) memcpy(t->body + t->len, bytes, size);
  t->len += size;
  return 1;
}

/* Begins with a status line; an earlier response (1xx) is forgotten. */
static void begin_head(crl_http_transfer *t, const char *line, size_t len) {
  const char *end = line + len, *status = memchr(line, ' ', len);
  t->status = 0;
  t->len = t->body_at = 0;
  t->named[0] = '\0';
  t->reason[0] = t->field[0] = t->length[0] = '\0';
  t->is_encoded = t->has_field = 0;
  t->is_in_head = 1;
  crl_http_rules_begin(&t->rules, t->origin->host->wall_ms());
  if (status == NULL) return;
  while (status < end && *status == ' ') status++;
  for (; status < end && *status >= '0' && *status <= '9' && t->status < 1000; status++)
    t->status = t->status * 10 + (*status - '0');
  while (status < end && *status == ' ') status++;
  size_t at = 0;
  for (; status < end && *status != '\r' && *status != '\n' && at < sizeof t->reason - 1; status++)
    t->reason[at++] = *status >= ' ' && *status < 127 ? *status : '?';
  t->reason[at] = '\0';
}

/* 1: the last field isn't part of the value: it belongs to the connection (RFC 9111 3.1), or is no
 * longer true of the decoded body. */
static int is_left_out(const crl_http_transfer *t) {
  static const char hop[] =
      "connection keep-alive proxy-authenticate proxy-authentication-info proxy-authorization "
      "proxy-connection te trailer transfer-encoding upgrade";
  return crl_http_names_have(hop, t->field, strlen(t->field)) ||
         (t->origin->is_compressed &&
          crl_http_names_have("content-encoding content-length", t->field, strlen(t->field)));
}

static void note_encoding(crl_http_transfer *t, const char *value, size_t len) {
  while (len > 0 && (*value == ' ' || *value == '\t')) value++, len--;
  while (len > 0 && value[len - 1] <= ' ') len--;
  if (strcasecmp(t->field, "content-encoding") != 0 || len == 0 ||
      crl_http_names_have("identity", value, len))
    return;
  t->is_encoded = !t->origin->is_compressed && !t->origin->is_page;
}

/* Notes Content-Length. With two different lengths, readers would disagree about the body's end
 * (RFC 9112 6.3). */
static void note_length(crl_http_transfer *t, const char *value, size_t len) {
  if (strcasecmp(t->field, "content-length") != 0) return;
  while (len > 0 && (*value == ' ' || *value == '\t')) value++, len--;
  while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t')) len--;
  int is_number = len > 0 && len < sizeof t->length;
  for (size_t i = 0; i < len; i++) is_number = is_number && value[i] >= '0' && value[i] <= '9';
  int is_other =
      t->length[0] != '\0' && (strlen(t->length) != len || memcmp(t->length, value, len) != 0);
  if (!is_number || is_other)
    t->bad_head =
        is_number ? "two fields Content-Length that differ" : "a Content-Length that is no number";
  if (t->bad_head != NULL) return;
  memcpy(t->length, value, len);
  t->length[len] = '\0';
}

/* NULL, or why a line isn't valid (RFC 9112 5 and 2.2). A line that other readers take for another
 * field, or for none, makes the whole answer worthless. */
static const char *fault_of(const crl_http_transfer *t, const char *line, size_t len) {
  const char *colon = memchr(line, ':', len);
  if (memchr(line, '\0', len) != NULL || memchr(line, '\r', len) != NULL)
    return "a NUL or a carriage return inside a line";
  if (*line == ' ' || *line == '\t')
    return t->has_field ? NULL : "a line that goes on before there is a field";
  if (colon == NULL || !crl_http_is_token(line, (size_t)(colon - line)))
    return "a line that isn't \"Name: value\"";
  return NULL;
}

/* Handles a header line, without its line end. */
static void take_field(crl_http_transfer *t, const char *line, size_t len) {
  const char *value = line;
  t->bad_head = fault_of(t, line, len);
  if (t->bad_head != NULL) return;
  /* otherwise the line continues the field before it, RFC 9112 5.2 */
  if (*line != ' ' && *line != '\t') {
    size_t name = (size_t)((const char *)memchr(line, ':', len) - line);
    value = line + name + 1;
    if (name >= sizeof t->field) name = 0; /* too long to be a field that is looked for */
    memcpy(t->field, line, name);
    t->field[name] = '\0';
    t->has_field = 1;
  }
  size_t value_len = len - (size_t)(value - line);
  if (t->field[0] == '\0') return;
  crl_http_rules_field(&t->rules, t->field, strlen(t->field), value, value_len);
  note_encoding(t, value, value_len);
  if (strcasecmp(t->field, "connection") == 0 && !crl_http_page_connection(t, value, value_len))
    t->bad_head = "a Connection with too many names";
  note_length(t, value, value_len);
}

static void end_head(crl_http_transfer *t) {
  t->is_in_head = 0;
  t->body_at = t->len;
  if (t->status < 200) return;
  t->has_head = 1;
  t->is_kept = crl_http_has_status(&t->origin->kept, t->status);
  t->delay_ms = t->origin->host->now_ms() - t->started_ms;
}

/* The next line continues the last one: the line end between becomes spaces, RFC 9112 5.2. */
static void unfold(crl_http_transfer *t) {
  for (size_t at = t->len; at > 0 && (t->body[at - 1] == '\n' || t->body[at - 1] == '\r'); at--)
    t->body[at - 1] = ' ';
}

static size_t on_head(char *bytes, size_t one, size_t count, void *arg) {
  crl_http_transfer *t = arg;
  size_t len = one * count;
  if (t->has_head) return len; /* trailers */
  t->head_len += len;
  if (t->head_len > CRL_HTTP_HEAD) return 0;
  size_t text = len;
  if (text > 0 && bytes[text - 1] == '\n') text--;
  if (text > 0 && bytes[text - 1] == '\r') text--;
  int is_end = text == 0, is_first = !t->is_in_head;
  if (is_first)
    begin_head(t, bytes, len);
  else if (!is_end)
    take_field(t, bytes, text);
  if (t->bad_head != NULL) return 0;
  int is_value = t->origin->is_page && !is_first && !is_end && !is_left_out(t);
  if (is_value && (*bytes == ' ' || *bytes == '\t')) unfold(t);
  if (is_value && !append(t, bytes, len)) return 0;
  if (is_end) end_head(t);
  return len;
}

static size_t on_body(char *bytes, size_t one, size_t count, void *arg) {
  crl_http_transfer *t = arg;
  size_t size = one * count;
  if (t->is_kept) return append(t, bytes, size) ? size : size + 1;
  t->dropped += size;
  if (t->dropped <= CRL_HTTP_DRAINED) return size;
  t->is_enough = 1;
  return size + 1;
}

static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *at) {
  crl_http_transfer *t = arg;
  (void)purpose;
  if (!crl_http_may_connect(t->origin, t->is_foreign, &at->addr, t->address, sizeof t->address)) {
    t->is_refused = 1;
    return CURL_SOCKET_BAD;
  }
  return t->origin->host->own_fd(socket(at->family, at->socktype | SOCK_CLOEXEC, at->protocol));
}

/* ---- request ------------------------------------------------------------------------------- */

static int send_field(crl_http_transfer *t, const char *text) {
  struct curl_slist *more = curl_slist_append(t->sent, text);
  if (more != NULL) t->sent = more;
  return more != NULL;
}

/* Makes the header fields of a request. A foreign server gets no secrets and no header=; validators
 * belong to the first URL only. */
static int make_fields(crl_http_transfer *t) {
  const crl_http_origin *o = t->origin;
  char text[CRL_HTTP_ETAG + 32];
  int is_well = o->is_compressed || send_field(t, "Accept-Encoding: identity");
  for (const struct curl_slist *field = t->fields; field != NULL; field = field->next) {
    int is_secret = strncasecmp(field->data, "authorization", 13) == 0 ||
                    strncasecmp(field->data, "cookie", 6) == 0;
    if (!t->is_foreign || !is_secret) is_well = is_well && send_field(t, field->data);
  }
  for (size_t i = 0; i < o->header_count && !t->is_foreign; i++)
    is_well = is_well && send_field(t, o->headers[i]);
  t->is_asked = t->hops == 0 && (t->etag[0] != '\0' || t->last_modified[0] != '\0');
  if (t->is_asked && t->etag[0] != '\0') {
    snprintf(text, sizeof text, "If-None-Match: %s", t->etag);
    is_well = is_well && send_field(t, text);
  }
  if (t->is_asked && t->last_modified[0] != '\0') {
    snprintf(text, sizeof text, "If-Modified-Since: %s", t->last_modified);
    is_well = is_well && send_field(t, text);
  }
  return is_well;
}

static int set_options(crl_http_transfer *t, int64_t left_ms) {
  const crl_http_origin *o = t->origin;
  CURL *e = t->easy;
  int bad = 0;
#define SET(option, value) bad |= curl_easy_setopt(e, option, value) != CURLE_OK
  SET(CURLOPT_URL, t->url);
  SET(CURLOPT_PATH_AS_IS, 1L);
  SET(CURLOPT_PROTOCOLS_STR, "http,https");
  SET(CURLOPT_FOLLOWLOCATION, 0L);
  SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  SET(CURLOPT_HTTPHEADER, t->sent);
  SET(CURLOPT_USERAGENT, "corral/" CORRAL_VERSION);
  SET(CURLOPT_PROXY, "");
  SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
  SET(CURLOPT_NOSIGNAL, 1L);
  SET(CURLOPT_QUICK_EXIT, 1L); /* leaving doesn't wait for a name that is being resolved */
  SET(CURLOPT_TCP_KEEPALIVE, 1L);
  SET(CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_ms);
  SET(CURLOPT_TIMEOUT_MS, (long)left_ms);
  SET(CURLOPT_HEADERFUNCTION, on_head);
  SET(CURLOPT_HEADERDATA, t);
  SET(CURLOPT_WRITEFUNCTION, on_body);
  SET(CURLOPT_WRITEDATA, t);
  SET(CURLOPT_OPENSOCKETFUNCTION, on_socket);
  SET(CURLOPT_OPENSOCKETDATA, t);
  SET(CURLOPT_ERRORBUFFER, t->failure);
  SET(CURLOPT_PRIVATE, t);
  if (o->is_compressed) SET(CURLOPT_ACCEPT_ENCODING, "");
  if (o->ca != NULL) SET(CURLOPT_CAINFO, o->ca);
  if (!t->is_foreign && o->user != NULL) SET(CURLOPT_USERNAME, o->user);
  if (!t->is_foreign && o->password != NULL) SET(CURLOPT_PASSWORD, o->password);
  if (!t->is_foreign && o->secret != NULL) SET(CURLOPT_PASSWORD, o->secret);
#undef SET
  return !bad;
}

static void forget_response(crl_http_transfer *t) {
  curl_slist_free_all(t->sent);
  t->sent = NULL;
  t->bad_head = NULL;
  t->status = t->is_in_head = t->has_head = t->is_kept = t->is_too_big = t->is_enough =
      t->is_encoded = t->is_refused = 0;
  t->head_len = t->dropped = t->len = 0;
  t->failure[0] = '\0';
}

/* Begins a request to t->url; 0: it can't be sent, and the fill has ended. */
static int request(crl_http_transfer *t) {
  int64_t now = t->origin->host->now_ms(), left = t->deadline - now;
  forget_response(t);
  if (left <= 0) {
    crl_http_fail(t, CRL_HTTP_TOO_LATE, "no time was left to ask the origin");
    return 0;
  }
  t->started_ms = now;
  if (t->easy == NULL)
    t->easy = curl_easy_init();
  else
    curl_easy_reset(t->easy);
  if (t->easy == NULL || !make_fields(t) || !set_options(t, left) ||
      curl_multi_add_handle(t->origin->multi, t->easy) != CURLM_OK) {
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "the request can't be made: out of memory?");
    return 0;
  }
  return 1;
}

int crl_http_begin(crl_http_transfer *t) {
  const crl_http_origin *o = t->origin;
  int64_t end = o->host->now_ms() + o->total_ms;
  const char *why = crl_http_url_make(t);
  if (t->deadline > end) t->deadline = end;
  if (why != NULL) {
    crl_http_fail(t, CORRAL_EINVAL, "%s", why);
    return 0;
  }
  crl_http_recall(t);
  return request(t);
}

/* ---- end of a request ---------------------------------------------------------------------- */

static void fail_by_code(crl_http_transfer *t, CURLcode code) {
  const char *what = t->failure[0] != '\0' ? t->failure : curl_easy_strerror(code);
  curl_off_t got = 0;
  if (t->is_too_big)
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "the answer is larger than %lld bytes",
                  (long long)t->origin->most);
  else if (t->bad_head != NULL)
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "the answer's header isn't valid: it has %s", t->bad_head);
  else if (t->head_len > CRL_HTTP_HEAD)
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "the answer's header is larger than %d bytes",
                  CRL_HTTP_HEAD);
  else if (t->is_refused)
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "the address %s of %s is not allowed (see allow=)",
                  t->address, t->is_foreign ? "where it redirects to" : "the origin");
  else if (code == CURLE_OPERATION_TIMEDOUT)
    crl_http_fail(t, CRL_HTTP_TOO_LATE, "%s", what);
  else if (code == CURLE_PARTIAL_FILE || (code == CURLE_RECV_ERROR && t->has_head)) {
    curl_easy_getinfo(t->easy, CURLINFO_SIZE_DOWNLOAD_T, &got);
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "the origin hung up after %lld bytes of the body",
                  (long long)got);
  } else {
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "%s", what);
  }
}

static int is_redirect(const crl_http_transfer *t) {
  int is_one = t->status == 301 || t->status == 302 || t->status == 303 || t->status == 307 ||
               t->status == 308;
  return is_one && !t->is_kept && t->origin->redirects > 0;
}

static int follow(crl_http_transfer *t, const char *to) {
  char copy[CRL_HTTP_URL + 2]; /* curl frees its own text at the next request */
  snprintf(copy, sizeof copy, "%s", to);
  if (t->hops == t->origin->redirects) {
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "more than %d redirects", t->hops);
    return 0;
  }
  crl_http_judge_hop(t);
  const char *why = crl_http_url_follow(t, copy);
  if (why != NULL) {
    crl_http_fail(t, CRL_HTTP_NO_ANSWER, "HTTP %d: %s", t->status, why);
    return 0;
  }
  t->hops++;
  return request(t);
}

int crl_http_ended(crl_http_transfer *t, CURLcode code) {
  char *to = NULL;
  curl_multi_remove_handle(t->origin->multi, t->easy);
  if (code == CURLE_WRITE_ERROR && t->is_enough) code = CURLE_OK;
  if (code != CURLE_OK || !t->has_head) {
    fail_by_code(t, code);
    return 0;
  }
  if (is_redirect(t) && curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to) == CURLE_OK &&
      to != NULL)
    return follow(t, to);
  crl_http_judge(t);
  return 0;
}
