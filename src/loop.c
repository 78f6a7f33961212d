/* loop.c: event loops: calls whose callbacks run on the thread that dispatches the loop.
 *
 * A call is brought on by mail to its loop: it was answered, its entry changed, its time came, its caller left. What concerns its entry, its callbacks and
 * its end is done on the loop's thread; what others tell it, under the loop's mutex. That mutex is taken within those of herds, alarms and tickets,
 * and only the pilot's is taken within it. */
#include <corral/loop.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "env.h"
#include "handle.h"
#include "pilot.h"
#include "run.h"
#include "status.h"

#define MAGIC UINT32_C(0xc0881a22)

typedef enum state {
  FLIES,  /* its run, or its work, answers it directly */
  JOINED, /* it waits on an entry */
  ENDED   /* `done` was called, or never will be */
} state;

/* In the inbox: a call, or a run whose compute is to be begun. */
typedef struct mail {
  struct mail *next;
  crl_run *starts; /* NULL: a call */
  int is_posted;
} mail;

struct corral_loop {
  uint32_t magic;
  corral *c;
  crl_station *station;
  pthread_mutex_t mutex;
  int fd;
  int is_rung, is_closed;
  mail *head, **tail;
  corral_call *calls;  /* the thread's own */
  crl_run *computing;  /* begun by `start`, and not ended */
  size_t refs;         /* its own, and one for each call that isn't freed */
};

struct corral_call {
  crl_caller caller;
  mail mail;
  corral_loop *loop;
  corral_call *next, **link;
  corral_async async;
  crl_call asked;
  int64_t deadline;
  /* Of the loop's thread. */
  state state;
  int owns; /* the entry's flight is its own */
  crl_alarm alarm;
  crl_leaver leaver;
  /* Under the mutex. */
  crl_entry *entry; /* that it listens to */
  crl_listener listener;
  crl_nap nap;
  size_t runs;      /* that may call it still */
  crl_run *flying;  /* that answers it directly */
  crl_outcome *answer;
  int is_answered, is_cancelled, is_handed; /* handed: `entry` is new */
  corral_work *work;
  crl_job job;
  uint8_t key[];
};

/* ---- mail ------------------------------------------------------------------------------------------------ */

/* Under the mutex. */
static void post(corral_loop *loop, mail *m) {
  uint64_t one = 1;
  if (m->is_posted || loop->is_closed) return;
  m->is_posted = 1;
  m->next = NULL;
  *loop->tail = m;
  loop->tail = &m->next;
  if (loop->is_rung) return;
  loop->is_rung = 1;
  ssize_t n = write(loop->fd, &one, sizeof one);
  (void)n; /* it can't be full */
}

static void post_call(corral_call *call) {
  pthread_mutex_lock(&call->loop->mutex);
  post(call->loop, &call->mail);
  pthread_mutex_unlock(&call->loop->mutex);
}

static void on_nap(crl_nap *nap) { post_call((corral_call *)(void *)((char *)nap - offsetof(corral_call, nap))); }
static void on_alarm(crl_alarm *alarm) { post_call((corral_call *)(void *)((char *)alarm - offsetof(corral_call, alarm))); }
static void on_ticket(void *call) { post_call(call); }

/* ---- what runs tell -------------------------------------------------------------------------------------- */

static corral_call *call_of(crl_caller *caller) { return (corral_call *)(void *)((char *)caller - offsetof(corral_call, caller)); }

/* Takes over the outcome's reference. Without memory the call learns just that. */
static void take_answer(corral_call *call, crl_outcome *outcome) {
  call->answer = crl_alloc(sizeof *call->answer);
  if (call->answer != NULL) *call->answer = *outcome;
  else crl_bytes_unref(outcome->bytes);
  call->is_answered = 1;
  post(call->loop, &call->mail);
}

static void answered(crl_caller *caller, crl_run *r) {
  corral_call *call = call_of(caller);
  pthread_mutex_lock(&call->loop->mutex);
  if (call->flying == r) {
    crl_outcome outcome = crl_run_outcome(r);
    call->flying = NULL;
    take_answer(call, &outcome);
  }
  pthread_mutex_unlock(&call->loop->mutex);
}

static void stop_listening(corral_call *call, crl_entry *entry, crl_wait came) {
  crl_herd_unlisten(entry, &call->listener, came);
  crl_entry_unref(entry);
}

/* It begins to listen here, so that nobody finds the flight without anybody who waits; herds' mutexes come before the loop's. */
static void waits(crl_caller *caller, crl_run *r) {
  corral_call *call = call_of(caller);
  corral_loop *loop = call->loop;
  pthread_mutex_lock(&loop->mutex);
  int listens = call->flying == r && !call->is_cancelled && !r->flight.answered && r->flight.alone != CRL_ALONE_DEADLINE && r->entry != NULL;
  if (listens) call->flying = NULL;
  pthread_mutex_unlock(&loop->mutex);
  if (!listens) return;
  crl_entry *entry = crl_entry_ref(r->entry);
  crl_herd_listen(entry, &call->listener, &call->nap);
  pthread_mutex_lock(&loop->mutex);
  int is_closed = loop->is_closed;
  call->entry = is_closed ? NULL : entry;
  call->is_handed = !is_closed;
  post(loop, &call->mail);
  pthread_mutex_unlock(&loop->mutex);
  if (is_closed) stop_listening(call, entry, CRL_WAIT_LEFT);
}

/* The run's own mail: it has no more than one in its life. */
static int begin(crl_caller *caller, crl_run *r) {
  corral_call *call = call_of(caller);
  corral_loop *loop = call->loop;
  pthread_mutex_lock(&loop->mutex);
  int begins = !call->is_cancelled && !loop->is_closed;
  mail *m = begins ? crl_alloc(sizeof *m) : NULL;
  if (m != NULL) {
    m->starts = r;
    post(loop, m);
  }
  pthread_mutex_unlock(&loop->mutex);
  return m != NULL;
}

static void unref_loop(corral_loop *loop, size_t count) {
  pthread_mutex_lock(&loop->mutex);
  loop->refs -= count;
  int last = loop->refs == 0;
  pthread_mutex_unlock(&loop->mutex);
  if (!last) return;
  pthread_mutex_destroy(&loop->mutex);
  free(loop);
}

static void free_call(corral_call *call) {
  corral_loop *loop = call->loop;
  if (call->answer != NULL) crl_bytes_unref(call->answer->bytes);
  free(call->answer);
  crl_nap_clean(&call->nap);
  free(call);
  unref_loop(loop, 1);
}

static void run_gone(corral_call *call) {
  pthread_mutex_lock(&call->loop->mutex);
  call->runs--;
  int frees = call->runs == 0 && call->loop->is_closed;
  post(call->loop, &call->mail);
  pthread_mutex_unlock(&call->loop->mutex);
  if (frees) free_call(call);
}

static void gone(crl_caller *caller, crl_run *r) {
  corral_call *call = call_of(caller);
  pthread_mutex_lock(&call->loop->mutex);
  if (call->flying == r) call->flying = NULL;
  pthread_mutex_unlock(&call->loop->mutex);
  run_gone(call);
}

/* ---- a call's way; on the loop's thread ------------------------------------------------------------------ */

static crl_patience patience_of(const corral_call *call) {
  crl_patience patience = crl_run_patience(&call->asked, call->deadline);
  patience.owns = call->owns;
  return patience;
}

/* When a wait ends by itself, next. */
static int arm(corral_call *call) {
  crl_patience patience = patience_of(call);
  int64_t at = patience.deadline;
  if (patience.soft_until > crl_env_now_ms() && patience.soft_until < at) at = patience.soft_until;
  return crl_alarms_set(crl_pilot_alarms(call->loop->station->pilot), &call->alarm, at);
}

/* It listens to call->entry; from now on its time and its ticket are heeded too. Without an alarm it has no end of its own: it ends now. */
static int settle_down(corral_call *call, int owns) {
  call->state = JOINED;
  call->owns = owns;
  crl_ticket_join(call->asked.policy.ticket, &call->leaver, on_ticket, call);
  return arm(call);
}

static void leave(corral_call *call, crl_wait came) {
  crl_entry *entry = call->entry;
  call->entry = NULL;
  stop_listening(call, entry, came);
  crl_ticket_leave(call->asked.policy.ticket, &call->leaver);
  crl_alarms_clear(crl_pilot_alarms(call->loop->station->pilot), &call->alarm);
}

static void unlink_call(corral_call *call) {
  *call->link = call->next;
  if (call->next != NULL) call->next->link = call->link;
}

/* The last callback, when nobody may call it any more and no mail is under way. */
static void see_off(corral_call *call) {
  pthread_mutex_lock(&call->loop->mutex);
  int is_over = call->runs == 0 && !call->mail.is_posted;
  pthread_mutex_unlock(&call->loop->mutex);
  if (!is_over) return;
  unlink_call(call);
  if (call->async.gone != NULL) call->async.gone(call->async.arg);
  free_call(call);
}

static void end(corral_call *call, crl_outcome *outcome) {
  corral_value *value = NULL;
  corral_error error = {0};
  call->state = ENDED;
  int status = crl_outcome_deliver(outcome, &error, &value);
  call->async.done(call->async.arg, status, value, &error);
  see_off(call);
}

static void end_plain(corral_call *call, int status) {
  crl_outcome outcome = crl_outcome_plain(status);
  end(call, &outcome);
}

static int lead(corral_call *call, crl_entry *entry, crl_alone alone) {
  corral_loop *loop = call->loop;
  crl_run *r = crl_run_new(loop->station, &call->asked, call->deadline, alone);
  if (r == NULL) {
    if (entry != NULL) crl_herd_give_up(entry);
    if (entry != NULL) crl_entry_unref(entry);
    return CORRAL_ENOMEM;
  }
  r->entry = entry;
  r->flown.caller = &call->caller;
  call->state = FLIES;
  pthread_mutex_lock(&loop->mutex);
  call->runs++;
  call->flying = r;
  pthread_mutex_unlock(&loop->mutex);
  if (crl_pilot_fly(loop->station->pilot, r, call->asked.policy.ticket) == CORRAL_OK) return CORRAL_OK;
  pthread_mutex_lock(&loop->mutex);
  call->flying = NULL;
  call->runs--;
  pthread_mutex_unlock(&loop->mutex);
  if (entry != NULL) crl_herd_give_up(entry);
  crl_run_free(r);
  return CORRAL_EIO;
}

static int join(corral_call *call, crl_entry *entry) {
  crl_event_emit(&call->loop->station->events, CORRAL_EVENT_JOIN, call->asked.key, call->asked.key_len, NULL);
  crl_herd_listen(entry, &call->listener, &call->nap);
  call->entry = entry;
  int status = settle_down(call, 0);
  if (status == CORRAL_OK) post_call(call); /* it may have landed before */
  else leave(call, CRL_WAIT_LEFT);
  return status;
}

/* Leads or joins a flight. Else the status that the call ends with. */
static int enter(corral_call *call, crl_alone alone) {
  const crl_call *asked = &call->asked;
  crl_herd *herd = call->loop->station->herd;
  crl_entry *entry = NULL;
  int leads = 1;
  if (crl_call_computes(asked)) {
    entry = alone ? crl_herd_private(herd, asked->key, asked->key_len) : crl_herd_enter(herd, asked->key, asked->key_len, &leads);
    if (entry == NULL) return CORRAL_ENOMEM;
  }
  return leads ? lead(call, entry, alone) : join(call, entry);
}

static void enter_anew(corral_call *call, crl_alone alone) {
  int status = enter(call, alone);
  if (status != CORRAL_OK) end_plain(call, status);
}

static void look(corral_call *call) {
  crl_outcome outcome;
  crl_patience patience = patience_of(call);
  memset(&outcome, 0, sizeof outcome);
  crl_wait came = crl_herd_look(call->entry, &patience, &outcome);
  if (came == 0) {
    arm(call);
    return;
  }
  leave(call, came);
  switch (crl_run_turn(call->loop->station, &call->asked, came, &patience, &outcome)) {
    case CRL_TURN_ENDED: end(call, &outcome); break;
    case CRL_TURN_ENTER: enter_anew(call, CRL_ALONE_NOT); break;
    case CRL_TURN_ALONE: enter_anew(call, CRL_ALONE_PASS); break;
    case CRL_TURN_ALONE_HERE: enter_anew(call, CRL_ALONE_DEADLINE); break;
  }
}

static void end_answered(corral_call *call, crl_outcome *answer) {
  if (answer == NULL) {
    end_plain(call, CORRAL_ENOMEM);
    return;
  }
  crl_outcome outcome = *answer;
  free(answer);
  end(call, &outcome);
}

/* Waits on the entry of its own flight from now on; one that has left meanwhile does not. */
static void follow(corral_call *call) {
  int status = settle_down(call, 1);
  int leaves = call->is_cancelled || status != CORRAL_OK;
  if (!leaves) return;
  leave(call, CRL_WAIT_LEFT);
  if (call->is_cancelled) call->state = ENDED;
  else end_plain(call, status);
}

static void bring_on(corral_call *call) {
  pthread_mutex_lock(&call->loop->mutex);
  int is_answered = call->is_answered, is_handed = call->is_handed;
  crl_outcome *answer = call->answer;
  call->answer = NULL;
  call->is_answered = call->is_handed = 0;
  pthread_mutex_unlock(&call->loop->mutex);
  if (is_handed) follow(call);
  if (call->state == ENDED) {
    if (answer != NULL) crl_bytes_unref(answer->bytes);
    free(answer);
    see_off(call);
  } else if (is_answered) {
    end_answered(call, answer);
  } else if (call->state == JOINED) {
    look(call);
  }
}

/* ---- a compute that is begun here ------------------------------------------------------------------------ */

/* What becomes of it is settled between its end and the loop's. */
enum { BEGUN = 0, HAS_ENDED, IS_ORPHANED_NOW, IS_ORPHAN, ENDED_MEANWHILE };

static void forget_computing(crl_run *r) {
  if (r->flown.link == NULL) return;
  *r->flown.link = r->flown.next;
  if (r->flown.next != NULL) r->flown.next->flown.link = r->flown.link;
  r->flown.link = NULL;
}

static void end_compute(corral_loop *loop, crl_run *r, int abandoned) {
  pthread_mutex_lock(&loop->mutex);
  forget_computing(r);
  int waits_for_start = r->flown.starting;
  r->flown.ended = abandoned ? 2 : 1;
  pthread_mutex_unlock(&loop->mutex);
  if (!waits_for_start) crl_pilot_ended(r, abandoned);
}

static void on_ended(corral_fill *fill, int abandoned) {
  crl_run *r = (crl_run *)(void *)((char *)fill - offsetof(crl_run, fill));
  int fate = BEGUN;
  if (atomic_compare_exchange_strong(&r->flown.fate, &fate, HAS_ENDED)) {
    end_compute(call_of(r->flown.caller)->loop, r, abandoned);
    return;
  }
  if (fate == IS_ORPHANED_NOW && atomic_compare_exchange_strong(&r->flown.fate, &fate, ENDED_MEANWHILE)) return;
  crl_run_free(r);
}

static void orphan(crl_run *r) {
  int fate = BEGUN;
  if (!atomic_compare_exchange_strong(&r->flown.fate, &fate, IS_ORPHANED_NOW)) return;
  crl_pilot_orphan(r);
  if (atomic_exchange(&r->flown.fate, IS_ORPHAN) == ENDED_MEANWHILE) crl_run_free(r);
}

/* Under the mutex. */
static void remember_computing(corral_loop *loop, crl_run *r) {
  r->flown.next = loop->computing;
  r->flown.link = &loop->computing;
  if (r->flown.next != NULL) r->flown.next->flown.link = &r->flown.next;
  loop->computing = r;
  r->flown.starting = 1;
  r->fill.ended = on_ended;
}

/* The run goes on when `start` has returned and the compute has ended, whichever comes later. */
static void start(corral_loop *loop, crl_run *r) {
  corral_call *call = call_of(r->flown.caller);
  crl_run *runs[] = {r};
  crl_computing frame = {.runs = runs, .count = 1};
  size_t prefix = loop->station->prefix_len;
  bring_on(call);
  pthread_mutex_lock(&loop->mutex);
  int is_cancelled = call->is_cancelled;
  if (!is_cancelled) remember_computing(loop, r);
  pthread_mutex_unlock(&loop->mutex);
  if (is_cancelled) {
    crl_pilot_ended(r, 1);
    return;
  }
  const crl_computing *outer = crl_run_inside(&frame);
  call->async.start(call->async.arg, &r->fill, r->key.whole + prefix, r->key.whole_len - prefix);
  crl_run_inside(outer);
  pthread_mutex_lock(&loop->mutex);
  r->flown.starting = 0;
  int ended = r->flown.ended;
  pthread_mutex_unlock(&loop->mutex);
  if (ended) crl_pilot_ended(r, ended == 2);
}

/* ---- public: the loop ------------------------------------------------------------------------------------ */

static int check_loop(const corral_loop *loop, corral_error *error) {
  crl_station *unused;
  if (loop == NULL || loop->magic != MAGIC) return crl_status_fail(error, CORRAL_EINVAL, "not an open loop");
  return crl_handle_enter(loop->c, &unused, error);
}

int corral_loop_open(corral_loop **ret, corral *c, corral_error *error) {
  crl_station *station;
  if (ret == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_loop_open: no ret");
  int status = crl_handle_enter(c, &station, error);
  if (status != CORRAL_OK) return status;
  corral_loop *loop = crl_alloc(sizeof *loop);
  if (loop == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  *loop = (corral_loop){.magic = MAGIC, .c = c, .station = station, .refs = 1, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (loop->fd < 0) {
    free(loop);
    return crl_status_fail(error, CORRAL_EIO, "no file descriptor for a loop");
  }
  loop->tail = &loop->head;
  pthread_mutex_init(&loop->mutex, NULL);
  *ret = loop;
  return CORRAL_OK;
}

int corral_fd(const corral_loop *loop) { return loop == NULL ? -1 : loop->fd; }

static mail *take_all(corral_loop *loop) {
  uint64_t rung;
  pthread_mutex_lock(&loop->mutex);
  mail *first = loop->head;
  loop->head = NULL;
  loop->tail = &loop->head;
  if (loop->is_rung) {
    ssize_t n = read(loop->fd, &rung, sizeof rung);
    (void)n;
  }
  loop->is_rung = 0;
  pthread_mutex_unlock(&loop->mutex);
  return first;
}

static corral_call *open_mail(corral_loop *loop, mail *m) {
  pthread_mutex_lock(&loop->mutex);
  m->is_posted = 0;
  pthread_mutex_unlock(&loop->mutex);
  return (corral_call *)(void *)((char *)m - offsetof(corral_call, mail));
}

int corral_dispatch(corral_loop *loop) {
  int count = 0;
  if (loop == NULL || loop->magic != MAGIC || !crl_handle_is_home(loop->station)) return 0;
  for (mail *m = take_all(loop), *next; m != NULL; m = next, count++) {
    next = m->next;
    if (m->starts == NULL) {
      bring_on(open_mail(loop, m));
      continue;
    }
    crl_run *r = m->starts;
    free(m);
    start(loop, r);
  }
  return count;
}

/* What was to be begun isn't; what was begun is left alone. */
static void give_up_computes(corral_loop *loop) {
  pthread_mutex_lock(&loop->mutex);
  loop->is_closed = 1;
  for (corral_call *call = loop->calls; call != NULL; call = call->next) call->runs++; /* by which they stay until all are seen off */
  mail *first = loop->head;
  crl_run *computing = loop->computing;
  loop->head = NULL;
  loop->computing = NULL;
  for (crl_run *r = computing; r != NULL; r = r->flown.next) r->flown.link = NULL;
  pthread_mutex_unlock(&loop->mutex);
  for (mail *m = first, *next; m != NULL; m = next) {
    next = m->next;
    if (m->starts == NULL) continue;
    crl_pilot_ended(m->starts, 1);
    free(m);
  }
  for (crl_run *r = computing, *next; r != NULL; r = next) {
    next = r->flown.next;
    orphan(r);
  }
}

void corral_loop_close(corral_loop *loop) {
  if (loop == NULL || loop->magic != MAGIC) return;
  loop->magic = 0;
  if (!crl_handle_is_home(loop->station)) return;
  for (corral_call *call = loop->calls; call != NULL; call = call->next) corral_call_cancel(call);
  give_up_computes(loop);
  for (corral_call *call = loop->calls, *next; call != NULL; call = next) {
    next = call->next;
    if (call->is_handed) stop_listening(call, call->entry, CRL_WAIT_LEFT);
    if (call->async.gone != NULL) call->async.gone(call->async.arg);
    run_gone(call);
  }
  close(loop->fd);
  unref_loop(loop, 1);
}

/* ---- public: calls --------------------------------------------------------------------------------------- */

static int check_async(const corral_async *async, corral_async *ret, corral_error *error) {
  memset(ret, 0, sizeof *ret);
  if (async == NULL) return crl_status_fail(error, CORRAL_EINVAL, "no callbacks: give CORRAL_ASYNC(.done = ...)");
  if (async->size > sizeof *ret) return crl_status_fail(error, CORRAL_EOPTION, "the callbacks are of a newer version of the library");
  memcpy(ret, async, async->size);
  return ret->done != NULL ? CORRAL_OK : crl_status_fail(error, CORRAL_EINVAL, "no callback `done`");
}

static corral_call *new_call(corral_loop *loop, const corral_async *async, const crl_call *asked) {
  corral_call *call = crl_alloc(sizeof *call + asked->key_len);
  if (call == NULL) return NULL;
  call->caller = (crl_caller){.answered = answered, .waits = waits, .begin = begin, .gone = gone};
  call->loop = loop;
  call->async = *async;
  call->asked = *asked;
  if (asked->key_len > 0) memcpy(call->key, asked->key, asked->key_len);
  call->asked.key = call->key;
  call->asked.policy.error = NULL;
  call->deadline = crl_env_now_ms() + asked->policy.wait_ms;
  call->alarm.ring = on_alarm;
  crl_nap_init_hook(&call->nap, on_nap);
  call->next = loop->calls;
  call->link = &loop->calls;
  if (call->next != NULL) call->next->link = &call->next;
  loop->calls = call;
  pthread_mutex_lock(&loop->mutex);
  loop->refs++;
  pthread_mutex_unlock(&loop->mutex);
  return call;
}

/* From the near tier, or on the way. */
static int set_out(corral_call *call) {
  crl_outcome outcome;
  if (!crl_run_near(call->loop->station, &call->asked, &call->asked.early, &outcome)) return enter(call, CRL_ALONE_NOT);
  crl_event_emit(&call->loop->station->events, CORRAL_EVENT_NEAR, call->asked.key, call->asked.key_len, NULL);
  pthread_mutex_lock(&call->loop->mutex);
  take_answer(call, &outcome);
  pthread_mutex_unlock(&call->loop->mutex);
  return CORRAL_OK;
}

static int begin_call(corral_call *call, int status, corral_call **ret, corral_error *error) {
  if (status == CORRAL_OK) {
    if (ret != NULL) *ret = call;
    return CORRAL_OK;
  }
  unlink_call(call);
  free_call(call);
  return crl_status_plain(error, status);
}

int corral_get_async(corral_loop *loop, const void *key, size_t key_len, const corral_policy *policy, const corral_async *async, corral_call **ret) {
  corral_async callbacks;
  crl_call asked = {0};
  corral_error *error = crl_handle_error(policy);
  int status = check_loop(loop, error);
  if (status == CORRAL_OK) status = check_async(async, &callbacks, error);
  if (status == CORRAL_OK) status = crl_handle_call(loop->c, key, key_len, policy, &asked);
  if (status != CORRAL_OK) return status;
  if (callbacks.start != NULL) asked.start = callbacks.start;
  else crl_handle_bind(loop->c, &asked);
  asked.bound = 1;
  if (crl_run_recurses(loop->station, key, key_len)) return crl_status_plain(error, CORRAL_ERECURSION);
  corral_call *call = new_call(loop, &callbacks, &asked);
  if (call == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  return begin_call(call, set_out(call), ret, error);
}

static void end_work(corral_call *call, int status, const corral_error *error) {
  crl_outcome outcome = crl_outcome_plain(status);
  if (status != CORRAL_OK && error->status == status) outcome.error = *error;
  pthread_mutex_lock(&call->loop->mutex);
  take_answer(call, &outcome);
  pthread_mutex_unlock(&call->loop->mutex);
  run_gone(call);
}

static void work(crl_job *job) {
  corral_call *call = (corral_call *)(void *)((char *)job - offsetof(corral_call, job));
  corral_error error = {0};
  int status = call->work(call->loop->c, call->async.arg, &error);
  end_work(call, status, &error);
}

static void drop_work(crl_job *job) {
  corral_error none = {0};
  end_work((corral_call *)(void *)((char *)job - offsetof(corral_call, job)), CORRAL_ECLOSED, &none);
}

int corral_run_async(corral_loop *loop, corral_work *function, const corral_async *async, corral_call **ret) {
  corral_async callbacks;
  crl_call nothing = {0};
  int status = check_loop(loop, NULL);
  if (status == CORRAL_OK) status = check_async(async, &callbacks, NULL);
  if (status != CORRAL_OK || function == NULL) return status != CORRAL_OK ? status : CORRAL_EINVAL;
  corral_call *call = new_call(loop, &callbacks, &nothing);
  if (call == NULL) return CORRAL_ENOMEM;
  call->work = function;
  call->runs = 1;
  call->job = (crl_job){.run = work, .drop = drop_work};
  int submitted = crl_workers_submit(loop->station->workers, &call->job) == 0;
  if (!submitted) call->runs = 0;
  return begin_call(call, submitted ? CORRAL_OK : CORRAL_EIO, ret, NULL);
}

void corral_call_cancel(corral_call *call) {
  if (call == NULL || call->state == ENDED) return;
  if (call->state == JOINED) leave(call, CRL_WAIT_LEFT);
  call->state = ENDED;
  pthread_mutex_lock(&call->loop->mutex);
  call->is_cancelled = 1;
  if (call->flying != NULL) {
    atomic_store(&call->flying->left, 1);
    crl_pilot_wake(call->flying);
    call->flying = NULL;
  }
  post(call->loop, &call->mail);
  pthread_mutex_unlock(&call->loop->mutex);
}

int corral_peek(corral *c, const void *key, size_t key_len, const corral_policy *policy, corral_value **ret) {
  crl_call call = {0};
  crl_outcome outcome;
  corral_error *error = crl_handle_error(policy);
  if (ret == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_peek: no ret");
  int status = crl_handle_call(c, key, key_len, policy, &call);
  if (status != CORRAL_OK) return status;
  crl_station *station;
  if ((status = crl_handle_enter(c, &station, error)) != CORRAL_OK) return status;
  if (!crl_run_near(station, &call, &call.early, &outcome)) return crl_status_plain(error, CORRAL_EMISS);
  crl_event_emit(&station->events, CORRAL_EVENT_NEAR, key, key_len, NULL);
  return crl_outcome_deliver(&outcome, error, ret);
}
