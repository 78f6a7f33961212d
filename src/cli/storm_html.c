/* storm_html.c: the page of `corral storm --html`: one file without scripts that loads nothing.
 *
 * It names no machine: neither hosts nor folders. What comes from outside is escaped. */
#include "storm.h"

#include <string.h>
#include <unistd.h>

/* ---- file ---------------------------------------------------------------------------------- */

/* Reports `why`, unless it is NULL. */
static bool is_done(const storm *s, const char *why) {
  if (why != NULL) cli_say("storm: --html: %s: %s", s->options.html, why);
  return why == NULL;
}

bool storm_page_open(storm *s) {
  return s->options.html == NULL || is_done(s, whole_open(&s->page, s->options.html));
}

void storm_page_drop(storm *s) { whole_drop(&s->page); }

/* ---- text ---------------------------------------------------------------------------------- */

static void put_escaped(FILE *f, const char *text) {
  for (; *text != '\0'; text++) switch (*text) {
      case '&': (void)fputs("&amp;", f); break;
      case '<': (void)fputs("&lt;", f); break;
      case '>': (void)fputs("&gt;", f); break;
      case '"': (void)fputs("&quot;", f); break;
      default: (void)fputc(*text, f);
    }
}

/* Puts a word of a command line as a shell takes it. */
static void put_word(FILE *f, const char *word) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=:,@%/";
  char shown[2 * STORM_PATH];
  (void)cli_visible(shown, sizeof shown, word, strlen(word));
  bool quote = shown[strspn(shown, plain)] != '\0' || shown[0] == '\0';
  (void)fputs(quote ? " '" : " ", f);
  for (const char *at = shown; *at != '\0'; at++)
    put_escaped(f, *at == '\'' ? "'\\''" : (char[]){*at, '\0'});
  (void)fputs(quote ? "'" : "", f);
}

/* The command, with the page's file without its folder, and without the store's URI. */
static void put_command(const storm *s, FILE *f) {
  const char *html = s->options.html;
  const char *slash = strrchr(html, '/');
  (void)fputs("corral", f);
  for (int i = 0; i < s->argc; i++) {
    const char *arg = s->argv[i];
    char word[2 * STORM_PATH];
    bool has_file = html >= arg && html <= arg + strlen(arg);
    if (has_file)
      (void)snprintf(word, sizeof word, "%.*s%s", (int)(html - arg), arg,
                     slash != NULL ? slash + 1 : html);
    put_word(f, has_file ? word : arg);
  }
}

/* ---- page ---------------------------------------------------------------------------------- */

static const char head[] =
    "<!doctype html>\n"
    "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" "
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<title>corral storm: a herd, without and with corral</title>\n"
    "<style>\n"
    ":root{--back:#fff;--fore:#1c1e21;--soft:#5b6168;--rule:#d5d8dc;--plot:#f6f7f8;"
    "--none:#c2410c;--corral:#0f766e}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#15171a;--fore:#e6e8ea;--soft:#a3abb3;"
    "--rule:#3a4047;--plot:#1e2125;--none:#fb923c;--corral:#2dd4bf}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:1rem;max-width:62rem;background:var(--back);color:var(--fore);"
    "font:1rem/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}\n"
    "h2{font-size:1.15rem;margin:2rem 0 .25rem}\n"
    "p{margin:.5rem 0;max-width:46rem}\n"
    ".lede{font-size:1.15rem}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.2rem 0 .2rem 1.5rem;text-align:right;border-bottom:1px solid var(--rule)}\n"
    "th:first-child{text-align:left;padding-left:0;font-weight:normal}\n"
    ".none{color:var(--none)}.corral{color:var(--corral)}\n"
    "code{font-family:ui-monospace,monospace;font-size:.9em;overflow-wrap:anywhere}\n"
    "figure{margin:.75rem 0 0;display:grid;gap:1rem 1.5rem}\n"
    "@media(min-width:44rem){figure{grid-template-columns:1fr 1fr}}\n"
    ".panel{min-width:0;padding-left:2.75rem}\n"
    ".panel>p{margin:0 0 .2rem;font-size:.875rem}\n"
    ".plot{position:relative;height:9rem;background:var(--plot);"
    "border-bottom:1px solid var(--soft)}\n"
    ".plot svg{display:block;width:100%;height:100%}\n"
    ".plot path{fill:currentColor}\n"
    ".plot .grid{fill:none;stroke:var(--rule);vector-effect:non-scaling-stroke}\n"
    ".plot .mark{fill:none;stroke:var(--fore);stroke-dasharray:3 3;"
    "vector-effect:non-scaling-stroke}\n"
    ".plot span{position:absolute;font-size:.75rem;line-height:1;white-space:nowrap}\n"
    ".plot .y{right:100%;margin-right:.3rem;transform:translateY(-50%);color:var(--soft)}\n"
    ".plot .q{top:.2rem;padding:.1rem .2rem;background:var(--back);border-radius:.2rem}\n"
    ".axis{position:relative;height:1.2rem;font-size:.75rem;color:var(--soft)}\n"
    ".axis span{position:absolute;transform:translateX(-50%);white-space:nowrap}\n"
    ".axis .first{transform:none}.axis .last{transform:translateX(-100%)}\n"
    "</style>\n</head>\n<body>\n";

static void put_count(const storm *s, storm_mode mode, int row, FILE *f) {
  const storm_result *r = &s->shared->results[mode];
  const unsigned long long counts[] = {atomic_load(&r->requests), atomic_load(&r->computes),
                                       atomic_load(&r->late),     atomic_load(&r->errors),
                                       atomic_load(&r->wrong),    s->waits[mode].unanswered};
  (void)fprintf(f, "<td>%llu</td>", counts[row]);
}

static void put_quantile(const storm *s, storm_mode mode, int row, FILE *f) {
  static const double shares[] = {0.5, 0.9, 0.99, 0.999, 1};
  char text[CLI_TIME_TEXT];
  (void)fprintf(f, "<td>%s</td>",
                cli_time_text(text, storm_quantile(&s->waits[mode], shares[row])));
}

static void put_database(const storm *s, storm_mode mode, int row, FILE *f) {
  (void)row;
  (void)fprintf(f, "<td>%.1f s</td>",
                (double)atomic_load(&s->shared->results[mode].database_us) / 1e6);
}

/* A row for each number and a column for each mode, which a phone has room for. */
static void put_rows(const storm *s, FILE *f) {
  static const struct {
    const char *name;
    void (*put)(const storm *s, storm_mode mode, int row, FILE *f);
    int row;
  } rows[] = {{"requests", put_count, 0},        {"computes", put_count, 1},
              {"p50", put_quantile, 0},          {"p90", put_quantile, 1},
              {"p99", put_quantile, 2},          {"p99.9", put_quantile, 3},
              {"longest wait", put_quantile, 4}, {"late", put_count, 2},
              {"errors", put_count, 3},          {"wrong values", put_count, 4},
              {"unanswered", put_count, 5},      {"in the database", put_database, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    (void)fprintf(f, "<tr><th scope=\"row\">%s</th>", rows[i].name);
    for (storm_mode mode = 0; mode < STORM_MODES; mode++)
      if (s->options.modes[mode]) rows[i].put(s, mode, rows[i].row, f);
    (void)fputs("</tr>\n", f);
  }
}

static void put_table(const storm *s, FILE *f) {
  char text[160];
  storm_reading(s, text, sizeof text);
  (void)fprintf(f, "<h1>A herd, without and with corral</h1>\n<p class=\"lede\">%s</p>\n", text);
  (void)fputs("<table>\n<tr><th>mode</th>", f);
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    const char *name = storm_mode_names[mode];
    if (s->options.modes[mode])
      (void)fprintf(f, "<th scope=\"col\" class=\"%s\">%s</th>", name, name);
  }
  (void)fputs("</tr>\n", f);
  put_rows(s, f);
  (void)fputs("</table>\n", f);
}

static void put_how_to_read(const storm *s, FILE *f) {
  (void)fputs("<h2>How to read it</h2>\n"
              "<p><b>p99</b>: of 100 requests, 99 had waited no longer when they had their answer. "
              "A wait begins at the moment that a request is due, by a schedule that was drawn "
              "before the run and is the same for each mode. A request that is due while all "
              "threads are busy is <b>late</b>, and waits from then on: an origin that is slow "
              "can't make its callers ask less often.</p>\n",
              f);
  if (s->options.modes[STORM_NONE])
    (void)fputs("<p><b class=\"none\">none</b> is the usual cache-aside: whoever finds no value "
                "computes it and stores it. When a value ends, all who ask meanwhile compute the "
                "same, and slow each other down.</p>\n",
                f);
  if (s->options.modes[STORM_CORRAL])
    (void)fputs("<p><b class=\"corral\">corral</b> lets one of them compute, whatever process it "
                "is in. The others wait for that value.</p>\n",
                f);
}

/* The scheme of the store's URI, which names no host. */
static void put_store(const storm *s, FILE *f) {
  char scheme[32];
  (void)snprintf(scheme, sizeof scheme, "%.*s", (int)strcspn(s->store, ":"), s->store);
  put_escaped(f, scheme);
}

static void put_what_ran(const storm *s, FILE *f) {
  const storm_options *o = &s->options;
  (void)fputs("<h2>What was run</h2>\n<p><code>", f);
  put_command(s, f);
  (void)fprintf(f,
                "</code></p>\n<p>corral %s, %ld processors. %lld processes with %lld threads "
                "each ask for %lld key%s",
                corral_version(), sysconf(_SC_NPROCESSORS_ONLN), (long long)o->processes,
                (long long)o->threads, (long long)o->keys, o->keys == 1 ? "" : "s");
  if (o->keys > 1) (void)fprintf(f, " (Zipf, exponent %g)", o->zipf);
  (void)fprintf(f,
                ": %lld requests per second for %.1f s, at the moments of a Poisson process with "
                "a fixed seed. A value is fresh for %.1f s",
                (long long)o->rate, (double)o->duration_ms / 1000, (double)o->ttl_ms / 1000);
  if (o->stale_ms > 0) (void)fprintf(f, ", and usable for %.1f s more", (double)o->stale_ms / 1000);
  (void)fprintf(f,
                ". A compute is one query of a SQLite database, which alone takes %.0f ms "
                "(%lld rows). Values are kept in a store of the kind ",
                (double)s->query_us / 1000, (long long)o->load);
  put_store(s, f);
  (void)fputs(".", f);
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    unsigned kills = atomic_load(&s->shared->results[mode].kills);
    if (kills > 0)
      (void)fprintf(f,
                    " %u processes of mode %s were killed while they computed; requests that "
                    "they had not answered were taken over by others, and waited on.",
                    kills, storm_mode_names[mode]);
  }
  (void)fputs("</p>\n", f);
}

bool storm_page_write(storm *s) {
  FILE *f = s->page.file;
  (void)fputs(head, f);
  put_table(s, f);
  put_how_to_read(s, f);
  storm_charts(s, f);
  put_what_ran(s, f);
  (void)fputs("</body>\n</html>\n", f);
  if (!is_done(s, whole_end(&s->page))) return false;
  if (!s->cli->quiet) cli_note("storm: the page is %s", s->options.html);
  return true;
}
