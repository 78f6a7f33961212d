/* test_nginx_transparent.c: nginx's own features behave with `corral` in http as without it.
 *
 * Three servers of one nginx have the same locations: one without corral, one where nothing says
 * how long it lives, so that each answer is passed on, and one where each answer that may be is
 * kept. They get the same requests, the last one twice. Left out of the comparison are fields that
 * docs/nginx.md names: Cache-Status, Age, Date, and for a page that is kept Accept-Ranges and how
 * the end of its body is told. */
#include "support/nginx_kit.h"

#include <ctype.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PROXY "proxy_pass %ORIGIN%; "

static const char files[] =
    "root %FOLDER%/www; server_name localhost; error_page 404 /e404.html;\n"
    "location = /e404.html { add_header X-Page \"$status $request_method\" always; }\n"
    "location /list/ { autoindex on; charset utf-8; }\n"
    "location /dir/ { index start.html; }\n"
    "location = /dir/start.html { ssi on; add_header X-Start $uri; }\n"
    "location /try/ { try_files $uri @app; }\n"
    "location @app { add_header X-App $uri; sub_filter_once off; sub_filter_types *;\n"
    "  sub_filter origin ORIGIN; " PROXY "}\n"
    "location /guarded/ { try_files $uri @guarded; }\n"
    "location @guarded { auth_basic staff; auth_basic_user_file %FOLDER%/www/users;\n"
    "  add_header X-User $remote_user; " PROXY "}\n"
    "location /hall/ { try_files $uri /inner$uri; }\n"
    "location /inner/ { auth_basic staff; auth_basic_user_file %FOLDER%/www/users;\n"
    "  try_files $uri @app; }\n"
    "location /lost { error_page 599 /e404.html; }\n"
    "location /limited-rate/ { limit_rate 200k; " PROXY "}\n"
    "location /fragments/ { ssi on; }\n"
    "location /open/ { try_files $uri @never; }\n"
    "location @never { corral off; " PROXY "}\n"
    "location /never/ { corral off; " PROXY "}\n"
    "location /shut/ { error_page 404 = /closed/page; }\n"
    "location /closed/ { deny all; " PROXY "}\n"
    "location = /odd { error_page 302 /sub; return 302 /nowhere; }\n"
    "location /missing/ { error_page 404 = /found$uri; }\n"
    "location /found/ { add_header X-Found $uri always; " PROXY "}\n"
    "location /static/ { gzip_static on; gzip_vary on; }\n"
    "location = /quiet { return 204; }\n"
    "location = /return { return 302 /part/x; }\n"
    "location = /text { default_type text/plain; return 200 text; }\n"
    "location /rewrite/ { rewrite ^/rewrite/(.*)$ /part/$1 last; }\n"
    "location = /added/before { return 200 <<; }\n"
    "location = /added/after { return 200 >>; }\n";

static const char origins[] =
    "location /part/ { " PROXY "}\n"
    "location /ssi/ { ssi on; " PROXY "}\n"
    "location /auth/ { auth_request /ask; auth_request_set $who $upstream_http_x_who;\n"
    "  auth_request_set $asked $upstream_status; add_header X-Who \"$who $asked\";\n"
    "  proxy_set_header X-Who $who; " PROXY "}\n"
    "location = /ask { internal; proxy_pass_request_body off; proxy_set_header Content-Length '';\n"
    "  proxy_pass %ORIGIN%/ask-$http_x_as; }\n"
    "location /porch/ { corral_wait 50ms; try_files $uri /door$uri; }\n"
    "location /door/ { auth_request /ask; try_files $uri @guarded; }\n"
    "location /lobby/ { corral_soft 50ms; try_files $uri /gate$uri; }\n"
    "location /gate/ { auth_request /ask; " PROXY "}\n"
    "location /up/ { client_body_buffer_size 8k; client_max_body_size 8m;\n"
    "  proxy_pass http://unix:%FOLDER%/origin; }\n"
    "location /now/ { client_body_buffer_size 8k; client_max_body_size 8m; proxy_http_version "
    "1.1;\n"
    "  proxy_request_buffering off; proxy_pass http://unix:%FOLDER%/origin; }\n"
    "location /gzip/ { gzip on; gzip_min_length 1; gzip_types text/plain; gzip_proxied any;\n"
    "  gzip_vary on; " PROXY "}\n"
    "location /added/ { add_before_body /added/before; add_after_body /added/after;\n"
    "  addition_types *; " PROXY "}\n"
    "location /mirror/ { mirror /mirrored; " PROXY "}\n"
    "location = /mirrored { internal; proxy_pass %ORIGIN%/mirrored; }\n"
    "location /limited/ { limit_except GET { deny all; } " PROXY "}\n"
    "location /caught/ { proxy_intercept_errors on; error_page 404 = @caught;\n"
    "  error_page 403 /e404.html; " PROXY "}\n"
    "location @caught { add_header X-Caught 1; return 203 caught; }\n"
    "location /moved/ { proxy_redirect http://inside/ /outside/; proxy_cookie_path / /c/; " PROXY
    "}\n"
    "location /secret/ { internal; add_header X-Secret $uri; }\n"
    "location /vault/ { internal; auth_basic staff; auth_basic_user_file %FOLDER%/www/users;\n"
    "  add_header X-User $remote_user; " PROXY "}\n"
    "location /chunked/ { proxy_http_version 1.1; " PROXY "}\n"
    "location /socket/ { proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;\n"
    "  proxy_set_header Connection upgrade; " PROXY "}\n"
    "location /names/ { add_header X-Host $proxy_host; add_header X-Status $upstream_status;\n"
    "  add_header X-Field $upstream_http_x_field; add_header X-Cookie $upstream_cookie_a; " PROXY
    "}\n";

enum { PLAIN, PASSED, KEPT, SERVERS };
static const char *const names[SERVERS] = {"plain", "passed", "kept"};
static nginx_server *server;
static char address[SERVERS][128], socket2[SERVERS][128];

/* ---- files and answers --------------------------------------------------------------------- */

static void run(const char *format) {
  char *command = NULL;
  if (asprintf(&command, "cd %s/www && %s", nginx_server_folder(server), format) < 0) abort();
  assert_int_equal(system(command), 0);
  free(command);
}

static void make_files(void) {
  run("mkdir -p fragments && printf 'X<!--#include virtual=\"/quiet\" -->X' >fragments/a.html");
  run("printf '<!--#block name=\"b\" -->instead<!--#endblock -->[<!--#include virtual=\"/lost\" "
      "stub=\"b\" -->]' >fragments/b.html");
  run("mkdir -p list dir try guarded static secret sub && : >empty.txt && printf small >small.txt");
  run("head -c 300000 /dev/zero | tr '\\0' y >large.txt && printf 'no page' >e404.html");
  run("printf x >'list/a file.txt' && printf x >list/häuser-aus-einer-langen-reihe-in-der-straße");
  run("printf '<!--# echo var=\"uri\" -->' >dir/start.html && printf there >try/there.txt");
  run("printf 'staff:{PLAIN}word\\n' >users && printf kept >secret/file.txt && printf i "
      ">sub/index.html");
  run("printf 'some text' >static/a.txt && gzip -k static/a.txt && gzip -c small.txt >static/b.gz");
}

static void answer(const char *path, const http_answer *answer) {
  http_origin_answer(nginx_kit_origin, path, answer);
}

static void make_answers(void) {
  answer("*", HTTP_ANSWER(.body = "origin", .headers = "Content-Type: text/plain\r\n"));
  answer("/part/tagged",
         HTTP_ANSWER(.body = "0123456789", .etag = "\"v1\"",
                     .headers = "Content-Type: text/plain\r\n"
                                "Last-Modified: Mon, 28 Sep 1970 06:00:00 GMT\r\n"));
  answer("/part/large", HTTP_ANSWER(.body = "0123456789", .repeat = 40000));
  answer("/part/unsized", HTTP_ANSWER(.body = "origin", .repeat = 2000, .unsized = 1));
  answer("/limited-rate/a", HTTP_ANSWER(.body = "0123456789", .repeat = 1000));
  answer("/limited-rate/b", HTTP_ANSWER(.body = "0123456789", .repeat = 10000));
  static const char *const slowly[] = {"/part/paused", "/ssi/paused", "/gzip/paused",
                                       "/added/paused", "/limited-rate/paused"};
  for (size_t i = 0; i < sizeof slowly / sizeof *slowly; i++)
    answer(slowly[i], HTTP_ANSWER(.body = "0123456789", .repeat = 10000, .pause_ms = 20,
                                  .headers = "Content-Type: text/plain\r\n"));
  answer("/part/nothing", HTTP_ANSWER(.status = 204));
  answer("/part/cookie", HTTP_ANSWER(.body = "origin", .headers = "Set-Cookie: a=b\r\n"));
  answer("/part/error",
         HTTP_ANSWER(.status = 500, .body = "broken", .headers = "Retry-After: 9\r\n"));
  answer("/chunked/a", HTTP_ANSWER(.body = "origin", .repeat = 2000, .chunked = 1));
  answer("/ssi/page",
         HTTP_ANSWER(.headers = "Content-Type: text/html\r\nCache-Control: max-age=60\r\n",
                     .body = "<!--# include virtual=\"/part/x?a=1\" -->|"
                             "<!--# include virtual=\"/ssi/nested\" wait=\"yes\" -->|"
                             "<!--# set var=\"v\" value=\"$arg_q\" --><!--# echo var=\"v\" -->|"
                             "<!--# if expr=\"$arg_q\" -->yes<!--# else -->no<!--# endif -->"));
  answer("/ssi/plain", HTTP_ANSWER(.headers = "Content-Type: text/html\r\n",
                                   .body = "[<!--# include virtual=\"/text\" -->]"
                                           "[<!--# include virtual=\"/part/cookie\" -->]"));
  answer("/ssi/quick", HTTP_ANSWER(.headers = "Content-Type: text/html\r\n",
                                   .body = "<!--# include virtual=\"/quiet\" -->end"));
  answer("/ssi/last", HTTP_ANSWER(.headers = "Content-Type: text/html\r\n",
                                  .body = "<!--# include virtual=\"/part/nothing\" -->end"));
  answer("/ssi/broken", HTTP_ANSWER(.headers = "Content-Type: text/html\r\n",
                                    .body = "[<!--# include virtual=\"/part/error\" -->]"));
  answer("/ssi/nested", HTTP_ANSWER(.headers = "Content-Type: text/html\r\n",
                                    .body = "(<!--# include virtual=\"/part/tagged\" -->)"));
  answer("/auth/a", HTTP_ANSWER(.body = "origin"));
  answer("/ask-friend", HTTP_ANSWER(.status = 204, .headers = "X-Who: friend\r\n"));
  answer("/ask-stranger", HTTP_ANSWER(.status = 401, .headers = "WWW-Authenticate: Basic\r\n"));
  answer("/ask-enemy", HTTP_ANSWER(.status = 403));
  answer("/ask-slow-friend", HTTP_ANSWER(.status = 204, .delay_ms = 400));
  answer("/ask-slow-enemy", HTTP_ANSWER(.status = 403, .delay_ms = 400));
  answer("/caught/none", HTTP_ANSWER(.status = 404, .body = "none"));
  answer("/caught/closed", HTTP_ANSWER(.status = 403, .body = "closed"));
  answer("/moved/a", HTTP_ANSWER(.status = 302, .headers = "Location: http://inside/b\r\n"
                                                           "Set-Cookie: a=b; Path=/\r\n"));
  answer("/moved/b", HTTP_ANSWER(.status = 302, .headers = "Location: http://inside/b\r\n"));
  answer("/part/accel", HTTP_ANSWER(.headers = "X-Accel-Redirect: /secret/file.txt\r\n"
                                               "Content-Type: text/odd\r\nX-Other: lost\r\n"
                                               "Content-Disposition: inline\r\n"));
  answer("/part/vault", HTTP_ANSWER(.headers = "X-Accel-Redirect: /vault/page\r\n"
                                               "Content-Disposition: inline\r\n"));
  answer("/part/text", HTTP_ANSWER(.headers = "X-Accel-Redirect: /text\r\n"
                                              "Content-Disposition: inline\r\n"));
  answer("/part/slow",
         HTTP_ANSWER(.body = "0123456789", .headers = "X-Accel-Buffering: no\r\n"
                                                      "X-Accel-Limit-Rate: 99999\r\n"));
  answer("/names/a", HTTP_ANSWER(.body = "x", .headers = "X-Field: some\r\nSet-Cookie: a=b\r\n"));
  answer("/names/b", HTTP_ANSWER(.body = "x", .headers = "X-Field: some\r\n"));
  answer("/socket/a", HTTP_ANSWER(.status = 101, .unsized = 1, .body = "from the socket",
                                  .headers = "Upgrade: echo\r\nConnection: Upgrade\r\n"));
}

static void begin(void) {
  char *http = NULL, *locations = NULL;
  if (asprintf(
          &http,
          "corral_zone passed store=%%REDIS%% namespace=passed;\n"
          "server { listen unix:%%FOLDER%%/origin; root %%FOLDER%%/www; corral off;\n"
          "  location / { dav_methods PUT; create_full_put_path on; client_max_body_size 8m; }}\n"
          "server { listen unix:%%FOLDER%%/plain; listen unix:%%FOLDER%%/plain2 http2;\n"
          "  corral off; %s%s}\n"
          "server { listen unix:%%FOLDER%%/passed; listen unix:%%FOLDER%%/passed2 http2;\n"
          "  corral passed; %s%s}\n"
          "server { listen unix:%%FOLDER%%/other; corral pages;\n"
          "  location / { proxy_pass %%ORIGIN%%; } }\n",
          files, origins, files, origins) < 0 ||
      asprintf(&locations,
               "listen unix:%%FOLDER%%/kept; listen unix:%%FOLDER%%/kept2 http2;\n"
               "corral pages; corral_valid any 1m; %s%s",
               files, origins) < 0)
    abort();
  server = nginx_kit_start(&(nginx_kit_plan){.http = http, .locations = locations});
  free(http);
  free(locations);
  for (int i = 0; i < SERVERS; i++) {
    const char *folder = nginx_server_folder(server);
    snprintf(address[i], sizeof address[i], "unix:%s/%s", folder, names[i]);
    snprintf(socket2[i], sizeof socket2[i], "%s/%s2", folder, names[i]);
  }
  make_files();
  make_answers();
}

/* ---- comparing ----------------------------------------------------------------------------- */

enum { LINES = 80 };

/* An answer as text: its status and fields, sorted, without those that are left out. */
typedef struct shown {
  char *lines[LINES];
  int count;
} shown;

static void add(shown *to, const char *line, size_t len) {
  if (to->count == LINES) fail_msg("an answer has more than %d lines", LINES);
  char *copy = strndup(line, len);
  for (char *at = copy; *at != '\0' && *at != ':'; at++) *at = (char)tolower((unsigned char)*at);
  /* the boundary of a multipart body is a number of nginx's */
  for (char *at = copy; *at != '\0';) {
    size_t digits = 0;
    while (isdigit((unsigned char)at[digits])) digits++;
    if (digits == 20) memset(at, '0', digits);
    at += digits > 0 ? digits : 1;
  }
  to->lines[to->count++] = copy;
}

static int is_left_out(const char *line, int is_kept) {
  static const char *const always[] = {"date:", "cache-status:", "age:", "accept-ranges:"};
  static const char *const kept[] = {"content-length:", "transfer-encoding:"};
  for (size_t i = 0; i < sizeof always / sizeof *always; i++)
    if (strncasecmp(line, always[i], strlen(always[i])) == 0) return 1;
  for (size_t i = 0; is_kept && i < sizeof kept / sizeof *kept; i++)
    if (strncasecmp(line, kept[i], strlen(kept[i])) == 0) return 1;
  return 0;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Of a text of whole lines. */
static shown show_text(const char *text, int is_kept) {
  shown made = {.count = 0};
  for (size_t len; *text != '\0'; text += len + (text[len] == '\n')) {
    len = strcspn(text, "\n");
    size_t used = len > 0 && text[len - 1] == '\r' ? len - 1 : len;
    const char *status = strstr(text, "HTTP/1.1 "); /* the reason behind it isn't kept */
    if (status != NULL && status + 12 < text + used) used = (size_t)(status + 12 - text);
    if (used > 0 && !is_left_out(text, is_kept)) add(&made, text, used);
  }
  qsort(made.lines, (size_t)made.count, sizeof *made.lines, by_text);
  return made;
}

static shown show(const http_reply *reply, int is_kept) {
  char *text = NULL;
  size_t size;
  FILE *to = open_memstream(&text, &size);
  fprintf(to, "status %d %s\n", reply->status, reply->error);
  for (int i = 0; i < reply->header_count; i++)
    fprintf(to, "%s: %s\n", reply->headers[i].name, reply->headers[i].value);
  fclose(to);
  shown made = show_text(text, is_kept);
  free(text);
  return made;
}

static void hide(shown *text) {
  for (int i = 0; i < text->count; i++) free(text->lines[i]);
}

/* Returns what one has and the other has not; NULL: they are the same. */
static const char *differ(const shown *a, const shown *b) {
  static char said[300];
  for (int i = 0; i < a->count || i < b->count; i++) {
    const char *one = i < a->count ? a->lines[i] : "", *two = i < b->count ? b->lines[i] : "";
    if (strcmp(one, two) == 0) continue;
    snprintf(said, sizeof said, "without corral \"%.120s\", with it \"%.120s\"", one, two);
    return said;
  }
  return NULL;
}

typedef struct row {
  const char *path, *headers, *method;
  int only_passed; /* 1: docs/nginx.md names how a page that is kept is answered otherwise */
  int only_warm;   /* 1: the same for its first answer */
} row;

static int unlike(const row *asked, const char *what, const http_reply *plain, http_reply reply,
                  int is_kept) {
  shown a = show(plain, is_kept), b = show(&reply, is_kept);
  const char *why = differ(&a, &b);
  int is_other = why != NULL;
  if (is_other)
    print_error("%s %s (%s), %s: %s\n", asked->method != NULL ? asked->method : "GET", asked->path,
                asked->headers != NULL ? asked->headers : "", what, why);
  shown c = show_text(plain->body != NULL ? plain->body : "", 0);
  shown d = show_text(reply.body != NULL ? reply.body : "", 0);
  why = differ(&c, &d);
  if (!is_other && (why != NULL || plain->size != reply.size)) {
    print_error("%s, %s: the body: %zu and %zu bytes, %s\n", asked->path, what, plain->size,
                reply.size, why != NULL ? why : "");
    is_other = 1;
  }
  hide(&a), hide(&b), hide(&c), hide(&d);
  http_reply_free(&reply);
  return is_other;
}

static http_reply ask(int which, const row *asked) {
  http_client *client = http_client_new(address[which]);
  http_reply reply = http_client_ask(client, &(http_request){.method = asked->method,
                                                             .path = asked->path,
                                                             .headers = asked->headers,
                                                             .closes = 1});
  http_client_free(client);
  return reply;
}

static void compare(const row *rows, size_t count) {
  int failed = 0;
  for (size_t i = 0; i < count; i++) {
    const row *asked = &rows[i];
    http_reply plain = ask(PLAIN, asked);
    failed += unlike(asked, "passed on", &plain, ask(PASSED, asked), 0);
    if (!asked->only_passed) {
      http_reply cold = ask(KEPT, asked);
      if (asked->only_warm)
        http_reply_free(&cold);
      else
        failed += unlike(asked, "kept, the first answer", &plain, cold, 1);
      failed += unlike(asked, "kept, the second answer", &plain, ask(KEPT, asked), 1);
    }
    http_reply_free(&plain);
  }
  nginx_kit_check(server, 0);
  assert_int_equal(failed, 0);
}

#define COMPARE(...)                                                                               \
  do {                                                                                             \
    static const row rows[] = {__VA_ARGS__};                                                       \
    compare(rows, sizeof rows / sizeof *rows);                                                     \
  } while (0)

/* ---- stories ------------------------------------------------------------------------------- */

static void static_files_are_the_same(void **state) {
  (void)state;
  COMPARE(
      {.path = "/small.txt"}, {.path = "/empty.txt"}, {.path = "/large.txt"}, {.path = "/none.txt"},
      {.path = "/sub"}, {.path = "/sub/"}, {.path = "/small.txt", .method = "HEAD"},
      {.path = "/large.txt", .method = "HEAD"}, {.path = "/small.txt", .method = "POST"},
      {.path = "/small.txt", .method = "OPTIONS"},
      {.path = "/large.txt", .headers = "Range: bytes=5-9\r\n"},
      {.path = "/large.txt", .headers = "Range: bytes=-5\r\n"},
      {.path = "/large.txt", .headers = "Range: bytes=999999-\r\n"},
      {.path = "/large.txt", .headers = "Range: bytes=x\r\n"},
      {.path = "/large.txt", .headers = "Range: bytes=0-1,5-6\r\n"},
      {.path = "/small.txt", .headers = "If-Modified-Since: Mon, 28 Sep 2037 06:00:00 GMT\r\n"},
      {.path = "/small.txt", .headers = "If-Modified-Since: Mon, 28 Sep 1970 06:00:00 GMT\r\n"},
      {.path = "/small.txt", .headers = "If-None-Match: *\r\n"},
      {.path = "/small.txt", .headers = "If-None-Match: \"x\"\r\n"},
      {.path = "/small.txt", .headers = "If-Match: \"x\"\r\n"},
      {.path = "/small.txt", .headers = "If-Unmodified-Since: Mon, 28 Sep 1970 06:00:00 GMT\r\n"});
}

static void what_another_location_answers_is_the_same(void **state) {
  (void)state;
  COMPARE({.path = "/try/there.txt"}, {.path = "/try/gone"},
          {.path = "/try/gone", .method = "HEAD"}, {.path = "/dir/"}, {.path = "/dir/start.html"},
          {.path = "/missing/page"}, {.path = "/missing/page?a=1"}, {.path = "/return"},
          {.path = "/odd"}, {.path = "/text"}, {.path = "/rewrite/x?a=1"},
          {.path = "/list/", .only_passed = 1}, {.path = "/list/none"},
          {.path = "/list/a%20file.txt"}, {.path = "/added/x"}, {.path = "/part/text"},
          {.path = "/part/accel", .only_passed = 1});
}

static void a_location_that_a_request_is_redirected_to_guards_itself(void **state) {
  (void)state;
  COMPARE({.path = "/guarded/page"},
          {.path = "/guarded/page", .headers = "Authorization: Basic c3RhZmY6d29yZA==\r\n"},
          {.path = "/guarded/page"},
          {.path = "/guarded/page", .headers = "Authorization: Basic c3RhZmY6b3RoZXI=\r\n"},
          {.path = "/guarded/page", .headers = "Authorization: Basic c3RhZmY6d29yZA==\r\n"},
          {.path = "/hall/page"},
          {.path = "/hall/page", .headers = "Authorization: Basic c3RhZmY6d29yZA==\r\n"},
          {.path = "/hall/page"}, {.path = "/part/vault"},
          {.path = "/part/vault", .headers = "Authorization: Basic c3RhZmY6d29yZA==\r\n"},
          {.path = "/part/vault"}, {.path = "/shut/page"}, {.path = "/secret/file.txt"});
}

static http_reply asked(const char *where, const char *path, const char *headers) {
  http_client *client = http_client_new(where);
  http_reply reply =
      http_client_ask(client, &(http_request){.path = path, .headers = headers, .closes = 1});
  http_client_free(client);
  return reply;
}

static const char *said_by(const http_reply *reply) {
  const char *said = http_reply_header(reply, "cache-status");
  return said != NULL ? said : "no Cache-Status";
}

/* Asks the server at that address, and expects a status and a part of its Cache-Status. A request
 * that comes before the last one's page is stored shares that page: then it isn't a hit yet. */
static void expect_at(const char *where, const char *path, const char *headers, int status,
                      const char *how) {
  http_reply reply = asked(where, path, headers);
  for (int i = 0; i < 3000 && strcmp(how, "; hit") == 0 && strstr(said_by(&reply), "collapsed");
       i++) {
    http_reply_free(&reply);
    usleep(10000);
    reply = asked(where, path, headers);
  }
  if (reply.status != status || strstr(said_by(&reply), how) == NULL)
    fail_msg("%s: %d, %s", path, reply.status, said_by(&reply));
  assert_null(http_reply_header(&reply, "corral-location"));
  http_reply_free(&reply);
}

/* Asks the server where answers are kept. */
static void expect(const char *path, const char *headers, int status, const char *how) {
  expect_at(address[KEPT], path, headers, status, how);
}

static const char staff[] = "Authorization: Basic c3RhZmY6d29yZA==\r\n";

static void a_page_from_the_store_is_guarded_by_the_location_it_came_from(void **state) {
  (void)state;
  answer("/guarded/public",
         HTTP_ANSWER(.body = "page", .headers = "Cache-Control: public, max-age=60\r\n"));
  answer("/open/page", HTTP_ANSWER(.body = "page"));
  expect("/guarded/public", NULL, 401, "detail=redirect");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/guarded/public"), 0);
  expect("/guarded/public", staff, 200, "stored");
  expect("/guarded/public", staff, 200, "; hit");
  expect("/guarded/public", NULL, 401, "");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/guarded/public"), 1);
  for (int i = 1; i < 3; i++) {
    expect("/open/page", NULL, 200, "");
    assert_int_equal(http_origin_seen(nginx_kit_origin, "/open/page"), i);
  }
}

/* The rebuilding of a page, behind a stale answer, is redirected without its request. */
static void a_page_that_moves_to_a_location_without_corral_is_not_kept_there(void **state) {
  (void)state;
  answer("/part/moves",
         HTTP_ANSWER(.body = "page",
                     .headers = "Cache-Control: max-age=1, stale-while-revalidate=600\r\n"));
  answer("/never/page", HTTP_ANSWER(.body = "page", .headers = "Cache-Control: max-age=60\r\n"));
  expect("/part/moves", NULL, 200, "stored");
  sleep(2);
  answer("/part/moves", HTTP_ANSWER(.headers = "X-Accel-Redirect: /never/page\r\n"));
  for (int i = 0; i < 3000 && http_origin_seen(nginx_kit_origin, "/never/page") < 4; i++) {
    expect("/part/moves", NULL, 200, "");
    usleep(10000);
  }
  assert_true(http_origin_seen(nginx_kit_origin, "/never/page") >= 4);
}

static void each_location_on_the_way_to_a_page_guards_it(void **state) {
  (void)state;
  answer("/inner/hall/public",
         HTTP_ANSWER(.body = "page", .headers = "Cache-Control: public, max-age=60\r\n"));
  expect("/hall/public", staff, 200, "stored");
  expect("/hall/public", staff, 200, "; hit");
  expect("/hall/public", NULL, 401, "");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/inner/hall/public"), 1);
}

/* The limits of a request's wait pass while auth_request asks about it. */
static void a_guard_that_is_slow_to_decide_is_waited_for(void **state) {
  (void)state;
  answer("/door/porch/page",
         HTTP_ANSWER(.body = "page", .headers = "Cache-Control: public, max-age=60\r\n"));
  expect("/porch/page", "X-As: slow-friend\r\n", 401, "");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/door/porch/page"), 0);
  answer("/gate/lobby/page", HTTP_ANSWER(.body = "page", .headers = "Cache-Control: max-age=1, "
                                                                    "stale-if-error=600\r\n"));
  expect("/lobby/page", "X-As: friend\r\n", 200, "stored");
  sleep(5); /* its life begins when it is stored: after its answer, if the store is late */
  expect("/lobby/page", "X-As: slow-enemy\r\n", 403, "");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/gate/lobby/page"), 1);
  expect("/lobby/page", "X-As: slow-friend\r\n", 200, "");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/gate/lobby/page"), 2);
}

static void a_server_without_the_location_of_a_page_doesnt_send_it(void **state) {
  (void)state;
  char other[128];
  snprintf(other, sizeof other, "unix:%s/other", nginx_server_folder(server));
  answer("/guarded/elsewhere",
         HTTP_ANSWER(.body = "page", .headers = "Cache-Control: public, max-age=60\r\n"));
  expect("/guarded/elsewhere", staff, 200, "stored");
  expect_at(other, "/guarded/elsewhere", NULL, 200, "detail=redirect");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/guarded/elsewhere"), 2);
}

static void an_origin_redirects_no_hit_by_a_field_of_its_own(void **state) {
  (void)state;
  answer("/part/forged", HTTP_ANSWER(.body = "page", .headers = "Corral-Location: /closed/page\r\n"
                                                                "Cache-Control: max-age=60\r\n"));
  expect("/part/forged", NULL, 200, "stored");
  expect("/part/forged", NULL, 200, "; hit");
}

static void pages_with_fragments_are_the_same(void **state) {
  (void)state;
  COMPARE({.path = "/ssi/page?q=1"}, {.path = "/ssi/page"}, {.path = "/ssi/plain"},
          {.path = "/ssi/nested"}, {.path = "/ssi/last"}, {.path = "/ssi/quick"},
          {.path = "/fragments/a.html"}, {.path = "/fragments/b.html"},
          {.path = "/ssi/broken", .only_passed = 1}, {.path = "/ssi/page", .method = "HEAD"});
}

static void those_who_ask_before_decide_for_each_client(void **state) {
  (void)state;
  COMPARE({.path = "/auth/a", .headers = "X-As: friend\r\n"},
          {.path = "/auth/a", .headers = "X-As: stranger\r\n"},
          {.path = "/auth/a", .headers = "X-As: enemy\r\n"},
          {.path = "/auth/a", .headers = "X-As: friend\r\n"},
          {.path = "/auth/b", .headers = "X-As: enemy\r\n"});
  assert_string_equal(http_origin_header(nginx_kit_origin, "/auth/a", "x-who"), "friend");
}

static void an_origins_answers_are_the_same(void **state) {
  (void)state;
  COMPARE({.path = "/part/x"}, {.path = "/part/x", .method = "HEAD"}, {.path = "/part/large"},
          {.path = "/part/unsized"}, {.path = "/part/nothing"}, {.path = "/part/cookie"},
          {.path = "/part/error", .only_passed = 1}, {.path = "/chunked/a"},
          {.path = "/part/tagged", .headers = "If-None-Match: \"v1\"\r\n", .only_passed = 1},
          {.path = "/part/tagged", .headers = "If-None-Match: \"v2\"\r\n"},
          {.path = "/part/tagged", .method = "DELETE"}, {.path = "/limited/x"},
          {.path = "/limited/x", .method = "DELETE"}, {.path = "/caught/none"},
          {.path = "/caught/closed"}, {.path = "/moved/a"}, {.path = "/moved/b"},
          {.path = "/part/slow"}, {.path = "/limited-rate/a"}, {.path = "/limited-rate/b"},
          {.path = "/names/a"}, {.path = "/names/b", .only_passed = 1},
          {.path = "/mirror/a", .method = "POST"});
}

/* In several reads of nginx. */
static void answers_that_come_in_parts_are_the_same(void **state) {
  (void)state;
  COMPARE({.path = "/part/paused"}, {.path = "/ssi/paused"}, {.path = "/gzip/paused"},
          {.path = "/gzip/paused", .headers = "Accept-Encoding: gzip\r\n"},
          {.path = "/added/paused"}, {.path = "/limited-rate/paused"});
}

static void compressed_answers_are_the_same(void **state) {
  (void)state;
  COMPARE({.path = "/gzip/a"}, {.path = "/gzip/a", .headers = "Accept-Encoding: gzip\r\n"},
          {.path = "/static/a.txt"},
          {.path = "/static/a.txt", .headers = "Accept-Encoding: gzip\r\n"}, {.path = "/static/b"},
          {.path = "/static/b", .headers = "Accept-Encoding: gzip\r\n"},
          {.path = "/gzip/a", .headers = "Accept-Encoding: gzip\r\n", .method = "HEAD"});
  /* a page that is kept is asked for uncompressed */
  answer("/gzip/kept", HTTP_ANSWER(.body = "origin", .headers = "Content-Type: text/plain\r\n"));
  expect("/gzip/kept", "Accept-Encoding: gzip\r\n", 200, "stored");
  assert_null(http_origin_header(nginx_kit_origin, "/gzip/kept", "accept-encoding"));
}

/* Sends bytes as they are, and returns all that comes back. */
static char *exchange(int which, const char *bytes, size_t size) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  snprintf(at.sun_path, sizeof at.sun_path, "%s", address[which] + 5);
  struct timeval patience = {.tv_sec = 20};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
  for (size_t sent = 0; sent < size;) {
    ssize_t n = send(fd, bytes + sent, size - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += (size_t)n;
  }
  char *text = NULL, part[4096];
  size_t room;
  FILE *to = open_memstream(&text, &room);
  for (ssize_t n; (n = recv(fd, part, sizeof part, 0)) != 0;) {
    if (n < 0) fail_msg("the answer has no end");
    fwrite(part, 1, (size_t)n, to);
  }
  fclose(to);
  close(fd);
  return text;
}

static void compare_bytes(const char *bytes) {
  char *plain = exchange(PLAIN, bytes, strlen(bytes));
  for (int which = PASSED; which < SERVERS; which++) {
    char *text = exchange(which, bytes, strlen(bytes));
    shown a = show_text(plain, which == KEPT), b = show_text(text, which == KEPT);
    const char *why = differ(&a, &b);
    if (why != NULL) fail_msg("%s of \"%.60s\": %s", names[which], bytes, why);
    hide(&a), hide(&b);
    free(text);
  }
  free(plain);
}

static void a_connection_may_carry_many_requests_or_become_another(void **state) {
  (void)state;
  compare_bytes("GET /part/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
                "GET /small.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"
                "HEAD /part/tagged HTTP/1.1\r\nHost: localhost\r\n\r\n"
                "GET /part/cookie HTTP/1.1\r\nHost: localhost\r\n\r\n"
                "GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  compare_bytes("GET /part/x HTTP/1.0\r\n\r\n");
  compare_bytes("GET /socket/a HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                "Upgrade: echo\r\n\r\n");
  answer("/part/h2c", HTTP_ANSWER(.body = "origin"));
  for (int i = 0; i < 2; i++)
    compare_bytes("GET /part/h2c HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  "Upgrade: h2c\r\n\r\n");
  /* the last one of the six requests found it kept */
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/part/h2c"), 5);
}

/* Sends a body to each server, and looks at what arrived behind it. */
static void upload(const char *path, const char *head, const char *body, size_t size) {
  for (int which = 0; which < SERVERS; which++) {
    char *bytes = malloc(size + 500);
    int len =
        snprintf(bytes, 500, "PUT %s%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s",
                 path, names[which], head);
    memcpy(bytes + len, body, size);
    char *text = exchange(which, bytes, (size_t)len + size);
    if (strstr(text, "HTTP/1.1 201 ") == NULL) fail_msg("%s of %s: %s", path, names[which], text);
    free(text);
    free(bytes);
    char *command = NULL;
    if (asprintf(&command, "cmp %s/www%s%s %s/www%splain", nginx_server_folder(server), path,
                 names[which], nginx_server_folder(server), path) < 0)
      abort();
    assert_int_equal(system(command), 0);
    free(command);
  }
}

static void uploads_arrive_whole(void **state) {
  (void)state;
  size_t size = 200000;
  char *large = malloc(size), head[100], chunked[] = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  memset(large, 'u', size);
  snprintf(head, sizeof head, "Content-Length: %zu\r\n\r\n", size);
  upload("/up/small-", "Content-Length: 5\r\n\r\n", "small", 5);
  upload("/up/large-", head, large, size);
  upload("/up/chunked-", "Transfer-Encoding: chunked\r\n\r\n", chunked, strlen(chunked));
  upload("/now/small-", "Content-Length: 5\r\n\r\n", "small", 5);
  upload("/now/large-", head, large, size);
  upload("/now/chunked-", "Transfer-Encoding: chunked\r\n\r\n", chunked, strlen(chunked));
  upload("/up/expected-", "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n", "small", 5);
  run("cmp up/large-plain now/large-plain && test $(cat now/chunked-plain | wc -c) = 11");
  free(large);
}

/* Over HTTP/2 by curl; NULL: it is not there, or knows no HTTP/2. */
static char *over_http2(int which, const char *arguments) {
  char *command = NULL, *text = NULL;
  size_t size;
  if (asprintf(&command, "curl -s -i -m 60 --http2-prior-knowledge --unix-socket %s %s 2>&1",
               socket2[which], arguments) < 0)
    abort();
  FILE *from = popen(command, "re"), *to = open_memstream(&text, &size);
  for (int c; (c = fgetc(from)) != EOF;) fputc(c, to);
  fclose(to);
  int status = pclose(from);
  free(command);
  if (status == 0) return text;
  free(text);
  return NULL;
}

static void over_http2_it_is_the_same(void **state) {
  (void)state;
  static const char *const rows[] = {"http://localhost/part/x",
                                     "http://localhost/large.txt",
                                     "http://localhost/part/large?2",
                                     "-I http://localhost/part/tagged?2",
                                     "-r 5-9 http://localhost/large.txt?2",
                                     "http://localhost/ssi/page?q=2",
                                     "http://localhost/limited-rate/paused?2",
                                     "http://localhost/part/cookie",
                                     "http://localhost/try/gone?2",
                                     "http://localhost/none?2",
                                     "-H 'X-As: enemy' http://localhost/auth/a",
                                     "-X PUT --data-binary body http://localhost/up/http2"};
  if (system("curl -V | grep -q HTTP2") != 0) skip();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    run("rm -f up/http2");
    char *plain = over_http2(PLAIN, rows[i]);
    assert_non_null(plain);
    for (int k = PASSED; k <= SERVERS; k++) {
      int which = k < SERVERS ? k : KEPT;
      run("rm -f up/http2");
      char *text = over_http2(which, rows[i]);
      if (text == NULL) fail_msg("%s of %s: no answer", names[which], rows[i]);
      shown a = show_text(plain, which == KEPT), b = show_text(text, which == KEPT);
      const char *why = differ(&a, &b);
      if (why != NULL) fail_msg("%s of %s: %s", names[which], rows[i], why);
      hide(&a), hide(&b);
      free(text);
    }
    free(plain);
  }
}

static int start(void **state) {
  (void)state;
  begin();
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(static_files_are_the_same),
      cmocka_unit_test(what_another_location_answers_is_the_same),
      cmocka_unit_test(a_location_that_a_request_is_redirected_to_guards_itself),
      cmocka_unit_test(a_page_from_the_store_is_guarded_by_the_location_it_came_from),
      cmocka_unit_test(a_page_that_moves_to_a_location_without_corral_is_not_kept_there),
      cmocka_unit_test(each_location_on_the_way_to_a_page_guards_it),
      cmocka_unit_test(a_guard_that_is_slow_to_decide_is_waited_for),
      cmocka_unit_test(a_server_without_the_location_of_a_page_doesnt_send_it),
      cmocka_unit_test(an_origin_redirects_no_hit_by_a_field_of_its_own),
      cmocka_unit_test(pages_with_fragments_are_the_same),
      cmocka_unit_test(those_who_ask_before_decide_for_each_client),
      cmocka_unit_test(an_origins_answers_are_the_same),
      cmocka_unit_test(answers_that_come_in_parts_are_the_same),
      cmocka_unit_test(compressed_answers_are_the_same),
      cmocka_unit_test(a_connection_may_carry_many_requests_or_become_another),
      cmocka_unit_test(uploads_arrive_whole),
      cmocka_unit_test(over_http2_it_is_the_same),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
