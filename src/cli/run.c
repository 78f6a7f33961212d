/* run.c: corral run: runs a command at most once for all callers that ask for it now.
 *
 * A run that leaves no value is a failure for the other callers; its code holds the exit status
 * that each of them returns. */
#include "run.h"
#include "run_child.h"
#include "run_wait.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
  COPY = 65536,
  TAKEOVERS = 3, /* runs at most, while each one loses its lease */
  LIMIT_SLACK = RUN_LIMIT_SLACK,
  FAIL_CODE = RUN_FAIL_CODE
};

/* The state of one `corral run`. */
typedef struct run {
  const cli_globals *cli;
  corral *corral;
  run_options want;
  run_child child;   /* the run of this process; how is RUN_NOT if there was none */
  corral_fill *fill; /* while the command runs */
  bool lent;         /* the command got the old result */
  bool unmodified;   /* and the command said that it still holds */
  bool heeds_pipe;   /* SIGPIPE isn't ignored by whoever started this process */
} run;

/* ---- compute ------------------------------------------------------------------------------- */

/* Without --if-lost kill a run whose lease was lost goes on: its caller gets the output. */
static bool stop_wanted(void *arg) {
  const run *r = arg;
  return r->want.kills_lost && corral_fill_should_stop(r->fill) != 0;
}

int run_failure_text(const run_child *child, const char *command, int64_t limit_ms, char *text,
                     size_t size) {
  char limit[CLI_DURATION_TEXT];
  switch (child->how) {
    case RUN_EXITED:
      (void)snprintf(text, size, "the command failed with exit status %d", child->number);
      return child->number;
    case RUN_SIGNALLED:
      (void)snprintf(text, size, "the command was ended by signal %d (%s)", child->number,
                     strsignal(child->number));
      return CLI_SIGNAL + child->number;
    case RUN_NOT_STARTED:
      if (child->number == ENOENT)
        (void)snprintf(text, size, "command not found: %s", command);
      else
        (void)snprintf(text, size, "can't execute %s: %s", command, strerror(child->number));
      return child->number == ENOENT ? CLI_NOCOMMAND : CLI_NOEXEC;
    case RUN_LIMIT:
      (void)snprintf(text, size, "killed: it ran longer than %s (--compute)",
                     cli_duration_text(limit, limit_ms));
      return CLI_DEADLINE;
    case RUN_STOPPED:
      (void)snprintf(text, size, "killed: its lease was lost, or the key invalidated");
      return CLI_FAILED;
    default:
      (void)snprintf(text, size, "can't run it: %s", strerror(child->number));
      return CLI_FAILED;
  }
}

static int failure_of(const run *r, char *text, size_t size) {
  return run_failure_text(&r->child, r->want.command[0], r->want.limit_ms, text, size);
}

/* Sets tags and version. A failing command's result has them, too: whatever invalidates a value
 * invalidates that result. */
static bool mark_fill(const run *r, corral_fill *fill) {
  int status = CORRAL_OK;
  for (size_t i = 0; i < r->want.tag_count && status == CORRAL_OK; i++)
    status = corral_fill_tag(fill, r->want.tags[i], strlen(r->want.tags[i]));
  if (r->want.version > 0) corral_fill_version(fill, (uint64_t)r->want.version);
  return status == CORRAL_OK;
}

static bool is_unmodified(const run *r, corral_fill *fill) {
  return r->lent && r->child.number == r->want.unmodified_exit &&
         corral_fill_not_modified(fill) == CORRAL_OK;
}

/* True when the run counts as a failure, since an older good result can still serve. Else a failing
 * command's result is stored, with a life of its own. */
static bool fails_over(run *r, corral_fill *fill) {
  char text[96];
  if (r->child.number == 0) return false;
  if (!corral_fill_has_stale(fill)) {
    corral_fill_lives(fill, r->want.failures_ms > 0 ? r->want.failures_ms : CORRAL_OFF, CORRAL_OFF,
                      CORRAL_OFF);
    return false;
  }
  int exit_status = failure_of(r, text, sizeof text);
  corral_fill_fail(fill, FAIL_CODE + exit_status, text);
  return true;
}

/* 0 is no value of --pass-exit or --unmodified-exit: they are from 1. */
static void settle_exit(run *r, corral_fill *fill) {
  bool passes = r->child.number != 0 && r->child.number == r->want.pass_exit;
  if (!mark_fill(r, fill)) {
    corral_fill_fail(fill, FAIL_CODE + CLI_FAILED, "out of memory");
    return;
  }
  r->unmodified = is_unmodified(r, fill);
  if (r->unmodified) return;
  if (passes)
    corral_fill_pass(fill);
  else if (fails_over(r, fill))
    return;
  if (!run_fill_result(fill, &r->child))
    corral_fill_fail(fill, FAIL_CODE + CLI_FAILED, "its output is too large to share (512 MiB)");
}

/* The old result's standard output, in a file for the command, which may find it unchanged; -1:
 * none. */
static int lend_old(const run *r, const corral_fill *fill) {
  run_result old = {0};
  size_t size = 0;
  const void *data = corral_fill_old(fill, &size);
  if (r->want.unmodified_exit == 0 || data == NULL || !run_take_result(data, size, &old) ||
      old.exit_status != 0)
    return -1;
  int fd = run_child_file();
  if (fd < 0 || (cli_write(fd, old.out, old.out_size) && lseek(fd, 0, SEEK_SET) == 0)) return fd;
  (void)close(fd);
  return -1;
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  run *r = arg;
  (void)key;
  (void)key_len;
  run_child_close(&r->child);
  r->fill = fill;
  cli_nest(r->cli, r->want.key.bytes, r->want.key.size);
  int old = lend_old(r, fill);
  r->lent = old >= 0;
  run_child_do(&r->child, &(run_child_job){.argv = r->want.command,
                                           .lent = old,
                                           .limit_ms = r->want.limit_ms,
                                           .live = {r->want.live[0], r->want.live[1]},
                                           .heeds_pipe = r->heeds_pipe,
                                           .should_stop = stop_wanted,
                                           .arg = r});
  if (old >= 0) (void)close(old);
  r->fill = NULL;
  /* The lease ends with the process: the next caller takes over. */
  if (r->child.how == RUN_INTERRUPTED) cli_die_of(r->child.number);
  if (r->child.how == RUN_EXITED) {
    settle_exit(r, fill);
    return CORRAL_OK;
  }
  char text[240];
  int exit_status = failure_of(r, text, sizeof text);
  corral_fill_fail(fill, FAIL_CODE + exit_status, text);
  return CORRAL_OK;
}

/* ---- answer -------------------------------------------------------------------------------- */

/* A reader that went away ends this process as it would have ended the command. */
static int lost_output(const run *r) {
  int code = errno;
  if (code == EPIPE && r->heeds_pipe) cli_die_of(SIGPIPE);
  return cli_fail("run: writing the output: %s", strerror(code));
}

static bool copy_spool(int from, int to, uint64_t done, uint64_t size) {
  static char chunk[COPY];
  while (done < size) {
    ssize_t n = pread(from, chunk, sizeof chunk, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || !cli_write(to, chunk, (size_t)n)) return false;
    done += (uint64_t)n;
  }
  return true;
}

static void print_json(const run *r, const char *how, int64_t age_ms, int exit_status, uint64_t out,
                       uint64_t err) {
  (void)fprintf(stderr, "{\"key\":");
  cli_json_string(stderr, r->want.key.bytes, r->want.key.size);
  (void)fprintf(stderr,
                ",\"how\":\"%s\",\"age_ms\":%lld,\"exit_status\":%d,\"stdout_bytes\":%llu,\"stderr_"
                "bytes\":%llu}\n",
                how, (long long)age_ms, exit_status, (unsigned long long)out,
                (unsigned long long)err);
}

/* Prints what the run of this process has printed, but for what was shown while it ran. */
static bool print_own(const run_child *child) {
  return copy_spool(child->spool[0], STDOUT_FILENO, child->shown[0], child->size[0]) &&
         copy_spool(child->spool[1], STDERR_FILENO, child->shown[1], child->size[1]);
}

/* Answers with the run of this process, which left no value. */
static int answer_own(const run *r) {
  const run_child *child = &r->child;
  if (!print_own(child)) return lost_output(r);
  if (r->cli->verbose) cli_note("run: computed, not shared: exit status %d", child->number);
  if (r->cli->json) print_json(r, "computed", 0, child->number, child->size[0], child->size[1]);
  return child->number;
}

static const char *kept_text(const corral_value *value) {
  switch (corral_value_kept(value)) {
    case CORRAL_KEPT: return "";
    case CORRAL_KEPT_OLDER: return ", not kept: what is stored has a later version";
    default: return ", not kept by the store";
  }
}

/* The order that this process follows. */
static corral_control_state followed(const run *r) {
  corral_control_state order = {.size = sizeof order};
  (void)corral_control_followed(r->corral, &order);
  return order;
}

static void say_stale(const run *r, const corral_value *value) {
  char age[CLI_DURATION_TEXT];
  char text[240] = "an operator's order is in force, freeze";
  if (corral_value_how(value) != CORRAL_STALE || r->cli->quiet) return;
  if (r->child.how == RUN_NOT && followed(r).verb != CORRAL_CONTROL_FREEZE) return;
  if (r->child.how != RUN_NOT) (void)failure_of(r, text, sizeof text);
  cli_note("run: %s: serving the result of %s ago", text,
           cli_duration_text(age, corral_value_age_ms(value)));
}

static void notes(const run *r, const corral_value *value, const run_result *res) {
  char age[CLI_DURATION_TEXT];
  corral_how how = corral_value_how(value);
  int64_t age_ms = corral_value_age_ms(value);
  (void)cli_duration_text(age, age_ms);
  if (r->cli->verbose)
    cli_note("run: %s, %s old, exit status %d, %llu bytes of stdout, %llu of stderr%s",
             corral_how_name(how), age, res->exit_status, (unsigned long long)res->out_size,
             (unsigned long long)res->err_size, kept_text(value));
  if (r->cli->json)
    print_json(r, corral_how_name(how), age_ms, res->exit_status, res->out_size, res->err_size);
}

static bool print_result(const run *r, const corral_value *value, const run_result *res) {
  if (corral_value_how(value) == CORRAL_COMPUTED && r->child.how == RUN_EXITED && !r->unmodified)
    return print_own(&r->child);
  return cli_write(STDOUT_FILENO, res->out, res->out_size) &&
         cli_write(STDERR_FILENO, res->err, res->err_size);
}

static int answer_value(const run *r, const corral_value *value) {
  run_result res = {0};
  char text[CLI_KEY_TEXT];
  if (!run_take_result(corral_value_data(value), corral_value_size(value), &res))
    return cli_fail(
        "run: %s: what is stored is no result of corral run: use another --key, or --force",
        cli_key_text(text, r->want.key.bytes, r->want.key.size));
  say_stale(r, value);
  if (!print_result(r, value, &res)) return lost_output(r);
  notes(r, value, &res);
  return res.exit_status;
}

/* Messages name the run by its --key, or by the command's words. */
static int report(const run *r, int status, const corral_error *error) {
  char name[RUN_KEY_TEXT];
  return cli_report_as(run_key_text(&r->want.key, r->want.command, name), status, error);
}

/* The order that this process follows keeps the command from being run. */
static int answer_frozen(const run *r, const char *before) {
  char text[CLI_ORDER_TEXT];
  corral_error error = {0};
  corral_control_state order = followed(r);
  (void)snprintf(error.text, sizeof error.text, "%san operator's order is in force: %s", before,
                 cli_order_text(text, &order));
  return report(r, CORRAL_EFROZEN, &error);
}

/* Answers without a value. The failure of another caller's run carries its exit status. */
static int answer_failure(const run *r, int status, const corral_error *error) {
  char text[240];
  if (r->child.how == RUN_EXITED) return answer_own(r);
  if (status == CORRAL_EFROZEN) return answer_frozen(r, "not in the store, and ");
  if (r->child.how != RUN_NOT) {
    int exit_status = failure_of(r, text, sizeof text);
    return (void)cli_say("run: %s", text), exit_status;
  }
  int exit_status = report(r, status, error);
  if (status == CORRAL_EFAILED && error->code >= FAIL_CODE && error->code <= FAIL_CODE + 255)
    return error->code - FAIL_CODE;
  return exit_status == CLI_MISS ? CLI_FAILED : exit_status;
}

/* With --if-lost kill a run that lost its lease was killed: the next try waits for the new holder,
 * or runs the command again. */
static int ask(run *r) {
  char name[RUN_KEY_TEXT];
  corral_error error = {0};
  run_wait wait = {.corral = r->corral,
                   .key = &r->want.key,
                   .name = run_key_text(&r->want.key, r->want.command, name),
                   .at_once = r->cli->verbose};
  if (cli_tells_waits(r->cli)) run_wait_begin(&wait);
  const corral_policy *policy = &r->want.policy;
  corral_value *value = NULL;
  int status = CORRAL_OK;
  for (int i = 0; i < TAKEOVERS; i++) {
    status =
        corral_get_or_compute(r->corral, r->want.key.bytes, r->want.key.size,
                              CORRAL_CALL(.policy = policy, .error = &error), compute, r, &value);
    if (status == CORRAL_OK || r->child.how != RUN_STOPPED) break;
  }
  run_wait_end(&wait);
  if (status != CORRAL_OK) return answer_failure(r, status, &error);
  bool too_large =
      corral_value_how(value) == CORRAL_STALE && r->child.how == RUN_EXITED && r->child.number == 0;
  int exit_status = too_large ? answer_own(r) : answer_value(r, value);
  corral_value_unref(value);
  return exit_status;
}

/* A store that is away has nothing to serve: the command runs anyway. While nothing may be run,
 * what is stored stays. */
static int forced(const run *r) {
  corral_error error = {0};
  corral_control_state order = {.size = sizeof order};
  if (r->want.options.control > 0 && corral_control_read(r->corral, &order, NULL) == CORRAL_OK &&
      order.verb == CORRAL_CONTROL_FREEZE)
    return answer_frozen(r, "--force: ");
  int status = corral_invalidate(r->corral, r->want.key.bytes, r->want.key.size,
                                 CORRAL_CALL(.error = &error));
  if (status == CORRAL_OK || status == CORRAL_EUNAVAILABLE) return CLI_OK;
  return report(r, status, &error);
}

static int nested(const run *r) {
  corral_error error = {0};
  (void)snprintf(error.text, sizeof error.text,
                 "this run is part of the run of the same key, and would wait for itself");
  return report(r, CORRAL_ERECURSION, &error);
}

static const char no_store[] =
    "no store: neither CORRAL_STORE, CACHE_DIRECTORY, XDG_CACHE_HOME, HOME nor this user's entry "
    "in /etc/passwd names a folder";

/* A reader of live output that goes away doesn't end a run that others wait for. */
static void heed_pipe(run *r) {
  struct sigaction old;
  r->heeds_pipe = (r->want.live[0] || r->want.live[1]) && sigaction(SIGPIPE, NULL, &old) == 0 &&
                  old.sa_handler == SIG_DFL;
  if (r->heeds_pipe) (void)signal(SIGPIPE, SIG_IGN);
}

int cli_run(const cli_globals *cli, int argc, char **argv) {
  static run r;
  r = (run){.cli = cli, .child.spool = {-1, -1}};
  int exit_status = run_options_parse(&r.want, argc, argv);
  if (exit_status >= 0) return exit_status;
  if (cli->control) r.want.options.control = 1;
  if (cli_nested(cli, r.want.key.bytes, r.want.key.size)) return nested(&r);
  if (cli->is_nowhere && r.want.policy.when_away == CORRAL_AWAY_ERROR)
    return cli_fail("%s, and --away error forbids to go on without one", no_store);
  if (cli->is_nowhere && !cli->quiet)
    cli_note("%s: going on without one: the result is not shared", no_store);
  if (!cli_open(cli, true, &r.want.options, &r.corral)) return CLI_FAILED;
  heed_pipe(&r);
  exit_status = r.want.force ? forced(&r) : CLI_OK;
  if (exit_status == CLI_OK) exit_status = ask(&r);
  corral_close(r.corral);
  run_child_close(&r.child);
  return exit_status;
}
