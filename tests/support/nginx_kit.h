/* nginx_kit.h: shared support for the tests of the nginx module: an origin, a Redis, and nginx
 * servers with the module.
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
 * In the plan's texts %ORIGIN% is "http://127.0.0.1:PORT" of the origin, %REDIS% is the store's
 * URI; nginx_server.h defines further words. The module is $CORRAL_NGINX_MODULE; $CORRAL_ASAN names
 * a library to load before it. With another nginx, $CORRAL_NGINX, the module is the file
 * ngx_http_corral_module.so in that folder; without such a file it is a part of that nginx. */
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
  const char *locations; /* inside server { } */
  const char *store;     /* of the zone "pages"; NULL: %REDIS% */
  /* its other parameters; NULL: no near copies, and patience with the store of a busy machine */
  const char *zone;
  const char *http; /* more lines of http { }; NULL for none */
  const char *main; /* more lines before http { }; NULL for none */
  int workers;      /* 0: one */
  int is_daemon;    /* as in nginx_plan */
  int is_weighed;   /* 1: a sanitizer gives memory back at once that is freed */
} nginx_kit_plan;

extern http_origin *nginx_kit_origin;
extern redis_server *nginx_kit_redis;

/* Starts the origin and Redis. Returns 0 when something is missing, with a message on stderr. */
int nginx_kit_open(void);
/* Returns the number of servers that nginx_kit_end counted as failed. */
int nginx_kit_close(void);

/* Empties the store, then starts a server. Never NULL. */
nginx_server *nginx_kit_start(const nginx_kit_plan *plan);
/* Starts one more server without emptying the store. */
nginx_server *nginx_kit_another(const nginx_kit_plan *plan);
/* The text of http { } for that plan; to be freed. */
char *nginx_kit_http(const nginx_kit_plan *plan);
/* Quits the server. may_be_killed: workers killed by SIGKILL are no failure. */
void nginx_kit_end(nginx_server *server, int may_be_killed);
/* Fails the test when the server's log has an alert or worse, or a sanitizer's report.
 * may_be_killed as above. */
void nginx_kit_check(nginx_server *server, int may_be_killed);
/* Runs nginx -t on `http` inside http { }. Returns its output, valid until the next call; *status
 * is its exit status. */
const char *nginx_kit_config(const char *http, int *status);

/* Sends one request over a connection of its own. `headers` as in http_request. */
http_reply nginx_kit_ask(nginx_server *server, const char *method, const char *path,
                         const char *headers);
http_reply nginx_kit_get(nginx_server *server, const char *path, const char *headers);
/* A GET that must have this status and body (NULL: any). Returns the value of `header`, "" when
 * missing, in a buffer of this thread that the next call overwrites. */
const char *nginx_kit_expect(nginx_server *server, const char *path, const char *headers,
                             int status, const char *body, const char *header);
/* The same, repeated while the value says that the request was collapsed: one that comes before a
 * page is stored shares it. */
const char *nginx_kit_expect_alone(nginx_server *server, const char *path, const char *headers,
                                   int status, const char *body, const char *header);
/* Repeats a GET while its status is `first`, up to 10 s. True when the next status is `then`. */
int nginx_kit_await_status(nginx_server *server, const char *path, int first, int then);
/* A counter of corral_status, which the plan must serve at /status: the number behind "NAME":; -1
 * when there is none. */
long nginx_kit_counter(nginx_server *server, const char *name);
/* The number behind a text of Prometheus' page of corral_status, served as above; -1: none. */
double nginx_kit_row(nginx_server *server, const char *name);
/* True once the counter is at least `count`, within 10 s. */
int nginx_kit_await_counter(nginx_server *server, const char *name, long count);

#endif
