/* fuzz_etcd.c: replies of etcd's JSON gateway to locks and to a watch.
 *
 * libcurl does no I/O here: the linker's --wrap replaces its transfers with functions of this file.
 * A segment of the input is one reply, whose first three digits, if there are any, are its HTTP
 * status. */
#include <stdarg.h>

#include "dialogue.h"

#include "../plugins/etcd/watch.c"

extern const corral_store crl_plugin_etcd;

CURLcode __real_curl_easy_setopt(CURL *easy, CURLoption option, ...);
CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...);
CURLcode __wrap_curl_easy_perform(CURL *easy);
CURLcode __real_curl_easy_getinfo(CURL *easy, CURLINFO info, ...);
CURLcode __wrap_curl_easy_getinfo(CURL *easy, CURLINFO info, ...);

/* ---- a transfer ---------------------------------------------------------------------------- */

static struct {
  curl_write_callback write, read;
  void *write_arg, *read_arg;
  long status;
  int is_post;
} transfer;

/* Every option's value is a pointer or has the width of one, on all supported systems. */
CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...) {
  va_list args;
  va_start(args, option);
  void *value = va_arg(args, void *);
  va_end(args);
  switch (option) {
    case CURLOPT_WRITEFUNCTION: memcpy(&transfer.write, &value, sizeof value); break;
    case CURLOPT_WRITEDATA: transfer.write_arg = value; break;
    case CURLOPT_READFUNCTION: memcpy(&transfer.read, &value, sizeof value); break;
    case CURLOPT_READDATA: transfer.read_arg = value; break;
    case CURLOPT_POST: transfer.is_post = 1; break;
    case CURLOPT_HTTPGET: transfer.is_post = 0; break;
    default: break;
  }
  return __real_curl_easy_setopt(easy, option, value);
}

CURLcode __wrap_curl_easy_getinfo(CURL *easy, CURLINFO info, ...) {
  va_list args;
  va_start(args, info);
  void *ret = va_arg(args, void *);
  va_end(args);
  if (info != CURLINFO_RESPONSE_CODE) return __real_curl_easy_getinfo(easy, info, ret);
  *(long *)ret = transfer.status;
  return CURLE_OK;
}

static int is_digits(const uint8_t *text) {
  for (int i = 0; i < 3; i++)
    if (text[i] < '0' || text[i] > '9') return 0;
  return 1;
}

CURLcode __wrap_curl_easy_perform(CURL *easy) {
  char sent[65536];
  size_t size;
  (void)easy;
  const uint8_t *reply = fuzz_wire_segment(&size);
  fuzz_wire_pass(1);
  if (transfer.is_post) (void)transfer.read(sent, 1, sizeof sent, transfer.read_arg);
  if (reply == NULL) return CURLE_OPERATION_TIMEDOUT;
  transfer.status = 200;
  if (size >= 3 && is_digits(reply)) {
    transfer.status = (reply[0] - '0') * 100 + (reply[1] - '0') * 10 + (reply[2] - '0');
    reply += 3;
    size -= 3;
  }
  char *copy = malloc(size + 1);
  if (copy == NULL) abort();
  memcpy(copy, reply, size);
  size_t taken = size == 0 ? 0 : transfer.write(copy, 1, size, transfer.write_arg);
  free(copy);
  return taken == size ? CURLE_OK : CURLE_WRITE_ERROR;
}

/* ---- the target ---------------------------------------------------------------------------- */

static void heard(void *arg, uint64_t hash) {
  (void)hash;
  ++*(size_t *)arg;
}

/* Lines of a watch's stream as input. */
static void hear_stream(fuzz_dialogue *d, fuzz_input *in) {
  size_t told = 0;
  watcher w = {.handle = d->handle, .created = 1};
  listener to = {.told = heard, .arg = &told};
  w.in.bytes = (char *)fuzz_bytes(in, 1 << 20, &w.in.len);
  w.in.room = w.in.len;
  (void)hear_all(&w, &to, &d->error);
  MUST_BE_PLAIN(d->error.text);
  free(w.in.bytes);
}

/* base64 encoding and decoding. */
static void round_trip(const uint8_t *bytes, size_t size) {
  char text[2 * 300 + 8];
  uint8_t back[300];
  if (size > sizeof back) size = sizeof back;
  crl_etcd_base64(bytes, size, text);
  MUST(crl_etcd_base64_read(text, back, sizeof back) == size && memcmp(back, bytes, size) == 0);
}

/* Byte 0: 1: a correct version reply comes first; 2: a watch's stream in place of locks; 4: with a
 * prefix. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const right[] = {"{\"etcdserver\":\"3.4.23\"}", NULL};
  static const char *const none[] = {NULL};
  fuzz_input in = {data, size};
  fuzz_dialogue d;
  uint8_t how = fuzz_byte(&in);
  round_trip(in.at, in.left);
  fuzz_wire_begin(how & 1 ? right : none, &in, 0);
  if (fuzz_dialogue_begin(&d, &crl_plugin_etcd,
                          how & 4 ? "etcd://localhost?prefix=p%2f" : "etcd://localhost")) {
    if (how & 2)
      hear_stream(&d, &in);
    else
      fuzz_dialogue_perform(&d, &in);
  }
  fuzz_dialogue_end(&d);
  fuzz_wire_end();
  return 0;
}
