/* test_instructions.c: what a hit costs its thread, counted step by step: instructions, system
 * calls, bytes of stack and bytes allocated.
 *
 * Built as a release is. A hit stands between two breakpoints; from the first to the second one the
 * processor's trap flag has each instruction raise SIGTRAP, whose handler counts it. The bounds are
 * those of gcc on x86-64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include "support/folder_kit.h"
#include "support/redis_server.h"
#include "support/server_process.h"

#if defined __x86_64__ && !defined __clang__

enum {
  HITS = 16,
  WARM = 5,
  VALUE = 100,
  HOUR_MS = 3600000,
  PATIENCE_MS = 60000,
  ROOM = 1 << 18,
  TURNS = 8
};

typedef struct price {
  long instructions, calls, stack, allocations, bytes;
} price;

/* ---- counting ------------------------------------------------------------------------------ */

static price now;
static uint64_t top; /* of the stack, where the hit begins */

/* The first instructions of functions that allocate. */
static uint64_t malloc_at, calloc_at, realloc_at, aligned_at, posix_at;

/* Code of the kernel in this process, which reads the clocks. It isn't counted. */
static uint64_t vdso_begin, vdso_end;

static void allocates(uint64_t bytes) {
  now.allocations++;
  now.bytes += (long)bytes;
}

/* The instruction that comes next. */
static void count(const greg_t *r) {
  enum { SYSCALL_0 = 0x0f, SYSCALL_1 = 0x05 };
  uint64_t at = (uint64_t)r[REG_RIP];
  const unsigned char *code = (const unsigned char *)(uintptr_t)at;
  long depth = (long)(top - (uint64_t)r[REG_RSP]);
  now.instructions += at < vdso_begin || at >= vdso_end;
  now.calls += code[0] == SYSCALL_0 && code[1] == SYSCALL_1;
  if (depth > now.stack) now.stack = depth;
  if (at == malloc_at) allocates((uint64_t)r[REG_RDI]);
  if (at == calloc_at) allocates((uint64_t)r[REG_RDI] * (uint64_t)r[REG_RSI]);
  if (at == realloc_at || at == aligned_at) allocates((uint64_t)r[REG_RSI]);
  if (at == posix_at) allocates((uint64_t)r[REG_RDX]);
}

static volatile int ends; /* 1: the next breakpoint ends the count, else it begins it */

/* A busy machine may lose the flag: then there is no count. */
static void end_count(greg_t *r, greg_t flag) {
  if ((r[REG_EFL] & flag) == 0) now.instructions = LONG_MAX;
  r[REG_EFL] &= ~flag;
}

static void on_trap(int signal, siginfo_t *info, void *context) {
  enum { TRAP_FLAG = 0x100, BREAKPOINT = 0xcc };
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  (void)signal;
  if (info->si_code != TRAP_TRACE) {
    if (ends) {
      end_count(r, TRAP_FLAG);
      return;
    }
    r[REG_EFL] |= TRAP_FLAG;
    now = (price){0};
    top = (uint64_t)r[REG_RSP];
  }
  if (*(const unsigned char *)(uintptr_t)r[REG_RIP] != BREAKPOINT) count(r);
}

static void learn_vdso(void) {
  char line[PATH_MAX + 128];
  unsigned long begin, end;
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps) != NULL)
    if (strstr(line, "[vdso]") != NULL && sscanf(line, "%lx-%lx", &begin, &end) == 2) {
      vdso_begin = begin;
      vdso_end = end;
    }
  fclose(maps);
}

static uint64_t address_of(const char *function) {
  return (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, function);
}

static int set_up(void **state) {
  static char room[ROOM]; /* the handler leaves the stack of the hit alone */
  const stack_t other = {.ss_sp = room, .ss_size = sizeof room};
  struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  (void)state;
  malloc_at = address_of("malloc");
  calloc_at = address_of("calloc");
  realloc_at = address_of("realloc");
  aligned_at = address_of("aligned_alloc");
  posix_at = address_of("posix_memalign");
  assert_true(malloc_at != 0 && calloc_at != 0 && realloc_at != 0);
  learn_vdso();
  assert_int_equal(sigaltstack(&other, NULL), 0);
  return sigaction(SIGTRAP, &action, NULL);
}

/* ---- hits ---------------------------------------------------------------------------------- */

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  char text[VALUE];
  (void)key;
  (void)key_len;
  (void)arg;
  memset(text, 'x', sizeof text);
  return corral_fill_bytes(fill, text, sizeof text);
}

static inline __attribute__((always_inline)) void break_to(int end) {
  ends = end;
  __asm__ volatile("int3" ::: "memory");
}

static inline __attribute__((always_inline)) int hit(corral *c) {
  corral_value *value;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = HOUR_MS, .near_ms = HOUR_MS, .wait_ms = PATIENCE_MS);
  int status =
      corral_get_or_compute(c, "key:1234", 8, CORRAL_CALL(.policy = policy), compute, NULL, &value);
  if (status == CORRAL_OK) corral_value_unref(value);
  return status;
}

/* The stack is counted below this function's frame. */
static __attribute__((noinline)) price price_of_hit(corral *c) {
  break_to(0);
  int status = hit(c);
  break_to(1);
  assert_int_equal(status, CORRAL_OK);
  return now;
}

static int by_instructions(const void *a, const void *b) {
  const price *x = a, *y = b;
  return (x->instructions > y->instructions) - (x->instructions < y->instructions);
}

/* Once a second a hit checks files, or learns the server's clock. A hit that is counted takes long,
 * so one that isn't comes right before it. The dearest of the cheapest quarter counts, in a turn
 * without more system calls than usual. `most` has the bounds of instructions, stack and bytes, and
 * the exact numbers of the others. Returns the instructions. */
static long a_hit_costs_with(const char *stats_dir, const char *uri, int64_t near_bytes,
                             price most) {
  corral *c;
  corral_error error;
  price all[HITS], p = {0};
  if (corral_open(CORRAL_OPTIONS(.store = uri, .near_bytes = near_bytes, .stats_dir = stats_dir,
                                 .op_ms = PATIENCE_MS / 2),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  for (int i = -WARM; i < TURNS * HITS; i++) {
    assert_int_equal(hit(c), CORRAL_OK);
    if (i < 0) continue;
    all[i % HITS] = price_of_hit(c);
    if (i % HITS < HITS - 1) continue;
    qsort(all, HITS, sizeof *all, by_instructions);
    p = all[HITS / 4];
    if (p.calls <= most.calls) break;
  }
  corral_close(c);
  print_message("%s%s%.9s: %ld instructions, %ld system calls, %ld bytes of stack, %ld allocations "
                "of %ld bytes\n",
                stats_dir != NULL ? "no stats, " : "", near_bytes != 0 ? "near, " : "", uri,
                p.instructions, p.calls, p.stack, p.allocations, p.bytes);
  assert_in_range(p.instructions, 1, most.instructions);
  assert_int_equal(p.calls, most.calls);
  assert_in_range(p.stack, 1, most.stack);
  assert_int_equal(p.allocations, most.allocations);
  assert_in_range(p.bytes, 1, most.bytes);
  return p.instructions;
}

static long a_hit_costs(const char *uri, int64_t near_bytes, price most) {
  return a_hit_costs_with(NULL, uri, near_bytes, most);
}

static void a_hit_in_the_process_costs_little(void **state) {
  (void)state;
  a_hit_costs("memory:", 0, (price){1710, 0, 560, 1, 110});
}

static void a_hit_in_the_near_tier_costs_less(void **state) {
  (void)state;
  a_hit_costs("memory:", 1 << 20, (price){1230, 0, 3080, 1, 215});
}

static void a_hit_in_a_file_makes_no_system_call(void **state) {
  (void)state;
  char uri[ROOM_PATH + 16];
  snprintf(uri, sizeof uri, "lmdb:%s/store", folder);
  a_hit_costs(uri, 0, (price){2495, 0, 2390, 1, 282});
}

/* Where other plugins are left out it takes up to 17 instructions more. */
static void a_hit_on_redis_makes_two_system_calls(void **state) {
  redis_server *server;
  (void)state;
  if (!redis_server_start(&server, NULL)) skip();
  a_hit_costs(redis_server_unix_uri(server), 0, (price){2740, 2, 1070, 1, 282});
  redis_server_stop(server);
}

/* The same counters are in memory of the process then, and no look is measured. */
static void a_stats_file_costs_a_hit_in_the_process_nothing(void **state) {
  const price any = {2000, 0, 4000, 1, 400};
  (void)state;
  for (int near = 0; near < 2; near++) {
    int64_t bytes = near ? 1 << 20 : 0;
    long with = a_hit_costs("memory:", bytes, any),
         without = a_hit_costs_with("off", "memory:", bytes, any);
    assert_in_range(with - without + 2, 0, 12);
  }
}

static void a_stats_file_costs_a_hit_on_redis_a_read_of_the_clock(void **state) {
  const price any = {3000, 2, 4000, 1, 400};
  redis_server *server;
  (void)state;
  if (!redis_server_start(&server, NULL)) skip();
  const char *uri = redis_server_unix_uri(server);
  long with = a_hit_costs(uri, 0, any), without = a_hit_costs_with("off", uri, 0, any);
  assert_in_range(with - without, 1, 70);
  redis_server_stop(server);
}

/* A cluster of one node. */
static redis_server *start_node(char uri[64]) {
  redis_server *node;
  char bus[12];
  snprintf(bus, sizeof bus, "%d", server_process_free_port());
  const char *const args[] = {"--cluster-enabled", "yes", "--cluster-port", bus, NULL};
  if (!redis_server_start(&node, args)) return NULL;
  redis_server_ask(node, "CLUSTER ADDSLOTSRANGE 0 16383");
  for (int i = 0; strstr(redis_server_ask(node, "CLUSTER INFO"), "cluster_state:ok") == NULL; i++) {
    assert_true(i < PATIENCE_MS / 10);
    usleep(10000);
  }
  snprintf(uri, 64, "redis+cluster://127.0.0.1:%d/", redis_server_port(node));
  return node;
}

/* The slot of the key, its node, and whether that answered. */
static void a_hit_on_a_cluster_costs_little_more(void **state) {
  redis_server *lone, *node;
  char uri[64];
  (void)state;
  if (!redis_server_start(&lone, NULL)) skip();
  if ((node = start_node(uri)) == NULL) skip();
  const price most = {2935, 2, 1130, 1, 282};
  long plain = a_hit_costs(redis_server_uri(lone), 0, most), routed = a_hit_costs(uri, 0, most);
  assert_in_range(routed - plain, 1, 205);
  redis_server_stop(node);
  redis_server_stop(lone);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hit_in_the_process_costs_little),
      cmocka_unit_test(a_hit_in_the_near_tier_costs_less),
      cmocka_unit_test_setup_teardown(a_hit_in_a_file_makes_no_system_call, make_folder,
                                      remove_folder),
      cmocka_unit_test(a_hit_on_redis_makes_two_system_calls),
      cmocka_unit_test(a_stats_file_costs_a_hit_in_the_process_nothing),
      cmocka_unit_test(a_stats_file_costs_a_hit_on_redis_a_read_of_the_clock),
      cmocka_unit_test(a_hit_on_a_cluster_costs_little_more),
  };
  return cmocka_run_group_tests_name("instructions", tests, set_up, NULL);
}

#else

int main(void) {
  puts("SKIPPED: the bounds are those of gcc on x86-64");
  return 77;
}

#endif
