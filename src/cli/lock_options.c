/* lock_options.c: the command line of corral lock. */
#include "lock.h"

#include <string.h>

enum { NOTE_MOST = 40, GRACE_MS = 2000 };

static const int64_t day_ms = 86400000;

enum {
  OPT_NOTE = 256,
  OPT_GRACE,
  OPT_LOST_EXIT,
  OPT_SHOW,
  OPT_TAKE,
  OPT_CHECK,
  OPT_RELEASE,
  OPT_PID,
  OPT_LOST_SIGNAL,
  OPT_FENCE,
  OPT_BREAK,
  OPT_YES,
  OPT_LIST,
  OPT_WATCH,
  OPT_WARN,
  OPT_FENCE_STORE,
  OPT_ADOPT,
  OPT_TICKET,
  OPT_LEAVE
};

static const struct option longs[] = {
    {"no-wait", no_argument, NULL, 'n'},
    {"note", required_argument, NULL, OPT_NOTE},
    {"grace", required_argument, NULL, OPT_GRACE},
    {"conflict-exit", required_argument, NULL, 'E'},
    {"lost-exit", required_argument, NULL, OPT_LOST_EXIT},
    {"show", no_argument, NULL, OPT_SHOW},
    {"take", no_argument, NULL, OPT_TAKE},
    {"check", no_argument, NULL, OPT_CHECK},
    {"release", no_argument, NULL, OPT_RELEASE},
    {"pid", required_argument, NULL, OPT_PID},
    {"lost-signal", required_argument, NULL, OPT_LOST_SIGNAL},
    {"fence", no_argument, NULL, OPT_FENCE},
    {"break", no_argument, NULL, OPT_BREAK},
    {"yes", no_argument, NULL, OPT_YES},
    {"list", no_argument, NULL, OPT_LIST},
    {"watch", no_argument, NULL, OPT_WATCH},
    {"warn", required_argument, NULL, OPT_WARN},
    {"fence-store", required_argument, NULL, OPT_FENCE_STORE},
    {"adopt", required_argument, NULL, OPT_ADOPT},
    {"ticket", no_argument, NULL, OPT_TICKET},
    {"leave", no_argument, NULL, OPT_LEAVE},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static bool set_note(lock_options *o) {
  size_t len = strlen(optarg);
  o->note = optarg;
  if (len > NOTE_MOST)
    cli_say("lock: --note: a note of %zu bytes is not accepted: 0 to %d are", len, NOTE_MOST);
  return len <= NOTE_MOST;
}

static bool set_verb(lock_options *o, lock_verb verb) {
  o->verb = verb;
  o->verbs++;
  return true;
}

static bool set_signal(lock_options *o) {
  static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGUSR1, SIGUSR2, SIGTERM};
  int word = cli_word("lock", "lost-signal", strncmp(optarg, "SIG", 3) == 0 ? optarg + 3 : optarg);
  if (word >= 0) o->lost_signal = numbers[word];
  return word >= 0;
}

static bool set_option(lock_options *o, int option) {
  const cli_flags flags = {.subcommand = "lock", .lock = &o->lock};
  switch (option) {
    case 'w': return cli_flag_set(&flags, cli_flag_of("lock", "wait"), optarg);
    case 's': return cli_flag_set(&flags, cli_flag_of("lock", "shared"), NULL);
    case 'n': o->lock.wait_ms = CORRAL_OFF; return true;
    case OPT_NOTE: return set_note(o);
    case OPT_GRACE: return cli_duration("lock: --grace", optarg, 0, day_ms, &o->grace_ms);
    case OPT_WARN: return cli_duration("lock: --warn", optarg, 1, day_ms, &o->warn_ms);
    case 'E': return cli_count("lock: --conflict-exit", optarg, 0, 255, &o->conflict_exit);
    case OPT_LOST_EXIT: return cli_count("lock: --lost-exit", optarg, 0, 255, &o->lost_exit);
    case OPT_SHOW: return set_verb(o, LOCK_SHOW);
    case OPT_TAKE: return set_verb(o, LOCK_TAKE);
    case OPT_CHECK: return set_verb(o, LOCK_CHECK);
    case OPT_RELEASE: return set_verb(o, LOCK_RELEASE);
    case OPT_PID: return cli_count("lock: --pid", optarg, 1, INT32_MAX, &o->pid);
    case OPT_LOST_SIGNAL: return set_signal(o);
    case OPT_FENCE: o->fence = true; return true;
    case OPT_BREAK: return set_verb(o, LOCK_BREAK);
    case OPT_YES: o->yes = true; return true;
    case OPT_LIST: return set_verb(o, LOCK_LIST);
    case OPT_WATCH: return set_verb(o, LOCK_WATCH);
    case OPT_FENCE_STORE: o->fence_store = optarg; return true;
    case OPT_ADOPT: o->lock.adopt = optarg; return true;
    case OPT_TICKET: o->ticket = true; return true;
    case OPT_LEAVE: o->leave = true; return true;
    default: return cli_flag_set(&flags, option, optarg);
  }
}

/* The command may have to end so soon. */
static int64_t least_end(const lock_options *o) {
  return o->ttl_ms < o->max_ms ? o->ttl_ms : o->max_ms;
}

/* Sets what follows from other options. */
static void complete(lock_options *o) {
  o->ttl_ms = o->lock.ttl_ms != 0 ? o->lock.ttl_ms : cli_flag_default("lock", "ttl");
  if (o->lock.adopt != NULL) o->lock.wait_ms = CORRAL_OFF;
  o->wait_ms = o->lock.wait_ms;
  o->max_ms = o->lock.max_ms > 0 ? o->lock.max_ms : INT64_MAX;
  o->lock.keep = 1;
  int64_t quarter = least_end(o) / 4;
  if (o->grace_ms < 0) o->grace_ms = quarter < GRACE_MS ? quarter : GRACE_MS;
}

/* True when the options are for what is to be done. */
static bool check_verb(const lock_options *o) {
  static const char *const verb_names[] = {
      [LOCK_RUN] = "",        [LOCK_SHOW] = "show",       [LOCK_TAKE] = "take",
      [LOCK_CHECK] = "check", [LOCK_RELEASE] = "release", [LOCK_BREAK] = "break",
      [LOCK_LIST] = "list",   [LOCK_WATCH] = "watch"};
  bool of_script = o->verb == LOCK_TAKE || o->verb == LOCK_CHECK || o->verb == LOCK_RELEASE;
  if (o->verbs > 1)
    cli_say(
        "lock: one of --take, --check, --release, --show, --list, --watch and --break is accepted");
  else if (o->verb == LOCK_RUN && o->command[0] == NULL)
    cli_say(
        "lock: no command given: corral lock [OPTION]... NAME -- CMD [ARGUMENT]... is accepted");
  else if (o->verb != LOCK_RUN && o->command[0] != NULL)
    cli_say("lock: --%s takes one NAME and no command: '%.100s' is one argument too many",
            verb_names[o->verb], o->command[0]);
  else if (o->pid != 0 && !of_script)
    cli_say("lock: --pid names a script: --take, --check or --release is accepted with it");
  else if (o->lost_signal != 0 && o->verb != LOCK_TAKE)
    cli_say("lock: --lost-signal is for a script: --take is accepted with it");
  else if (o->fence && o->verb != LOCK_TAKE && o->verb != LOCK_CHECK)
    cli_say("lock: --fence is for a script: --take or --check is accepted with it");
  else if (o->yes && o->verb != LOCK_BREAK)
    cli_say("lock: --yes answers a question: --break is accepted with it");
  else if (o->warn_ms != 0 && o->verb != LOCK_RUN)
    cli_say("lock: --warn is for a command: one is accepted with it");
  else if (o->lock.adopt != NULL && o->verb != LOCK_RUN && o->verb != LOCK_TAKE)
    cli_say("lock: --adopt takes a lock over: a command, or --take, is accepted with it");
  else if (o->fence_store != NULL && o->verb != LOCK_RUN && o->verb != LOCK_TAKE)
    cli_say("lock: --fence-store is for taking: a command, or --take, is accepted with it");
  else if ((o->ticket || o->leave) && o->verb != LOCK_RUN)
    cli_say("lock: --%s is for a command: one is accepted with it", o->leave ? "leave" : "ticket");
  else
    return true;
  return false;
}

static bool check(lock_options *o) {
  char least[CLI_DURATION_TEXT];
  char most[CLI_DURATION_TEXT];
  size_t len = o->name != NULL ? strlen(o->name) : 0;
  complete(o);
  if (o->name == NULL && o->verb != LOCK_LIST)
    cli_say("lock: no NAME given: corral lock [OPTION]... NAME -- CMD [ARGUMENT]..., or corral "
            "lock --take, --check, --release, --show, --watch or --break NAME, is accepted");
  else if ((len < 1 && o->verb != LOCK_LIST) || len > LOCK_NAME_MOST)
    cli_say("lock: a NAME of %zu bytes is not accepted: 1 to %d are", len, LOCK_NAME_MOST);
  else if (!check_verb(o))
    return false;
  else if (o->lock.shared > 0 && o->lock.permits > 0)
    cli_say("lock: --permits can't be combined with --shared: one of them is accepted");
  else if (o->grace_ms > least_end(o) / 2 || o->warn_ms > least_end(o) / 2)
    cli_say("lock: --%s: too long for a --%s of %s: accepted is 0 to half of that, %s",
            o->grace_ms > least_end(o) / 2 ? "grace" : "warn",
            o->max_ms < o->ttl_ms ? "max" : "ttl", cli_duration_text(least, least_end(o)),
            cli_duration_text(most, least_end(o) / 2));
  else
    return true;
  return false;
}

/* -1: go on; else the exit status. Options may stand before and after NAME. */
int lock_options_parse(lock_options *o, int argc, char **argv) {
  const cli_grammar grammar = {"lock", "+:snw:E:h", longs};
  *o = (lock_options){
      .lock = {.size = sizeof o->lock}, .grace_ms = -1, .conflict_exit = -1, .lost_exit = CLI_LOST};
  for (;;) {
    int option = cli_option(&grammar, argc, argv);
    bool ended = option == -1 && strcmp(argv[optind - 1], "--") == 0;
    if (option == 'h') return (void)fputs(cli_help("lock"), stdout), cli_finish(CLI_OK);
    if (option == -1 && (o->name != NULL || optind >= argc)) break;
    if (option == -1) {
      o->name = argv[optind++];
      if (!ended) continue;
      if (optind < argc && strcmp(argv[optind], "--") == 0) optind++;
      break;
    }
    if (!set_option(o, option)) return CLI_FAILED;
  }
  o->command = argv + optind;
  return check(o) ? -1 : CLI_FAILED;
}
