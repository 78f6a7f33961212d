/* warm_show.c: the output of corral warm: a line that is redrawn on a terminal, now and then a line
 * elsewhere, and the report.
 *
 * All of it but the JSON goes to standard error. One lock keeps the line and the messages apart. */
#include "warm.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
  DRAW_MS = 100, /* between two drawings of the line */
  COLUMNS = 80,  /* where the terminal doesn't say */
  COLUMNS_MOST = 200,
  BAR_MOST = 40,
  SAID_MOST = 20, /* failures reported within a span of --progress */
  RATE_MS = 5000, /* span of the average for the rate */
  TEXT = 256
};

static const char *const names[WARM_OUTCOMES] = {"fresh",  "computed", "negative",
                                                 "failed", "busy",     "elsewhere"};

static struct {
  pthread_mutex_t mutex;
  bool is_drawn;   /* the line is shown, with the cursor behind it */
  int64_t next_ms; /* when the next output is due */
  int64_t said_ms; /* begin of the span of `said` */
  unsigned said;
  int64_t rate_ms; /* when `rate_done` was counted */
  unsigned long long rate_done;
  double rate;
  unsigned long long written; /* keys done, in the last line without a terminal */
} show = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- pieces -------------------------------------------------------------------------------- */

static unsigned long long count_of(const warm *w, warm_outcome outcome) {
  return atomic_load(&w->counts[outcome]);
}

static unsigned long long done_of(const warm *w) {
  unsigned long long sum = 0;
  for (int i = 0; i < WARM_OUTCOMES; i++) sum += count_of(w, (warm_outcome)i);
  return sum;
}

/* Number of keys once all inputs are read, else 0. */
static size_t total_of(warm *w) {
  (void)pthread_mutex_lock(&w->keys.mutex);
  size_t total = w->keys.is_complete ? w->keys.count : 0;
  (void)pthread_mutex_unlock(&w->keys.mutex);
  return total;
}

static void measure(const warm *w, int64_t now) {
  unsigned long long done = done_of(w);
  if (show.rate_ms == 0) show.rate_ms = w->begun_ms;
  int64_t span = now - show.rate_ms;
  if (span < DRAW_MS) return;
  double latest = (double)(done - show.rate_done) * 1000 / (double)span;
  double weight = show.rate_done == 0 || span >= RATE_MS ? 1 : (double)span / RATE_MS;
  show.rate += (latest - show.rate) * weight;
  show.rate_ms = now;
  show.rate_done = done;
}

static const char *eta_text(char text[CLI_DURATION_TEXT], double seconds) {
  long long s = seconds < 359999 ? (long long)(seconds + 0.5) : 359999;
  if (s >= 3600)
    (void)snprintf(text, CLI_DURATION_TEXT, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    (void)snprintf(text, CLI_DURATION_TEXT, "%lld:%02lld", s / 60, s % 60);
  return text;
}

/* "120/200  35/s  ETA 0:02  1 failed", as far as it is known. */
static void state_text(warm *w, char *text, size_t size) {
  unsigned long long done = done_of(w);
  size_t total = w->o.watch ? 0 : total_of(w);
  char of[32] = "";
  char eta[CLI_DURATION_TEXT];
  if (total > 0) (void)snprintf(of, sizeof of, "/%zu", total);
  int n = snprintf(text, size, "%llu%s  %.*f/s", done, of, show.rate < 10 ? 1 : 0, show.rate);
  size_t used = n > 0 ? (size_t)n : 0;
  if (total > done && show.rate > 0) {
    n = snprintf(text + used, size - used, "  ETA %s",
                 eta_text(eta, (double)(total - done) / show.rate));
    used += n > 0 ? (size_t)n : 0;
  }
  if (count_of(w, WARM_FAILED) > 0)
    (void)snprintf(text + used, size - used, "  %llu failed", count_of(w, WARM_FAILED));
}

/* A bar of `width` columns, filled by `share`. */
static void bar_text(double share, int width, char *text, size_t size) {
  bool is_unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  int filled = (int)(share * width);
  size_t used = 0;
  for (int i = 0; i < width && used < size; i++) {
    int n = snprintf(text + used, size - used, "%s",
                     i < filled   ? (is_unicode ? "\u2588" : "#")
                     : is_unicode ? "\u2591"
                                  : ".");
    used += n > 0 ? (size_t)n : 0;
  }
}

/* ---- the line ------------------------------------------------------------------------------ */

static void wipe(void) {
  if (show.is_drawn) (void)cli_write(STDERR_FILENO, "\r\033[K", 4);
  show.is_drawn = false;
}

static void draw(warm *w) {
  char state[TEXT];
  char bar[3 * COLUMNS_MOST + 1] = "";
  char line[TEXT + sizeof bar + 32];
  struct winsize size = {0};
  int columns =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS;
  size_t total = w->o.watch ? 0 : total_of(w);
  state_text(w, state, sizeof state);
  int room = (columns < COLUMNS_MOST ? columns : COLUMNS_MOST) - (int)strlen(state) -
             (int)strlen("warm   ") - 1;
  if (total > 0 && room >= 10)
    bar_text((double)done_of(w) / (double)total, room < BAR_MOST ? room : BAR_MOST, bar,
             sizeof bar);
  int n = snprintf(line, sizeof line, "\r\033[Kwarm %s%s%.*s", bar, bar[0] != '\0' ? "  " : "",
                   columns > 6 ? columns - 6 : 1, state);
  if (n > 0)
    (void)cli_write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
  show.is_drawn = true;
}

/* With --watch, only if more keys are done. */
static void write_line(warm *w) {
  char state[TEXT];
  unsigned long long done = done_of(w);
  if (w->o.watch && done == show.written) return;
  show.written = done;
  state_text(w, state, sizeof state);
  cli_note("warm: %s", state);
}

int warm_show_progress(warm *w) {
  bool is_terminal = isatty(STDERR_FILENO) == 1;
  int64_t now = cli_now_ms();
  int64_t every = is_terminal ? DRAW_MS : w->o.progress_ms;
  if (w->cli->quiet) return DRAW_MS * 10;
  (void)pthread_mutex_lock(&show.mutex);
  measure(w, now);
  if (show.next_ms == 0) show.next_ms = w->begun_ms + every;
  if (now >= show.next_ms) {
    if (is_terminal)
      draw(w);
    else
      write_line(w);
    show.next_ms = now + every;
  }
  int64_t left = show.next_ms - now;
  (void)pthread_mutex_unlock(&show.mutex);
  return (int)(left < DRAW_MS * 10 ? left : DRAW_MS * 10);
}

/* ---- messages ------------------------------------------------------------------------------ */

static void say_wiped(void (*say)(const char *format, ...), const char *format, va_list args) {
  char text[1024];
  (void)vsnprintf(text, sizeof text, format, args);
  (void)pthread_mutex_lock(&show.mutex);
  wipe();
  say("%s", text);
  (void)pthread_mutex_unlock(&show.mutex);
}

void warm_say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say_wiped(cli_say, format, args);
  va_end(args);
}

void warm_note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say_wiped(cli_note, format, args);
  va_end(args);
}

/* Limits the failures reported in a span of time, so that a source that is away doesn't fill a
 * disk. */
static bool may_say(const warm *w) {
  int64_t now = cli_now_ms();
  (void)pthread_mutex_lock(&show.mutex);
  if (now - show.said_ms >= w->o.progress_ms || show.said_ms == 0) {
    show.said_ms = now;
    show.said = 0;
  }
  unsigned before = show.said++;
  (void)pthread_mutex_unlock(&show.mutex);
  if (before == SAID_MOST) warm_note("warm: more fail: further ones are only counted for a while");
  return before < SAID_MOST;
}

static bool is_of_word(char c) {
  return (c >= '0' && c <= '9') || ((c | ' ') >= 'a' && (c | ' ') <= 'z');
}

/* True when the key stands at `at`, as a word. */
static bool is_key_at(const char *begin, const char *at, const warm_key *key) {
  return strncmp(at, key->bytes, key->size) == 0 && !is_of_word(at[key->size]) &&
         (at == begin || !is_of_word(at[-1]));
}

/* A cause is a reason in which {} stands for the key, behind the first colon: before it is a number
 * that may equal a key, such as an exit status. */
static void cause_text(char text[WARM_REASON], const char *reason, const warm_key *key) {
  const char *colon = strchr(reason, ':');
  size_t used = 0;
  for (const char *at = reason; *at != '\0' && used + 2 < WARM_REASON;) {
    bool is_key = colon != NULL && at > colon && is_key_at(reason, at, key);
    used += (size_t)snprintf(text + used, WARM_REASON - used, "%.*s", is_key ? 2 : 1,
                             is_key ? "{}" : at);
    at += is_key ? key->size : 1;
  }
  text[used] = '\0';
}

/* Under the mutex. The key of the first failure stands for those of its cause. */
static void count_cause(warm *w, const warm_key *key, const char *reason) {
  char text[WARM_REASON];
  cause_text(text, reason, key);
  size_t i = 0;
  while (i < w->cause_count && strcmp(w->causes[i].text, text) != 0) i++;
  if (i == w->cause_count && i < WARM_CAUSES) {
    memcpy(w->causes[i].text, text, sizeof text);
    (void)cli_key_text(w->causes[i].example, key->bytes, key->size);
    w->cause_count++;
  }
  if (i < w->cause_count)
    w->causes[i].count++;
  else
    w->other_causes++;
}

static void list_failure(warm *w, const warm_key *key, const char *reason) {
  (void)pthread_mutex_lock(&w->mutex);
  count_cause(w, key, reason);
  char *copy = w->failure_count < WARM_FAILURES ? malloc(key->size) : NULL;
  if (copy != NULL) {
    warm_failure *failure = &w->failures[w->failure_count++];
    memcpy(copy, key->bytes, key->size);
    failure->key = copy;
    failure->size = key->size;
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", reason);
  } else {
    w->failures_left_off++;
  }
  (void)pthread_mutex_unlock(&w->mutex);
}

void warm_show_key(warm_seat *seat, const warm_key *key, warm_outcome outcome, int64_t took_ms) {
  warm *w = seat->w;
  char text[CLI_KEY_TEXT];
  if (outcome >= WARM_OUTCOMES) return;
  (void)atomic_fetch_add(&w->counts[outcome], 1);
  bool is_bad = outcome == WARM_FAILED || outcome == WARM_BUSY;
  const char *reason = outcome == WARM_BUSY ? "somebody else still computes it" : seat->reason;
  if (is_bad) list_failure(w, key, reason);
  if (w->cli->verbose)
    warm_say("warm: %s: %s in %lld ms%s%s", cli_key_text(text, key->bytes, key->size),
             names[outcome], (long long)took_ms, is_bad ? ": " : "", is_bad ? reason : "");
  else if (is_bad && may_say(w))
    warm_say("warm: %s: %s: %s", cli_key_text(text, key->bytes, key->size), names[outcome], reason);
}

void warm_show_ended(warm *w, size_t ended, size_t keys, int64_t pass_ms) {
  static bool is_said;
  char life[CLI_DURATION_TEXT], took[CLI_DURATION_TEXT];
  int64_t least = (int64_t)atomic_load(&w->least_life_ms);
  if (is_said) return;
  is_said = true;
  char why[160] = "";
  if (least > 0 && pass_ms >= least)
    (void)snprintf(why, sizeof why, ": a life of %s can't be held at this rate: a pass takes %s",
                   cli_duration_text(life, least), cli_duration_text(took, pass_ms));
  else if (least > 0)
    (void)snprintf(why, sizeof why,
                   ": they were fresh when looked at; --ahead D also computes "
                   "what is fresh for less than D");
  warm_say("warm: %zu of %zu values ended before the pass did%s", ended, keys, why);
}

/* ---- the report ---------------------------------------------------------------------------- */

static int more_often(const void *a, const void *b) {
  const warm_cause *one = a, *other = b;
  return (one->count < other->count) - (one->count > other->count);
}

/* Under the mutex. A single failure has been reported. */
static void say_causes(warm *w) {
  qsort(w->causes, w->cause_count, sizeof w->causes[0], more_often);
  if (w->cli->quiet || count_of(w, WARM_FAILED) + count_of(w, WARM_BUSY) < 2) return;
  for (size_t i = 0; i < w->cause_count; i++)
    cli_say("warm: %llu not warm, such as %s: %s", w->causes[i].count, w->causes[i].example,
            w->causes[i].text);
  if (w->other_causes > 0) cli_say("warm: %llu not warm, of other causes", w->other_causes);
}

static void print_causes(const warm *w) {
  (void)printf("],\"causes\":[");
  for (size_t i = 0; i < w->cause_count; i++) {
    (void)printf("%s{\"count\":%llu,\"example\":", i > 0 ? "," : "", w->causes[i].count);
    cli_json_string(stdout, w->causes[i].example, strlen(w->causes[i].example));
    (void)printf(",\"reason\":");
    cli_json_string(stdout, w->causes[i].text, strlen(w->causes[i].text));
    (void)printf("}");
  }
  (void)printf("],\"causes_left_off\":%llu", w->other_causes);
}

static void print_json(warm *w, size_t keys, double seconds) {
  (void)printf("{\"keys\":%zu", keys);
  for (int i = 0; i < WARM_OUTCOMES; i++)
    (void)printf(",\"%s\":%llu", names[i], count_of(w, (warm_outcome)i));
  (void)printf(",\"ended\":%llu,\"bad_lines\":%llu,\"passes\":%llu,\"seconds\":%.3f,\"rate\":%.3f,"
               "\"signal\":%d",
               w->ended, (unsigned long long)atomic_load(&w->keys.bad_lines), w->passes, seconds,
               seconds > 0 ? (double)done_of(w) / seconds : 0, atomic_load(&w->signal));
  (void)printf(",\"failures\":[");
  for (size_t i = 0; i < w->failure_count; i++) {
    (void)printf("%s{\"key\":", i > 0 ? "," : "");
    cli_json_string(stdout, w->failures[i].key, w->failures[i].size);
    (void)printf(",\"reason\":");
    cli_json_string(stdout, w->failures[i].reason, strlen(w->failures[i].reason));
    (void)printf("}");
  }
  print_causes(w);
  (void)printf(",\"failures_left_off\":%llu}\n", w->failures_left_off);
}

void warm_show_end(warm *w) {
  double seconds = (double)(cli_now_ms() - w->begun_ms) / 1000;
  (void)pthread_mutex_lock(&w->keys.mutex);
  size_t keys = w->keys.count;
  (void)pthread_mutex_unlock(&w->keys.mutex);
  (void)pthread_mutex_lock(&show.mutex);
  wipe();
  (void)pthread_mutex_unlock(&show.mutex);
  char counts[TEXT] = "";
  size_t used = 0;
  for (int i = 0; i < WARM_OUTCOMES; i++) {
    if (count_of(w, (warm_outcome)i) == 0 && i != WARM_FRESH && i != WARM_COMPUTED) continue;
    int n = snprintf(counts + used, sizeof counts - used, ", %llu %s", count_of(w, (warm_outcome)i),
                     names[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  unsigned long long bad = atomic_load(&w->keys.bad_lines);
  if (w->ended > 0 && used < sizeof counts) {
    int n =
        snprintf(counts + used, sizeof counts - used, "; %llu ended before the pass did", w->ended);
    used += n > 0 ? (size_t)n : 0;
  }
  if (bad > 0 && used < sizeof counts)
    (void)snprintf(counts + used, sizeof counts - used, ", %llu bad lines", bad);
  if (!w->cli->quiet)
    cli_say("warm: %zu keys%s%s in %.1f s%s", keys, counts,
            w->o.watch ? ", all passes together," : "", seconds,
            atomic_load(&w->signal) != 0 ? ": interrupted; what is warm is skipped the next time"
                                         : "");
  (void)pthread_mutex_lock(&w->mutex);
  say_causes(w);
  if (w->cli->json) print_json(w, keys, seconds);
  (void)pthread_mutex_unlock(&w->mutex);
}
