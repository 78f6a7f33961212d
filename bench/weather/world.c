/* world.c: one fleet: its store, its origin, its processes, the schedule of its calls; and what the
 * weather does to them. */
#include "weather.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kit.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum { SLOWED = 10, PATIENCE_US = 30000000 };

double plan_capacity(const plan *p) { return p->workers * 1e6 / (double)p->cost_us; }

const char *guard_name(guard g) {
  static const char *const names[GUARDS] = {"none", "lock", "corral", "near", "ramp"};
  return names[g];
}

/* ---- the schedule -------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014); 0 to 1. */
static double roll(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* Independent callers (a Poisson process). By Zipf's law key n is asked for 1/n as often as the
 * first. All guards of a load get the same schedule. */
static void schedule(world *w, int64_t lasts_us) {
  board *b = w->board;
  double rate = w->load * plan_capacity(w->plan) / 1e6, at = 0, sum = 0;
  double *upto = calloc((size_t)w->keys, sizeof *upto);
  uint64_t seed = (uint64_t)(w->load * 1000) + 1;
  if (upto == NULL) die("no memory");
  for (int i = 0; i < w->keys; i++) upto[i] = sum += w->scenario->keys > 0 ? 1 : 1.0 / (i + 1);
  while ((at -= log(1 - roll(&seed)) / rate) < (double)lasts_us) {
    if (b->arrival_count == ARRIVALS) die("too many calls for one scenario: take less load");
    arrival *a = &b->arrivals[b->arrival_count++];
    double dice = roll(&seed) * sum;
    a->at_us = (int64_t)at;
    while (a->key < w->keys - 1 && upto[a->key] < dice) a->key++;
  }
  free(upto);
}

/* ---- processes ----------------------------------------------------------------------------- */

static pid_t fork_process(void) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid < 0) die("no process");
  return pid;
}

static void start(world *w, int number) {
  if ((w->pids[number] = fork_process()) == 0) fleet_process(w, number);
}

static void end(pid_t *pid) {
  if (*pid > 0 && kill(*pid, SIGKILL) == 0) waitpid(*pid, NULL, 0);
  *pid = 0;
}

static void end_process(world *w, int number) {
  atomic_store(&w->board->up[number], 0);
  end(&w->pids[number]);
  atomic_store(&w->board->computing[number], 0);
}

static void await_socket(const char *path) {
  for (int64_t until = clock_us() + PATIENCE_US; access(path, F_OK) != 0;) {
    if (clock_us() > until) die("a process does not begin to listen");
    sleep_until_us(clock_us() + 1000);
  }
}

static void start_store(world *w) {
  char folder[] = "/tmp/corral-weather-XXXXXX", file[PATH];
  const char *socket = NULL;
  if (w->plan->store == STORE_LMDB) {
    if (mkdtemp(folder) == NULL) die("no temporary folder");
    snprintf(file, sizeof file, "%s/store", folder);
    socket = file;
  } else if (w->plan->store == STORE_REDIS) {
    redis_server *server;
    static const char *const args[] = {"--maxclients", "9000", NULL};
    if (!redis_server_start(&server, args)) exit(77);
    socket = redis_server_socket(w->server = server);
  } else {
    memcached_server *server;
    static const char *const args[] = {"-c", "9000", NULL};
    if (!memcached_server_start_unix(&server, args)) exit(77);
    socket = memcached_server_uri(w->server = server) + strlen("memcached+unix://");
  }
  snprintf(w->socket, sizeof w->socket, "%s", socket);
}

/* Processes of corral notice that, and begin a new file. */
static void remove_file(const world *w) {
  char lock[PATH + 8];
  snprintf(lock, sizeof lock, "%s-lock", w->socket);
  unlink(w->socket);
  unlink(lock);
}

void world_make(world *w, const plan *p, const scenario *s, guard g, double load) {
  *w = (world){.plan = p,
               .scenario = s,
               .guard = g,
               .load = load,
               .keys = s->keys > 0 ? s->keys : p->keys,
               .ttl_us = s->ttl_us > 0 ? s->ttl_us : p->ttl_us};
  w->board =
      mmap(NULL, sizeof *w->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (w->board == MAP_FAILED) die("no memory");
  atomic_store(&w->board->slow, 1);
  schedule(w, p->before_us + s->lasts_us + p->after_us);
  start_store(w);
  snprintf(w->folder, sizeof w->folder, "%.*s", (int)(strrchr(w->socket, '/') - w->socket),
           w->socket);
  snprintf(w->origin, sizeof w->origin, "%.80s/origin", w->folder);
  if ((w->origin_pid = fork_process()) == 0) origin_serve(w);
  await_socket(w->origin);
  if (s->trigger != TRIGGER_PARTITION) return;
  snprintf(w->cut, sizeof w->cut, "%.80s/cut", w->folder);
  if ((w->proxy_pid = fork_process()) == 0) proxy_serve(w->cut, w->socket);
  await_socket(w->cut);
}

/* Has a process of its own use the store: what the controller opens, all others would inherit. */
static void aside(world *w, void (*use)(const world *w)) {
  int status = 0;
  pid_t pid = fork_process();
  if (pid == 0) {
    use(w);
    _exit(0);
  }
  if (waitpid(pid, &status, 0) != pid || status != 0) die("the store was not filled, or emptied");
}

static void fill(const world *w) {
  guard_open(w, w->plan->processes);
  guard_fill(w);
}

void world_fill(world *w) {
  if (w->scenario->keys > 0) aside(w, fill);
}

void world_begin(world *w, int64_t begin_us) {
  w->board->begin_us = begin_us;
  for (int i = 0; i < w->plan->processes; i++) start(w, i);
}

static void remove_folder_of(world *w) {
  DIR *folder = opendir(w->folder);
  for (struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;)
    (void)unlinkat(dirfd(folder), e->d_name, 0);
  if (folder != NULL) closedir(folder);
  if (rmdir(w->folder) != 0) fprintf(stderr, "%s stays behind\n", w->folder);
}

void world_end(world *w) {
  for (int i = 0; i < w->plan->processes; i++) end_process(w, i);
  end(&w->origin_pid);
  end(&w->proxy_pid);
  if (w->plan->store == STORE_LMDB)
    remove_folder_of(w);
  else if (w->plan->store == STORE_REDIS)
    redis_server_stop(w->server);
  else
    memcached_server_stop(w->server);
  munmap(w->board, sizeof *w->board);
}

/* ---- the weather --------------------------------------------------------------------------- */

static void empty(const world *w) {
  plain_open(w->plan->store, w->socket);
  for (int64_t until = clock_us() + PATIENCE_US; plain_flush() != PLAIN_OK;)
    if (clock_us() > until) die("the store was not emptied");
}

static void flush(world *w) {
  if (w->plan->store == STORE_LMDB && w->guard >= GUARD_CORRAL)
    remove_file(w);
  else
    aside(w, empty);
}

static void kill_leader(world *w) {
  int most = 0;
  for (int i = 1; i < w->plan->processes; i++)
    if (atomic_load(&w->board->computing[i]) > atomic_load(&w->board->computing[most])) most = i;
  end_process(w, most);
}

static void pause_store(world *w) {
  if (w->plan->store == STORE_REDIS)
    redis_server_pause(w->server);
  else
    memcached_server_pause(w->server);
}

static void resume_store(world *w) {
  if (w->plan->store == STORE_REDIS)
    redis_server_resume(w->server);
  else
    memcached_server_resume(w->server);
}

static void restart(world *w) {
  for (int i = 0; i < w->plan->processes; i++) end_process(w, i);
  if (w->scenario->trigger == TRIGGER_COLD) flush(w);
  for (int i = 0; i < w->plan->processes; i++) start(w, i);
}

void world_strike(world *w) {
  switch (w->scenario->trigger) {
    case TRIGGER_STALL: pause_store(w); break;
    case TRIGGER_FLUSH: flush(w); break;
    case TRIGGER_SLOW: atomic_store(&w->board->slow, SLOWED); break;
    case TRIGGER_HERD:
    case TRIGGER_KILL: flush(w); break;
    case TRIGGER_PARTITION: kill(w->proxy_pid, SIGSTOP); break;
    case TRIGGER_RESTART:
    case TRIGGER_COLD: restart(w); break;
  }
}

void world_strike_again(world *w) {
  if (w->scenario->trigger == TRIGGER_KILL) kill_leader(w);
  if (w->scenario->trigger == TRIGGER_HERD) pause_store(w);
}

void world_calm(world *w) {
  switch (w->scenario->trigger) {
    case TRIGGER_HERD:
    case TRIGGER_STALL: resume_store(w); break;
    case TRIGGER_SLOW: atomic_store(&w->board->slow, 1); break;
    case TRIGGER_KILL:
      for (int i = 0; i < w->plan->processes; i++)
        if (w->pids[i] == 0) start(w, i);
      break;
    case TRIGGER_PARTITION: kill(w->proxy_pid, SIGCONT); break;
    default: break;
  }
}
