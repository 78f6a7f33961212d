/* test_nginx_http2.c: the nginx module under HTTP/2 and HTTP/3, with many requests on one
 * connection: their herd, streams that are reset or not read, bodies. The test moves the origin by
 * hand. HTTP/3 is tested where nginx and libcurl have it. */
#include <curl/curl.h>

#define LOCATIONS                                                                                  \
  "listen unix:%SOCKET% ssl http2;"                                                                \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_key $uri; corral_valid 200 1m; corral_max_size 2m; "          \
  "  proxy_pass http://127.0.0.1:%d; }"

#define ZONE "near=off jitter=0 op=10s away_after=20s"

#include "support/nginx_stream_kit.h"
#include "support/room.h"

enum { CLIENTS = 20 };

static CURLM *multi;
static int is_http3;

/* ---- clients ------------------------------------------------------------------------------- */

typedef struct stream {
  CURL *easy;
  char *body;
  size_t size;
  const char *sent; /* what is left of the request's body; NULL: none */
  int is_done, is_paused;
  char url[100], cache_status[200];
} stream;

static size_t on_body(char *data, size_t one, size_t count, void *arg) {
  stream *s = arg;
  (void)one;
  if (s->is_paused) return CURL_WRITEFUNC_PAUSE;
  s->body = realloc(s->body, s->size + count + 1);
  if (s->body == NULL) abort();
  memcpy(s->body + s->size, data, count);
  s->size += count;
  s->body[s->size] = '\0';
  return count;
}

static size_t on_header(char *data, size_t one, size_t count, void *arg) {
  static const char name[] = "cache-status: ";
  stream *s = arg;
  (void)one;
  if (count > sizeof name && strncmp(data, name, sizeof name - 1) == 0)
    snprintf(s->cache_status, sizeof s->cache_status, "%.*s", (int)(count - sizeof name - 1),
             data + sizeof name - 1);
  return count;
}

static size_t on_read(char *room, size_t one, size_t count, void *arg) {
  stream *s = arg;
  size_t len = strlen(s->sent), n = len < count * one ? len : count * one;
  memcpy(room, s->sent, n);
  s->sent += n;
  return n;
}

static void drive_once(void) {
  int running, left;
  CURLMsg *message;
  if (curl_multi_perform(multi, &running) != CURLM_OK) fail_msg("curl_multi_perform");
  while ((message = curl_multi_info_read(multi, &left)) != NULL) {
    stream *s;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &s);
    s->is_done = 1;
    if (message->data.result != CURLE_OK)
      fail_msg("%s: %s", s->url, curl_easy_strerror(message->data.result));
  }
}

/* Moves all clients until this holds, for 20 s. */
#define DRIVE(holds)                                                                               \
  for (int tries = 0; drive_once(), !(holds); tries++) {                                           \
    if (tries == 4000) fail_msg("%s", #holds);                                                     \
    curl_multi_poll(multi, NULL, 0, 5, NULL);                                                      \
  }

static stream *ask_by(const char *method, const char *path, const char *body) {
  stream *s = calloc(1, sizeof *s);
  if (s == NULL || (s->easy = curl_easy_init()) == NULL) abort();
  CURL *easy = s->easy;
  char socket_path[100];
  snprintf(s->url, sizeof s->url, "https://127.0.0.1:%d%s", nginx_server_port(server), path);
  curl_easy_setopt(easy, CURLOPT_URL, s->url);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, s);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, s);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, s);
  curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
  curl_easy_setopt(easy, CURLOPT_NOBODY, strcmp(method, "HEAD") == 0 ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                   (long)(is_http3 ? CURL_HTTP_VERSION_3ONLY : CURL_HTTP_VERSION_2TLS));
  snprintf(socket_path, sizeof socket_path, "%s/socket", nginx_server_folder(server));
  if (!is_http3) curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, socket_path);
  if (body != NULL) { /* of no known length */
    s->sent = body;
    curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(easy, CURLOPT_READDATA, s);
  }
  if (curl_multi_add_handle(multi, easy) != CURLM_OK) abort();
  drive_once();
  return s;
}

static stream *asks(const char *path) { return ask_by("GET", path, NULL); }

/* The client resets its stream, or has ended already. */
static void leaves(stream *s) {
  curl_multi_remove_handle(multi, s->easy);
  curl_easy_cleanup(s->easy);
  free(s->body);
  free(s);
}

static int has(const stream *s, const char *text) {
  return s->body != NULL && strstr(s->body, text) != NULL;
}

/* The whole answer comes: 200, by this protocol, with this body (NULL: none). */
static void gets(stream *s, const char *body, const char *cache_status) {
  long status = 0, version = 0;
  DRIVE(s->is_done);
  curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(s->easy, CURLINFO_HTTP_VERSION, &version);
  assert_int_equal(status, 200);
  assert_int_equal(version, is_http3 ? CURL_HTTP_VERSION_3 : CURL_HTTP_VERSION_2);
  if (body == NULL) assert_int_equal(s->size, 0);
  if (body != NULL) assert_string_equal(s->body, body);
  if (strstr(s->cache_status, cache_status) == NULL)
    fail_msg("%s: %s, not %s", s->url, s->cache_status, cache_status);
  leaves(s);
}

/* A leading request, whose request of the origin is *upstream, and those that wait for it. */
static void crowd(const char *path, stream **clients, int count, int *upstream) {
  long before = nginx_kit_counter(server, "join");
  clients[0] = asks(path);
  DRIVE(!hand_origin_is_idle(&origin));
  *upstream = hand_origin_take(&origin, path);
  for (int i = 1; i < count; i++) clients[i] = asks(path);
  DRIVE(nginx_kit_counter(server, "join") == before + count - 1);
}

/* ---- stories ------------------------------------------------------------------------------- */

static void requests_of_one_connection_are_one_of_the_origin_and_get_its_parts_live(void **state) {
  (void)state;
  stream *clients[CLIENTS];
  int upstream;
  crowd("/live", clients, CLIENTS, &upstream);
  hand_send(upstream, CHUNKED "\r\n5\r\nfirst\r\n");
  for (int i = 0; i < CLIENTS; i++) DRIVE(has(clients[i], "first"));
  hand_send(upstream, "6\r\nsecond\r\n0\r\n\r\n");
  for (int i = 0; i < CLIENTS; i++) gets(clients[i], "firstsecond", i == 0 ? "stored" : "pages");
  close(upstream);
  gets(asks("/live"), "firstsecond", "pages; hit");
  gets(ask_by("HEAD", "/live", NULL), NULL, "pages; hit");
  is_stored("/live", "firstsecond");
}

static void streams_that_are_reset_in_any_phase_leave_the_others(void **state) {
  (void)state;
  char path[20];
  for (int phase = 0; phase < 3; phase++) {
    stream *clients[5];
    int upstream;
    snprintf(path, sizeof path, "/reset%d", phase);
    crowd(path, clients, 5, &upstream);
    if (phase == 0) leaves(clients[0]), leaves(clients[1]);
    hand_send(upstream, CHUNKED "\r\n3\r\none\r\n");
    if (phase == 1) DRIVE(has(clients[0], "one"));
    if (phase == 1) leaves(clients[0]), leaves(clients[1]);
    for (int i = 2; i < 5; i++) DRIVE(has(clients[i], "one"));
    hand_send(upstream, "3\r\ntwo\r\n");
    if (phase == 2) DRIVE(has(clients[0], "onetwo"));
    if (phase == 2) leaves(clients[0]), leaves(clients[1]);
    for (int i = 2; i < 5; i++) DRIVE(has(clients[i], "onetwo"));
    hand_send(upstream, "5\r\nthree\r\n");
    for (int i = 2; i < 5; i++) DRIVE(has(clients[i], "onetwothree"));
    hand_send(upstream, "0\r\n\r\n");
    for (int i = 2; i < 5; i++) gets(clients[i], "onetwothree", "pages");
    close(upstream);
    is_stored(path, "onetwothree");
  }
}

/* The body is larger than the window of a stream that isn't read. */
static void a_stream_that_is_not_read_holds_up_no_other(void **state) {
  enum { SIZE = 1000000 };
  (void)state;
  static char body[SIZE + 1];
  char head[100];
  stream *clients[3];
  int upstream;
  memset(body, 'x', SIZE);
  snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", (int)SIZE);
  crowd("/unread", clients, 3, &upstream);
  clients[0]->is_paused = 1;
  hand_send(upstream, head);
  for (int at = 0; at < SIZE; drive_once()) {
    ssize_t n = send(upstream, body + at, (size_t)(SIZE - at), MSG_DONTWAIT | MSG_NOSIGNAL);
    at += n > 0 ? (int)n : 0;
  }
  for (int i = 1; i < 3; i++) gets(clients[i], body, "pages");
  assert_false(clients[0]->is_done);
  clients[0]->is_paused = 0;
  curl_easy_pause(clients[0]->easy, CURLPAUSE_CONT);
  gets(clients[0], body, "pages");
  close(upstream);
  is_stored("/unread", body);
}

static void a_body_goes_to_the_origin_and_its_answer_to_this_client_alone(void **state) {
  (void)state;
  static const char *const methods[] = {"GET", "POST", "GET"};
  for (int i = 0; i < 3; i++) {
    stream *client = ask_by(methods[i], "/with_body", "a query");
    DRIVE(!hand_origin_is_idle(&origin));
    int upstream = hand_origin_take_as(&origin, methods[i], "/with_body");
    assert_string_equal(hand_read(upstream, "a query"), "a query");
    hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer");
    gets(client, "answer", i == 1 ? "fwd=method" : "fwd=bypass");
    close(upstream);
  }
}

/* ---- servers ------------------------------------------------------------------------------- */

/* True when nginx and libcurl have HTTP/3. */
static int has_http3(void) {
  char program[SERVER_PROCESS_PATH], command[SERVER_PROCESS_PATH + 100];
  if ((curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_HTTP3) == 0) return 0;
  if (!nginx_server_find(program)) return 0;
  snprintf(command, sizeof command,
           "LD_PRELOAD=\"$CORRAL_ASAN\" '%s' -V 2>&1 | grep -q http_v3_module", program);
  return system(command) == 0;
}

static int start_over(void **state) {
  (void)state;
  char folder[ROOM_PATH], *command = NULL, *text = NULL, *locations = NULL;
  room_folder(folder, "certificate");
  if (asprintf(&command,
               "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout "
               "%s/key.pem -out %s/cert.pem 2>/dev/null",
               folder, folder) < 0 ||
      asprintf(&locations, "ssl_certificate %s/cert.pem; ssl_certificate_key %s/key.pem; %s %s",
               folder, folder, is_http3 ? "listen 127.0.0.1:%PORT% quic;" : "", LOCATIONS) < 0)
    abort();
  if (system(command) != 0) fail_msg("openssl made no certificate");
  hand_origin_open(&origin);
  text = with_origin(locations);
  server = nginx_kit_start(&(nginx_kit_plan){.locations = text, .zone = ZONE});
  multi = curl_multi_init();
  curl_multi_setopt(multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
  curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, 1L);
  free(command);
  free(locations);
  free(text);
  return 0;
}

static int stop_over(void **state) {
  curl_multi_cleanup(multi);
  return stop(state);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      T(requests_of_one_connection_are_one_of_the_origin_and_get_its_parts_live),
      T(streams_that_are_reset_in_any_phase_leave_the_others),
      T(a_stream_that_is_not_read_holds_up_no_other),
      T(a_body_goes_to_the_origin_and_its_answer_to_this_client_alone),
  };
  curl_global_init(CURL_GLOBAL_DEFAULT);
  int failed = cmocka_run_group_tests_name("nginx_http2", tests, start_over, stop_over);
  is_http3 = has_http3();
  if (is_http3) failed += cmocka_run_group_tests_name("nginx_http3", tests, start_over, stop_over);
  curl_global_cleanup();
  return failed + nginx_kit_close();
}
