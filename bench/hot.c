/* hot.c: what a hot key costs its Redis: 4 processes share a load by Zipf's law, of which one of
 * 1000 keys has 30 %; the server's commands about this key, by MONITOR, with the option hot at 5 %
 * and without. From the beginning, while no key is known for hot; near_ms is its default of 1 s.
 * The counts are exact. It starts its own server.
 *
 *   bench_hot [GETS]     50000 of each process */
#include <corral.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"
#include "support/redis_server.h"
#include "support/zipf_kit.h"

enum { PROCESSES = 4, PERCENT = 5 };

static redis_server *server;
static long gets = 50000;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

static void ask_by_zipf(int process, int64_t hot_pct) {
  static zipf z;
  corral *c;
  corral_error error;
  zipf_init(&z, (uint64_t)process + 1);
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_unix_uri(server), .hot_pct = hot_pct), &c,
                  &error) != CORRAL_OK)
    die(error.text);
  for (long i = 0; i < gets; i++) {
    char key[20];
    corral_value *value;
    size_t len = (size_t)snprintf(key, sizeof key, "zipf %d", zipf_next(&z));
    const corral_policy *policy = CORRAL_POLICY(.ttl_ms = 3600000);
    if (corral_get_or_compute(c, key, len, CORRAL_CALL(.policy = policy), compute, NULL, &value) !=
        CORRAL_OK)
      die("a call failed");
    corral_value_unref(value);
  }
  corral_close(c);
}

/* Counts the commands about the first key until ECHO says that it is over. */
static void *listen_to(void *arg) {
  long *count = arg;
  void *reply = NULL;
  int is_over = 0;
  redisContext *monitor = redisConnectUnix(redis_server_socket(server));
  if (monitor == NULL || monitor->err != 0) die("no connection");
  freeReplyObject(redisCommand(monitor, "MONITOR"));
  while (!is_over && redisGetReply(monitor, &reply) == REDIS_OK) {
    const char *line = ((redisReply *)reply)->str;
    is_over = strstr(line, "it-is-over") != NULL;
    *count += strstr(line, "\"zipf 0\"") != NULL;
    freeReplyObject(reply);
  }
  redisFree(monitor);
  return NULL;
}

static long commands_with(int64_t hot_pct) {
  pid_t children[PROCESSES];
  pthread_t listener;
  long count = 0;
  redis_server_ask(server, "FLUSHALL");
  if (pthread_create(&listener, NULL, listen_to, &count) != 0) die("no thread");
  while (redis_server_info(server, "connected_clients") < 2) usleep(1000);
  for (int i = 0; i < PROCESSES; i++) {
    children[i] = fork();
    if (children[i] < 0) die("no process");
    if (children[i] > 0) continue;
    ask_by_zipf(i, hot_pct);
    _exit(0);
  }
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    if (waitpid(children[i], &status, 0) < 0 || status != 0) die("a process failed");
  }
  freeReplyObject(redis_server_command(server, "ECHO it-is-over"));
  pthread_join(listener, NULL);
  return count;
}

int main(int argc, char **argv) {
  if (argc > 1) gets = strtol(argv[1], NULL, 10);
  if (!redis_server_start(&server, NULL)) die("no redis-server");
  long without = commands_with(CORRAL_OFF), with = commands_with(PERCENT);
  printf("%ld gets: commands about the hottest key: %ld, with hot=%d%% %ld, ratio %.4f\n",
         gets * PROCESSES, without, PERCENT, with, (double)with / (double)without);
  redis_server_stop(server);
  return 0;
}
