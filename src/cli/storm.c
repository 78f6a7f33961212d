/* storm.c: corral storm: a herd of processes and threads asks for values that cost a real database
 * query.
 *
 * This file is the parent: options, temporary folder, shared memory, the start and end of the herd,
 * progress. It uses no corral itself. All that it made is removed when it returns, also after
 * SIGINT, SIGTERM and SIGHUP. */
#include "storm.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  OPT_PROCESSES = 256,
  OPT_THREADS,
  OPT_KEYS,
  OPT_ZIPF,
  OPT_TTL,
  OPT_STALE,
  OPT_RATE,
  OPT_LOAD
};
enum { OPT_DURATION = 512, OPT_MODE, OPT_KILL_LEADER, OPT_KILL_EVERY, OPT_HTML };

enum {
  STEP_MS = 5,
  PROGRESS_MS = 100,
  START_MS = 10000,
  FIRST_MS = 20, /* until the schedule begins: all threads wait for it by then */
  REST_MS = 60000,
  END_MS = 4000,
  WRONG = 1
};

static const int64_t most_life_ms = 315360000000;

const char *const storm_mode_names[STORM_MODES] = {"none", "corral"};

static volatile sig_atomic_t interrupted;

static void on_signal(int signo) { interrupted = signo; }

static void waiter(int64_t ms) {
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  (void)nanosleep(&t, NULL);
}

/* ---- options ------------------------------------------------------------------------------- */

static const struct option longs[] = {
    {"mode", required_argument, NULL, OPT_MODE},
    {"processes", required_argument, NULL, OPT_PROCESSES},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"keys", required_argument, NULL, OPT_KEYS},
    {"zipf", required_argument, NULL, OPT_ZIPF},
    {"ttl", required_argument, NULL, OPT_TTL},
    {"stale", required_argument, NULL, OPT_STALE},
    {"rate", required_argument, NULL, OPT_RATE},
    {"load", required_argument, NULL, OPT_LOAD},
    {"duration", required_argument, NULL, OPT_DURATION},
    {"kill-leader", no_argument, NULL, OPT_KILL_LEADER},
    {"kill-every", required_argument, NULL, OPT_KILL_EVERY},
    {"html", required_argument, NULL, OPT_HTML},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static bool set_mode(storm_options *o, const char *text) {
  int word = cli_word("storm", "mode", text); /* both, or one more than the mode */
  for (int i = 0; i < STORM_MODES; i++) o->modes[i] = word == 0 || word == i + 1;
  return word >= 0;
}

static bool set_option(storm_options *o, int option) {
  switch (option) {
    case OPT_MODE: return set_mode(o, optarg);
    case OPT_PROCESSES:
      return cli_count("storm: --processes", optarg, 1, STORM_PROCESSES, &o->processes);
    case OPT_THREADS: return cli_count("storm: --threads", optarg, 1, STORM_THREADS, &o->threads);
    case OPT_KEYS: return cli_count("storm: --keys", optarg, 1, STORM_KEYS, &o->keys);
    case OPT_ZIPF: return cli_real("storm: --zipf", optarg, 0, 10, &o->zipf);
    case OPT_TTL: return cli_duration("storm: --ttl", optarg, 1, most_life_ms, &o->ttl_ms);
    case OPT_STALE: return cli_duration("storm: --stale", optarg, 0, most_life_ms, &o->stale_ms);
    case OPT_RATE: return cli_count("storm: --rate", optarg, 1, 1000000, &o->rate);
    case OPT_LOAD: return cli_count("storm: --load", optarg, 1, 10000000, &o->load);
    case OPT_DURATION:
      return cli_duration("storm: --duration", optarg, 100, 3600000, &o->duration_ms);
    case OPT_KILL_EVERY:
      o->kill_leader = true;
      return cli_duration("storm: --kill-every", optarg, 10, 3600000, &o->kill_every_ms);
    case OPT_KILL_LEADER: o->kill_leader = true; return true;
    case OPT_HTML: o->html = optarg; return true;
    default: return false;
  }
}

/* -1: go on; else the exit status. */
static int parse(storm_options *o, int argc, char **argv) {
  const cli_grammar grammar = {"storm", ":h", longs};
  for (int option; (option = cli_option(&grammar, argc, argv)) != -1;) {
    if (option == 'h') {
      (void)fputs(cli_help("storm"), stdout);
      return cli_finish(CLI_OK);
    }
    if (!set_option(o, option)) return CLI_FAILED;
  }
  if (optind < argc)
    return cli_fail("storm: '%s' is one argument too many: only options are accepted",
                    argv[optind]);
  return -1;
}

/* ---- folder and memory --------------------------------------------------------------------- */

static bool make_folder(storm *s) {
  const char *base = getenv("TMPDIR");
  int n = snprintf(s->folder, sizeof s->folder, "%s/corral-storm-XXXXXX",
                   base != NULL && base[0] ? base : "/tmp");
  if (n < 0 || (size_t)n >= sizeof s->folder || mkdtemp(s->folder) == NULL) {
    cli_say("storm: a folder in TMPDIR: %s",
            n < 0 || (size_t)n >= sizeof s->folder ? "too long" : strerror(errno));
    s->folder[0] = '\0';
    return false;
  }
  (void)snprintf(s->database, sizeof s->database, "%s/origin.db", s->folder);
  if (s->cli->store_given)
    (void)snprintf(s->store, sizeof s->store, "%s", s->cli->store);
  else
    (void)snprintf(s->store, sizeof s->store, "lmdb:%s/store", s->folder);
  return true;
}

/* The shortest of 1, 2, 5, 10, 20, 50... ms that divides a duration into at most STORM_STEPS. */
static int64_t bucket_of(int64_t duration_ms) {
  static const int64_t rounds[] = {1, 2, 5};
  int64_t ten = 1;
  for (size_t i = 0;; i = (i + 1) % 3) {
    if (rounds[i] * ten * STORM_STEPS >= duration_ms) return rounds[i] * ten;
    if (i == 2) ten *= 10;
  }
}

static bool make_shared(storm *s) {
  s->shared_size = sizeof(storm_shared) + (size_t)s->options.keys * sizeof(atomic_uint);
  void *memory =
      mmap(NULL, s->shared_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    cli_say("storm: shared memory: %s", strerror(errno));
    return false;
  }
  s->shared = memory;
  s->shared->bucket_ms = bucket_of(s->options.duration_ms);
  return true;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where) {
  (void)st;
  (void)kind;
  (void)where;
  (void)remove(path);
  return 0;
}

static void clean_up(storm *s) {
  if (s->folder[0] != '\0') (void)nftw(s->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  if (s->shared != NULL) (void)munmap(s->shared, s->shared_size);
  storm_schedule_free(s);
  storm_page_drop(s);
}

/* ---- herd ---------------------------------------------------------------------------------- */

static bool give_birth(storm *s, storm_mode mode, storm_slot *slot) {
  atomic_store(&slot->computing, 0);
  atomic_store(&slot->ready, 0);
  pid_t pid = fork();
  if (pid == 0) storm_herd(s, mode, slot);
  if (pid < 0) cli_say("storm: fork: %s", strerror(errno));
  slot->pid = pid;
  return pid > 0;
}

/* False when a process of the herd has ended, except by kill_leader. */
static bool all_live(storm *s) {
  for (int64_t i = 0; i < s->options.processes; i++) {
    storm_slot *slot = &s->shared->slots[i];
    int status = 0;
    if (slot->pid <= 0 || waitpid(slot->pid, &status, WNOHANG) == 0) continue;
    slot->pid = 0;
    if (WIFSIGNALED(status))
      cli_say("storm: a process of the herd was ended by signal %d", WTERMSIG(status));
    return false;
  }
  return true;
}

static bool all_ready(const storm *s) {
  for (int64_t i = 0; i < s->options.processes; i++)
    if (atomic_load(&s->shared->slots[i].ready) == 0) return false;
  return true;
}

static bool start_herd(storm *s, storm_mode mode) {
  for (int64_t i = 0; i < s->options.processes; i++) {
    atomic_store(&s->shared->slots[i].next, 0);
    if (!give_birth(s, mode, &s->shared->slots[i])) return false;
  }
  for (int64_t end = cli_now_ms() + START_MS; !all_ready(s) && !interrupted; waiter(1)) {
    if (!all_live(s)) return false;
    if (cli_now_ms() > end) {
      cli_say("storm: the herd did not start within 10s");
      return false;
    }
  }
  return true;
}

static void end_herd(storm *s) {
  atomic_store(&s->shared->stop, 1);
  int64_t end = cli_now_ms() + END_MS;
  for (int64_t i = 0; i < s->options.processes; i++) {
    storm_slot *slot = &s->shared->slots[i];
    while (slot->pid > 0 && waitpid(slot->pid, NULL, WNOHANG) == 0) {
      if (cli_now_ms() > end) (void)kill(slot->pid, SIGKILL);
      waiter(STEP_MS);
    }
    slot->pid = 0;
  }
}

/* Kills a process that is inside a query, if there is one, and starts another in its place. That
 * one takes the requests again that the killed one had not answered: their wait goes on. */
static bool kill_leader(storm *s, storm_mode mode) {
  for (int64_t i = 0; i < s->options.processes; i++) {
    storm_slot *slot = &s->shared->slots[i];
    if (atomic_load(&slot->computing) <= 0) continue;
    atomic_store(&s->shared->killed_ns, cli_now_ns());
    (void)kill(slot->pid, SIGKILL);
    (void)waitpid(slot->pid, NULL, 0);
    slot->pid = 0;
    (void)atomic_fetch_add(&s->shared->results[mode].kills, 1);
    atomic_store(&slot->next, 0);
    (void)give_birth(s, mode, slot);
    return true;
  }
  return false;
}

/* ---- one mode ------------------------------------------------------------------------------ */

static void show_progress(const storm *s, storm_mode mode, int64_t ms, bool last) {
  const storm_result *r = &s->shared->results[mode];
  bool terminal = isatty(STDERR_FILENO) != 0;
  if (s->cli->quiet || (!terminal && !last)) return;
  char line[160];
  int n = snprintf(line, sizeof line,
                   "%s%-6s %5.1f s  %llu requests, %llu computes, %.1f s in the database%s",
                   terminal ? "\r\033[K" : "corral: storm: ", storm_mode_names[mode],
                   (double)ms / 1000, atomic_load(&r->requests), atomic_load(&r->computes),
                   (double)atomic_load(&r->database_us) / 1e6, last ? "\n" : "");
  if (n > 0)
    (void)cli_write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* True when each request of the schedule has its answer. *seen, 0 at first: so many had it. */
static bool all_answered(const storm *s, storm_mode mode, size_t *seen) {
  while (*seen < s->due_count && atomic_load(&s->answered[mode][*seen]) != 0) (*seen)++;
  return *seen == s->due_count;
}

/* Requests that are late at the end of the schedule are waited for: at most twice as long as it
 * was, or REST_MS. False when a process of the herd failed. */
static bool watch_herd(storm *s, storm_mode mode) {
  const storm_options *o = &s->options;
  storm_result *r = &s->shared->results[mode];
  int64_t begin = cli_now_ms() + FIRST_MS;
  int64_t due_end = begin + o->duration_ms;
  int64_t end = due_end + (2 * o->duration_ms < REST_MS ? 2 * o->duration_ms : REST_MS);
  int64_t next_progress = begin;
  int64_t next_kill = begin + o->kill_every_ms;
  int64_t noted_ns = cli_now_ns();
  size_t seen = 0;
  bool ok = true;
  atomic_store(&s->shared->start_ns, cli_now_ns() + FIRST_MS * 1000000);
  atomic_store(&s->shared->go, 1);
  for (int64_t now = begin; ok && !interrupted && now < end; now = cli_now_ms()) {
    if (now >= due_end && all_answered(s, mode, &seen)) break;
    if (now >= next_progress) {
      show_progress(s, mode, now - begin, false);
      next_progress = now + PROGRESS_MS;
    }
    if (o->kill_leader && now >= next_kill && now < due_end && kill_leader(s, mode))
      next_kill = now + o->kill_every_ms;
    storm_note_computing(s->shared, r, &noted_ns);
    ok = all_live(s);
    waiter(STEP_MS);
  }
  r->ran_ms = cli_now_ms() - begin;
  return ok;
}

static bool run_mode(storm *s, storm_mode mode) {
  atomic_store(&s->shared->go, 0);
  atomic_store(&s->shared->stop, 0);
  atomic_store(&s->shared->killed_ns, 0);
  bool ok = start_herd(s, mode) && watch_herd(s, mode);
  end_herd(s);
  ok = storm_result_end(s, mode) && ok;
  show_progress(s, mode, s->shared->results[mode].ran_ms, true);
  return ok;
}

static void introduce(const storm *s) {
  if (s->cli->quiet) return;
  const storm_options *o = &s->options;
  cli_note("storm: one query alone takes %.0f ms (%lld rows)", (double)s->query_us / 1000,
           (long long)o->load);
  cli_note("storm: %lld processes x %lld threads, %lld requests/s, %lld key%s, ttl %.1f s",
           (long long)o->processes, (long long)o->threads, (long long)o->rate, (long long)o->keys,
           o->keys == 1 ? "" : "s", (double)o->ttl_ms / 1000);
}

static int run_modes(storm *s) {
  if (!storm_db_make(s)) return CLI_FAILED;
  introduce(s);
  unsigned long long wrong = 0;
  for (storm_mode mode = 0; mode < STORM_MODES && !interrupted; mode++) {
    if (s->options.modes[mode] && !run_mode(s, mode)) return CLI_FAILED;
    wrong += atomic_load(&s->shared->results[mode].wrong);
  }
  bool written = s->options.html == NULL || interrupted || storm_page_write(s);
  if (s->cli->json)
    storm_report_json(s);
  else
    storm_report(s);
  return cli_finish(!written ? CLI_FAILED : wrong > 0 ? WRONG : CLI_OK);
}

int cli_storm(const cli_globals *cli, int argc, char **argv) {
  static storm s;
  s = (storm){.cli = cli, .argc = argc, .argv = argv};
  s.options = (storm_options){.modes = {true, true},
                              .processes = 4,
                              .threads = 25,
                              .keys = 1,
                              .zipf = 1,
                              .ttl_ms = 2000,
                              .rate = 2000,
                              .duration_ms = 8000,
                              .kill_every_ms = 1000};
  int exit_status = parse(&s.options, argc, argv);
  if (exit_status >= 0) return exit_status;
  struct sigaction action = {.sa_handler = on_signal};
  (void)sigaction(SIGINT, &action, NULL);
  (void)sigaction(SIGTERM, &action, NULL);
  (void)sigaction(SIGHUP, &action, NULL);
  bool made = storm_page_open(&s) && make_folder(&s) && make_shared(&s) && storm_schedule_make(&s);
  exit_status = made ? run_modes(&s) : CLI_FAILED;
  clean_up(&s);
  return interrupted ? CLI_SIGNAL + (int)interrupted : exit_status;
}
