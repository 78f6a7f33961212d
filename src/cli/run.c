/* run.c: corral run: a command, at most once for everyone who asks for it now.
 *
 * The value is a header (magic, version, exit status, length of stdout, length of stderr; numbers little-endian), then
 * stdout, then stderr. A run that leaves no such value is told to the others as a failure whose code holds the exit
 * status that each of them answers.
 */
#include "cli.h"
#include "run_child.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPT_HELP = 256, OPT_KEY, OPT_TTL, OPT_STALE, OPT_WAIT, OPT_LEASE, OPT_COMPUTE, OPT_CACHE_FAILURES, OPT_ENV, OPT_AWAY,
       OPT_FLEET_MAX, OPT_ORIGIN };
enum { OPT_CWD = 512, OPT_MODTIME, OPT_FORCE };

enum {
  KEY_ROOM = 65536, /* the library's limit */
  HEADER = 28,      /* bytes before stdout */
  FORMAT = 1,       /* version of the header */
  COPY = 65536,
  TAKEOVERS = 3,      /* runs that may lose their lease before this process gives up */
  LIMIT_SLACK = 2000, /* ms the library waits beyond --compute, so that the command is dead before its successor */
  FAIL_CODE = 0x100   /* plus the exit status: the code of a failure that is told to the others */
};

static const char magic[4] = {'C', 'R', 'U', 'N'};
static const uint64_t most_value = 536870912;
static const int64_t most_life_ms = 315360000000;
static const int64_t day_ms = 86400000;

typedef struct key_text {
  size_t size; /* may be above KEY_ROOM: then the rest was dropped */
  char bytes[KEY_ROOM];
} key_text;

/* One `corral run`. */
typedef struct run {
  const cli_globals *cli;
  char **command;
  key_text key;
  bool named;          /* --key */
  const char *context; /* the last option that added to the default key; NULL for none */
  bool force;
  int64_t ttl_ms;
  int64_t stale_ms;
  int64_t wait_ms;
  int64_t lease_ms;
  int64_t limit_ms;
  int64_t failures_ms;
  int64_t when_away;
  int64_t fleet_max; /* 0: no limit */
  const char *origin;
  run_child child;   /* what this process ran; how is RUN_NOT when it didn't */
  corral_fill *fill; /* while the command runs */
} run;

/* ---- key ------------------------------------------------------------------------------------------------- */

static void key_bytes(key_text *key, const void *data, size_t size) {
  if (key->size + size <= KEY_ROOM) memcpy(key->bytes + key->size, data, size);
  key->size += size;
}

/* An item of the default key: a letter, the text, NUL. No item can look like two. */
static void key_item(key_text *key, char letter, const char *text) {
  key_bytes(key, &letter, 1);
  key_bytes(key, text, strlen(text) + 1);
}

static void key_env(key_text *key, const char *name) {
  const char *value = getenv(name);
  key_item(key, value != NULL ? 'e' : 'u', name);
  if (value != NULL) key_item(key, '=', value);
}

static bool key_cwd(key_text *key) {
  char *folder = getcwd(NULL, 0);
  if (folder == NULL) {
    cli_say("run: --cwd: %s", strerror(errno));
    return false;
  }
  key_item(key, 'd', folder);
  free(folder);
  return true;
}

/* A file that isn't there is a state like any other. */
static bool key_modtime(key_text *key, const char *path) {
  struct stat st;
  char text[96] = "absent";
  if (stat(path, &st) == 0)
    (void)snprintf(text, sizeof text, "%lld.%09ld %lld", (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                   (long long)st.st_size);
  else if (errno != ENOENT && errno != ENOTDIR) {
    cli_say("run: --modtime %s: %s", path, strerror(errno));
    return false;
  }
  key_item(key, 'm', path);
  key_item(key, '@', text);
  return true;
}

/* ---- options --------------------------------------------------------------------------------------------- */

static const struct option longs[] = {
    {"key", required_argument, NULL, OPT_KEY},
    {"env", required_argument, NULL, OPT_ENV},
    {"cwd", no_argument, NULL, OPT_CWD},
    {"modtime", required_argument, NULL, OPT_MODTIME},
    {"ttl", required_argument, NULL, OPT_TTL},
    {"stale", required_argument, NULL, OPT_STALE},
    {"wait", required_argument, NULL, OPT_WAIT},
    {"compute", required_argument, NULL, OPT_COMPUTE},
    {"lease", required_argument, NULL, OPT_LEASE},
    {"cache-failures", required_argument, NULL, OPT_CACHE_FAILURES},
    {"force", no_argument, NULL, OPT_FORCE},
    {"away", required_argument, NULL, OPT_AWAY},
    {"fleet-max", required_argument, NULL, OPT_FLEET_MAX},
    {"origin", required_argument, NULL, OPT_ORIGIN},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

static bool name_key(run *r, const char *text) {
  r->named = true;
  r->key.size = 0;
  key_bytes(&r->key, text, strlen(text));
  if (r->key.size == 0) cli_say("run: --key: the empty key is not accepted: 1 to %d bytes are", KEY_ROOM);
  return r->key.size > 0;
}

/* Options that make the key. Context comes before the command in the key, in the order given. */
static bool key_option(run *r, int option) {
  static const char *const names[] = {[OPT_CWD - OPT_CWD] = "--cwd", [OPT_MODTIME - OPT_CWD] = "--modtime"};
  if (option == OPT_KEY) return name_key(r, optarg);
  r->context = option == OPT_ENV ? "--env" : names[option - OPT_CWD];
  if (r->named) return true;
  if (option == OPT_CWD) return key_cwd(&r->key);
  if (option == OPT_MODTIME) return key_modtime(&r->key, optarg);
  key_env(&r->key, optarg);
  return true;
}

static bool away(run *r, const char *text) {
  bool fail = strcmp(text, "fail") == 0;
  r->when_away = fail ? CORRAL_AWAY_ERROR : CORRAL_AWAY_COMPUTE;
  if (fail || strcmp(text, "run") == 0) return true;
  cli_say("run: --away: '%s' is not accepted: run or fail is", text);
  return false;
}

static bool set_option(run *r, int option) {
  switch (option) {
    case OPT_KEY:
    case OPT_ENV:
    case OPT_CWD:
    case OPT_MODTIME: return key_option(r, option);
    case OPT_TTL: return cli_duration("run: --ttl", optarg, 1, most_life_ms, &r->ttl_ms);
    case OPT_STALE: return cli_duration("run: --stale", optarg, 0, most_life_ms, &r->stale_ms);
    case OPT_WAIT: return cli_duration("run: --wait", optarg, 1, day_ms, &r->wait_ms);
    case OPT_COMPUTE: return cli_duration("run: --compute", optarg, 10, day_ms, &r->limit_ms);
    case OPT_LEASE: return cli_duration("run: --lease", optarg, 50, 3600000, &r->lease_ms);
    case OPT_CACHE_FAILURES: return cli_duration("run: --cache-failures", optarg, 0, day_ms, &r->failures_ms);
    case OPT_AWAY: return away(r, optarg);
    case OPT_FLEET_MAX: return cli_count("run: --fleet-max", optarg, 1, 256, &r->fleet_max);
    case OPT_ORIGIN: r->origin = optarg; return true;
    case OPT_FORCE: r->force = true; return true;
    default: return false;
  }
}

/* -1 to go on, else the exit status. */
static int parse(run *r, int argc, char **argv) {
  const cli_grammar grammar = {"run", "+:", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == OPT_HELP) {
      (void)fputs(cli_help("run"), stdout);
      return cli_finish(CLI_OK);
    }
    if (!set_option(r, option)) return CLI_FAILED;
  }
  r->command = argv + optind;
  if (r->command[0] == NULL)
    return cli_fail("run: no command given: corral run [OPTION]... -- CMD [ARGUMENT]... is accepted");
  if (r->named && r->context != NULL)
    return cli_fail("run: --key names the whole key: it can't be combined with %s", r->context);
  for (char **word = r->command; *word != NULL && !r->named; word++) key_item(&r->key, 'a', *word);
  if (r->key.size > KEY_ROOM)
    return cli_fail("run: the key has %zu bytes: at most %d are accepted (--key names a shorter one)", r->key.size,
                    KEY_ROOM);
  if (r->origin != NULL && r->fleet_max == 0)
    return cli_fail("run: --origin names what --fleet-max limits: give that too");
  if (r->wait_ms == 0) r->wait_ms = r->limit_ms;
  return -1;
}

/* ---- value ----------------------------------------------------------------------------------------------- */

typedef struct result {
  int exit_status;
  const char *out;
  uint64_t out_size;
  const char *err;
  uint64_t err_size;
} result;

static void put_number(unsigned char *at, uint64_t n, int bytes) {
  for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(n >> (8 * i));
}

static uint64_t take_number(const unsigned char *at, int bytes) {
  uint64_t n = 0;
  for (int i = 0; i < bytes; i++) n |= (uint64_t)at[i] << (8 * i);
  return n;
}

static bool take_result(const void *data, size_t size, result *ret) {
  const unsigned char *at = data;
  if (size < HEADER || memcmp(at, magic, sizeof magic) != 0 || take_number(at + 4, 4) != FORMAT) return false;
  uint64_t exit_status = take_number(at + 8, 4);
  uint64_t out_size = take_number(at + 12, 8);
  uint64_t err_size = take_number(at + 20, 8);
  uint64_t body = size - HEADER;
  if (exit_status > 255 || out_size > body || err_size != body - out_size) return false;
  const char *out = (const char *)data + HEADER;
  *ret = (result){(int)exit_status, out, out_size, out + out_size, err_size};
  return true;
}

/* `size` bytes from the start of a spool. */
static bool read_spool(int fd, unsigned char *to, uint64_t size) {
  for (uint64_t done = 0; done < size;) {
    ssize_t n = pread(fd, to + done, size - done, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += (uint64_t)n;
  }
  return true;
}

static bool fill_result(corral_fill *fill, const run_child *child) {
  uint64_t size = HEADER + child->size[0] + child->size[1];
  unsigned char *at = size <= most_value ? corral_fill_reserve(fill, size) : NULL;
  if (at == NULL) return false;
  memcpy(at, magic, sizeof magic);
  put_number(at + 4, FORMAT, 4);
  put_number(at + 8, (uint64_t)child->number, 4);
  put_number(at + 12, child->size[0], 8);
  put_number(at + 20, child->size[1], 8);
  return read_spool(child->spool[0], at + HEADER, child->size[0]) &&
         read_spool(child->spool[1], at + HEADER + child->size[0], child->size[1]);
}

/* ---- compute --------------------------------------------------------------------------------------------- */

static bool stop_wanted(void *arg) { return corral_should_stop(((run *)arg)->fill) != 0; }

/* Why a run left no value, for people and for the others: the text is cut at 63 bytes on its way to them. */
static int failure_of(const run *r, char *text, size_t size) {
  char limit[CLI_DURATION_TEXT];
  switch (r->child.how) {
    case RUN_EXITED:
      (void)snprintf(text, size, "the command failed with exit status %d", r->child.number);
      return r->child.number;
    case RUN_SIGNALLED:
      (void)snprintf(text, size, "the command was ended by signal %d (%s)", r->child.number,
                     strsignal(r->child.number));
      return CLI_SIGNAL + r->child.number;
    case RUN_NOT_STARTED:
      if (r->child.number == ENOENT)
        (void)snprintf(text, size, "command not found: %s", r->command[0]);
      else
        (void)snprintf(text, size, "can't execute %s: %s", r->command[0], strerror(r->child.number));
      return r->child.number == ENOENT ? CLI_NOCOMMAND : CLI_NOEXEC;
    case RUN_LIMIT:
      (void)snprintf(text, size, "killed: it ran longer than %s (--compute)", cli_duration_text(limit, r->limit_ms));
      return CLI_DEADLINE;
    case RUN_STOPPED:
      (void)snprintf(text, size, "killed: its lease was lost, or the key invalidated");
      return CLI_FAILED;
    default: (void)snprintf(text, size, "can't run it: %s", strerror(r->child.number)); return CLI_FAILED;
  }
}

/* A failing command's result lives for itself, unless an older good one can still serve. */
static void settle_exit(run *r, corral_fill *fill) {
  if (r->child.number != 0 && corral_fill_has_stale(fill)) {
    char text[96];
    int exit_status = failure_of(r, text, sizeof text);
    corral_fill_fail(fill, FAIL_CODE + exit_status, text);
    return;
  }
  if (r->child.number != 0)
    corral_fill_lives(fill, r->failures_ms > 0 ? r->failures_ms : CORRAL_OFF, CORRAL_OFF, CORRAL_OFF);
  if (!fill_result(fill, &r->child))
    corral_fill_fail(fill, FAIL_CODE + CLI_FAILED, "its output is too large to share (512 MiB)");
}

/* Dies of `signo` as if it had not been taken. The lease goes with the process: the next in line takes over. */
static void die_of(int signo) {
  sigset_t set;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, signo);
  (void)signal(signo, SIG_DFL);
  (void)raise(signo);
  (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  run *r = arg;
  (void)key;
  (void)key_len;
  run_child_close(&r->child);
  r->fill = fill;
  cli_nest(r->cli, r->key.bytes, r->key.size);
  run_child_do(&r->child, r->command, r->limit_ms, stop_wanted, r);
  r->fill = NULL;
  if (r->child.how == RUN_INTERRUPTED) die_of(r->child.number);
  if (r->child.how == RUN_EXITED) {
    settle_exit(r, fill);
    return CORRAL_OK;
  }
  char text[240];
  int exit_status = failure_of(r, text, sizeof text);
  corral_fill_fail(fill, FAIL_CODE + exit_status, text);
  return CORRAL_OK;
}

/* ---- answer ---------------------------------------------------------------------------------------------- */

static int lost_output(void) { return cli_fail("run: writing the output: %s", strerror(errno)); }

static bool copy_spool(int from, int to, uint64_t size) {
  static char chunk[COPY];
  for (uint64_t done = 0; done < size;) {
    ssize_t n = pread(from, chunk, sizeof chunk, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || !cli_write(to, chunk, (size_t)n)) return false;
    done += (uint64_t)n;
  }
  return true;
}

static void print_json(const run *r, const char *how, int64_t age_ms, int exit_status, uint64_t out, uint64_t err) {
  (void)fprintf(stderr, "{\"key\":");
  cli_json_string(stderr, r->key.bytes, r->key.size);
  (void)fprintf(stderr,
                ",\"how\":\"%s\",\"age_ms\":%lld,\"exit_status\":%d,\"stdout_bytes\":%llu,\"stderr_bytes\":%llu}\n",
                how, (long long)age_ms, exit_status, (unsigned long long)out, (unsigned long long)err);
}

/* What this process ran itself, when no value came of it. */
static int answer_own(const run *r) {
  const run_child *child = &r->child;
  bool ok = copy_spool(child->spool[0], STDOUT_FILENO, child->size[0]) &&
            copy_spool(child->spool[1], STDERR_FILENO, child->size[1]);
  if (!ok) return lost_output();
  if (r->cli->verbose) cli_say("run: computed, not shared: exit status %d", child->number);
  if (r->cli->json) print_json(r, "computed", 0, child->number, child->size[0], child->size[1]);
  return child->number;
}

static void notes(const run *r, const corral_value *value, const result *res) {
  char age[CLI_DURATION_TEXT];
  char text[240];
  corral_how how = corral_value_how(value);
  int64_t age_ms = corral_value_age_ms(value);
  (void)cli_duration_text(age, age_ms);
  if (how == CORRAL_STALE && r->child.how != RUN_NOT && !r->cli->quiet) {
    (void)failure_of(r, text, sizeof text);
    cli_say("run: %s: serving the result of %s ago", text, age);
  }
  if (r->cli->verbose)
    cli_say("run: %s, %s old, exit status %d, %llu bytes of stdout, %llu of stderr%s", corral_how_name(how), age,
            res->exit_status, (unsigned long long)res->out_size, (unsigned long long)res->err_size,
            corral_value_kept(value) == CORRAL_KEPT ? "" : ", not kept by the store");
  if (r->cli->json) print_json(r, corral_how_name(how), age_ms, res->exit_status, res->out_size, res->err_size);
}

static int answer_value(const run *r, const corral_value *value) {
  result res = {0};
  char text[CLI_KEY_TEXT];
  if (!take_result(corral_value_data(value), corral_value_size(value), &res))
    return cli_fail("run: %s: what is stored is no result of corral run: use another --key, or --force",
                    cli_key_text(text, r->key.bytes, r->key.size));
  if (!cli_write(STDOUT_FILENO, res.out, res.out_size) || !cli_write(STDERR_FILENO, res.err, res.err_size))
    return lost_output();
  notes(r, value, &res);
  return res.exit_status;
}

/* What messages call this run: its --key, or the command's words. */
static int report(const run *r, int status, const corral_error *error) {
  char words[2 * CLI_KEY_TEXT] = "";
  size_t used = 0;
  if (r->named) return cli_report(r->key.bytes, r->key.size, status, error);
  for (char **word = r->command; *word != NULL && used < sizeof words - 1; word++) {
    int n = snprintf(words + used, sizeof words - used, "%s%s", used > 0 ? " " : "", *word);
    used += n > 0 ? (size_t)n : 0;
  }
  return cli_report(words, strlen(words), status, error);
}

/* No value. The failure of a run carries its exit status, here and elsewhere. */
static int answer_failure(const run *r, int status, const corral_error *error) {
  char text[240];
  if (r->child.how == RUN_EXITED) return answer_own(r);
  if (r->child.how != RUN_NOT) {
    int exit_status = failure_of(r, text, sizeof text);
    return (void)cli_say("run: %s", text), exit_status;
  }
  int exit_status = report(r, status, error);
  if (status == CORRAL_EFAILED && error->code >= FAIL_CODE && error->code <= FAIL_CODE + 255)
    return error->code - FAIL_CODE;
  return exit_status == CLI_MISS ? CLI_FAILED : exit_status;
}

/* A run that lost its lease is killed; whoever has it now is asked, or the command runs again. */
static int ask(run *r, corral *c) {
  corral_error error = {0};
  corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = r->ttl_ms, .swr_ms = r->stale_ms, .sie_ms = r->stale_ms, .wait_ms = r->wait_ms,
                    .lease_ms = r->lease_ms, .when_away = r->when_away,
                    .compute_ms = r->limit_ms + LIMIT_SLACK < day_ms ? r->limit_ms + LIMIT_SLACK : day_ms,
                    .retry_ms = r->failures_ms > 0 ? r->failures_ms : CORRAL_OFF,
                    .retry_max_ms = r->failures_ms > 0 ? r->failures_ms : 1, .error = &error);
  corral_value *value = NULL;
  int status = CORRAL_OK;
  for (int i = 0; i < TAKEOVERS; i++) {
    status = corral_get_or_compute(c, r->key.bytes, r->key.size, policy, compute, r, &value);
    if (status == CORRAL_OK || r->child.how != RUN_STOPPED) break;
  }
  if (status != CORRAL_OK) return answer_failure(r, status, &error);
  bool too_large = corral_value_how(value) == CORRAL_STALE && r->child.how == RUN_EXITED && r->child.number == 0;
  int exit_status = too_large ? answer_own(r) : answer_value(r, value);
  corral_value_unref(value);
  return exit_status;
}

/* A store that is away has nothing to serve: the command runs anyway. */
static int forced(const run *r, corral *c) {
  corral_error error = {0};
  int status = corral_invalidate(c, r->key.bytes, r->key.size, &error);
  if (status == CORRAL_OK || status == CORRAL_EUNAVAILABLE) return CLI_OK;
  return report(r, status, &error);
}

static int nested(const run *r) {
  corral_error error = {0};
  (void)snprintf(error.text, sizeof error.text, "this run is part of the run of the same key, and would wait for itself");
  return report(r, CORRAL_ERECURSION, &error);
}

int cli_run(const cli_globals *cli, int argc, char **argv) {
  static run r;
  r = (run){.cli = cli, .ttl_ms = 60000, .limit_ms = 600000, .failures_ms = 1000, .child.spool = {-1, -1}};
  corral *c = NULL;
  int exit_status = parse(&r, argc, argv);
  if (exit_status >= 0) return exit_status;
  if (cli_nested(cli, r.key.bytes, r.key.size)) return nested(&r);
  corral_options options = {.size = sizeof options, .fleet_max_computes = r.fleet_max, .origin = r.origin};
  if (!cli_open(cli, true, &options, &c)) return CLI_FAILED;
  exit_status = r.force ? forced(&r, c) : CLI_OK;
  if (exit_status == CLI_OK) exit_status = ask(&r, c);
  corral_close(c);
  run_child_close(&r.child);
  return exit_status;
}
