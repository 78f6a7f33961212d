/* page.h: an expensive page, guarded: the common part of the CGI and the FastCGI program. Nothing
 * in here depends on how a request comes or an answer goes.
 *
 * A page is made by a command, or, for trials, by waiting. It is cached under its path and query.
 * Environment variables of the process:
 *
 *   CORRAL_STORE     URI of the store; required
 *   PAGE_COMMAND     run by /bin/sh: its output is the page; it finds PAGE_PATH and PAGE_QUERY in
 *                    its environment. Exit status 4: there is no such page; any other than 0: it
 *                    failed. It dies with the process that runs it
 *   PAGE_COST_MS     without a command: how long making a page takes (0)
 *   PAGE_COUNT       a file that gets one line per page made
 *   PAGE_TTL_MS, PAGE_SWR_MS, PAGE_SIE_MS     policy: fresh life (60000), grace while it is rebuilt
 *                                             and when that fails (600000 each)
 *   PAGE_LIMIT_MS    time limit for making a page (10000); then the command is killed
 *   PAGE_WAIT_MS     how long a request waits for a page that another one makes (15000)
 *   PAGE_STORE_MS    after this time without an answer the store counts as away, and each process
 *                    makes its page (5000; at most 60000)
 *   PAGE_MAX         bytes of the largest page (1048576)
 *   PAGE_LOG         CGI: a file for the failures of pages that are made after the answer, and for
 *                    what the command says then; by default they are lost with the request
 *
 * Each page that can't be made is told on stderr when it happens. */
#ifndef EXAMPLES_PAGE_H
#define EXAMPLES_PAGE_H

#include <corral.h>

/* Gets the variable NAME of a CGI request (RFC 3875); NULL: there is none. */
typedef const char *page_variable(void *arg, const char *name);

enum { PAGE_KEY = 2048, PAGE_HEAD = 512 };

typedef struct page_answer {
  int is_head_only;     /* the request is a HEAD */
  char head[PAGE_HEAD]; /* "Status: ..." and the other headers, with the empty line */
  size_t head_size;
  const void *body; /* `size` bytes of the value, or of `text` */
  size_t size;
  corral_value *value;  /* NULL: the answer is an error */
  int is_hit, is_stale; /* fresh from the store; stale from the store, and to be made anew */
  char text[300];
  char key[PAGE_KEY]; /* path, a newline, query */
  size_t key_len;
} page_answer;

/* Opens a corral for pages. `is_bound`: page_compute is bound to it, so that threads of the library
 * rebuild stale pages. */
int page_open(corral **ret, int is_bound, corral_error *error);
/* Answers a request: at once if the page is fresh or stale; else it is made, or waited for. Always
 * fills *ret: errors are answers too. `c` NULL: the answer to `error`, which page_open has set. */
void page_ask(corral *c, int is_bound, page_variable *get, void *arg, const corral_error *error,
              page_answer *ret);
/* For a corral without a bound compute, once a stale answer has been sent: makes the page, unless
 * another process already does. */
void page_refresh(corral *c, const page_answer *answer);
/* Frees the value of an answer. */
void page_answer_free(page_answer *answer);
/* A corral_compute that makes a page. */
int page_compute(corral_fill *fill, const void *key, size_t key_len, void *arg);
#endif
