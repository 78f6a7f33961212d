/* fastcgi.c: a FastCGI program with an expensive page: several threads, and one corral for all of
 * them. Making a page is bound to the corral, so threads of the library do it: a stale page is
 * answered at once, and no request waits for its rebuild, or runs it.
 *
 *   cc -O2 -I.. fastcgi.c ../page.c $(pkg-config --cflags --libs corral) -lfcgi -pthread \
 *     -o page.fcgi
 *   CORRAL_STORE=lmdb:/var/cache/page/pages PAGE_COMMAND=/usr/local/bin/make-page \
 *     spawn-fcgi -s /run/page.socket -- ./page.fcgi
 *
 * PAGE_THREADS: requests at once (16). Several processes (spawn-fcgi -F) and several hosts share
 * pages by the store. In nginx:
 *
 *   location /page {
 *     include fastcgi_params;
 *     fastcgi_split_path_info (?s)^(/page)(.*)$;
 *     fastcgi_param PATH_INFO $fastcgi_path_info;
 *     fastcgi_pass unix:/run/page.socket;
 *   }
 *
 * A thread is not tied to a connection: each connection is closed after its request, also with
 * fastcgi_keep_conn; don't let nginx keep a cache of them (keepalive).
 *
 * SIGTERM and SIGINT end it: requests that have come are answered, also those in the socket's queue
 * (those that come later than DRAIN_MS are left to other processes), and rebuilds that run are
 * finished. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif
#include <corral.h>

#include <errno.h>
#include <fcntl.h>
#include <fcgiapp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../page.h"

enum {
  LISTENS = 0,
  THREADS = 16,
  THREADS_MOST = 1024,
  DRAIN_MS = 1000,
  END_SECONDS = 60,
  REST_MS = 50
};

static corral *pages;
static int stop[2]; /* a pipe: closing its writing end stops all threads */

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const char *variable(void *request, const char *name) {
  return FCGX_GetParam(name, ((FCGX_Request *)request)->envp);
}

static void answer(FCGX_Request *request) {
  page_answer page;
  page_ask(pages, 1, variable, request, NULL, &page);
  FCGX_PutStr(page.head, (int)page.head_size, request->out);
  if (!page.is_head_only) FCGX_PutStr(page.body, (int)page.size, request->out);
  FCGX_Finish_r(request);
  /* closed even if the server would keep it: this thread goes back to the queue */
  FCGX_Free(request, 1);
  page_answer_free(&page);
}

/* Waits for a connection; 0: none is to be taken any more. */
static int another_comes(int64_t *until) {
  struct pollfd fds[] = {{.fd = LISTENS, .events = POLLIN}, {.fd = stop[0], .events = POLLIN}};
  (void)poll(fds, 2, -1);
  if (fds[1].revents != 0 && *until == 0) *until = now_ms() + DRAIN_MS;
  if (fds[0].revents != 0) return *until == 0 || now_ms() < *until;
  return fds[1].revents == 0;
}

static void *serve(void *arg) {
  int64_t until = 0;
  while (another_comes(&until)) {
    FCGX_Request request;
    FCGX_InitRequest(&request, LISTENS, 0);
    int status = FCGX_Accept_r(&request);
    if (status == 0)
      answer(&request);
    else if (status != -EAGAIN)
      poll(NULL, 0, REST_MS); /* EAGAIN: another thread was faster */
  }
  return arg;
}

/* Makes the socket non-blocking: several threads wait for a connection, and those that don't get it
 * must come back to check for the end. */
static int prepare(void) {
  int flags = fcntl(LISTENS, F_GETFL);
  if (FCGX_Init() != 0 || FCGX_IsCGI() || flags < 0 ||
      fcntl(LISTENS, F_SETFL, flags | O_NONBLOCK) != 0) {
    fprintf(stderr,
            "page.fcgi: its standard input isn't a listening socket: start it by spawn-fcgi\n");
    return 0;
  }
  return pipe2(stop, O_CLOEXEC) == 0;
}

static int thread_count(void) {
  const char *text = getenv("PAGE_THREADS");
  long count = text != NULL ? strtol(text, NULL, 10) : THREADS;
  return count >= 1 && count <= THREADS_MOST ? (int)count : THREADS;
}

int main(void) {
  static pthread_t threads[THREADS_MOST];
  corral_error error = {0};
  int started = 0, wanted = thread_count(), signal_number;
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, NULL);
  if (!prepare()) return 2;
  signal(SIGPIPE, SIG_IGN);
  if (page_open(&pages, 1, &error) != CORRAL_OK) {
    fprintf(stderr, "page.fcgi: %s\n", error.text);
    return 2;
  }
  while (started < wanted && pthread_create(&threads[started], NULL, serve, NULL) == 0) started++;
  if (started > 0) sigwait(&ends, &signal_number);
  alarm(END_SECONDS); /* in case a peer never sends the rest of its request */
  close(stop[1]);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  corral_close(pages);
  return started > 0 ? 0 : 1;
}
