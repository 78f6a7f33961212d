/* util.c: messages, durations, JSON strings, signals, and the opening of a corral, for the
 * corral command.
 *
 * A message is built in a buffer and written at once, so that lines of several processes don't
 * mix. */
#include "cli.h"

#include <corral/log.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* ---- foreign text -------------------------------------------------------------------------- */

const char *cli_visible(char *to, size_t room, const void *text, size_t size) {
  (void)corral_text_show(text, size, to, room);
  return to;
}

const char *cli_key_text(char text[CLI_KEY_TEXT], const void *key, size_t key_len) {
  return cli_visible(text, CLI_KEY_TEXT, key_len > 0 ? key : "''", key_len > 0 ? key_len : 2);
}

/* ---- messages ------------------------------------------------------------------------------ */

/* Longest message; room for it when it may be shown; that as a line of JSON. */
enum { SAID = 1024, SHOWN = 2 * SAID, LINE = 2 * SHOWN + 100 };

/* With --json, the last message waits for the exit status, if it may be the reason of one. */
static struct {
  pthread_mutex_t mutex;
  pid_t owner;      /* the process that does so; 0: messages are no JSON */
  char text[SHOWN]; /* empty: none waits */
  int64_t left_ms;  /* cli_say_left */
} waiting = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void print_plain(const char *text) {
  char line[SHOWN + 16];
  int n = snprintf(line, sizeof line, "corral: %s\n", text);
  if (n > 0) (void)cli_write(STDERR_FILENO, line, (size_t)n);
}

/* `text` may be shown: of what JSON escapes it has quotes and backslashes alone. */
static void print_object(const char *text, int exit_status, int64_t left_ms) {
  char left[40] = "";
  char line[LINE] = "{\"message\":\"";
  size_t used = strlen(line);
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\') line[used++] = '\\';
    line[used++] = *text;
  }
  if (left_ms > 0) (void)snprintf(left, sizeof left, "\"left_ms\":%lld,", (long long)left_ms);
  int n = exit_status != CLI_OK ? snprintf(line + used, sizeof line - used,
                                           "\",%s\"exit_status\":%d}\n", left, exit_status)
                                : snprintf(line + used, sizeof line - used, "\"}\n");
  if (n > 0) (void)cli_write(STDERR_FILENO, line, used + (size_t)n);
}

static void print_waiting(int exit_status, int64_t left_ms) {
  if (waiting.text[0] != '\0') print_object(waiting.text, exit_status, left_ms);
  waiting.text[0] = '\0';
}

static void print(const char *text, bool may_be_reason) {
  if (waiting.owner == 0) {
    print_plain(text);
  } else if (waiting.owner != getpid()) {
    print_object(text, CLI_OK, 0);
  } else {
    (void)pthread_mutex_lock(&waiting.mutex);
    print_waiting(CLI_OK, 0);
    if (may_be_reason)
      (void)snprintf(waiting.text, sizeof waiting.text, "%s", text);
    else
      print_object(text, CLI_OK, 0);
    (void)pthread_mutex_unlock(&waiting.mutex);
  }
}

void cli_say_left(int64_t left_ms) { waiting.left_ms = left_ms; }

void cli_say_json(void) { waiting.owner = getpid(); }

int cli_say_end(int exit_status) {
  (void)pthread_mutex_lock(&waiting.mutex);
  if (waiting.owner == getpid()) print_waiting(exit_status, waiting.left_ms);
  (void)pthread_mutex_unlock(&waiting.mutex);
  return exit_status;
}

static void say(bool may_be_reason, const char *format, va_list args) {
  char text[SAID];
  char shown[SHOWN];
  int n = vsnprintf(text, sizeof text, format, args);
  if (n < 0) return;
  size_t size = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
  for (size_t i = 0; i < size; i++)
    if (text[i] == '\n' || text[i] == '\r' || text[i] == '\t') text[i] = ' ';
  print(cli_visible(shown, sizeof shown, text, size), may_be_reason);
}

void cli_say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(true, format, args);
  va_end(args);
}

void cli_note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(false, format, args);
  va_end(args);
}

int cli_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(true, format, args);
  va_end(args);
  return CLI_FAILED;
}

int cli_report(const void *key, size_t key_len, int status, const corral_error *error) {
  char text[CLI_KEY_TEXT];
  return cli_report_as(cli_key_text(text, key, key_len), status, error);
}

int cli_report_as(const char *name, int status, const corral_error *error) {
  const char *detail =
      error != NULL && error->text[0] != '\0' ? error->text : corral_status_text(status);
  cli_say("%s: %s", name, detail);
  switch (status) {
    case CORRAL_EDEADLINE: return CLI_DEADLINE;
    case CORRAL_EMISS:
    case CORRAL_ENOTFOUND: return CLI_MISS;
    default: return CLI_FAILED;
  }
}

/* ---- JSON ---------------------------------------------------------------------------------- */

void cli_json_string(FILE *f, const void *data, size_t size) {
  const unsigned char *bytes = data;
  (void)fputc('"', f);
  for (size_t i = 0, n; i < size; i += n) {
    uint32_t code;
    if (corral_character_read(bytes + i, size - i, &n, &code)) {
      if (bytes[i] == '"' || bytes[i] == '\\') (void)fputc('\\', f);
      (void)fwrite(bytes + i, 1, n, f);
    } else if (code > 0xffff) {
      code -= 0x10000;
      (void)fprintf(f, "\\u%04x\\u%04x", 0xd800 + (unsigned)(code >> 10),
                    0xdc00 + (unsigned)(code & 0x3ff));
    } else {
      (void)fprintf(f, "\\u%04x", (unsigned)code);
    }
  }
  (void)fputc('"', f);
}

/* ---- options ------------------------------------------------------------------------------- */

enum { TAG_MOST = 200 }; /* the library's limit */

bool cli_duration(const char *what, const char *text, int64_t least, int64_t most, int64_t *ret) {
  corral_error error = {0};
  int status = corral_duration_parse(what, text, least, most, ret, &error);
  if (status != CORRAL_OK) cli_say("%s", error.text);
  return status == CORRAL_OK;
}

/* Parses digits at the start of `text`; false when there are none or too many. */
static bool digits(const char *text, char **end, int64_t *ret) {
  if (text[0] < '0' || text[0] > '9') return false;
  errno = 0;
  long long n = strtoll(text, end, 10);
  *ret = n;
  return errno == 0;
}

bool cli_count(const char *what, const char *text, int64_t least, int64_t most, int64_t *ret) {
  char *end = NULL;
  int64_t n = 0;
  if (!digits(text, &end, &n) || *end != '\0' || n < least || n > most) {
    cli_say("%s: '%s' is not accepted: a whole number, %lld to %lld, is", what, text,
            (long long)least, (long long)most);
    return false;
  }
  *ret = n;
  return true;
}

bool cli_real(const char *what, const char *text, double least, double most, double *ret) {
  char *end = NULL;
  errno = 0;
  double x = strtod(text, &end);
  if (end == text || *end != '\0' || errno != 0 || !(x >= least && x <= most)) {
    cli_say("%s: '%s' is not accepted: a number, %g to %g, is", what, text, least, most);
    return false;
  }
  *ret = x;
  return true;
}

bool cli_tag(const char *what, const char *text, const char *tags[CLI_TAGS], size_t *count) {
  size_t len = strlen(text);
  if (len < 1 || len > TAG_MOST)
    cli_say("%s: a tag of %zu bytes is not accepted: 1 to %d are", what, len, TAG_MOST);
  else if (*count == CLI_TAGS)
    cli_say("%s: at most %d are accepted", what, CLI_TAGS);
  else {
    tags[(*count)++] = text;
    return true;
  }
  return false;
}

const char *cli_duration_text(char text[CLI_DURATION_TEXT], int64_t ms) {
  return corral_duration_show(ms, text, CLI_DURATION_TEXT);
}

const char *cli_time_text(char text[CLI_TIME_TEXT], int64_t us) {
  double ms = (double)us / 1000;
  if (us < 1000)
    (void)snprintf(text, CLI_TIME_TEXT, "%lld us", (long long)us);
  else if (us < 999500)
    (void)snprintf(text, CLI_TIME_TEXT, "%.*f ms", us < 9950 ? 1 : 0, ms);
  else
    (void)snprintf(text, CLI_TIME_TEXT, "%.*f s", us < 99950000 ? 2 : 0, ms / 1000);
  return text;
}

/* ---- signals, output ----------------------------------------------------------------------- */

bool cli_tells_waits(const cli_globals *cli) {
  return cli->verbose || (!cli->quiet && isatty(STDERR_FILENO));
}

void cli_die_of(int signo) {
  sigset_t set;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, signo);
  (void)cli_say_end(CLI_SIGNAL + signo);
  (void)signal(signo, SIG_DFL);
  (void)raise(signo);
  (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static bool is_ignored(int signo) {
  struct sigaction action;
  return sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int cli_take_signals(sigset_t *ret_old) {
  static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  sigset_t taken;
  (void)sigemptyset(&taken);
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
    if (!is_ignored(wanted[i])) (void)sigaddset(&taken, wanted[i]);
  (void)sigprocmask(SIG_BLOCK, &taken, ret_old);
  return signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

void cli_take_null(bool also_stderr) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  (void)dup2(null, STDIN_FILENO);
  (void)dup2(null, STDOUT_FILENO);
  if (also_stderr) (void)dup2(null, STDERR_FILENO);
  if (null > STDERR_FILENO) (void)close(null);
}

bool cli_write(int fd, const void *data, size_t size) {
  const char *at = data;
  while (size > 0) {
    ssize_t n = write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

int cli_finish(int exit_status) {
  if (fflush(stdout) != 0 || ferror(stdout))
    return cli_fail("standard output: %s", strerror(errno));
  return exit_status;
}

int64_t cli_now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t cli_now_ms(void) { return cli_now_ns() / 1000000; }
