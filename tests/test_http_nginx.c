/* test_http_nginx.c: the http: origin with a real nginx: a file with its ETag, compression, TLS. */
#include "support/http_kit.h"

#include <unistd.h>

#include "support/nginx_server.h"
#include "support/room.h"

static nginx_server *plain, *tls; /* NULL: nginx isn't installed */
static char folder[64];

static const char plain_config[] = "server { listen 127.0.0.1:%PORT%; root %FOLDER%/www; gzip on; "
                                   "gzip_types *; gzip_min_length 100;\n"
                                   "  location /fresh/ { alias %FOLDER%/www/; add_header "
                                   "Cache-Control 'max-age=60, stale-while-revalidate=5'; } }\n";

/* Makes a CA and a certificate for 127.0.0.1. */
static int made_certificates(void) {
  char command[1000];
  snprintf(command, sizeof command,
           "cd %s && exec 2>/dev/null && echo subjectAltName=IP:127.0.0.1 >server.ext &&\n"
           "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key "
           "-out ca.crt -days 2 -subj /CN=ca &&\n"
           "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out "
           "server.csr -subj /CN=server &&\n"
           "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out "
           "server.crt -days 2 -extfile server.ext\n",
           folder);
  return system(command) == 0;
}

static void put_file(nginx_server *nginx, const char *name, const char *text, int repeat) {
  char path[128];
  snprintf(path, sizeof path, "%s/www/%s", nginx_server_folder(nginx), name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (int i = 0; i < repeat; i++) fputs(text, file);
  fclose(file);
}

static int start_nginx(void **state) {
  char config[1000];
  (void)state;
  room_folder(folder, "http");
  if (!nginx_server_start(&plain, &(nginx_plan){.http = plain_config})) return 0;
  if (!made_certificates()) {
    fprintf(stderr, "SKIPPED: the openssl command is missing, or made no certificates\n");
    return 0;
  }
  snprintf(config, sizeof config,
           "server { listen 127.0.0.1:%%PORT%% ssl; ssl_certificate %s/server.crt; "
           "ssl_certificate_key %s/server.key; root %%FOLDER%%/www;\n"
           "  location /down { return 302 http://127.0.0.1:1/; } location /moved { return 301 "
           "/file; } }\n",
           folder, folder);
  nginx_server_start(&tls, &(nginx_plan){.http = config});
  return 0;
}

static int stop_nginx(void **state) {
  char command[100];
  (void)state;
  nginx_server_stop(plain);
  nginx_server_stop(tls);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static void a_file_is_fetched_once_and_then_validated_by_its_etag(void **state) {
  (void)state;
  char kept[1025];
  if (plain == NULL) skip();
  void *origin = opened("http://127.0.0.1:%d/fresh/{key}", nginx_server_port(plain));
  put_file(plain, "file", "one", 1);
  corral_fill *f = fetched(origin, "file");
  snprintf(kept, sizeof kept, "%s", f->validator);
  assert_non_null(strchr(kept, '"'));
  assert_int_equal(f->ttl, 60000);
  assert_int_equal(f->swr, 5000);
  expect_bytes(f, "one");
  f = refetched(origin, "file", "one", kept);
  assert_int_equal(f->kind, FILLED_UNMODIFIED);
  assert_int_equal(f->ttl, 60000);
  fill_free(f);
  put_file(plain, "file", "other", 1);
  expect_bytes(refetched(origin, "file", "one", kept), "other");
  f = fetched(origin, "none");
  assert_int_equal(f->kind, FILLED_NEGATIVE);
  fill_free(f);
  closed(origin);
}

static void what_nginx_compresses_is_unfolded_where_that_was_asked_for(void **state) {
  (void)state;
  if (plain == NULL) skip();
  put_file(plain, "long", "0123456789", 10000);
  void *whole = opened("http://127.0.0.1:%d/{key}#page=1", nginx_server_port(plain)),
       *origin = opened("http://127.0.0.1:%d/{key}#compressed=1", nginx_server_port(plain));
  corral_fill *f = fetched(whole, "long");
  assert_null(strstr(f->bytes, "Content-Encoding"));
  fill_free(f);
  f = fetched(origin, "long");
  assert_int_equal(f->size, 100000);
  assert_memory_equal(f->bytes + 99990, "0123456789", 10);
  fill_free(f);
  closed(whole);
  closed(origin);
}

static void certificates_are_verified_always(void **state) {
  (void)state;
  if (tls == NULL) skip();
  int port = nginx_server_port(tls);
  put_file(tls, "file", "secret", 1);
  void *known = opened("https://127.0.0.1:%d/{key}#ca=%s/ca.crt", port, folder),
       *unknown = opened("https://127.0.0.1:%d/{key}", port),
       *misnamed = opened("https://localhost:%d/{key}#ca=%s/ca.crt", port, folder),
       *absent = opened("https://127.0.0.1:%d/{key}#ca=%s/none.crt", port, folder);
  expect_bytes(fetched(known, "file"), "secret");
  expect_failure(fetched(unknown, "file"), 502, "certificate");
  expect_failure(fetched(misnamed, "file"), 502, "localhost");
  expect_failure(fetched(absent, "file"), 502, "none.crt");
  expect_bytes(fetched(known, "moved"), "secret");
  expect_failure(fetched(known, "down"), 502, "redirects from https to http");
  closed(known);
  closed(unknown);
  closed(misnamed);
  closed(absent);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_is_fetched_once_and_then_validated_by_its_etag),
      cmocka_unit_test(what_nginx_compresses_is_unfolded_where_that_was_asked_for),
      cmocka_unit_test(certificates_are_verified_always),
  };
  int failed = cmocka_run_group_tests(tests, start_nginx, stop_nginx);
  return failed == 0 && tls == NULL ? 77 : failed;
}
