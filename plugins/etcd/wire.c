/* wire.c: one request and its reply: libcurl, JSON, base64, and the statuses of the server's
 * refusals. */
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "etcd.h"

enum {
  CONNECT_MOST_MS = 5000,
  WAIT_MOST_MS = 86400000,
  KEEP_IDLE_S = 2,
  KEEP_EVERY_S = 1,
  KEEP_TRIES = 3
};

/* ---- base64, numbers ----------------------------------------------------------------------- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void crl_etcd_base64(const uint8_t *bytes, size_t size, char *to) {
  for (size_t i = 0; i < size; i += 3) {
    unsigned long three = (unsigned long)bytes[i] << 16 |
                          (i + 1 < size ? (unsigned long)bytes[i + 1] << 8 : 0) |
                          (i + 2 < size ? bytes[i + 2] : 0);
    for (int shift = 18; shift >= 0; shift -= 6) *to++ = letters[three >> shift & 63];
    if (i + 2 >= size) to[-1] = '=';
    if (i + 1 >= size) to[-2] = '=';
  }
  *to = '\0';
}

size_t crl_etcd_base64_read(const char *text, uint8_t *to, size_t room) {
  size_t len = strlen(text), used = 0;
  unsigned long bits = 0;
  if (len % 4 != 0) return SIZE_MAX;
  for (size_t pad = 0; pad < 2 && len > 0 && text[len - 1] == '='; pad++) len--;
  for (size_t i = 0; i < len; i++) {
    const char *letter = memchr(letters, text[i], 64);
    if (letter == NULL) return SIZE_MAX;
    bits = (bits << 6 | (unsigned long)(letter - letters)) & 0xffffff;
    if (i % 4 == 0) continue;
    if (used == room) return SIZE_MAX;
    to[used++] = (uint8_t)(bits >> (6 - i % 4 * 2));
  }
  return used;
}

int crl_etcd_number(const cJSON *object, const char *name, int64_t *ret) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  char *end;
  *ret = 0;
  if (item == NULL) return 1;
  if (!cJSON_IsString(item) ||
      (!isdigit((unsigned char)item->valuestring[0]) && item->valuestring[0] != '-'))
    return 0;
  errno = 0;
  long long value = strtoll(item->valuestring, &end, 10);
  if (*end != '\0' || errno != 0) return 0;
  *ret = value;
  return 1;
}

const char *crl_etcd_words(const cJSON *object, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  return cJSON_IsString(item) ? item->valuestring : NULL;
}

const cJSON *crl_etcd_part(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* ---- one request --------------------------------------------------------------------------- */

size_t crl_etcd_take(char *bytes, size_t one, size_t count, void *arg) {
  crl_etcd_text *in = arg;
  size_t size = one * count;
  if (size > CRL_ETCD_REPLY - in->len) return size + 1;
  if (in->len + size >= in->room) {
    size_t room = 2 * (in->len + size) + 1024;
    char *more = realloc(in->bytes, room);
    if (more == NULL) return size + 1;
    in->bytes = more;
    in->room = room;
  }
  memcpy(in->bytes + in->len, bytes, size);
  in->len += size;
  in->bytes[in->len] = '\0';
  return size;
}

/* Read callback of libcurl for the body. It can't be rewound, so libcurl sends nothing twice, as it
 * otherwise does when a kept connection breaks. */
static size_t give(char *room, size_t one, size_t count, void *arg) {
  crl_etcd_handle *h = arg;
  size_t left = h->out_len - h->out_used, size = one * count < left ? one * count : left;
  memcpy(room, h->out + h->out_used, size);
  h->out_used += size;
  h->sent = 1;
  return size;
}

static int64_t left_of(const crl_etcd_handle *h) {
  int64_t left = h->deadline - h->store->host->now_ms();
  return left < 0 ? 0 : left > WAIT_MOST_MS ? WAIT_MOST_MS : left;
}

/* Makes TCP detect within seconds that the other host is gone. */
static int keep_awake(void *arg, curl_socket_t fd, curlsocktype purpose) {
  int tries = KEEP_TRIES;
  (void)arg;
  (void)purpose;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
  return CURL_SOCKOPT_OK;
}

CURL *crl_etcd_transfer(const crl_etcd_store *s) {
  CURL *easy = curl_easy_init();
  if (easy == NULL) return NULL;
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, s->tls ? "https" : "http");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_MAXCONNECTS, 1L);
  curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, keep_awake);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEP_IDLE_S);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, (long)KEEP_EVERY_S);
  if (s->tls_ca != NULL) {
    curl_easy_setopt(easy, CURLOPT_CAINFO, s->tls_ca);
    curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
  }
  if (s->tls_cert != NULL) curl_easy_setopt(easy, CURLOPT_SSLCERT, s->tls_cert);
  if (s->tls_cert != NULL)
    curl_easy_setopt(easy, CURLOPT_SSLKEY, s->tls_key != NULL ? s->tls_key : s->tls_cert);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, s->tls_verify ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, s->tls_verify ? 2L : 0L);
  return easy;
}

void crl_etcd_prepare(crl_etcd_handle *h, const char *path, const char *body, int64_t limit,
                      int64_t connect_limit) {
  char url[CRL_ETCD_HOST + 80];
  snprintf(url, sizeof url, "%s%s", h->store->bases[h->at], path);
  h->out = body;
  h->out_len = body != NULL ? strlen(body) : 0;
  h->out_used = h->in.len = 0;
  h->sent = 0;
  h->trouble[0] = '\0';
  curl_easy_setopt(h->easy, CURLOPT_URL, url);
  curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, h->headers);
  if (body == NULL)
    curl_easy_setopt(h->easy, CURLOPT_HTTPGET, 1L);
  else
    curl_easy_setopt(h->easy, CURLOPT_POST, 1L);
  curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE, (long)h->out_len);
  curl_easy_setopt(h->easy, CURLOPT_TIMEOUT_MS, (long)limit);
  curl_easy_setopt(h->easy, CURLOPT_CONNECTTIMEOUT_MS,
                   (long)(connect_limit < CONNECT_MOST_MS ? connect_limit : CONNECT_MOST_MS));
}

int crl_etcd_fail(crl_etcd_handle *h, int status, const char *what, const char *why) {
  return h->store->host->fail(&h->error, status, "%s: %.80s%s%.200s", h->store->name, what,
                              *why != '\0' ? ": " : "", why);
}

int crl_etcd_strange(crl_etcd_handle *h, const char *what) {
  h->broken = CORRAL_EPROTOCOL;
  crl_etcd_fail(h, CORRAL_EPROTOCOL, "a strange reply", what);
  return CORRAL_EINDOUBT;
}

/* Statuses of the server's refusals; the first row that fits counts. A refusal without a row is of
 * a request that may have been carried out. EBUSY and ELOST concern a lease, and are for the
 * caller. */
static const struct refusal {
  const char *says;
  int code; /* gRPC's; 0: any */
  int status;
} refusals[] = {
    {"lease already exists", 0, CORRAL_EBUSY},
    {"lease not found", 0, CORRAL_ELOST},
    {"too large lease TTL", 0, CORRAL_EREFUSED},
    {"space exceeded", 0, CORRAL_EREFUSED},
    {"too large", 0, CORRAL_ETOOBIG},
    {"larger than max", 0, CORRAL_ETOOBIG},
    {"too many requests", 0, CORRAL_EUNAVAILABLE},
    {"no leader", 0, CORRAL_EUNAVAILABLE},
    {"authentication", 0, CORRAL_EAUTH},
    {"auth token", 0, CORRAL_EAUTH},
    {"auth store is old", 0, CORRAL_EAUTH},
    {"user name is empty", 0, CORRAL_EAUTH},
    {"permission denied", 0, CORRAL_EAUTH},
    {"", 3, CORRAL_EREFUSED},
    {"", 7, CORRAL_EAUTH},
    {"", 8, CORRAL_EREFUSED},
    {"", 12, CORRAL_EUNSUPPORTED},
    {"", 16, CORRAL_EAUTH},
};

static int refused(crl_etcd_handle *h, const char *says, int code) {
  int status = CORRAL_EINDOUBT;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    if (strstr(says, refusals[i].says) == NULL ||
        (refusals[i].code != 0 && refusals[i].code != code))
      continue;
    status = refusals[i].status;
    break;
  }
  h->stale =
      strstr(says, "invalid auth token") != NULL || strstr(says, "auth store is old") != NULL;
  crl_etcd_fail(h, status, "the server says", says);
  if (status != CORRAL_EINDOUBT && status != CORRAL_EUNAVAILABLE) return status;
  h->broken = CORRAL_EUNAVAILABLE;
  /* another member may know the leader */
  atomic_store(&h->store->at, (h->at + 1) % h->store->count);
  return status;
}

/* Reads the server's reply. A reply to a POST has a header with the cluster's revision, which has a
 * next one. */
static int hear(crl_etcd_handle *h, int is_post) {
  long http = 0;
  int64_t revision;
  char text[40];
  curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &http);
  cJSON_Delete(h->reply);
  h->reply = h->in.len > 0 ? cJSON_ParseWithLength(h->in.bytes, h->in.len) : NULL;
  snprintf(text, sizeof text, "HTTP status %ld", http);
  if (!cJSON_IsObject(h->reply)) return crl_etcd_strange(h, http != 200 ? text : "no JSON object");
  const cJSON *error = crl_etcd_part(h->reply, "error"),
              *from = cJSON_IsObject(error) ? error : h->reply;
  if (http != 200 || error != NULL) {
    const char *says = crl_etcd_words(from, "message");
    const cJSON *code = crl_etcd_part(
        from, cJSON_IsNumber(crl_etcd_part(from, "grpc_code")) ? "grpc_code" : "code");
    return says != NULL ? refused(h, says, cJSON_IsNumber(code) ? code->valueint : 0)
                        : crl_etcd_strange(h, text);
  }
  const cJSON *result = crl_etcd_part(h->reply, "result");
  if (is_post && (!crl_etcd_number(crl_etcd_part(result != NULL ? result : h->reply, "header"),
                                   "revision", &revision) ||
                  revision < 1 || revision == INT64_MAX))
    return crl_etcd_strange(h, "no revision");
  atomic_store(&h->store->at, h->at);
  return CORRAL_OK;
}

static int missed(crl_etcd_handle *h, CURLcode code, int is_post) {
  const char *why = h->trouble[0] != '\0' ? h->trouble : curl_easy_strerror(code);
  if (code == CURLE_WRITE_ERROR) return crl_etcd_strange(h, "it is too long");
  h->broken = CORRAL_EUNAVAILABLE;
  return crl_etcd_fail(h, is_post && h->sent ? CORRAL_EINDOUBT : CORRAL_EUNAVAILABLE,
                       h->sent ? "no reply" : h->store->bases[h->at], why);
}

int crl_etcd_once(crl_etcd_handle *h, const char *path, const char *body) {
  size_t count = h->store->count;
  for (size_t tries = 0; tries < count; tries++) {
    int64_t left = left_of(h), share = left / (int64_t)(count - tries);
    if (left == 0) return crl_etcd_fail(h, CORRAL_EUNAVAILABLE, "no time left", "");
    crl_etcd_prepare(h, path, body, body != NULL ? left : share + 1, share + 1);
    h->store->host->guard_standard();
    CURLcode code = curl_easy_perform(h->easy);
    if (code == CURLE_OK) {
      h->broken = CORRAL_OK;
      return hear(h, body != NULL);
    }
    int status = missed(h, code, body != NULL);
    h->at = (h->at + 1) % count;
    atomic_store(&h->store->at, h->at);
    if (status != CORRAL_EUNAVAILABLE) return status;
  }
  return CORRAL_EUNAVAILABLE;
}

static int add_header(crl_etcd_handle *h, const char *text) {
  struct curl_slist *more = curl_slist_append(h->headers, text);
  if (more == NULL) return crl_etcd_fail(h, CORRAL_ENOMEM, "no memory for a request", "");
  h->headers = more;
  return CORRAL_OK;
}

void crl_etcd_forget_headers(crl_etcd_handle *h) {
  for (struct curl_slist *at = h->headers; at != NULL; at = at->next)
    explicit_bzero(at->data, strlen(at->data));
  curl_slist_free_all(h->headers);
  h->headers = NULL;
}

static int usual_headers(crl_etcd_handle *h) {
  crl_etcd_forget_headers(h);
  int status = add_header(h, "Content-Type: application/json");
  return status == CORRAL_OK ? add_header(h, "Expect:") : status;
}

int crl_etcd_easy(crl_etcd_handle *h) {
  h->easy = crl_etcd_transfer(h->store);
  if (h->easy == NULL) return crl_etcd_fail(h, CORRAL_ENOMEM, "no memory to connect", "");
  curl_easy_setopt(h->easy, CURLOPT_ERRORBUFFER, h->trouble);
  curl_easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, crl_etcd_take);
  curl_easy_setopt(h->easy, CURLOPT_WRITEDATA, &h->in);
  curl_easy_setopt(h->easy, CURLOPT_READFUNCTION, give);
  curl_easy_setopt(h->easy, CURLOPT_READDATA, h);
  return usual_headers(h);
}

int crl_etcd_log_in(crl_etcd_handle *h) {
  const crl_etcd_store *s = h->store;
  if (s->user == NULL) return CORRAL_OK;
  cJSON *login = cJSON_CreateObject();
  int ok = cJSON_AddStringToObject(login, "name", s->user) != NULL &&
           cJSON_AddStringToObject(login, "password", s->password) != NULL;
  char *body = ok ? cJSON_PrintUnformatted(login) : NULL;
  int status = body != NULL ? usual_headers(h)
                            : crl_etcd_fail(h, CORRAL_ENOMEM, "no memory for a request", "");
  if (status == CORRAL_OK) status = crl_etcd_once(h, "/v3/auth/authenticate", body);
  const char *token = status == CORRAL_OK ? crl_etcd_words(h->reply, "token") : NULL;
  if (status == CORRAL_OK && (token == NULL || strpbrk(token, "\r\n") != NULL))
    status = crl_etcd_strange(h, "no token");
  if (status == CORRAL_OK) {
    char *header = NULL;
    status = asprintf(&header, "Authorization: %s", token) > 0
                 ? add_header(h, header)
                 : crl_etcd_fail(h, CORRAL_ENOMEM, "no memory for a request", "");
    if (header != NULL) explicit_bzero(header, strlen(header));
    free(header);
  }
  if (body != NULL) explicit_bzero(body, strlen(body));
  cJSON_free(body);
  const cJSON *copy = cJSON_GetObjectItemCaseSensitive(login, "password");
  if (copy != NULL) explicit_bzero(copy->valuestring, strlen(copy->valuestring));
  cJSON_Delete(login);
  return status;
}

int crl_etcd_call(crl_etcd_handle *h, const char *path) {
  h->stale = 0;
  int status = crl_etcd_once(h, path, h->body);
  if (status != CORRAL_EAUTH || !h->stale || h->store->user == NULL) return status;
  status = crl_etcd_log_in(h);
  return status == CORRAL_OK ? crl_etcd_once(h, path, h->body) : status;
}

void crl_etcd_say(crl_etcd_handle *h, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(h->body, sizeof h->body, format, args);
  va_end(args);
}

void crl_etcd_add(crl_etcd_handle *h, const char *format, ...) {
  size_t used = strlen(h->body);
  va_list args;
  va_start(args, format);
  vsnprintf(h->body + used, sizeof h->body - used, format, args);
  va_end(args);
}
