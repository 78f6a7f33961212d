/* nginx_kit.h: what the tests of the nginx module share: an origin, a Redis, and nginxes with the
 * module.
 *
 *   int main(void) {
 *     ...
 *     if (!nginx_kit_open()) return 77;
 *     return cmocka_run_group_tests(...) + nginx_kit_close();
 *   }
 *
 *   nginx_server *server = nginx_kit_start(
 *     &(nginx_kit_plan){.locations = "location / { corral pages; proxy_pass %ORIGIN%; }"});
 *   http_reply reply = nginx_kit_get(server, "/page", NULL);
 *   nginx_kit_end(server, 0);   quits it; fails the program after a crash or a leak
 *
 * In the plan's texts %ORIGIN% is "http://127.0.0.1:PORT" of the origin, %REDIS% the store's URI;
 * and what nginx_server.h says. The module is $CORRAL_NGINX_MODULE; $CORRAL_ASAN a library to be
 * loaded before it. */
#ifndef TESTS_NGINX_KIT_H
#define TESTS_NGINX_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/http_client.h"
#include "support/http_origin.h"
#include "support/nginx_server.h"
#include "support/redis_server.h"

typedef struct nginx_kit_plan {
  const char *locations; /* of the server */
  const char *zone;      /* parameters of the zone "pages" besides its store; NULL: "near=off" */
  const char *http;      /* more lines of http { }; NULL for none */
  const char *main;      /* more lines before it; NULL for none */
  int workers;           /* 0: one */
} nginx_kit_plan;

extern http_origin *nginx_kit_origin;
extern redis_server *nginx_kit_redis;

/* Origin and Redis; 0 when something is missing, which stderr says. */
int nginx_kit_open(void);
/* How many servers ended badly. */
int nginx_kit_close(void);

/* An empty store, then a server. Never NULL. */
nginx_server *nginx_kit_start(const nginx_kit_plan *plan);
/* The same beside others, on the store as it is. */
nginx_server *nginx_kit_another(const nginx_kit_plan *plan);
/* What stands in http { } by that plan; to be freed. */
char *nginx_kit_http(const nginx_kit_plan *plan);
/* Quits it. Workers that were killed may be expected. */
void nginx_kit_end(nginx_server *server, int may_be_killed);
/* Fails when the server's log has an alert or worse, or a sanitizer has spoken; killed workers may
 * be expected. */
void nginx_kit_check(nginx_server *server, int may_be_killed);
/* What nginx -t says of `main`, and `http` in http { }; *status its exit status. Until the next
 * call. */
const char *nginx_kit_config(const char *http, int *status);

/* One request over a connection of its own. `headers` as in http_request. */
http_reply nginx_kit_ask(nginx_server *server, const char *method, const char *path,
                         const char *headers);
http_reply nginx_kit_get(nginx_server *server, const char *path, const char *headers);
/* The same, with the status and body that it must have (NULL: any); returns a header, "" when it
 * isn't there. Of this thread, until its next call. */
const char *nginx_kit_expect(nginx_server *server, const char *path, const char *headers,
                             int status, const char *body, const char *header);
/* True once a GET is answered by `then`, within 10 s, and by `first` until then. */
int nginx_kit_await_status(nginx_server *server, const char *path, int first, int then);
/* A number of corral_status, which the plan must have at /status: its text after "NAME": ; -1 when
 * there is none. */
long nginx_kit_counter(nginx_server *server, const char *name);
/* True once it is at least `count`, within 10 s. */
int nginx_kit_await_counter(nginx_server *server, const char *name, long count);

#endif
