/* lock.c: corral lock: runs a command under a lock, and shows the holders of a lock.
 *
 * The hold is extended until the command has ended. As far as this host's clocks can tell, the
 * command never runs without it: it starts after the taking, is ended by the end of a hold that
 * can't be extended, or by --max, and the lock is released after it. lock_child.c runs it. */
#include "cli.h"
#include "lock_child.h"

#include <corral/lock.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  NAME_MOST = CORRAL_KEY_MAX, /* bytes of a name, as in corral/lock.h */
  NOTE_MOST = 40,
  WHY_ROOM = 256,
  HOLDERS = 64, /* room at first; more if there are more */
  GRACE_MS = 2000,
  ANSWER_MS = 2000, /* ms to wait for a store that is away at first */
  TICKS = 20,       /* checks of a hold per ttl */
  CLOCKS_MS = 100   /* by which two clocks of this host may differ */
};

static const int64_t day_ms = 86400000;

typedef struct lock_options {
  const char *name;
  char **command;
  const char *note;
  corral_lock_options lock;
  int64_t ttl_ms;
  int64_t max_ms;  /* INT64_MAX: no limit */
  int64_t wait_ms; /* CORRAL_OFF: one try; 0: no limit */
  int64_t grace_ms;
  int64_t conflict_exit; /* -1: CLI_BUSY, or CLI_DEADLINE */
  int64_t lost_exit;
  bool show;
} lock_options;

/* The state of one `corral lock`. */
typedef struct locking {
  const cli_globals *cli;
  lock_options want;
  lock_child child;
  corral *corral;
  corral_lock *lock;
  uint64_t fence;
  int64_t max_end; /* cli_now_ms; INT64_MAX: no limit */
  int lost[2];     /* pipe: on_lost writes the reason, hear_lost reads it */
  bool is_lost;
  int caught;               /* the last signal that was handed on; 0: none */
  atomic_bool says_trouble; /* the next trouble with the store is to be reported */
} locking;

/* ---- options ------------------------------------------------------------------------------- */

enum { OPT_NOTE = 256, OPT_GRACE, OPT_LOST_EXIT, OPT_SHOW };

static const struct option longs[] = {
    {"no-wait", no_argument, NULL, 'n'},
    {"note", required_argument, NULL, OPT_NOTE},
    {"grace", required_argument, NULL, OPT_GRACE},
    {"conflict-exit", required_argument, NULL, 'E'},
    {"lost-exit", required_argument, NULL, OPT_LOST_EXIT},
    {"show", no_argument, NULL, OPT_SHOW},
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

static bool set_option(lock_options *o, int option) {
  const cli_flags flags = {.subcommand = "lock", .lock = &o->lock};
  switch (option) {
    case 'w': return cli_flag_set(&flags, cli_flag_of("lock", "wait"), optarg);
    case 's': return cli_flag_set(&flags, cli_flag_of("lock", "shared"), NULL);
    case 'n': o->lock.wait_ms = CORRAL_OFF; return true;
    case OPT_NOTE: return set_note(o);
    case OPT_GRACE: return cli_duration("lock: --grace", optarg, 0, day_ms, &o->grace_ms);
    case 'E': return cli_count("lock: --conflict-exit", optarg, 0, 255, &o->conflict_exit);
    case OPT_LOST_EXIT: return cli_count("lock: --lost-exit", optarg, 0, 255, &o->lost_exit);
    case OPT_SHOW: o->show = true; return true;
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
  o->wait_ms = o->lock.wait_ms;
  o->max_ms = o->lock.max_ms > 0 ? o->lock.max_ms : INT64_MAX;
  o->lock.keep = 1;
  int64_t quarter = least_end(o) / 4;
  if (o->grace_ms < 0) o->grace_ms = quarter < GRACE_MS ? quarter : GRACE_MS;
}

static bool check(lock_options *o) {
  char least[CLI_DURATION_TEXT];
  char most[CLI_DURATION_TEXT];
  size_t len = o->name != NULL ? strlen(o->name) : 0;
  complete(o);
  if (o->name == NULL)
    cli_say("lock: no NAME given: corral lock [OPTION]... NAME -- CMD [ARGUMENT]..., or corral "
            "lock --show NAME, is "
            "accepted");
  else if (len < 1 || len > NAME_MOST)
    cli_say("lock: a NAME of %zu bytes is not accepted: 1 to %d are", len, NAME_MOST);
  else if (o->show && o->command[0] != NULL)
    cli_say("lock: --show takes one NAME and no command: '%.100s' is one argument too many",
            o->command[0]);
  else if (!o->show && o->command[0] == NULL)
    cli_say(
        "lock: no command given: corral lock [OPTION]... NAME -- CMD [ARGUMENT]... is accepted");
  else if (o->grace_ms > least_end(o) / 2)
    cli_say("lock: --grace: too long for a --%s of %s: accepted is 0 to half of that, %s",
            o->max_ms < o->ttl_ms ? "max" : "ttl", cli_duration_text(least, least_end(o)),
            cli_duration_text(most, least_end(o) / 2));
  else
    return true;
  return false;
}

/* -1: go on; else the exit status. Options may stand before and after NAME. */
static int parse(lock_options *o, int argc, char **argv) {
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

/* ---- taking -------------------------------------------------------------------------------- */

static int report(const locking *l, int status, const corral_error *error) {
  return cli_report(l->want.name, strlen(l->want.name), status, error);
}

/* On a thread of the library. A write of at most WHY_ROOM bytes to a pipe is atomic. */
static void on_lost(corral_lock *lock, const char *why, void *arg) {
  (void)lock;
  size_t size = strlen(why) + 1;
  (void)!write(*(const int *)arg, why, size < WHY_ROOM ? size : WHY_ROOM);
}

/* Reports the first trouble with the store during a wait without limit. */
static void on_event(const corral_event_info *info, void *arg) {
  locking *l = arg;
  char text[CLI_KEY_TEXT];
  if ((info->event == CORRAL_EVENT_STORE_ERROR || info->event == CORRAL_EVENT_STORE_DOWN) &&
      atomic_exchange(&l->says_trouble, false))
    cli_note("%s: waiting for the store: %s",
             cli_key_text(text, l->want.name, strlen(l->want.name)),
             info->detail != NULL ? info->detail : "it is away");
}

static int try_take(locking *l, int64_t wait_ms, corral_cancel_token *cancel_token,
                    corral_error *error) {
  corral_lock_options options = l->want.lock;
  *error = (corral_error){0};
  options.cancel_token = cancel_token;
  options.note = l->want.note;
  options.on_lost = on_lost;
  options.lost_arg = &l->lost[1];
  options.wait_ms = wait_ms;
  return corral_lock_take(l->corral, l->want.name, strlen(l->want.name), &options, &l->lock, error);
}

/* Cancels the cancel token when a signal comes; ends when `quit` is written to. */
typedef struct listener {
  int signals;
  int quit[2];
  corral_cancel_token *cancel_token;
} listener;

static void *listen_for_signals(void *arg) {
  const listener *l = arg;
  struct pollfd fds[2] = {{l->signals, POLLIN, 0}, {l->quit[0], POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) continue;
  if (fds[0].revents != 0) corral_cancel_token_cancel(l->cancel_token);
  return NULL;
}

/* One call waits for a day at most: a wait without limit repeats it. */
static int take_waiting(locking *l, corral_error *error) {
  pthread_t thread;
  int64_t wait_ms = l->want.wait_ms > 0 ? l->want.wait_ms : day_ms;
  listener ear = {
      .signals = l->child.signals, .quit = {-1, -1}, .cancel_token = corral_cancel_token_new()};
  int status = CORRAL_ENOMEM;
  *error = (corral_error){0};
  if (ear.cancel_token != NULL && pipe2(ear.quit, O_CLOEXEC) == 0 &&
      pthread_create(&thread, NULL, listen_for_signals, &ear) == 0) {
    atomic_store(&l->says_trouble, l->want.wait_ms == 0 && !l->cli->quiet);
    do status = try_take(l, wait_ms, ear.cancel_token, error);
    while (status == CORRAL_EDEADLINE && l->want.wait_ms == 0);
    atomic_store(&l->says_trouble, false);
    (void)!write(ear.quit[1], "", 1);
    (void)pthread_join(thread, NULL);
  }
  for (int i = 0; i < 2; i++)
    if (ear.quit[i] >= 0) (void)close(ear.quit[i]);
  corral_cancel_token_free(ear.cancel_token);
  return status;
}

static void say_waiting(const locking *l, const corral_error *error) {
  char text[CLI_KEY_TEXT];
  cli_note("%s: waiting: %s", cli_key_text(text, l->want.name, strlen(l->want.name)), error->text);
}

/* Even a wait without limit fails when the store is away for its first ANSWER_MS; a store that goes
 * away later is waited for. */
static int take(locking *l, corral_error *error) {
  bool tells = cli_tells_waits(l->cli);
  if (l->want.wait_ms > 0 && !tells) return take_waiting(l, error);
  int status = try_take(l, CORRAL_OFF, NULL, error);
  if (l->want.wait_ms < 0 || status == CORRAL_OK) return status;
  if (status == CORRAL_EBUSY && tells) say_waiting(l, error);
  if (l->want.wait_ms > 0) return take_waiting(l, error);
  if (status == CORRAL_EUNAVAILABLE || status == CORRAL_EINDOUBT)
    status = try_take(l, ANSWER_MS, NULL, error);
  return status == CORRAL_EBUSY || status == CORRAL_EDEADLINE ? take_waiting(l, error) : status;
}

static int not_taken(const locking *l, int status, const corral_error *error) {
  char text[CLI_KEY_TEXT];
  char waited[CLI_DURATION_TEXT];
  const lock_options *o = &l->want;
  bool busy = status == CORRAL_EBUSY;
  (void)cli_key_text(text, o->name, strlen(o->name));
  if (busy || status == CORRAL_EDEADLINE) {
    if (!l->cli->quiet && busy) cli_say("%s: %s", text, error->text);
    if (!l->cli->quiet && !busy)
      cli_say("%s: waited for %s: %s", text, cli_duration_text(waited, o->wait_ms), error->text);
    return o->conflict_exit >= 0 ? (int)o->conflict_exit : busy ? CLI_BUSY : CLI_DEADLINE;
  }
  if (status == CORRAL_EFOREIGN && o->lock.repair_ms <= 0)
    return cli_fail("%s: %s; --repair D lets it end after D", text,
                    error->text[0] != '\0' ? error->text : corral_status_text(status));
  return report(l, status, error);
}

/* ---- while the command runs ---------------------------------------------------------------- */

static void say_lost(locking *l, const char *why) {
  char text[CLI_KEY_TEXT];
  if (!l->is_lost)
    cli_say("%s: lost: %s", cli_key_text(text, l->want.name, strlen(l->want.name)), why);
  l->is_lost = true;
}

static int64_t left_to_max(const locking *l) {
  return l->max_end < INT64_MAX ? l->max_end - cli_now_ms() : INT64_MAX;
}

/* Time left for the command, in ms: the hold's, or until --max if that is less. */
static int64_t left_ms(const locking *l) {
  int64_t hold = corral_lock_left_ms(l->lock);
  int64_t most = left_to_max(l);
  return hold < most ? hold : most > 0 ? most : 0;
}

static void say_ending(locking *l) {
  char why[WHY_ROOM];
  char grace[CLI_DURATION_TEXT];
  char most[CLI_DURATION_TEXT];
  (void)cli_duration_text(grace, l->want.grace_ms);
  if (left_to_max(l) <= l->want.grace_ms + CLOCKS_MS)
    (void)snprintf(why, sizeof why, "--max %s passes in %s: the command is ended",
                   cli_duration_text(most, l->want.max_ms), grace);
  else
    (void)snprintf(why, sizeof why,
                   "the hold with fencing token %llu expires in %s, as it could not be extended: "
                   "the command is ended",
                   (unsigned long long)l->fence, grace);
  say_lost(l, why);
}

static void hear_lost(locking *l) {
  char why[WHY_ROOM];
  ssize_t n = read(l->lost[0], why, sizeof why - 1);
  if (n <= 0) return;
  why[n] = '\0';
  say_lost(l, why);
  lock_child_stop(&l->child);
}

static void hand_on(locking *l) {
  bool told = false;
  int signo = lock_child_caught(&l->child, &told);
  if (signo == 0) return;
  l->caught = signo;
  lock_child_signal(&l->child, signo, told);
}

/* Until the guard's last message; *number as the guard reported it. */
static lock_child_said watch(locking *l, int *number) {
  struct pollfd fds[3] = {
      {l->child.link, POLLIN, 0}, {l->child.signals, POLLIN, 0}, {l->lost[0], POLLIN, 0}};
  int tick = (int)(l->want.ttl_ms / TICKS);
  for (;;) {
    int ready = poll(fds, 3, tick);
    if (!l->is_lost) lock_child_extend(&l->child, left_ms(l));
    if (ready <= 0) continue;
    if (fds[2].revents != 0) hear_lost(l);
    if (fds[1].revents != 0) hand_on(l);
    if (fds[0].revents == 0) continue;
    lock_child_said said = lock_child_hear(&l->child, number);
    if (said != LOCK_CHILD_ENDING) return said;
    say_ending(l);
  }
}

static int exit_of(locking *l, lock_child_said said, int number) {
  const char *command = l->want.command[0];
  if (said == LOCK_CHILD_NOT_STARTED && number == ENOENT)
    return cli_say("lock: command not found: %s", command), CLI_NOCOMMAND;
  if (said == LOCK_CHILD_NOT_STARTED)
    return cli_say("lock: can't execute %s: %s", command, strerror(number)), CLI_NOEXEC;
  if (said == LOCK_CHILD_GONE)
    return cli_fail("lock: the guard of the command was killed, and the command with it");
  return WIFSIGNALED(number) ? CLI_SIGNAL + WTERMSIG(number) : WEXITSTATUS(number);
}

static int release(locking *l, int exit_status) {
  char text[CLI_KEY_TEXT];
  corral_error error = {0};
  int status = corral_lock_release(l->lock, &error);
  l->lock = NULL;
  if (status == CORRAL_ELOST)
    say_lost(l, error.text);
  else if (status != CORRAL_OK && !l->cli->quiet)
    cli_note("%s: not released, its hold ends by itself within %lld ms: %s",
             cli_key_text(text, l->want.name, strlen(l->want.name)), (long long)l->want.ttl_ms,
             error.text);
  return l->is_lost ? (int)l->want.lost_exit : exit_status;
}

/* The lock is held. A signal that came during the wait ends this process, without starting the
 * command. */
static int run(locking *l) {
  bool told;
  int number = 0;
  l->fence = corral_lock_fence(l->lock);
  l->max_end = l->want.max_ms < INT64_MAX ? cli_now_ms() + l->want.max_ms : INT64_MAX;
  l->caught = lock_child_caught(&l->child, &told);
  if (l->caught != 0) return release(l, CLI_SIGNAL + l->caught);
  lock_child_go(&l->child, l->fence, left_ms(l));
  lock_child_said said = watch(l, &number);
  lock_child_finish(&l->child);
  return release(l, exit_of(l, said, number));
}

/* ---- holders ------------------------------------------------------------------------------- */

static void print_holder(const corral_lock_holder *h) {
  char held[CLI_DURATION_TEXT];
  char left[CLI_DURATION_TEXT];
  char who[4 * sizeof h->who + 8];
  (void)printf("held %s by %s, for %s, %s left, fencing token %llu\n",
               h->shared ? "shared" : "alone", cli_visible(who, sizeof who, h->who, strlen(h->who)),
               h->held_ms >= 0 ? cli_duration_text(held, h->held_ms) : "an unknown time",
               h->left_ms >= 0 ? cli_duration_text(left, h->left_ms) : "an unknown time",
               (unsigned long long)h->fence);
}

static void print_number(const char *name, int64_t n) {
  if (n >= 0)
    (void)printf(",\"%s\":%lld", name, (long long)n);
  else
    (void)printf(",\"%s\":null", name);
}

static void print_json(const lock_options *o, const corral_lock_holder *holders, size_t count) {
  (void)printf("{\"name\":");
  cli_json_string(stdout, o->name, strlen(o->name));
  (void)printf(",\"held\":%s,\"holders\":[", count > 0 ? "true" : "false");
  for (size_t i = 0; i < count; i++) {
    (void)printf("%s{\"who\":", i > 0 ? "," : "");
    cli_json_string(stdout, holders[i].who, strlen(holders[i].who));
    (void)printf(",\"shared\":%s", holders[i].shared ? "true" : "false");
    print_number("held_ms", holders[i].held_ms);
    print_number("left_ms", holders[i].left_ms);
    (void)printf(",\"fence\":%llu}", (unsigned long long)holders[i].fence);
  }
  (void)puts("]}");
}

static int show(const locking *l) {
  corral_error error = {0};
  corral_lock_holder *holders = NULL;
  size_t room = HOLDERS;
  size_t count = 0;
  int status = CORRAL_OK;
  for (;;) {
    free(holders);
    holders = calloc(room, sizeof *holders);
    if (holders == NULL) return cli_fail("lock: out of memory");
    status = corral_lock_show(l->corral, l->want.name, strlen(l->want.name), holders, room, &count,
                              &error);
    if (status != CORRAL_OK || count <= room) break;
    room = count + HOLDERS;
  }
  if (status != CORRAL_OK) {
    free(holders);
    (void)report(l, status, &error);
    return CLI_FAILED;
  }
  if (l->cli->json) print_json(&l->want, holders, count);
  for (size_t i = 0; !l->cli->json && i < count; i++) print_holder(&holders[i]);
  if (!l->cli->json && count == 0) (void)puts("nobody holds it");
  free(holders);
  return cli_finish(count > 0 ? CLI_OK : CLI_MISS);
}

static int show_absent(const locking *l) {
  if (!l->cli->quiet) cli_say("lock: %s isn't there", l->cli->store);
  if (l->cli->json)
    print_json(&l->want, NULL, 0);
  else
    (void)puts("nobody holds it");
  return cli_finish(CLI_MISS);
}

static int look(locking *l) {
  bool is_absent;
  corral_options options = {.size = sizeof options};
  if (!cli_open_to_look(l->cli, &options, &l->corral, &is_absent)) return CLI_FAILED;
  int exit_status = is_absent ? show_absent(l) : show(l);
  corral_close(l->corral);
  return exit_status;
}

/* ---- lock ---------------------------------------------------------------------------------- */

/* A lock's key differs from that of a run of the same name. */
static bool is_nested(const locking *l, bool enter) {
  static char key[NAME_MOST + 8];
  int n = snprintf(key, sizeof key, "lock:%s", l->want.name);
  if (cli_nested(l->cli, key, (size_t)n)) return true;
  if (enter) cli_nest(l->cli, key, (size_t)n);
  return false;
}

static int lock_and_run(locking *l) {
  corral_error error = {0};
  int status = take(l, &error);
  if (status == CORRAL_OK) return run(l);
  bool told;
  l->caught = lock_child_caught(&l->child, &told);
  return l->caught != 0 ? CLI_SIGNAL + l->caught : not_taken(l, status, &error);
}

int cli_lock(const cli_globals *cli, int argc, char **argv) {
  static locking l;
  char text[CLI_KEY_TEXT];
  corral_options options = {.size = sizeof options, .on_event = on_event, .event_arg = &l};
  l = (locking){.cli = cli, .lost = {-1, -1}, .child = {.guard = -1, .link = -1, .signals = -1}};
  int exit_status = parse(&l.want, argc, argv);
  if (exit_status >= 0) return exit_status;
  if (strncmp(cli->store, "memory:", 7) == 0)
    return cli_fail("lock: --store memory: is of one process alone: a lock in it keeps nobody out; "
                    "lmdb:PATH or a "
                    "server is accepted");
  if (!l.want.show && is_nested(&l, true))
    return cli_fail("%s: this command runs under that lock already, and would wait for itself",
                    cli_key_text(text, l.want.name, strlen(l.want.name)));
  if (l.want.show) return look(&l);
  bool ready = setenv("CORRAL_LOCK_NAME", l.want.name, 1) == 0 &&
               pipe2(l.lost, O_CLOEXEC | O_NONBLOCK) == 0 &&
               lock_child_begin(&l.child, l.want.command, l.want.grace_ms);
  if (!ready) return cli_fail("lock: can't run a command: %s", strerror(errno));
  exit_status = CLI_FAILED;
  if (cli_open(cli, false, &options, &l.corral)) {
    exit_status = lock_and_run(&l);
    corral_close(l.corral);
  }
  lock_child_finish(&l.child);
  if (l.caught != 0 && exit_status == CLI_SIGNAL + l.caught) cli_die_of(l.caught);
  return exit_status;
}
