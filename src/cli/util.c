/* util.c: options, messages, durations, JSON strings, signals, and the opening of a corral, for the
 * corral command.
 *
 * A message is built in a buffer and written at once, so that lines of several processes don't
 * mix. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* ---- foreign text -------------------------------------------------------------------------- */

/* Length of the valid UTF-8 sequence at `at`; 0: it is invalid (RFC 3629: no overlong forms, no
 * surrogates). */
static size_t utf8_length(const unsigned char *at, size_t left) {
  size_t n = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : (at[0] & 0xf0) == 0xe0 ? 3 : 0;
  if (at[0] >= 0xf0 && at[0] <= 0xf4) n = 4;
  if (n == 0 || n > left) return 0;
  for (size_t i = 1; i < n; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  bool bad = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
             (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f);
  return bad ? 0 : n;
}

/* The code point of a sequence of `n` bytes. */
static unsigned long character(const unsigned char *at, size_t n) {
  unsigned long code = n == 1 ? at[0] : at[0] & (0x7fu >> n);
  for (size_t i = 1; i < n; i++) code = code << 6 | (at[i] & 0x3f);
  return code;
}

/* True for controls, including C1, for characters that change a text's direction, and for invisible
 * ones. */
static bool is_hidden(unsigned long code) {
  static const unsigned long ranges[][2] = {{0, 0x1f},        {0x7f, 0x9f},      {0xad, 0xad},
                                            {0x61c, 0x61c},   {0x180e, 0x180e},  {0x200b, 0x200f},
                                            {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfeff, 0xfeff},
                                            {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
    if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
  return false;
}

/* Length of the character at `at` if it may be shown as it is, else 0. */
static size_t shown_length(const unsigned char *at, size_t left) {
  size_t n = utf8_length(at, left);
  return n > 0 && is_hidden(character(at, n)) ? 0 : n;
}

const char *cli_visible(char *to, size_t room, const void *text, size_t size) {
  static const char hex[] = "0123456789abcdef";
  const unsigned char *bytes = text;
  size_t used = 0;
  for (size_t i = 0; i < size;) {
    size_t n = shown_length(bytes + i, size - i);
    if (used + 4 + sizeof "..." > room) {
      memcpy(to + used, "...", 3);
      used += 3;
      break;
    }
    if (n > 0) {
      memcpy(to + used, bytes + i, n);
    } else {
      memcpy(to + used, (char[]){'\\', 'x', hex[bytes[i] >> 4], hex[bytes[i] & 15]}, 4);
    }
    used += n > 0 ? n : 4;
    i += n > 0 ? n : 1;
  }
  to[used] = '\0';
  return to;
}

const char *cli_key_text(char text[CLI_KEY_TEXT], const void *key, size_t key_len) {
  return cli_visible(text, CLI_KEY_TEXT, key, key_len);
}

/* ---- messages ------------------------------------------------------------------------------ */

enum { SAID = 1024 }; /* longest message */

static void say(const char *format, va_list args) {
  char text[SAID];
  char line[2 * SAID] = "corral: ";
  size_t head = strlen(line);
  int n = vsnprintf(text, sizeof text, format, args);
  if (n < 0) return;
  size_t size = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
  for (size_t i = 0; i < size; i++)
    if (text[i] == '\n' || text[i] == '\r' || text[i] == '\t') text[i] = ' ';
  (void)cli_visible(line + head, sizeof line - head - 1, text, size);
  size = strlen(line);
  line[size++] = '\n';
  (void)cli_write(STDERR_FILENO, line, size);
}

void cli_say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
}

int cli_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
  return CLI_FAILED;
}

int cli_report(const void *key, size_t key_len, int status, const corral_error *error) {
  char text[CLI_KEY_TEXT];
  const char *detail =
      error != NULL && error->text[0] != '\0' ? error->text : corral_status_text(status);
  cli_say("%s: %s", cli_key_text(text, key, key_len), detail);
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
  for (size_t i = 0; i < size;) {
    size_t n = utf8_length(bytes + i, size - i);
    unsigned long code = n > 0 ? character(bytes + i, n) : bytes[i];
    if (n == 0) n = 1;
    if (code > 0xffff && is_hidden(code)) {
      code -= 0x10000;
      (void)fprintf(f, "\\u%04lx\\u%04lx", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
    } else if (is_hidden(code) || (n == 1 && code >= 0x80)) {
      (void)fprintf(f, "\\u%04lx", code);
    } else {
      if (bytes[i] == '"' || bytes[i] == '\\') (void)fputc('\\', f);
      (void)fwrite(bytes + i, 1, n, f);
    }
    i += n;
  }
  (void)fputc('"', f);
}

/* ---- options ------------------------------------------------------------------------------- */

static void list_options(const struct option *longs, char *text, size_t size) {
  size_t used = 0;
  for (const struct option *o = longs; o->name != NULL && used < size; o++) {
    int n = snprintf(text + used, size - used, "%s--%s", used > 0 ? ", " : "", o->name);
    used += n > 0 ? (size_t)n : 0;
  }
}

int cli_option(const cli_grammar *grammar, int argc, char **argv) {
  struct option longs[CLI_FLAGS] = {0};
  size_t count = 0;
  for (; grammar->longs[count].name != NULL; count++) longs[count] = grammar->longs[count];
  (void)cli_flags_add(grammar->name, longs, count);
  opterr = 0;
  int got = getopt_long(argc, argv, grammar->shorts, longs, NULL);
  if (got != '?' && got != ':') return got;
  const char *sub = grammar->name != NULL ? grammar->name : "";
  const char *colon = grammar->name != NULL ? ": " : "";
  const char *word = argv[optind - 1];
  if (got == ':') {
    cli_say("%s%soption '%s' needs a value", sub, colon, word);
    return '?';
  }
  char accepted[512];
  list_options(longs, accepted, sizeof accepted);
  char letter[3] = {'-', (char)optopt, '\0'};
  bool is_letter = optopt > ' ' && optopt < 0x7f && strncmp(word, "--", 2) != 0;
  cli_say("%s%sunknown option '%.*s': accepted are %s", sub, colon,
          (int)strcspn(is_letter ? letter : word, "="), is_letter ? letter : word, accepted);
  return '?';
}

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

/* ---- store, signals, output ---------------------------------------------------------------- */

static void print_event(const corral_event_info *info, void *arg) {
  (void)arg;
  char text[CLI_KEY_TEXT] = "";
  if (info->key != NULL) (void)cli_key_text(text, info->key, info->key_len);
  cli_say("event %s: %s%s%s%s%s%s", corral_event_name(info->event), corral_event_text(info->event),
          info->detail != NULL ? ": " : "", info->detail != NULL ? info->detail : "",
          info->key != NULL ? " [" : "", text, info->key != NULL ? "]" : "");
}

/* Reports the first trouble with the store, for a command that goes on without it. */
static void warn_event(const corral_event_info *info, void *arg) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  (void)arg;
  if (info->event == CORRAL_EVENT_HOST_ERROR)
    cli_say("going on without the host's lock: %s", info->detail != NULL ? info->detail : "");
  if (info->event != CORRAL_EVENT_STORE_ERROR && info->event != CORRAL_EVENT_FOREIGN) return;
  if (!atomic_flag_test_and_set(&said))
    cli_say("going on without the store: %s",
            info->detail != NULL ? info->detail : corral_event_text(info->event));
}

bool cli_open(const cli_globals *cli, bool goes_on, corral_options *more, corral **ret) {
  corral_error error = {0};
  more->store = cli->store;
  if (cli->verbose || (goes_on && !cli->quiet))
    more->on_event = cli->verbose ? print_event : warn_event;
  more->host_lock = cli->no_host_lock ? CORRAL_OFF : 1;
  cli_flags_copy(&cli->options, more);
  int status = corral_open(more, ret, &error);
  if (status != CORRAL_OK) /* without the URI, which may have a password */
    cli_say("--store: %s", error.text[0] != '\0' ? error.text : corral_status_text(status));
  return status == CORRAL_OK;
}

void cli_die_of(int signo) {
  sigset_t set;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, signo);
  (void)signal(signo, SIG_DFL);
  (void)raise(signo);
  (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static bool is_ignored(int signo) {
  struct sigaction action;
  return sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int cli_take_signals(bool with_children, sigset_t *ret_old) {
  static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  sigset_t taken;
  (void)sigemptyset(&taken);
  if (with_children) (void)sigaddset(&taken, SIGCHLD);
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
    if (!is_ignored(wanted[i])) (void)sigaddset(&taken, wanted[i]);
  (void)sigprocmask(SIG_BLOCK, &taken, ret_old);
  return signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
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
