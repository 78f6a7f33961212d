/* lock_hold.c: one hold of a lock: how it is taken, how long it lasts, how it ends. */
#include "lock.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
  ANSWER_MS = 2000, /* ms to wait for a store that is away at first */
  CLOCKS_MS = 100,  /* by which two clocks of this host may differ */
  ORPHAN_MS = 1000, /* ttl of an adopted hold, which is to end */
  ORPHAN_PAUSE_MS = 100
};

static const int64_t day_ms = 86400000;

/* ---- taking -------------------------------------------------------------------------------- */

static int report(const locking *l, int status, const corral_error *error) {
  return cli_report(l->want.name, strlen(l->want.name), status, error);
}

/* On a thread of the library. A write of at most LOCK_WHY_ROOM bytes to a pipe is atomic. */
static void on_lost(corral_lock *lock, const char *why, void *arg) {
  (void)lock;
  size_t size = strlen(why) + 1;
  (void)!write(*(const int *)arg, why, size < LOCK_WHY_ROOM ? size : LOCK_WHY_ROOM);
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
  options.fence = l->counters;
  options.note = l->want.note;
  options.on_lost = on_lost;
  options.lost_arg = &l->lost[1];
  options.wait_ms = wait_ms;
  return corral_lock_take(l->corral, l->want.name, strlen(l->want.name), &options, &l->lock, error);
}

/* Cancels the cancel token when it is interrupted; ends when `quit` is written to. */
typedef struct listener {
  int interrupt;
  int quit[2];
  corral_cancel_token *cancel_token;
} listener;

static void *listen_for_interrupt(void *arg) {
  const listener *l = arg;
  struct pollfd fds[2] = {{l->interrupt, POLLIN, 0}, {l->quit[0], POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) continue;
  if (fds[0].revents != 0) corral_cancel_token_cancel(l->cancel_token);
  return NULL;
}

/* One call waits for a day at most: a wait without limit repeats it. */
static int take_waiting(locking *l, corral_error *error) {
  pthread_t thread;
  int64_t wait_ms = l->want.wait_ms > 0 ? l->want.wait_ms : day_ms;
  listener ear = {
      .interrupt = l->interrupt, .quit = {-1, -1}, .cancel_token = corral_cancel_token_new()};
  int status = CORRAL_ENOMEM;
  *error = (corral_error){0};
  if (ear.cancel_token != NULL && pipe2(ear.quit, O_CLOEXEC) == 0 &&
      pthread_create(&thread, NULL, listen_for_interrupt, &ear) == 0) {
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
    cli_say_left(error->retry_after_ms);
    if (!l->cli->quiet && busy) cli_say("%s: %s", text, error->text);
    if (!l->cli->quiet && !busy)
      cli_say("%s: waited for %s: %s", text, cli_duration_text(waited, o->wait_ms), error->text);
    return o->conflict_exit >= 0 ? (int)o->conflict_exit : busy ? CLI_BUSY : CLI_DEADLINE;
  }
  if (status == CORRAL_ELOST) return cli_say("%s: %s", text, error->text), (int)o->lost_exit;
  if (status == CORRAL_EFOREIGN && o->lock.repair_ms <= 0)
    return cli_fail("%s: %s; --repair D lets it end after D", text,
                    error->text[0] != '\0' ? error->text : corral_status_text(status));
  return report(l, status, error);
}

/* The hold's ticket: for the command, or else for the guard, unless the hold is to be left. With it
 * the hold isn't freed by this process's death as long as the command, or the script, may go on.
 * Not CORRAL_OK: there is none, and the hold was given up. */
static int get_ticket(locking *l, corral_error *error) {
  char ticket[CORRAL_LOCK_TICKET];
  bool is_wanted = l->want.ticket || l->want.leave;
  int status = corral_lock_ticket(l->lock, ticket, error);
  if (status == CORRAL_EUNSUPPORTED && !is_wanted) return CORRAL_OK;
  if (status == CORRAL_OK && (l->want.ticket || !l->want.leave))
    memcpy(l->ticket, ticket, sizeof ticket);
  if (status != CORRAL_OK) (void)corral_lock_release(l->lock, NULL);
  return status;
}

static bool open_counters(locking *l) {
  cli_globals there = *l->cli;
  corral_options options = {.size = sizeof options};
  there.store = l->want.fence_store;
  there.is_default = false;
  return l->want.fence_store == NULL || cli_open(&there, false, &options, &l->counters);
}

bool lock_take(locking *l, int *ret_status) {
  corral_error error = {0};
  corral_options options = {.size = sizeof options, .on_event = on_event, .event_arg = l};
  *ret_status = CLI_FAILED;
  if (!cli_open(l->cli, false, &options, &l->corral) || !open_counters(l)) return false;
  int status = take(l, &error);
  if (status == CORRAL_OK) status = get_ticket(l, &error);
  if (status == CORRAL_OK) {
    l->fence = corral_lock_fence(l->lock);
    l->max_end = l->want.max_ms < INT64_MAX ? cli_now_ms() + l->want.max_ms : INT64_MAX;
    return true;
  }
  struct pollfd interrupt = {l->interrupt, POLLIN, 0};
  if (poll(&interrupt, 1, 0) <= 0) *ret_status = not_taken(l, status, &error);
  return false;
}

/* ---- its time ------------------------------------------------------------------------------ */

void lock_say_lost(locking *l, const char *why) {
  char text[CLI_KEY_TEXT];
  if (!l->is_lost)
    cli_say("%s: lost: %s", cli_key_text(text, l->want.name, strlen(l->want.name)), why);
  if (!l->is_lost) (void)snprintf(l->why, sizeof l->why, "%s", why);
  l->is_lost = true;
}

static int64_t left_to_max(const locking *l) {
  return l->max_end < INT64_MAX ? l->max_end - cli_now_ms() : INT64_MAX;
}

int64_t lock_left_ms(const locking *l) {
  int64_t hold = corral_lock_left_ms(l->lock);
  int64_t most = left_to_max(l);
  return hold < most ? hold : most > 0 ? most : 0;
}

void lock_ending_text(const locking *l, const char *follows, char why[LOCK_WHY_ROOM]) {
  char grace[CLI_DURATION_TEXT];
  char most[CLI_DURATION_TEXT];
  (void)cli_duration_text(grace, l->want.grace_ms);
  if (left_to_max(l) <= l->want.grace_ms + CLOCKS_MS)
    (void)snprintf(why, LOCK_WHY_ROOM, "--max %s passes in %s: %s",
                   cli_duration_text(most, l->want.max_ms), grace, follows);
  else
    (void)snprintf(
        why, LOCK_WHY_ROOM,
        "the hold with fencing token %llu expires in %s, as it could not be extended: %s",
        (unsigned long long)l->fence, grace, follows);
}

int64_t lock_warn(locking *l, int64_t left_ms, int64_t most) {
  char text[CLI_KEY_TEXT];
  char left[CLI_DURATION_TEXT];
  int64_t wait = left_ms - l->want.warn_ms;
  if (l->want.warn_ms == 0 || l->is_lost) return most;
  if (wait > 0) {
    l->warned = false;
    return wait < most ? wait : most;
  }
  if (!l->warned)
    cli_say("%s: %s left%s", cli_key_text(text, l->want.name, strlen(l->want.name)),
            cli_duration_text(left, left_ms),
            left_to_max(l) <= left_ms + CLOCKS_MS ? " until --max"
                                                  : " of the hold, which could not be extended");
  l->warned = true;
  return most;
}

bool lock_hear_lost(locking *l, char why[LOCK_WHY_ROOM]) {
  ssize_t n = read(l->lost[0], why, LOCK_WHY_ROOM - 1);
  if (n <= 0) return false;
  why[n] = '\0';
  return true;
}

static void say_times(const locking *l) {
  char text[CLI_KEY_TEXT];
  char waited[CLI_DURATION_TEXT];
  char held[CLI_DURATION_TEXT];
  corral_lock_stats stats = {.size = sizeof stats};
  if (!l->cli->verbose || corral_lock_stats_read(l->corral, &stats, NULL) != CORRAL_OK) return;
  cli_note("%s: waited for %s, held for %s", cli_key_text(text, l->want.name, strlen(l->want.name)),
           cli_duration_text(waited, stats.wait.max_us / 1000),
           cli_duration_text(held, stats.hold.max_us / 1000));
}

int lock_release(locking *l, int exit_status) {
  char text[CLI_KEY_TEXT];
  corral_error error = {0};
  int status = (l->leaves ? corral_lock_detach : corral_lock_release)(l->lock, &error);
  l->lock = NULL;
  if (status == CORRAL_ELOST) {
    lock_say_lost(l, error.text);
  } else if (status != CORRAL_OK) {
    (void)snprintf(l->why, sizeof l->why,
                   "not released, its hold ends by itself within %lld ms: %s",
                   (long long)l->want.ttl_ms, error.text);
    if (!l->cli->quiet)
      cli_note("%s: %s", cli_key_text(text, l->want.name, strlen(l->want.name)), l->why);
  }
  say_times(l);
  return l->is_lost ? (int)l->want.lost_exit : exit_status;
}

/* True when trying again may help: the store is away, or has not answered. */
static bool may_pass(int status) {
  return status == CORRAL_EUNAVAILABLE || status == CORRAL_EINDOUBT || status == CORRAL_EBUSY ||
         status == CORRAL_EREFUSED;
}

/* Adopts the hold, and releases it. The ticket is then of the adopted hold, in case the release
 * isn't answered. */
static int end_hold(locking *l, char *ticket) {
  const char *name = l->want.name;
  corral_lock_options adopts = {.size = sizeof adopts, .adopt = ticket, .ttl_ms = ORPHAN_MS};
  int status = corral_lock_take(l->corral, name, strlen(name), &adopts, &l->lock, NULL);
  if (status != CORRAL_OK) return status;
  (void)corral_lock_ticket(l->lock, ticket, NULL);
  return corral_lock_release(l->lock, NULL);
}

void lock_end_orphan(void *locking_, char *ticket, int64_t left_ms) {
  locking *l = locking_;
  corral_options options = {.size = sizeof options};
  int64_t until = cli_now_ms() + left_ms;
  if (!cli_open(l->cli, false, &options, &l->corral)) return;
  while (may_pass(end_hold(l, ticket)) && cli_now_ms() < until)
    (void)poll(NULL, 0, ORPHAN_PAUSE_MS);
  corral_close(l->corral);
}
