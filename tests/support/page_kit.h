/* page_kit.h: examples/cgi and examples/fastcgi behind a real nginx.
 *
 *   page_kit *kit = page_kit_start(PAGE_CGI, "PAGE_TTL_MS=100\nPAGE_COMMAND=%GATED%\n");
 *   if (kit == NULL) skip();   the missing program is printed
 *   http_reply reply = page_kit_get(kit, "/page/a?b=c");
 *   assert_int_equal(page_kit_computes(kit), 1);
 *   page_kit_stop(kit);                              fails after a sanitizer's report
 *
 * The text has one line for each environment variable. CORRAL_STORE is an lmdb: store in the kit's
 * folder, unless a line names another. In the text %FOLDER% is the kit's folder. %GATED% is a
 * command that waits until the gate is open and prints "edition N", N being the number of pages
 * made so far. The gate is open until page_kit_gate closes it. */
#ifndef TESTS_PAGE_KIT_H
#define TESTS_PAGE_KIT_H

#include "http_client.h"
#include "nginx_server.h"
#include "server_process.h"

typedef enum page_way {
  PAGE_CGI,      /* fcgiwrap with PAGE_FEW children, so at most that many requests run at once */
  PAGE_CGI_HERD, /* fcgiwrap with PAGE_CHILDREN children */
  PAGE_FASTCGI,  /* spawn-fcgi: one process; nginx keeps its connections */
  PAGE_FASTCGI_2 /* two processes with a socket each; nginx uses the other one when one fails */
} page_way;

enum { PAGE_CHILDREN = 104, PAGE_FEW = 24 };

typedef struct page_kit {
  page_way way;
  /* fcgiwrap, or the FastCGI programs; the first one's folder is the kit's */
  server_process servers[2];
  int count;
  nginx_server *nginx;
  http_client *client;
} page_kit;

page_kit *page_kit_start(page_way way, const char *variables);
void page_kit_stop(page_kit *kit);
const char *page_kit_folder(const page_kit *kit);

http_reply page_kit_get(page_kit *kit, const char *path);
/* As page_kit_get; returns "STATUS CACHE-STATUS|BODY" in static storage, valid until the next
 * call. */
const char *page_kit_show(page_kit *kit, const char *path);
/* Number of pages begun or made; pid of the process of the last one. */
int page_kit_computes(const page_kit *kit);
pid_t page_kit_maker(const page_kit *kit);
void page_kit_gate(const page_kit *kit, int is_open);
/* A file's text in the kit's folder, or "". Static storage. */
const char *page_kit_text(const page_kit *kit, const char *name);
/* Running CGI processes; or FastCGI connections, open and queued. */
int page_kit_requests(const page_kit *kit);

/* Waits until `what` returns at least `number` (exactly, with `is_exact`); fails the test after a
 * timeout. */
void page_kit_await(const page_kit *kit, int (*what)(const page_kit *), int number, int is_exact);
/* page_kit_terminate sends SIGTERM to a FastCGI process. page_kit_end waits for its end and returns
 * the exit status; -1: ended by a signal, or not within 20 s. */
void page_kit_terminate(page_kit *kit, int number);
int page_kit_end(page_kit *kit, int number);

/* Starts this many connections at once; each requests /page/herd. */
http_storm_run *page_kit_herd(page_kit *kit, int connections, const char *expected);
/* 100 requests for one page under construction: it must be made once, all must get it, and a later
 * request must hit. Returns the longest request in us; stops the kit. */
long long page_kit_hundred_make_it_once(page_kit *kit);
#endif
