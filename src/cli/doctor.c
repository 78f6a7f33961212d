/* doctor.c: corral doctor: says whether a store, or this host, is fit for corral. The library and
 * its plugins judge the store, doctor_host.c and doctor_counts.c the host; here it is printed. */
#include "doctor.h"

#include <corral/control.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stat.h"

enum { OPT_LOCKS = 256, URI_ROOM = 1024, SHOWN_ROOM = 2048 };

/* A fact, copied. */
typedef struct finding {
  char *server, *name, *value, *advice; /* advice NULL: a plain one */
  int verdict;
} finding;

typedef struct report {
  const char *uri;      /* NULL: the host is examined */
  char store[URI_ROOM]; /* the URI without its password, or the host's name */
  bool for_locks;
  finding *facts;
  size_t count, room;
  bool no_memory;
} report;

/* ---- arguments ----------------------------------------------------------------------------- */

/* -1: go on; else the exit status. */
static int name_host(report *r) {
  if (r->for_locks) return cli_fail("doctor: --locks is about a store: its URI is missing");
  if (gethostname(r->store, sizeof r->store) != 0) (void)snprintf(r->store, 16, "this host");
  r->store[sizeof r->store - 1] = '\0';
  return -1;
}

/* The same. */
static int parse(int argc, char **argv, report *r) {
  static const struct option longs[] = {
      {"locks", no_argument, NULL, OPT_LOCKS}, {"help", no_argument, NULL, 'h'}, {0}};
  const cli_grammar grammar = {"doctor", ":h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    switch (option) {
      case OPT_LOCKS: r->for_locks = true; break;
      case 'h': (void)fputs(cli_help("doctor"), stdout); return cli_finish(CLI_OK);
      default: return CLI_FAILED;
    }
  }
  if (argc - optind < 1) return name_host(r);
  if (argc - optind > 1) {
    corral_uri_show(argv[optind + 1], r->store, sizeof r->store);
    return cli_fail("doctor: '%s' is one argument too many: exactly one URI is accepted", r->store);
  }
  r->uri = cli_take_uri(argv[optind]);
  corral_uri_show(r->uri, r->store, sizeof r->store);
  return -1;
}

/* ---- facts --------------------------------------------------------------------------------- */

/* False without memory. */
static bool copy(const corral_fact *fact, finding *ret) {
  *ret = (finding){.server = strdup(fact->server),
                   .name = strdup(fact->name),
                   .value = strdup(fact->value),
                   .advice = fact->advice != NULL ? strdup(fact->advice) : NULL,
                   .verdict = fact->verdict};
  return ret->server != NULL && ret->name != NULL && ret->value != NULL &&
         (ret->advice != NULL) == (fact->advice != NULL);
}

static void take(const corral_fact *fact, void *arg) {
  report *r = arg;
  if (r->count == r->room) {
    size_t room = 2 * r->room + 64;
    finding *facts = realloc(r->facts, room * sizeof *facts);
    if (facts == NULL) {
      r->no_memory = true;
      return;
    }
    r->facts = facts;
    r->room = room;
  }
  if (!copy(fact, &r->facts[r->count++])) r->no_memory = true;
}

static void drop(report *r) {
  for (size_t i = 0; i < r->count; i++) {
    free(r->facts[i].server);
    free(r->facts[i].name);
    free(r->facts[i].value);
    free(r->facts[i].advice);
  }
  free(r->facts);
}

static size_t count_of(const report *r, int verdict) {
  size_t count = 0;
  for (size_t i = 0; i < r->count; i++) count += r->facts[i].verdict == verdict;
  return count;
}

static bool is_same(const finding *a, const finding *b) {
  return strcmp(a->server, b->server) == 0;
}

/* True for the first fact about its server. */
static bool is_first(const report *r, size_t at) {
  size_t i = 0;
  while (i < at && !is_same(&r->facts[i], &r->facts[at])) i++;
  return i == at;
}

/* ---- text ---------------------------------------------------------------------------------- */

static const char *shown(const char *text) {
  static char rooms[4][SHOWN_ROOM];
  static unsigned at;
  char *room = rooms[at++ % 4];
  return cli_visible(room, SHOWN_ROOM, text, strlen(text));
}

/* Facts of the store as a whole have no server. */
static const char *server_of(const report *r, const finding *f) {
  return shown(f->server[0] != '\0' ? f->server : r->store);
}

static void print_servers(const report *r) {
  for (size_t i = 0; i < r->count; i++) {
    if (!is_first(r, i)) continue;
    (void)printf("%s\n", server_of(r, &r->facts[i]));
    for (size_t j = i; j < r->count; j++)
      if (is_same(&r->facts[i], &r->facts[j]))
        (void)printf("  %-22s %s\n", r->facts[j].name, shown(r->facts[j].value));
  }
}

static void print_findings(const report *r, int verdict, const char *word) {
  for (size_t i = 0; i < r->count; i++) {
    const finding *f = &r->facts[i];
    if (f->verdict == verdict)
      (void)printf("%s: %s: %s %s. %s\n", word, server_of(r, f), f->name, shown(f->value),
                   f->advice != NULL ? shown(f->advice) : "");
  }
}

static void print_text(const report *r, bool is_quiet) {
  size_t reasons = count_of(r, CORRAL_FACT_UNFIT), warnings = count_of(r, CORRAL_FACT_WARNING);
  if (!is_quiet) print_servers(r);
  print_findings(r, CORRAL_FACT_UNFIT, "not fit");
  print_findings(r, CORRAL_FACT_WARNING, "warning");
  (void)printf("%s: %s%s", shown(r->store), reasons > 0 ? "not fit" : "fit",
               r->for_locks ? " for locks" : "");
  if (warnings > 0) (void)printf(", %zu warning%s", warnings, warnings == 1 ? "" : "s");
  (void)printf("\n");
}

/* ---- JSON ---------------------------------------------------------------------------------- */

/* True for a number as JSON writes it, without an exponent. */
static bool is_number(const char *text) {
  const char *at = text + (*text == '-');
  size_t whole = strspn(at, "0123456789");
  if (whole == 0 || (whole > 1 && *at == '0') || strlen(text) > 20) return false;
  at += whole;
  size_t rest = *at == '.' ? strspn(at + 1, "0123456789") : 0;
  return *at == '.' ? rest > 0 && at[1 + rest] == '\0' : *at == '\0';
}

static void json_text(const char *before, const char *text) {
  (void)fputs(before, stdout);
  cli_json_string(stdout, text, strlen(text));
}

static void json_value(const char *value) {
  if (is_number(value))
    (void)fputs(value, stdout);
  else if (strcmp(value, "unknown") == 0)
    (void)fputs("null", stdout);
  else
    cli_json_string(stdout, value, strlen(value));
}

static void json_server(const report *r, size_t first) {
  json_text("{\"server\":", r->facts[first].server);
  for (size_t i = first; i < r->count; i++) {
    if (!is_same(&r->facts[first], &r->facts[i])) continue;
    json_text(",", r->facts[i].name);
    (void)putchar(':');
    json_value(r->facts[i].value);
  }
  (void)putchar('}');
}

static void json_finding(const finding *f) {
  json_text("{\"verdict\":", f->verdict == CORRAL_FACT_UNFIT ? "unfit" : "warning");
  json_text(",\"server\":", f->server);
  json_text(",\"fact\":", f->name);
  (void)fputs(",\"value\":", stdout);
  json_value(f->value);
  json_text(",\"advice\":", f->advice != NULL ? f->advice : "");
  (void)putchar('}');
}

static void print_json(const report *r) {
  const char *comma = "";
  json_text(r->uri != NULL ? "{\"store\":" : "{\"host\":", r->store);
  (void)printf(",\"fit\":%s,\"servers\":[", count_of(r, CORRAL_FACT_UNFIT) == 0 ? "true" : "false");
  for (size_t i = 0; i < r->count; i++) {
    if (!is_first(r, i)) continue;
    (void)fputs(comma, stdout);
    json_server(r, i);
    comma = ",";
  }
  (void)printf("],\"findings\":[");
  comma = "";
  for (size_t i = 0; i < r->count; i++) {
    if (r->facts[i].verdict == CORRAL_FACT_PLAIN) continue;
    (void)fputs(comma, stdout);
    json_finding(&r->facts[i]);
    comma = ",";
  }
  (void)printf("]}\n");
}

/* ---- the command --------------------------------------------------------------------------- */

static int fail(int status, const corral_error *error) {
  return cli_fail("doctor: %s", error->text[0] != '\0' ? error->text : corral_status_text(status));
}

/* A look would make the file. */
static bool is_absent(const report *r) {
  for (size_t i = 0; i < r->count; i++)
    if (strcmp(r->facts[i].name, "file") == 0 && strcmp(r->facts[i].value, "absent") == 0)
      return true;
  return false;
}

/* An operator's order that is in force for the namespace is a finding, too. */
static void take_order(corral *c, report *r) {
  char value[2 * CLI_DURATION_TEXT];
  char left[CLI_DURATION_TEXT];
  corral_control_state now = {.size = sizeof now};
  if (r->for_locks || r->no_memory || is_absent(r) ||
      corral_control_read(c, &now, NULL) != CORRAL_OK || now.verb == CORRAL_CONTROL_NORMAL)
    return;
  (void)snprintf(value, sizeof value, "%s, ends in %s", corral_control_name(now.verb),
                 cli_duration_text(left, (now.left_ms + 999) / 1000 * 1000));
  take(&(corral_fact){.size = sizeof(corral_fact),
                      .server = "",
                      .name = "order",
                      .value = value,
                      .verdict = CORRAL_FACT_WARNING,
                      .advice = "Processes with the option control follow it: corral control "
                                "NAMESPACE normal ends it."},
       r);
}

static int show(const cli_globals *cli, const report *r) {
  if (r->no_memory) return cli_fail("doctor: out of memory");
  if (cli->json)
    print_json(r);
  else
    print_text(r, cli->quiet);
  return cli_finish(count_of(r, CORRAL_FACT_UNFIT) == 0 ? CLI_OK : CLI_UNFIT);
}

static int examine_store(const cli_globals *cli, report *r) {
  corral *c = NULL;
  corral_error error = {0};
  corral_options options = {
      .size = sizeof options, .store = r->uri, .host_lock = CORRAL_OFF, .stats_dir = "off"};
  cli_flags_copy(&cli->options, &options);
  int status = corral_open(&options, &c, &error);
  if (status != CORRAL_OK) return fail(status, &error);
  status = corral_inspect_store(c, r->for_locks ? CORRAL_INSPECT_LOCKS : 0, take, r, &error);
  if (status == CORRAL_OK) take_order(c, r);
  corral_close(c);
  return status == CORRAL_OK ? show(cli, r) : fail(status, &error);
}

static int examine_host(const cli_globals *cli, report *r) {
  doctor_facts facts = {.tell = take, .arg = r, .server = ""};
  if (!cli->quiet) stat_note_left_out("doctor", NULL);
  doctor_host(&facts);
  return doctor_counts(&facts, NULL) ? show(cli, r) : CLI_FAILED;
}

int cli_doctor(const cli_globals *cli, int argc, char **argv) {
  report r = {.room = 0};
  int status = parse(argc, argv, &r);
  if (status >= 0) return status;
  status = r.uri != NULL ? examine_store(cli, &r) : examine_host(cli, &r);
  drop(&r);
  return status;
}
