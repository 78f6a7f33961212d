/* redlock_member.c: one server of several: its thread and its mailbox.
 *
 * A mailbox is first in, first out, so an UNLOCK never overtakes the LOCK that it ends. Its entries
 * go to the server as one batch. The caller waits no longer than the task's deadline, whatever this
 * thread is doing; an entry past its deadline isn't sent any more.
 *
 * An UNLOCK without a reply stays at the front, and is tried again, with pauses that double, until
 * any hold that it could end is over. A doubtful connection is reset, not closed: bytes that the
 * kernel has still to send on it must not arrive behind those of the next connection. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "redlock.h"

enum { PAUSE_LEAST_MS = 50, PAUSE_MOST_MS = 2000 };
/* offsets in the record of a lock */
enum { AT_COUNT = 4, AT_UNTIL = 24, AT_SINCE = 32, AT_FENCE = 40, AT_NOTE = 48 };

void crl_redlock_cond_init(pthread_cond_t *cond) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &attr);
  pthread_condattr_destroy(&attr);
}

void crl_redlock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until) {
  struct timespec ts = {.tv_sec = (time_t)(until / 1000),
                        .tv_nsec = (long)(until % 1000) * 1000000};
  pthread_cond_timedwait(cond, mutex, &ts);
}

/* ---- tasks --------------------------------------------------------------------------------- */

/* The note that the verb is to write. */
static const char *note_of(const corral_op *op, corral_verb verb, size_t *ret_len) {
  int takes_over = op->verb == CORRAL_VERB_LOCK_EXTEND && op->lock_extend.from != NULL;
  const char *note = NULL;
  *ret_len = 0;
  if (verb == CORRAL_VERB_LOCK) note = op->lock.note, *ret_len = op->lock.note_len;
  if (takes_over && verb == CORRAL_VERB_LOCK_EXTEND)
    note = op->lock_extend.note, *ret_len = op->lock_extend.note_len;
  if (note == NULL) *ret_len = 0;
  return note;
}

crl_redlock_task *crl_redlock_task_new(const corral_op *op, corral_verb verb, int64_t deadline) {
  size_t note_len;
  const char *note = note_of(op, verb, &note_len);
  crl_redlock_task *task = calloc(1, sizeof *task + op->key_len + note_len);
  if (task == NULL) return NULL;
  task->refs = 1;
  task->verb = verb;
  task->flags = verb == CORRAL_VERB_LOCK_SHOW ? op->flags & CORRAL_OP_REPAIR : 0;
  if (op->verb == CORRAL_VERB_LOCK || op->verb == CORRAL_VERB_LOCK_EXTEND)
    task->hold_ms = corral_op_hold_ms(op);
  if (verb == CORRAL_VERB_LOCK_SHOW) task->foreign_ms = op->lock_show.foreign_ms;
  task->deadline = deadline;
  if (op->token != NULL) memcpy(task->token, op->token, CORRAL_TOKEN);
  memcpy(task->bytes, op->key, op->key_len);
  task->key = task->bytes;
  task->key_len = op->key_len;
  task->has_from =
      verb == CORRAL_VERB_LOCK_EXTEND && op->verb == verb && op->lock_extend.from != NULL;
  if (task->has_from) memcpy(task->from, op->lock_extend.from, CORRAL_TOKEN);
  if (note_len > 0) memcpy(task->bytes + op->key_len, note, note_len);
  task->note = (const char *)task->bytes + op->key_len;
  task->note_len = note_len;
  for (size_t i = 0; i < CRL_REDLOCK_MEMBERS; i++) {
    task->answers[i].status = CRL_REDLOCK_PENDING;
    task->entries[i].task = task;
  }
  crl_redlock_cond_init(&task->told);
  return task;
}

void crl_redlock_drop(crl_redlock_task *task) {
  if (--task->refs > 0) return;
  pthread_cond_destroy(&task->told);
  free(task);
}

static uint64_t number_at(const uint8_t *at) {
  uint64_t number = 0;
  for (unsigned i = 0; i < 8; i++) number |= (uint64_t)at[i] << (8 * i);
  return number;
}

/* Reads the hold in a lock's record, which is exclusive, since this store makes no shared ones. */
static void read_hold(crl_redlock_answer *answer, const corral_op *op) {
  size_t count = op->found.len >= CORRAL_LOCK_HEAD
                     ? op->found.record[AT_COUNT] | (size_t)op->found.record[AT_COUNT + 1] << 8
                     : 0;
  answer->now = op->lock_state.now;
  for (size_t i = 0;
       i < count && !answer->held && op->found.len >= CORRAL_LOCK_HEAD + (i + 1) * CORRAL_LOCK_HOLD;
       i++) {
    const uint8_t *at = op->found.record + CORRAL_LOCK_HEAD + i * CORRAL_LOCK_HOLD;
    corral_hold *hold = &answer->hold;
    memcpy(hold->token, at, CORRAL_TOKEN);
    hold->mode = CORRAL_LOCK_EXCLUSIVE;
    hold->until = (int64_t)number_at(at + AT_UNTIL);
    hold->since = (int64_t)number_at(at + AT_SINCE);
    hold->fence = number_at(at + AT_FENCE);
    memcpy(hold->note, at + AT_NOTE, CORRAL_LOCK_NOTE);
    answer->held = hold->until > answer->now;
    answer->fence = answer->held ? hold->fence : 0;
  }
}

static void answer(const crl_redlock_member *m, crl_redlock_entry *entry, const corral_op *op,
                   const corral_error *why) {
  crl_redlock_task *task = entry->task;
  crl_redlock_answer *to = &task->answers[m->index];
  *to = (crl_redlock_answer){
      .status = op->status, .left_ms = op->lock_state.left_ms, .fence = op->lock_state.fence};
  if (op->status == CORRAL_OK && op->found.record != NULL) read_hold(to, op);
  if (op->status != CORRAL_OK && task->why.text[0] == '\0' && why->text[0] != '\0')
    task->why = *why;
  entry->tried = 1;
  pthread_cond_signal(&task->told);
}

/* ---- the mailbox --------------------------------------------------------------------------- */

static void append(crl_redlock_member *m, crl_redlock_entry *entry) {
  entry->next = NULL;
  *m->end = entry;
  m->end = &entry->next;
  m->queued++;
  m->fresh += !entry->tried;
}

static crl_redlock_entry *take(crl_redlock_member *m) {
  crl_redlock_entry *entry = m->first;
  m->first = entry->next;
  if (m->first == NULL) m->end = &m->first;
  m->queued--;
  m->fresh -= !entry->tried;
  return entry;
}

static void push(crl_redlock_member *m, crl_redlock_entry *entry) {
  entry->next = m->first;
  m->first = entry;
  if (entry->next == NULL) m->end = &entry->next;
  m->queued++;
  m->fresh += !entry->tried;
}

void crl_redlock_post(crl_redlock *lock, crl_redlock_task *task, uint32_t members) {
  pthread_mutex_lock(&lock->mutex);
  for (size_t i = 0; i < lock->count; i++) {
    if ((members >> i & 1) == 0) continue;
    task->refs++;
    append(&lock->members[i], &task->entries[i]);
    pthread_cond_signal(&lock->members[i].wake);
  }
  pthread_mutex_unlock(&lock->mutex);
}

/* Drops the entries that need not be sent any more. */
static void weed(crl_redlock_member *m) {
  static const corral_op late = {.status = CORRAL_EUNAVAILABLE};
  static const corral_error none;
  int64_t now = m->lock->host->now_ms();
  for (size_t left = m->queued; left > 0; left--) {
    crl_redlock_entry *entry = take(m);
    crl_redlock_task *task = entry->task;
    int unlock = task->verb == CORRAL_VERB_UNLOCK;
    int over = unlock ? entry->tried && (now >= task->until || m->queued >= CRL_REDLOCK_OWED)
                      : now >= task->deadline;
    if (!over) {
      append(m, entry);
      continue;
    }
    if (!unlock) answer(m, entry, &late, &none);
    crl_redlock_drop(task);
  }
}

/* ---- asking -------------------------------------------------------------------------------- */

/* Deadline for the server: the latest of the entries not tried yet. Entries with an earlier one may
 * be answered late, since their callers don't wait for them any more. */
static int64_t limit(const crl_redlock_member *m) {
  int64_t now = m->lock->host->now_ms(), last = now;
  for (const crl_redlock_entry *entry = m->first; entry != NULL; entry = entry->next)
    if (!entry->tried && entry->task->deadline > last) last = entry->task->deadline;
  return last > now ? last : now + m->lock->server_ms;
}

/* Sets the pause after which owed UNLOCKs are tried again. */
static void rest(crl_redlock_member *m) {
  m->pause_ms = m->pause_ms == 0                  ? PAUSE_LEAST_MS
                : m->pause_ms * 2 < PAUSE_MOST_MS ? m->pause_ms * 2
                                                  : PAUSE_MOST_MS;
  m->retry_at = m->lock->host->now_ms() + m->pause_ms;
}

/* 1: the UNLOCK is owed, since a hold that it should end may exist. */
static int is_owed(const crl_redlock_task *task, int status) {
  return task->verb == CORRAL_VERB_UNLOCK && status != CORRAL_OK && status != CORRAL_ELOST &&
         status != CORRAL_EFOREIGN && status != CORRAL_EUNSUPPORTED && status != CORRAL_EINVAL;
}

/* Connects, with the mutex released meanwhile. On failure the entries that were in the mailbox
 * before are answered. */
static int reach(crl_redlock_member *m) {
  crl_redlock *lock = m->lock;
  size_t waiting = m->queued;
  int64_t deadline = limit(m);
  void *handle = NULL;
  corral_error why = {0};
  corral_op op = {0};
  pthread_mutex_unlock(&lock->mutex);
  op.status = crl_redis_connect(m->store, deadline, &handle, &why);
  pthread_mutex_lock(&lock->mutex);
  m->handle = handle;
  if (op.status == CORRAL_OK) return 1;
  /* owed UNLOCKs go back to the front, in their order: before later entries, which may be a LOCK by
   * the same token */
  crl_redlock_entry *owed = NULL;
  for (; waiting > 0; waiting--) {
    crl_redlock_entry *entry = take(m);
    answer(m, entry, &op, &why);
    if (entry->task->verb == CORRAL_VERB_UNLOCK) {
      entry->next = owed;
      owed = entry;
    } else {
      crl_redlock_drop(entry->task);
    }
  }
  while (owed != NULL) {
    crl_redlock_entry *entry = owed;
    owed = entry->next;
    push(m, entry);
  }
  rest(m);
  return 0;
}

static void set_args(corral_op *op, const crl_redlock_task *task) {
  switch (task->verb) {
    case CORRAL_VERB_LOCK:
      op->lock = (corral_lock_args){.hold_ms = task->hold_ms,
                                    .note = task->note_len > 0 ? task->note : NULL,
                                    .note_len = task->note_len};
      break;
    case CORRAL_VERB_LOCK_EXTEND:
      op->lock_extend = (corral_lock_extend_args){.hold_ms = task->hold_ms,
                                                  .fence = task->fence,
                                                  .from = task->has_from ? task->from : NULL,
                                                  .note = task->note,
                                                  .note_len = task->note_len};
      break;
    case CORRAL_VERB_LOCK_SHOW: op->lock_show.foreign_ms = task->foreign_ms; break;
    default: break;
  }
}

static size_t fill(crl_redlock_member *m) {
  size_t count = 0;
  for (; count < CRL_REDLOCK_BATCH && m->first != NULL; count++) {
    crl_redlock_entry *entry = m->batch[count] = take(m);
    const crl_redlock_task *task = entry->task;
    memset(&m->errors[count], 0, sizeof *m->errors);
    m->ops[count] = (corral_op){.verb = task->verb,
                                .flags = task->flags,
                                .key = task->key,
                                .key_len = task->key_len,
                                .token = task->token,
                                .status = CORRAL_EINDOUBT,
                                .error = &m->errors[count]};
    set_args(&m->ops[count], task);
  }
  return count;
}

/* Handles the answers of a batch, from the last to the first, since entries that go back go to the
 * front. */
static void hear(crl_redlock_member *m, size_t count, int broken, const corral_error *why) {
  int owes = 0;
  while (count-- > 0) {
    crl_redlock_entry *entry = m->batch[count];
    corral_op *op = &m->ops[count];
    if (broken && op->status == CORRAL_EUNAVAILABLE && !entry->resent) {
      /* the server had closed an idle connection, or was restarted: the entry is sent again on
       * another connection */
      entry->resent = 1;
      push(m, entry);
      continue;
    }
    answer(m, entry, op, m->errors[count].text[0] != '\0' ? &m->errors[count] : why);
    if (op->found.record != NULL && op->found.drop != NULL) op->found.drop(op->found.owner);
    if (is_owed(entry->task, op->status)) {
      push(m, entry);
      owes = 1;
    } else {
      crl_redlock_drop(entry->task);
    }
  }
  if (owes) {
    rest(m);
  } else {
    m->retry_at = m->pause_ms = 0;
  }
}

static void hang_up(crl_redlock_member *m) {
  struct linger at_once = {.l_onoff = 1};
  setsockopt(m->handle->wire.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  crl_redis_disconnect(m->handle);
  m->handle = NULL;
}

static void ask(crl_redlock_member *m) {
  crl_redlock *lock = m->lock;
  weed(m);
  if (m->queued == 0 || (m->handle == NULL && !reach(m))) return;
  weed(m);
  int64_t deadline = limit(m);
  size_t count = fill(m);
  if (count == 0) return;
  corral_error why = {0};
  pthread_mutex_unlock(&lock->mutex);
  corral_batch batch = {.ops = m->ops, .count = count, .op_size = sizeof *m->ops};
  int status = crl_redis_perform(m->handle, &batch, deadline, &why);
  if (status != CORRAL_OK) hang_up(m);
  pthread_mutex_lock(&lock->mutex);
  hear(m, count, status != CORRAL_OK, &why);
}

static void *serve(void *arg) {
  crl_redlock_member *m = arg;
  crl_redlock *lock = m->lock;
  pthread_setname_np(pthread_self(), "corral-redlock");
  pthread_mutex_lock(&lock->mutex);
  while (m->fresh > 0 || !lock->stops) {
    if (m->fresh > 0 || (m->queued > 0 && lock->host->now_ms() >= m->retry_at))
      ask(m);
    else if (m->queued > 0)
      crl_redlock_cond_wait(&m->wake, &lock->mutex, m->retry_at);
    else
      pthread_cond_wait(&m->wake, &lock->mutex);
  }
  while (m->first != NULL) crl_redlock_drop(take(m)->task);
  pthread_mutex_unlock(&lock->mutex);
  if (m->handle != NULL) crl_redis_disconnect(m->handle);
  m->handle = NULL;
  return NULL;
}

int crl_redlock_start(crl_redlock *lock, corral_error *error) {
  sigset_t all, old;
  int failed = 0;
  sigfillset(&all);
  pthread_mutex_lock(&lock->mutex);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (; lock->started < lock->count && failed == 0; lock->started += failed == 0) {
    crl_redlock_member *m = &lock->members[lock->started];
    failed = pthread_create(&m->thread, NULL, serve, m);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_mutex_unlock(&lock->mutex);
  return failed == 0 ? CORRAL_OK
                     : lock->host->fail(error, CORRAL_EIO, "%s: no thread for each server: %s",
                                        lock->name, strerror(failed));
}

void crl_redlock_stop(crl_redlock *lock) {
  pthread_mutex_lock(&lock->mutex);
  lock->stops = 1;
  for (size_t i = 0; i < lock->count; i++) pthread_cond_signal(&lock->members[i].wake);
  pthread_mutex_unlock(&lock->mutex);
  for (size_t i = 0; i < lock->started; i++) pthread_join(lock->members[i].thread, NULL);
}
