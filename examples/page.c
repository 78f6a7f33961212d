/* page.c: an expensive page, guarded. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif
#include "page.h"

#include <corral/child.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum {
  NO_SUCH_PAGE = 4,
  STORE_MS = 5000, /* a hundred processes that open one file take turns */
  LEASE_MS = 10000,
  LIMIT_MS = 10000,
  STEP_MS = 20,
  DAY_MS = 86400000
};

static int64_t number(const char *name, int64_t usual, int64_t most) {
  const char *text = getenv(name);
  char *end;
  if (text == NULL || *text == '\0') return usual;
  long long n = strtoll(text, &end, 10);
  if (*end == '\0' && n >= 0 && n <= most) return n;
  fprintf(stderr, "%s='%.40s': accepted are 0 to %lld; taken is %lld\n", name, text,
          (long long)most, (long long)usual);
  return usual;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A failed compute is told when it happens, also one that nobody waits for: the answer is a stale
 * page then. */
static void tell_failure(const corral_event_info *info, void *arg) {
  char key[PAGE_KEY + 1];
  (void)arg;
  if (info->event != CORRAL_EVENT_FAILURE || info->key == NULL) return;
  snprintf(key, sizeof key, "%.*s", (int)info->key_len, (const char *)info->key);
  char *newline = strchr(key, '\n');
  if (newline != NULL) *newline = '?';
  fprintf(stderr, "%s: %s\n", key, info->detail == NULL ? "failed" : info->detail);
}

int page_open(corral **ret, int is_bound, corral_error *error) {
  const char *store = getenv("CORRAL_STORE");
  int64_t swr = number("PAGE_SWR_MS", 600000, DAY_MS), sie = number("PAGE_SIE_MS", 600000, DAY_MS);
  corral_policy policy = {.size = sizeof policy,
                          .ttl_ms = number("PAGE_TTL_MS", 60000, DAY_MS),
                          .swr_ms = swr > 0 ? swr : CORRAL_OFF,
                          .sie_ms = sie > 0 ? sie : CORRAL_OFF,
                          .compute_ms = number("PAGE_LIMIT_MS", LIMIT_MS, DAY_MS),
                          /* on lmdb: a lease ends at once with its process, so its length matters
                           * only for a process that starves */
                          .lease_ms = LEASE_MS,
                          .lease_min_ms = LEASE_MS,
                          .wait_ms = number("PAGE_WAIT_MS", 15000, DAY_MS)};
  if (store == NULL || *store == '\0') {
    memset(error, 0, sizeof *error);
    error->status = CORRAL_EURI;
    snprintf(error->text, sizeof error->text,
             "CORRAL_STORE isn't set: it names the store, as lmdb:/var/cache/page/pages");
    return CORRAL_EURI;
  }
  return corral_open(CORRAL_OPTIONS(.store = store, .name_space = "page", .policy = &policy,
                                    .compute = is_bound ? page_compute : NULL,
                                    .max_value = number("PAGE_MAX", 1 << 20, 1 << 29),
                                    .on_event = tell_failure, .host_lock = 1,
                                    .op_ms = number("PAGE_STORE_MS", STORE_MS, 60000)),
                     ret, error);
}

/* ---- making a page ------------------------------------------------------------------------- */

static void count(void) {
  const char *path = getenv("PAGE_COUNT");
  int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  char line[32];
  if (fd < 0) return;
  int len = snprintf(line, sizeof line, "%d\n", (int)getpid());
  if (write(fd, line, (size_t)len) != len) fprintf(stderr, "PAGE_COUNT: %s\n", strerror(errno));
  close(fd);
}

/* Runs the command with the request in its environment, never in its text. It dies with this
 * process. Returns the reading end of its output, or -1 with *error. */
static int start(const char *command, const char *key, size_t path_len, size_t query_len,
                 corral_child **child, corral_error *error) {
  char path[PAGE_KEY + 16], query[PAGE_KEY + 16];
  int ends[2];
  size_t variables = 0;
  while (environ[variables] != NULL) variables++;
  char **with = malloc((variables + 3) * sizeof *with);
  if (with == NULL || pipe2(ends, O_CLOEXEC) != 0) {
    snprintf(error->text, sizeof error->text, "%s", strerror(errno));
    free(with);
    return -1;
  }
  snprintf(path, sizeof path, "PAGE_PATH=%.*s", (int)path_len, key);
  snprintf(query, sizeof query, "PAGE_QUERY=%.*s", (int)query_len, key + path_len + 1);
  memcpy(with, environ, variables * sizeof *with);
  memcpy(with + variables, (char *[]){path, query, NULL}, 3 * sizeof *with);
  corral_child_file files[] = {{CORRAL_CHILD_NULL, 0}, {ends[1], 1}};
  int status = corral_child_start((char *[]){"/bin/sh", "-c", (char *)(size_t)command, NULL},
                                  CORRAL_CHILD(.env = with, .files = files, .file_count = 2,
                                               .defaults = CORRAL_CHILD_SIGNAL(SIGPIPE)),
                                  child, error);
  free(with);
  close(ends[1]);
  if (status != CORRAL_OK) close(ends[0]);
  return status == CORRAL_OK ? ends[0] : -1;
}

typedef struct output {
  char *bytes; /* freed by the caller */
  size_t size, room;
  int status; /* of the command, as from waitpid */
} output;

enum { MORE, WHOLE, TOO_LONG, TOO_LARGE, NO_MEMORY, FAILED };

static int read_some(int fd, size_t most, output *ret) {
  if (ret->size == ret->room) {
    char *more = realloc(ret->bytes, ret->room * 2 + 65536);
    if (more == NULL) return NO_MEMORY;
    ret->bytes = more;
    ret->room = ret->room * 2 + 65536;
  }
  ssize_t n = read(fd, ret->bytes + ret->size, ret->room - ret->size);
  if (n == 0) return WHOLE;
  if (n > 0) ret->size += (size_t)n;
  return ret->size > most ? TOO_LARGE : MORE;
}

/* Waits for the end of the output and of the command. A command that fails is seen when it ends,
 * though what it has left behind may have its output open. */
static int await_page(corral_fill *fill, corral_child *child, int fd, size_t most, output *ret) {
  int64_t until = now_ms() + number("PAGE_LIMIT_MS", LIMIT_MS, DAY_MS);
  struct pollfd ready[2] = {{.fd = fd, .events = POLLIN},
                            {.fd = corral_child_fd(child), .events = POLLIN}};
  while (ready[0].fd >= 0 || ready[1].fd >= 0) {
    int end = MORE;
    if (now_ms() >= until || corral_fill_should_stop(fill)) return TOO_LONG;
    if (poll(ready, 2, STEP_MS) <= 0) continue;
    if (ready[1].revents != 0) {
      ready[1].fd = -1;
      if (corral_child_wait(child, &ret->status, NULL) != CORRAL_OK) ret->status = SIGKILL;
      if (ret->status != 0) return FAILED;
    }
    if (ready[0].revents != 0) end = read_some(fd, most, ret);
    if (end == WHOLE) ready[0].fd = -1;
    if (end > WHOLE) return end;
  }
  return WHOLE;
}

/* A failure's code is the HTTP status of the error. */
static void tell_end(corral_fill *fill, int end, size_t most, const output *page) {
  char text[64];
  snprintf(text, sizeof text, "a page of more than %zu bytes", most);
  if (end == TOO_LARGE) {
    corral_fill_fail(fill, 500, text);
  } else if (end == TOO_LONG) {
    corral_fill_fail(fill, 504, "making the page took too long");
  } else if (end == FAILED && WIFEXITED(page->status) &&
             WEXITSTATUS(page->status) == NO_SUCH_PAGE) {
    corral_fill_negative(fill);
  } else if (end == FAILED) {
    snprintf(text, sizeof text, "making the page failed: %s %d",
             WIFEXITED(page->status) ? "exit status" : "signal",
             WIFEXITED(page->status) ? WEXITSTATUS(page->status) : WTERMSIG(page->status));
    corral_fill_fail(fill, 502, text);
  } else if (end == NO_MEMORY || corral_fill_bytes(fill, page->bytes, page->size) != CORRAL_OK) {
    corral_fill_fail(fill, 500, "out of memory");
  }
}

/* Makes the page by the command. */
static int run(corral_fill *fill, const char *command, const char *key, size_t path_len,
               size_t query_len) {
  size_t most = (size_t)number("PAGE_MAX", 1 << 20, 1 << 29);
  corral_child *child;
  corral_error error = {0};
  output page = {0};
  int fd = start(command, key, path_len, query_len, &child, &error);
  if (fd < 0) {
    corral_fill_fail(fill, 500, error.text);
    return CORRAL_OK;
  }
  int end = await_page(fill, child, fd, most, &page);
  close(fd);
  if (end != WHOLE) corral_child_signal(child, SIGKILL);
  corral_child_free(child);
  tell_end(fill, end, most, &page);
  free(page.bytes);
  return CORRAL_OK;
}

int page_compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  const char *command = getenv("PAGE_COMMAND"), *newline = memchr(key, '\n', key_len);
  char text[2 * PAGE_KEY];
  (void)arg;
  if (newline == NULL || key_len > PAGE_KEY) return CORRAL_EINVAL;
  size_t path_len = (size_t)(newline - (const char *)key), query_len = key_len - path_len - 1;
  count();
  if (command != NULL && *command != '\0') return run(fill, command, key, path_len, query_len);
  for (int64_t until = now_ms() + number("PAGE_COST_MS", 0, DAY_MS);
       now_ms() < until && !corral_fill_should_stop(fill);) {
    int64_t left = until - now_ms();
    poll(NULL, 0, left > STEP_MS ? STEP_MS : (int)left);
  }
  int size = snprintf(
      text, sizeof text, "the page of %.*s for '%.*s', made by process %d at %lld\n", (int)path_len,
      (const char *)key, (int)query_len, newline + 1, (int)getpid(), (long long)now_ms());
  if (corral_fill_bytes(fill, text, (size_t)size) != CORRAL_OK)
    corral_fill_fail(fill, 500, "a page larger than PAGE_MAX");
  return CORRAL_OK;
}

/* ---- answering ----------------------------------------------------------------------------- */

static const char *reason(int status) {
  switch (status) {
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 414: return "URI Too Long";
    case 500: return "Internal Server Error";
    case 502: return "Bad Gateway";
    case 504: return "Gateway Timeout";
    default: return "Service Unavailable";
  }
}

static void refuse(page_answer *ret, int status, const char *more, const char *text) {
  snprintf(ret->text, sizeof ret->text, "%d %s: %s\n", status, reason(status), text);
  ret->body = ret->text;
  ret->size = strlen(ret->text);
  snprintf(ret->head, sizeof ret->head,
           "Status: %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: "
           "nosniff\r\nCache-Control: no-store\r\n%sContent-Length: "
           "%zu\r\n\r\n",
           status, reason(status), more, ret->size);
  ret->head_size = strlen(ret->head);
}

static void refuse_error(page_answer *ret, int status, const corral_error *error) {
  char more[64] = "";
  int http = 503;
  if (error->retry_after_ms > 0)
    snprintf(more, sizeof more, "Retry-After: %lld\r\n",
             (long long)(error->retry_after_ms + 999) / 1000);
  if (status == CORRAL_ENOTFOUND) http = 404;
  if (status == CORRAL_EFAILED && error->code >= 500) http = error->code;
  if (status == CORRAL_EDEADLINE || status == CORRAL_EABANDONED) http = 504;
  if (status == CORRAL_EURI || status == CORRAL_ENOPLUGIN || status == CORRAL_EINVAL ||
      status == CORRAL_ENOMEM)
    http = 500;
  /* only for the server's log: the setup isn't for clients to see */
  if (http == 500) fprintf(stderr, "%s\n", error->text);
  refuse(ret, http, more,
         status == CORRAL_EFAILED || http != 500 ? corral_status_text(status)
                                                 : "see the server's log");
}

/* Cache-Status, RFC 9211. */
static const char *cache_status(const corral_value *value) {
  switch (corral_value_how(value)) {
    case CORRAL_FRESH: return "corral; hit";
    case CORRAL_STALE: return "corral; hit; detail=stale";
    case CORRAL_JOINED: return "corral; fwd=miss; collapsed";
    case CORRAL_OUTBOX: return "corral; hit; detail=held";
    default:
      return corral_value_kept(value) == CORRAL_KEPT ? "corral; fwd=miss; stored"
                                                     : "corral; fwd=miss";
  }
}

static void accept_value(page_answer *ret, corral_value *value) {
  int64_t age = corral_value_age_ms(value);
  ret->value = value;
  ret->is_hit = corral_value_how(value) == CORRAL_FRESH;
  ret->is_stale = corral_value_how(value) == CORRAL_STALE;
  ret->body = corral_value_data(value);
  ret->size = corral_value_size(value);
  snprintf(ret->head, sizeof ret->head,
           "Status: 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: "
           "nosniff\r\nAge: %lld\r\nCache-Status: %s\r\n"
           "Content-Length: %zu\r\n\r\n",
           (long long)(age > 0 ? age / 1000 : 0), cache_status(value), ret->size);
  ret->head_size = strlen(ret->head);
}

/* Control characters are refused, also because a newline separates path and query in the key. */
static int has_control(const char *text) {
  for (; *text != '\0'; text++)
    if ((unsigned char)*text < ' ' || *text == 127) return 1;
  return 0;
}

/* Reads the request's key; 0: the answer is an error. */
static int read_request(page_variable *get, void *arg, page_answer *ret) {
  const char *method = get(arg, "REQUEST_METHOD"), *path = get(arg, "PATH_INFO"),
             *query = get(arg, "QUERY_STRING");
  if (path == NULL || *path == '\0') path = "/";
  if (query == NULL) query = "";
  ret->is_head_only = method != NULL && strcmp(method, "HEAD") == 0;
  if (method == NULL)
    refuse(ret, 400, "", "there is no REQUEST_METHOD");
  else if (!ret->is_head_only && strcmp(method, "GET") != 0)
    refuse(ret, 405, "Allow: GET, HEAD\r\n", "accepted are GET and HEAD");
  else if (*path != '/' || has_control(path))
    refuse(ret, 400, "", "a path begins with / and has no control characters");
  else if (has_control(query))
    refuse(ret, 400, "", "a query has no control characters");
  else if (strlen(path) + strlen(query) + 2 > sizeof ret->key)
    refuse(ret, 414, "", "path and query have 2046 bytes at most");
  else
    ret->key_len = (size_t)snprintf(ret->key, sizeof ret->key, "%s\n%s", path, query);
  return ret->key_len > 0;
}

void page_ask(corral *c, int is_bound, page_variable *get, void *arg, const corral_error *error,
              page_answer *ret) {
  corral_error why = {0};
  corral_value *value;
  memset(ret, 0, sizeof *ret);
  if (!read_request(get, arg, ret)) return;
  if (c == NULL) {
    refuse_error(ret, error->status, error);
    return;
  }
  /* without a bound compute this only looks, and so never delays a stale answer */
  int status = corral_get(c, ret->key, ret->key_len, CORRAL_CALL(.error = &why), &value);
  /* no value, or the store is away */
  if (!is_bound && status != CORRAL_OK && status != CORRAL_ENOTFOUND)
    status = corral_get_or_compute(c, ret->key, ret->key_len, CORRAL_CALL(.error = &why),
                                   page_compute, NULL, &value);
  if (status == CORRAL_OK)
    accept_value(ret, value);
  else
    refuse_error(ret, status, &why);
}

void page_refresh(corral *c, const page_answer *answer) {
  corral_value *value;
  if (corral_get_or_compute(c, answer->key, answer->key_len, NULL, page_compute, NULL, &value) ==
      CORRAL_OK)
    corral_value_unref(value);
}

void page_answer_free(page_answer *answer) {
  corral_value_unref(answer->value);
  answer->value = NULL;
}
