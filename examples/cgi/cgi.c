/* cgi.c: a CGI program (RFC 3875) with an expensive page, made by one process of the host for any
 * number of requests. A process lives for one request, so all that they share is in the store: an
 * embedded one is enough, lmdb:.
 *
 *   cc -O2 -I.. cgi.c ../page.c $(pkg-config --cflags --libs corral) -o page.cgi
 *
 * That loads libcorral, its plugin and their libraries in each process, which costs more than all
 * the rest. It starts sooner with a static corral that has the store built in (cmake
 * -DBUILD_SHARED_LIBS=OFF -DCORRAL_BUILTIN_PLUGINS=lmdb), and with archives of the libraries that
 * it needs; bench/cgi.c measures it:
 *
 *   cc -O2 -no-pie -Wl,--as-needed,--gc-sections,-z,now -I.. cgi.c ../page.c \
 *     $(pkg-config --cflags --libs-only-L corral) -l:libcorral.a \
 *     -l:libzstd.a -l:libsodium.a -l:liblmdb.a -o page.cgi
 *
 * nginx runs CGI programs by fcgiwrap (fcgiwrap -c 120 -s unix:/run/fcgiwrap.socket; -c: how many
 * at once):
 *
 *   location /page {
 *     include fastcgi_params;
 *     fastcgi_split_path_info (?s)^(/page)(.*)$;
 *     fastcgi_param PATH_INFO $fastcgi_path_info;
 *     fastcgi_param SCRIPT_FILENAME /usr/lib/cgi-bin/page.cgi;
 *     fastcgi_param CORRAL_STORE lmdb:/var/cache/page/pages;
 *     fastcgi_param PAGE_COMMAND /usr/local/bin/make-page;
 *     fastcgi_pass unix:/run/fcgiwrap.socket;
 *   }
 *
 * The answer comes first: a stale page is sent, and the connection closed, before this process
 * makes the new one. For that it has PAGE_LIMIT_MS and two seconds, then a signal ends it. A
 * process that dies while it makes a page, in whatever way, is replaced at once by one of those
 * that wait for the page. */
#include <corral.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../page.h"

static const char *variable(void *arg, const char *name) {
  (void)arg;
  return getenv(name);
}

/* Sends the answer; 0: not all of it was sent. A client that has left changes nothing else. */
static int send_answer(const page_answer *answer) {
  struct iovec parts[2] = {{.iov_base = (void *)(size_t)answer->head, .iov_len = answer->head_size},
                           {.iov_base = (void *)(size_t)answer->body,
                            .iov_len = answer->is_head_only ? 0 : answer->size}};
  struct iovec *part = parts;
  while (part < parts + 2) {
    ssize_t n = writev(STDOUT_FILENO, part, (int)(parts + 2 - part));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return 0;
    for (; part < parts + 2 && (size_t)n >= part->iov_len; part++) n -= (ssize_t)part->iov_len;
    if (part < parts + 2) {
      part->iov_base = (char *)part->iov_base + n;
      part->iov_len -= (size_t)n;
    }
  }
  return 1;
}

/* Closes the request: for the server it is over when both streams are closed. What is told after
 * that goes to PAGE_LOG. */
static void let_go(void) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const char *limit = getenv("PAGE_LIMIT_MS"), *path = getenv("PAGE_LOG");
  int log = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(log >= 0 ? log : null, STDERR_FILENO);
  alarm((limit != NULL ? (unsigned)strtoul(limit, NULL, 10) : 10000) / 1000 + 2);
}

int main(void) {
  corral_error error = {0};
  corral *pages = NULL;
  page_answer answer;
  signal(SIGPIPE, SIG_IGN);
  (void)page_open(&pages, 0, &error);
  page_ask(pages, 0, variable, NULL, &error, &answer);
  int was_sent = send_answer(&answer);
  if (answer.is_stale) {
    let_go();
    page_refresh(pages, &answer);
  }
  /* nothing is under way, so the kernel frees all at once, faster than closing would piece by
   * piece */
  if (answer.is_hit) _exit(was_sent ? 0 : 1);
  page_answer_free(&answer);
  corral_close(pages);
  return was_sent ? 0 : 1;
}
