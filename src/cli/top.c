/* top.c: corral top: the rates of all processes of this host, again and again, on a screen; on
 * what is no screen, page after page. */
#include "top.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { OPT_COUNT = 256, OPT_STATS_DIR, EVERY_MS = 1000, EVERY_LEAST_MS = 100, ESCAPE = 27 };

static const int64_t every_most_ms = 24 * 3600 * 1000;
static const char keys_help[] = "q quit  s sort  / filter by cache  p pause  1-9 seconds";

typedef struct top {
  const char *dir;
  int64_t count; /* pages; 0: no end */
  top_view view;
  int signals;
  top_look looks[2];
  int shown; /* the number of the look that is shown; the other one was before it */
  bool has_before;
  screen_page page;
  corral_error error;
} top;

/* ---- arguments ----------------------------------------------------------------------------- */

/* -1: go on; else the exit status. */
static int parse(top *t, int argc, char **argv) {
  static const struct option longs[] = {{"every", required_argument, NULL, 'd'},
                                        {"count", required_argument, NULL, OPT_COUNT},
                                        {"stats-dir", required_argument, NULL, OPT_STATS_DIR},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};
  const cli_grammar grammar = {"top", ":d:h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    switch (option) {
      case 'd':
        if (!cli_duration("top: --every", optarg, EVERY_LEAST_MS, every_most_ms, &t->view.every_ms))
          return CLI_FAILED;
        break;
      case OPT_COUNT:
        if (!cli_count("top: --count", optarg, 1, INT32_MAX, &t->count)) return CLI_FAILED;
        break;
      case OPT_STATS_DIR: t->dir = optarg; break;
      case 'h': return cli_print(cli_help("top"));
      default: return CLI_FAILED;
    }
  }
  return optind < argc
             ? cli_fail("top: '%s' is one argument too many: none is accepted", argv[optind])
             : -1;
}

/* ---- looks --------------------------------------------------------------------------------- */

/* False: the error says why. */
static bool look(top *t, bool keeps_before) {
  int next = 1 - t->shown;
  stat_drop(&t->looks[next].host);
  if (!stat_look(t->dir, &t->looks[next].host, &t->error)) return false;
  t->looks[next].at_ns = cli_now_ns();
  t->shown = next;
  t->has_before = keeps_before;
  return true;
}

static void make_page(top *t) {
  const top_look *before = t->has_before ? &t->looks[1 - t->shown] : NULL;
  top_draw(&t->page, &t->view, &t->looks[t->shown], before);
}

/* ---- pages --------------------------------------------------------------------------------- */

static void print_page(top *t, bool is_first) {
  screen_begin(&t->page);
  if (!isatty(STDOUT_FILENO)) t->page.rows = 24;
  make_page(t);
  if (!is_first) (void)putchar('\n');
  for (size_t i = 0; i < t->page.count; i++) {
    const char *line = t->page.lines[i];
    size_t len = strlen(line);
    while (len > 0 && line[len - 1] == ' ') len--;
    (void)printf("%.*s\n", (int)len, line);
  }
}

static int print_pages(top *t) {
  int status = CLI_OK, signo;
  for (int64_t i = 0; status == CLI_OK && (t->count == 0 || i < t->count); i++) {
    long long next_ns = t->looks[t->shown].at_ns + t->view.every_ms * 1000000;
    screen_event event = screen_next(t->signals, next_ns, &signo);
    if (event == SCREEN_SIGNAL) return CLI_SIGNAL + signo;
    if (!look(t, true)) return cli_fail("top: %s", t->error.text);
    print_page(t, i == 0);
    status = cli_finish(CLI_OK);
  }
  return status;
}

/* ---- the screen ---------------------------------------------------------------------------- */

static void type(top_view *v, int key) {
  size_t len = strlen(v->filter);
  if (key == '\n' || key == '\r') {
    v->is_typing = false;
  } else if (key == ESCAPE) {
    v->is_typing = false;
    v->filter[0] = '\0';
  } else if ((key == '\b' || key == 0x7f) && len > 0) {
    v->filter[len - 1] = '\0';
  } else if (key >= ' ' && key != 0x7f && len + 1 < sizeof v->filter) {
    v->filter[len] = (char)key;
    v->filter[len + 1] = '\0';
  }
}

/* False: the key ends the program. */
static bool press(top_view *v, int key) {
  if (v->is_typing) return type(v, key), true;
  if (key >= '1' && key <= '9') v->every_ms = (key - '0') * 1000;
  switch (key) {
    case 'q': return false;
    case 's': v->sort = (top_sort)((v->sort + 1) % TOP_SORTS); break;
    case 'p': v->is_paused = !v->is_paused; break;
    case '/':
      v->is_typing = true;
      v->filter[0] = '\0';
      break;
    default: break;
  }
  return true;
}

static bool draw(top *t) {
  screen_begin(&t->page);
  size_t rows = t->page.rows;
  if (rows > 1) t->page.rows--;
  make_page(t);
  t->page.rows = rows;
  while (rows > 1 && t->page.count < rows - 1) t->page.lines[t->page.count++][0] = '\0';
  if (rows > 1) {
    t->page.is_title[t->page.count] = true;
    (void)stat_fit(t->page.lines[t->page.count++], SCREEN_LINE, keys_help, t->page.columns, true);
  }
  return screen_draw(&t->page);
}

static int gone(void) {
  screen_close();
  return cli_fail("top: the terminal is gone");
}

static int run_screen(top *t) {
  long long paused_ns = INT64_MAX;
  for (int64_t i = 0; t->count == 0 || i < t->count;) {
    int key = 0;
    if (!draw(t)) return gone();
    long long next_ns = t->looks[t->shown].at_ns + t->view.every_ms * 1000000;
    switch (screen_next(t->signals, t->view.is_paused ? paused_ns : next_ns, &key)) {
      case SCREEN_KEY:
        if (!press(&t->view, key)) return CLI_OK;
        break;
      case SCREEN_SIGNAL: return CLI_SIGNAL + key;
      case SCREEN_GONE: return gone();
      case SCREEN_TIME:
        if (t->view.is_paused) break;
        if (!look(t, true)) {
          screen_close();
          return cli_fail("top: %s", t->error.text);
        }
        i++;
        break;
      case SCREEN_CHANGED: break;
    }
  }
  return CLI_OK;
}

static int show(top *t) {
  if (!screen_is_possible()) return print_pages(t);
  if (!screen_open()) return cli_fail("top: the terminal: %s", strerror(errno));
  int status = run_screen(t);
  screen_close();
  return status;
}

int cli_top(const cli_globals *cli, int argc, char **argv) {
  static top t;
  sigset_t old;
  t = (top){.view = {.every_ms = EVERY_MS}};
  int status = parse(&t, argc, argv);
  if (status >= 0) return status;
  if (!stat_check_folder("top", t.dir)) return CLI_FAILED;
  if (!cli->quiet) stat_note_left_out("top", t.dir);
  t.signals = cli_take_signals(&old);
  if (t.signals < 0) return cli_fail("top: %s", strerror(errno));
  status = look(&t, false) ? show(&t) : cli_fail("top: %s", t.error.text);
  for (int i = 0; i < 2; i++) stat_drop(&t.looks[i].host);
  (void)close(t.signals);
  return status;
}
