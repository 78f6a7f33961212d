/* test_nginx_stream.c: the nginx module sends an answer while it comes: to the leading request's
 * client and to the waiters of its worker; clients that leave, an origin that breaks off, answers
 * that can't be kept. The test moves origin and clients by hand, so orders are exact. */
#include <signal.h>
#include <sys/un.h>

#define LOCATIONS                                                                                  \
  "listen unix:%SOCKET% sndbuf=16k;"                                                               \
  "location = /status { corral_status; }"                                                          \
  "location = /twice { ssi on; default_type text/html; "                                           \
  "  return 200 '<<!--# include virtual=\"$arg_part\" -->|<!--# include virtual=\"$arg_part\" "    \
  "-->>'; } "                                                                                      \
  "location = /purge { corral_purge pages http://localhost$arg_path; }"                            \
  "location / { corral pages; corral_key http://localhost$uri; corral_valid 200 1m; "              \
  "  corral_max_size 100k; corral_refresh $http_pragma; proxy_pass http://127.0.0.1:%d; }"         \
  "location /wide/ { corral pages; corral_valid 200 1m; corral_max_size 100k; "                    \
  "  proxy_buffer_size 64k; proxy_buffers 4 64k; proxy_pass http://127.0.0.1:%d; }"                \
  "location /limited/ { corral pages; corral_valid 200 1m; limit_rate 1000; "                      \
  "  proxy_pass http://127.0.0.1:%d; }"                                                            \
  "location /none/ { corral pages; corral_at_failure error; proxy_pass http://127.0.0.1:%d; }"     \
  "location /old/ { corral pages; corral_valid 1s; corral_stale_if_error 1m; "                     \
  "  proxy_pass http://127.0.0.1:%d; }"
#define ZONE "near=off jitter=0 op=10s away_after=20s lease=5s lease_min=5s"

#include "support/nginx_stream_kit.h"

enum { WAITERS = 20 };

static void send_event(int upstream, int client, const char *name, int number) {
  char event[64], chunk[96];
  snprintf(event, sizeof event, "data: %s %d\n\n", name, number);
  snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n", strlen(event), event);
  hand_send(upstream, chunk);
  hand_client_await(client, event);
}

static void send_part(int upstream, char letter, int size) {
  char *text = calloc(1, (size_t)size + 32);
  int at = snprintf(text, 16, "%x\r\n", size);
  memset(text + at, letter, (size_t)size);
  memcpy(text + at + size, "\r\n", 3);
  hand_send(upstream, text);
  free(text);
}

static void event_streams_pass_live_to_each_client(void **state) {
  (void)state;
  int client = ask("/events"), upstream = hand_origin_take(&origin, "/events");
  hand_send(upstream, CHUNKED "Content-Type: text/event-stream\r\n\r\n");
  hand_client_await(client, "text/event-stream");
  int other = ask("/events"), second = hand_origin_take(&origin, "/events");
  hand_send(second, CHUNKED "Content-Type: text/event-stream\r\n\r\n");
  hand_client_await(other, "text/event-stream");
  for (int i = 0; i < 100; i++) {
    send_event(upstream, client, "first", i);
    send_event(second, other, "second", i);
  }
  close(client);
  assert_true(hand_is_hung_up(upstream)); /* nobody listens any more */
  send_event(second, other, "second", 100);
  close(other);
  close(upstream);
  assert_true(hand_is_hung_up(second));
  close(second);
}

/* The origin gets the body as it is, and its answer goes to this client alone. */
static void get_with_body(const char *fields, const char *sent, const char *body,
                          const char *reply) {
  char answer[128];
  int client = hand_client_ask(nginx_server_port(server), "GET", "/with_body", fields);
  hand_send(client, sent);
  int upstream = hand_origin_take(&origin, "/with_body");
  assert_string_equal(hand_read(upstream, body + strlen(body) - 4), body);
  snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(reply),
           reply);
  hand_send(upstream, answer);
  hand_client_await(client, reply);
  ends(client);
  close(upstream);
}

static void a_get_with_a_body_brings_its_bytes_to_the_origin(void **state) {
  (void)state;
  get_with_body("Content-Length: 10\r\n", "one query!", "one query!", "one answer");
  get_with_body("Transfer-Encoding: chunked\r\n", "6\r\nanothe\r\n8\r\nr query!\r\n0\r\n\r\n",
                "another query!", "another answer");
  get_with_body("Content-Length: 10\r\n", "one query!", "one query!", "asked again");
}

static void waiters_for_what_cant_be_kept_go_their_own_way_at_its_header(void **state) {
  (void)state;
  int clients[4], upstream, others[3];
  herd("/none/cookie", clients, 3, &upstream);
  hand_send(upstream, CHUNKED "Set-Cookie: a=b\r\n\r\n3\r\none\r\n");
  hand_client_await(clients[0], "one");
  for (int i = 0; i < 3; i++) others[i] = hand_origin_take(&origin, "/none/cookie");
  for (int i = 0; i < 3; i++) hand_send(others[i], CHUNKED "\r\n3\r\ntwo\r\n0\r\n\r\n");
  hand_send(upstream, "3\r\nend\r\n0\r\n\r\n");
  hand_client_await(clients[0], "end");
  for (int i = 1; i < 4; i++) hand_client_await(clients[i], "two");
  for (int i = 0; i < 4; i++) ends(clients[i]);
  for (int i = 0; i < 3; i++) close(others[i]);
  close(upstream);
  assert_true(hand_origin_is_idle(&origin));
}

static void all_clients_of_the_worker_have_the_first_part_before_the_second_is_sent(void **state) {
  (void)state;
  int clients[WAITERS + 1], upstream;
  herd("/live", clients, WAITERS, &upstream);
  hand_send(upstream, CHUNKED "\r\n");
  for (int i = 0; i <= WAITERS; i++) hand_client_await(clients[i], "\r\n\r\n");
  hand_send(upstream, "5\r\nfirst\r\n");
  for (int i = 0; i <= WAITERS; i++) hand_client_await(clients[i], "first");
  int late = ask("/live"); /* joins what is under way */
  hand_client_await(late, "first");
  hand_send(upstream, "6\r\nsecond\r\n");
  for (int i = 0; i <= WAITERS; i++) hand_client_await(clients[i], "second");
  hand_client_await(late, "second");
  hand_send(upstream, "0\r\n\r\n");
  for (int i = 0; i <= WAITERS; i++) ends(clients[i]);
  ends(late);
  close(upstream);
  is_stored("/live", "firstsecond");
}

/* nginx reads the second part from the origin while limit_rate pauses the client. */
static void an_answer_goes_on_after_the_pauses_of_its_limited_rate(void **state) {
  (void)state;
  enum { SIZE = 700 };
  static const char *const paths[] = {"/limited/ends", "/limited/goes_on"};
  char last[SIZE + 1];
  for (int i = 0; i < 2; i++) {
    int clients[2], upstream;
    herd(paths[i], clients, 1, &upstream);
    hand_send(upstream, CHUNKED "\r\n");
    for (char letter = 'a'; letter < 'c'; letter++) {
      memset(last, letter, SIZE);
      last[SIZE] = '\0';
      send_part(upstream, letter, SIZE);
      if (letter == 'a') hand_client_await(clients[0], "aaaa");
    }
    if (i == 0) hand_send(upstream, "3\r\nend\r\n0\r\n\r\n");
    for (int k = 0; k < 2; k++) hand_client_await(clients[k], last);
    if (i == 1) { /* the pause ends with nothing left to send */
      nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
      hand_send(upstream, "3\r\nend\r\n0\r\n\r\n");
    }
    for (int k = 0; k < 2; k++) {
      hand_client_await(clients[k], "end");
      ends(clients[k]);
    }
    close(upstream);
    assert_true(hand_origin_is_idle(&origin));
  }
}

/* A request that comes during the answer is also a write event of nginx, with nothing to send. */
static void a_client_that_sends_its_next_request_gets_the_whole_answer(void **state) {
  (void)state;
  int client = ask("/pipelined"), upstream = hand_origin_take(&origin, "/pipelined");
  hand_send(upstream, CHUNKED "\r\n5\r\nfirst\r\n");
  hand_client_await(client, "first");
  hand_send(client, "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n");
  hand_send(upstream, "6\r\nsecond\r\n");
  hand_client_await(client, "second");
  hand_send(upstream, "3\r\nend\r\n0\r\n\r\n");
  hand_client_await(client, "end");
  ends(client);
  close(upstream);
  assert_true(hand_origin_is_idle(&origin));
}

static void a_head_of_a_slow_body_is_answered_at_its_header(void **state) {
  (void)state;
  static const char *const paths[] = {"/head", "/none/head"};
  for (int i = 0; i < 2; i++) {
    int client = hand_client_ask(nginx_server_port(server), "HEAD", paths[i], NULL);
    int upstream = hand_origin_take(&origin, paths[i]);
    hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n");
    hand_client_await(client, "Content-Length: 8");
    if (i == 0) {
      hand_send(upstream, "fourmore");
      nginx_kit_expect(server, paths[i], NULL, 200, "fourmore", NULL);
    }
    ends(client);
    close(upstream);
  }
}

static void clients_that_leave_in_any_phase_cost_no_second_request(void **state) {
  (void)state;
  char path[32];
  for (int phase = 0; phase < 3; phase++) {
    int clients[5], upstream;
    snprintf(path, sizeof path, "/leave%d", phase);
    herd(path, clients, 4, &upstream);
    if (phase == 0) close(clients[0]), close(clients[1]);
    hand_send(upstream, CHUNKED "\r\n3\r\none\r\n");
    if (phase > 0) hand_client_await(clients[0], "one");
    if (phase == 1) close(clients[0]), close(clients[1]);
    hand_client_await(clients[2], "one");
    hand_send(upstream, "3\r\ntwo\r\n");
    hand_client_await(clients[2], "two");
    if (phase == 2) close(clients[0]), close(clients[1]);
    hand_send(upstream, "0\r\n\r\n");
    for (int i = 2; i < 5; i++) ends(clients[i]);
    close(upstream);
    is_stored(path, "onetwo");
  }
}

static void an_origin_that_breaks_off_cuts_its_readers_and_is_asked_anew(void **state) {
  (void)state;
  int clients[3], upstream;
  herd("/breaks", clients, 2, &upstream);
  hand_send(upstream, CHUNKED "\r\n4\r\nhalf\r\n");
  for (int i = 0; i < 3; i++) hand_client_await(clients[i], "half\r\n");
  close(upstream);
  for (int i = 0; i < 3; i++) assert_int_equal(hand_client_drain(clients[i]), 0);
  for (int i = 0; i < 3; i++) close(clients[i]);
  int next = ask("/breaks");
  upstream = hand_origin_take(&origin, "/breaks");
  hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole");
  hand_client_await(next, "whole");
  ends(next);
  close(upstream);
  is_stored("/breaks", "whole");
}

static void a_body_that_turns_out_too_large_is_asked_for_once_by_its_flight(void **state) {
  (void)state;
  enum { PARTS = 8, SIZE = 20000 };
  int clients[3], upstream;
  herd("/large", clients, 2, &upstream);
  hand_send(upstream, CHUNKED "\r\n5\r\nfirst\r\n");
  for (int i = 0; i < 3; i++) hand_client_await(clients[i], "first");
  for (int i = 0; i < PARTS; i++) send_part(upstream, 'x', SIZE);
  hand_send(upstream, "4\r\nlast\r\n0\r\n\r\n");
  for (int i = 0; i < 3; i++) {
    hand_client_await(clients[i], "last");
    ends(clients[i]);
  }
  assert_true(hand_origin_is_idle(&origin));
  close(upstream);
}

static void a_body_too_large_by_its_length_is_asked_for_once_by_its_flight(void **state) {
  (void)state;
  enum { SIZE = 150000 };
  static char body[SIZE + 1];
  int clients[WAITERS + 1], upstream;
  memset(body, 'x', SIZE);
  herd("/large_length", clients, WAITERS, &upstream);
  hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 150000\r\n\r\n");
  for (int i = 0; i <= WAITERS; i++) hand_client_await(clients[i], "\r\n\r\n");
  hand_send(upstream, body);
  for (int i = 0; i <= WAITERS; i++) {
    assert_int_equal(hand_client_drain(clients[i]), SIZE);
    close(clients[i]);
  }
  assert_true(hand_origin_is_idle(&origin));
  close(upstream);
}

static void a_large_body_for_one_client_alone_goes_to_no_other(void **state) {
  (void)state;
  int clients[3], upstream, others[2];
  herd("/large_cookie", clients, 2, &upstream);
  hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 150000\r\nSet-Cookie: a=b\r\n\r\nxxx");
  hand_client_await(clients[0], "xxx");
  for (int i = 0; i < 2; i++) others[i] = hand_origin_take(&origin, "/large_cookie");
  for (int i = 0; i < 2; i++) hand_send(others[i], CHUNKED "\r\n3\r\ntwo\r\n0\r\n\r\n");
  for (int i = 1; i < 3; i++) hand_client_await(clients[i], "two");
  for (int i = 0; i < 3; i++) close(clients[i]);
  for (int i = 0; i < 2; i++) close(others[i]);
  close(upstream);
}

static void a_failure_is_handed_on_whole_and_remembered(void **state) {
  (void)state;
  int client = ask("/none/busy"), upstream = hand_origin_take(&origin, "/none/busy");
  hand_send(upstream, "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 10\r\n\r\ncome ");
  assert_non_null(strstr(hand_client_await(client, "come "), "Retry-After: 7"));
  hand_send(upstream, "later");
  hand_client_await(client, "later");
  ends(client);
  nginx_kit_expect(server, "/none/busy", NULL, 503, NULL, NULL);
  assert_true(hand_origin_is_idle(&origin));
  close(upstream);
}

/* Asks until the page has expired, and the origin is asked. Its life begins when it is stored,
 * which may be after its answer. */
static int ask_expired(const char *path) {
  for (int i = 0; i < 2000; i++) {
    struct pollfd either[] = {{.fd = origin.fd, .events = POLLIN}, {.events = POLLIN}};
    int client = either[1].fd = ask(path);
    assert_true(poll(either, 2, HAND_PATIENCE_MS) > 0);
    if (either[0].revents & POLLIN) return client;
    ends(client);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  fail_msg("%s doesn't expire", path);
  return -1;
}

static void a_stale_page_is_better_than_a_failure(void **state) {
  (void)state;
  int client = ask("/old/page"), upstream = hand_origin_take(&origin, "/old/page");
  hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold");
  hand_client_await(client, "old");
  ends(client);
  close(upstream);
  client = ask_expired("/old/page");
  upstream = hand_origin_take(&origin, "/old/page");
  hand_send(upstream, "HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nso");
  hand_client_await(client, "old");
  ends(client);
  close(upstream);
}

/* An answer that is under way: its client has got "old" of it. */
static int begun(const char *path, int *upstream) {
  int client = ask(path);
  *upstream = hand_origin_take(&origin, path);
  hand_send(*upstream, CHUNKED "\r\n3\r\nold\r\n");
  hand_client_await(client, "old");
  return client;
}

/* The second client has an answer of its own, which is stored; the first has its own to the end. */
static void goes_apart(const char *path, int first, int upstream, int second) {
  int anew = hand_origin_take(&origin, path);
  hand_send(anew, CHUNKED "\r\n3\r\nnew\r\n0\r\n\r\n");
  hand_client_await(second, "new");
  hand_send(upstream, "3\r\nend\r\n0\r\n\r\n");
  hand_client_await(first, "end");
  ends(first);
  ends(second);
  close(upstream);
  close(anew);
  is_stored(path, "new");
}

static void nobody_joins_an_answer_after_a_purge(void **state) {
  (void)state;
  int upstream, first = begun("/purged", &upstream);
  http_reply reply = nginx_kit_ask(server, "PURGE", "/purge?path=/purged", NULL);
  assert_int_equal(reply.status, 200);
  http_reply_free(&reply);
  goes_apart("/purged", first, upstream, ask("/purged"));
}

static void a_refresh_joins_no_answer_that_is_coming(void **state) {
  (void)state;
  int upstream, first = begun("/refreshed", &upstream);
  goes_apart(
      "/refreshed", first, upstream,
      hand_client_ask(nginx_server_port(server), "GET", "/refreshed", "Pragma: no-cache\r\n"));
}

static void a_fragment_streams_into_its_page_twice(void **state) {
  (void)state;
  int client = ask("/twice?part=/fragment"), upstream = hand_origin_take(&origin, "/fragment");
  hand_send(upstream, CHUNKED "\r\n");
  hand_client_await(client, "<");
  hand_send(upstream, "3\r\none\r\n");
  hand_client_await(client, "one");
  hand_send(upstream, "3\r\ntwo\r\n0\r\n\r\n");
  hand_client_await(client, "two");
  hand_client_await(client, "|");
  assert_null(strstr(strstr(hand_client_await(client, ">"), "one") + 3, "one"));
  ends(client);
  close(upstream);
  is_stored("/fragment", "onetwo");
  client = ask("/twice?part=/none/fragment"); /* isn't kept: each include has its own */
  upstream = hand_origin_take(&origin, "/none/fragment");
  hand_send(upstream, CHUNKED "\r\n3\r\none\r\n");
  hand_client_await(client, "one");
  int second = hand_origin_take(&origin, "/none/fragment");
  hand_send(second, CHUNKED "\r\n3\r\nsix\r\n0\r\n\r\n");
  hand_send(upstream, "3\r\ntwo\r\n0\r\n\r\n");
  hand_client_await(client, "six");
  ends(client);
  close(upstream);
  close(second);
  for (int i = 0; i < 2; i++) { /* broken, by the origin or by the client */
    client = ask("/twice?part=/cut");
    upstream = hand_origin_take(&origin, "/cut");
    hand_send(upstream, CHUNKED "\r\n3\r\none\r\n");
    hand_client_await(client, "one");
    close(i == 0 ? upstream : client);
    if (i == 0) assert_true(hand_is_hung_up(client));
    if (i == 1) hand_send(upstream, "3\r\ntwo\r\n0\r\n\r\n");
    close(i == 0 ? client : upstream);
  }
}

/* Older versions of nginx take an interim answer for the final one. */
static void an_interim_answer_is_not_the_one_that_is_kept(void **state) {
  (void)state;
  if (nginx_server_version() < 1029000) skip();
  int client = ask("/hinted"), upstream = hand_origin_take(&origin, "/hinted");
  hand_send(upstream, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
  hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole");
  const char *answer = hand_client_await(client, "whole");
  assert_non_null(strstr(answer, "HTTP/1.1 200 OK\r\n"));
  assert_null(strstr(answer, "a.css"));
  ends(client);
  close(upstream);
  is_stored("/hinted", "whole");
}

/* A client over nginx's unix socket, which holds few bytes; its answer is not chunked. */
static int ask_slowly(const char *path) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  char request[100];
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", nginx_server_folder(server));
  assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
  snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", path);
  hand_send(fd, request);
  return fd;
}

/* Reads to the end: the body, of *size bytes. To be freed. */
static char *read_body(int fd, size_t *size) {
  size_t room = 1 << 22, got = 0;
  char *text = calloc(1, room + 1);
  for (ssize_t n = 1; n > 0 && room > got; got += n > 0 ? (size_t)n : 0)
    n = hand_is_readable(fd, HAND_PATIENCE_MS) ? recv(fd, text + got, room - got, 0) : 0;
  const char *body = strstr(text, "\r\n\r\n");
  if (body == NULL) fail_msg("no answer");
  *size = got - (size_t)(body + 4 - text);
  memmove(text, body + 4, *size);
  return text;
}

/* Either client is the slow one. What waits for it is in memory, in a file, and in memory again. */
static void a_slow_client_slows_nobody_and_gets_each_byte(void **state) {
  (void)state;
  enum { PARTS = 50, SIZE = 40000 };
  for (int slow_leads = 0; slow_leads < 2; slow_leads++) {
    char path[32], *sent = calloc(1, (size_t)PARTS * SIZE + 16), *at = stpcpy(sent, "first");
    snprintf(path, sizeof path, "/wide/%d", slow_leads);
    long before = nginx_kit_counter(server, "join");
    int slow = slow_leads ? ask_slowly(path) : -1, fast = slow_leads ? -1 : ask(path);
    int upstream = hand_origin_take(&origin, path);
    if (slow_leads) fast = ask(path);
    if (!slow_leads) slow = ask_slowly(path);
    await_joined(before, 1);
    hand_send(upstream, CHUNKED "\r\n5\r\nfirst\r\n");
    for (int i = 0; i < PARTS; i++, at += SIZE) {
      memset(at, 'a' + i % 26, SIZE - 1);
      at[SIZE - 1] = '.';
      send_part(upstream, at[0], SIZE - 1);
      hand_send(upstream, "1\r\n.\r\n");
      hand_client_await(fast, ".");
    }
    hand_send(upstream, "0\r\n\r\n");
    ends(fast);
    close(upstream);
    size_t size;
    char *got = read_body(slow, &size);
    assert_int_equal(size, at - sent);
    assert_memory_equal(got, sent, size);
    close(slow);
    free(got);
    free(sent);
  }
  assert_non_null(strstr(nginx_server_log(server), "buffered to a temporary file"));
}

static void waiters_of_a_killed_leader_elect_anew(void **state) {
  (void)state;
  enum { COUNT = 10 };
  int clients[COUNT];
  pid_t worker;
  nginx_server *leading = another();
  int leader = hand_client_ask(nginx_server_port(leading), "GET", "/killed", NULL);
  int upstream = hand_origin_take(&origin, "/killed");
  long before = nginx_kit_counter(server, "wait") + nginx_kit_counter(server, "join");
  for (int i = 0; i < COUNT; i++) clients[i] = ask("/killed");
  for (int i = 0;
       i < 2000 &&
       nginx_kit_counter(server, "wait") + nginx_kit_counter(server, "join") < before + COUNT;
       i++)
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  assert_int_equal(nginx_server_workers(leading, &worker, 1), 1);
  kill(worker, SIGKILL);
  int second = hand_origin_take(&origin, "/killed"); /* within its patience of 10 s */
  hand_send(second, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nanew");
  for (int i = 0; i < COUNT; i++) {
    hand_client_await(clients[i], "anew");
    ends(clients[i]);
  }
  close(leader);
  close(upstream);
  close(second);
  assert_true(hand_origin_is_idle(&origin));
  nginx_kit_end(leading, 1);
}

static void two_tiers_on_one_store_dont_wait_for_each_other(void **state) {
  (void)state;
  char *text = NULL;
  if (asprintf(&text,
               "location / { corral pages; corral_key http://localhost$uri; corral_valid 200 1m; "
               "proxy_pass http://127.0.0.1:%d; }",
               nginx_server_port(server)) < 0)
    abort();
  nginx_server *front = nginx_kit_another(&(nginx_kit_plan){.locations = text});
  int client = hand_client_ask(nginx_server_port(front), "GET", "/tiers", NULL);
  int upstream = hand_origin_take(&origin, "/tiers");
  hand_send(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nonce");
  hand_client_await(client, "once");
  ends(client);
  close(upstream);
  nginx_kit_expect(front, "/tiers", NULL, 200, "once", NULL);
  is_stored("/tiers", "once");
  nginx_kit_end(front, 0);
  free(text);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(event_streams_pass_live_to_each_client),
      cmocka_unit_test(a_get_with_a_body_brings_its_bytes_to_the_origin),
      cmocka_unit_test(waiters_for_what_cant_be_kept_go_their_own_way_at_its_header),
      cmocka_unit_test(all_clients_of_the_worker_have_the_first_part_before_the_second_is_sent),
      cmocka_unit_test(an_answer_goes_on_after_the_pauses_of_its_limited_rate),
      cmocka_unit_test(a_client_that_sends_its_next_request_gets_the_whole_answer),
      cmocka_unit_test(a_head_of_a_slow_body_is_answered_at_its_header),
      cmocka_unit_test(clients_that_leave_in_any_phase_cost_no_second_request),
      cmocka_unit_test(an_origin_that_breaks_off_cuts_its_readers_and_is_asked_anew),
      cmocka_unit_test(a_body_that_turns_out_too_large_is_asked_for_once_by_its_flight),
      cmocka_unit_test(a_body_too_large_by_its_length_is_asked_for_once_by_its_flight),
      cmocka_unit_test(a_large_body_for_one_client_alone_goes_to_no_other),
      cmocka_unit_test(a_failure_is_handed_on_whole_and_remembered),
      cmocka_unit_test(a_stale_page_is_better_than_a_failure),
      cmocka_unit_test(nobody_joins_an_answer_after_a_purge),
      cmocka_unit_test(a_refresh_joins_no_answer_that_is_coming),
      cmocka_unit_test(a_fragment_streams_into_its_page_twice),
      cmocka_unit_test(an_interim_answer_is_not_the_one_that_is_kept),
      cmocka_unit_test(a_slow_client_slows_nobody_and_gets_each_byte),
      cmocka_unit_test(waiters_of_a_killed_leader_elect_anew),
      cmocka_unit_test(two_tiers_on_one_store_dont_wait_for_each_other),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
