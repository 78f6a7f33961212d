/* page_kit.h: examples/cgi and examples/fastcgi behind a real nginx.
 *
 *   page_kit *kit = page_kit_start(PAGE_CGI, "PAGE_TTL_MS=100\nPAGE_COMMAND=%GATED%\n");
 *   if (kit == NULL) skip();   it has printed what is missing
 *   http_reply reply = page_kit_get(kit, "/page/a?b=c");
 *   assert_int_equal(page_kit_computes(kit), 1);
 *   page_kit_stop(kit);                              fails when a sanitizer has found something
 *
 * The text has a line for each variable. CORRAL_STORE is an lmdb: of the kit's own, unless the
 * lines name another. In them %FOLDER% is the kit's folder, and %GATED% a command that prints
 * "edition N", N being the number of pages made so far, once the gate is open: it is, until
 * page_kit_gate closes it. */
#ifndef TESTS_PAGE_KIT_H
#define TESTS_PAGE_KIT_H

#include "http_client.h"
#include "nginx_server.h"
#include "server_process.h"

typedef enum page_way {
  PAGE_CGI,      /* by fcgiwrap, with few children: so many requests at once */
  PAGE_CGI_HERD, /* with PAGE_CHILDREN */
  PAGE_FASTCGI,  /* by spawn-fcgi: one process, asked to keep connections */
  PAGE_FASTCGI_2 /* two processes with a socket each; nginx takes the other when one is away */
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
/* The same, to be compared: "STATUS CACHE-STATUS|BODY"; static storage, until the next call. */
const char *page_kit_show(page_kit *kit, const char *path);
/* How many pages were made, or begun; who makes, or made, the last one. */
int page_kit_computes(const page_kit *kit);
pid_t page_kit_maker(const page_kit *kit);
void page_kit_gate(const page_kit *kit, int is_open);
/* A file's text in the kit's folder, or "". Static storage. */
const char *page_kit_text(const page_kit *kit, const char *name);
/* CGI processes that live; FastCGI connections that are open or queued. */
int page_kit_requests(const page_kit *kit);

/* Waits until `what` is at least (exactly, when `is_exact`) `number`; fails the test when it
 * doesn't come. */
void page_kit_await(const page_kit *kit, int (*what)(const page_kit *), int number, int is_exact);
/* SIGTERM to a FastCGI process; its exit status once it has ended, -1: by a signal, or not within
 * 20 s. */
void page_kit_terminate(page_kit *kit, int number);
int page_kit_end(page_kit *kit, int number);

/* So many connections at once that each ask for /page/herd. */
http_storm_run *page_kit_herd(page_kit *kit, int connections, const char *expected);
/* A hundred of them meet a page that is being made: one makes it, all get it, and the next one
 * hits. Returns how long the last one waited, in us; stops the kit. */
long long page_kit_hundred_make_it_once(page_kit *kit);
#endif
