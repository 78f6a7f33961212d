/* http_storm.c: many HTTP clients at once, each on its own thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http_client.h"

enum { STACK = 1 << 18 };

typedef struct rider {
  http_storm_run *run;
  pthread_t thread;
  int number;
} rider;

struct http_storm_run {
  http_storm plan;
  rider *riders;
  pthread_barrier_t gate;
  atomic_int ends, answered;
  pthread_mutex_t mutex; /* guards the result */
  http_storm_result result;
  int room;
};

static int count_of(const char *const *list) {
  int count = 0;
  while (list != NULL && list[count] != NULL) count++;
  return count;
}

static void note_error(http_storm_result *result, const http_reply *reply) {
  if (result->error[0] != '\0') return;
  if (reply->status == 0)
    snprintf(result->error, sizeof result->error, "%s",
             reply->error[0] != '\0' ? reply->error : "no answer");
  else
    snprintf(result->error, sizeof result->error, "%d: %.80s", reply->status, reply->body);
}

static void note(http_storm_run *run, http_reply *reply) {
  http_storm_result *result = &run->result;
  const char *expected = run->plan.expected;
  size_t size =
      expected == NULL || run->plan.expected_size > 0 ? run->plan.expected_size : strlen(expected);
  int is_good =
      reply->status == 200 &&
      (expected == NULL || (reply->size == size && memcmp(reply->body, expected, size) == 0));
  pthread_mutex_lock(&run->mutex);
  result->count++;
  result->statuses[reply->status]++;
  if (is_good)
    result->good++;
  else
    note_error(result, reply);
  result->errors += reply->status == 0;
  result->repeated += reply->is_repeated;
  if (reply->status == 200 && !is_good) result->wrong_bodies++;
  if (reply->status == 200 && result->body != NULL)
    result->same_bodies &=
        reply->size == result->body_size && memcmp(reply->body, result->body, reply->size) == 0;
  if (reply->status == 200 && result->body == NULL) {
    result->body = reply->body;
    result->body_size = reply->size;
    reply->body = NULL;
  }
  if (reply->status != 0) {
    if (result->times == run->room) {
      run->room = run->room * 2 + 1024;
      result->times_us = realloc(result->times_us, sizeof *result->times_us * (size_t)run->room);
      if (result->times_us == NULL) abort();
    }
    result->times_us[result->times++] = reply->took_us;
  }
  pthread_mutex_unlock(&run->mutex);
  atomic_fetch_add(&run->answered, reply->status != 0);
}

static void *ride(void *arg) {
  const rider *self = arg;
  http_storm_run *run = self->run;
  const http_storm *plan = &run->plan;
  int addresses = count_of(plan->addresses), paths = count_of(plan->paths);
  http_client *client =
      http_client_new(addresses > 0 ? plan->addresses[self->number % addresses] : plan->address);
  (void)http_client_connect(client);
  pthread_barrier_wait(&run->gate);
  for (int n = 0; plan->requests_each > 0 ? n < plan->requests_each : !atomic_load(&run->ends);
       n++) {
    http_request request = {.method = plan->method,
                            .path = plan->path,
                            .headers = plan->headers,
                            .closes = plan->closes};
    if (paths > 0) request.path = plan->paths[(self->number + n) % paths];
    http_reply reply = http_client_ask(client, &request);
    note(run, &reply);
    http_reply_free(&reply);
  }
  http_client_free(client);
  return NULL;
}

http_storm_run *http_client_storm_start(const http_storm *plan) {
  http_storm_run *run = calloc(1, sizeof *run);
  pthread_attr_t attr;
  if (run == NULL || plan->connections < 1) abort();
  run->plan = *plan;
  run->result.same_bodies = 1;
  run->riders = calloc((size_t)plan->connections, sizeof *run->riders);
  if (run->riders == NULL) abort();
  pthread_mutex_init(&run->mutex, NULL);
  pthread_barrier_init(&run->gate, NULL, (unsigned)plan->connections + 1);
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, STACK);
  for (int i = 0; i < plan->connections; i++) {
    run->riders[i] = (rider){.run = run, .number = i};
    if (pthread_create(&run->riders[i].thread, &attr, ride, &run->riders[i]) != 0) abort();
  }
  pthread_attr_destroy(&attr);
  pthread_barrier_wait(&run->gate);
  return run;
}

int http_client_storm_answered(http_storm_run *run) { return atomic_load(&run->answered); }

static int by_size(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

http_storm_result http_client_storm_end(http_storm_run *run) {
  http_storm_result *result = &run->result;
  atomic_store(&run->ends, 1);
  for (int i = 0; i < run->plan.connections; i++) pthread_join(run->riders[i].thread, NULL);
  if (result->times > 0) {
    qsort(result->times_us, (size_t)result->times, sizeof *result->times_us, by_size);
    result->p50_us = result->times_us[result->times / 2];
    result->p99_us = result->times_us[(int64_t)result->times * 99 / 100];
    result->max_us = result->times_us[result->times - 1];
  }
  http_storm_result ended = *result;
  pthread_barrier_destroy(&run->gate);
  pthread_mutex_destroy(&run->mutex);
  free(run->riders);
  free(run);
  return ended;
}

http_storm_result http_client_storm(const http_storm *plan) {
  return http_client_storm_end(http_client_storm_start(plan));
}

void http_storm_free(http_storm_result *result) {
  free(result->times_us);
  free(result->body);
  memset(result, 0, sizeof *result);
}
