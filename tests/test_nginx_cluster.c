/* test_nginx_cluster.c: the nginx module with its pages on a real Redis Cluster: two servers share
 * them, from all nodes. */
#include "support/nginx_kit.h"
#include "support/redis_cluster.h"

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_valid 10m; corral_stale_if_error 10m; "                       \
  "corral_tag Surrogate-Key; proxy_pass %ORIGIN%; }"                                               \
  "location = /purge { corral_purge pages; }"
#define KEPT "Cache-Control: max-age=600\r\n"

enum { PAGES = 24 };

static redis_cluster *cluster;
static nginx_server *servers[2];

static int start(void **state) {
  (void)state;
  const nginx_kit_plan plan = {.locations = LOCATIONS,
                               .store = redis_cluster_uri(cluster),
                               .zone = "near=8m namespace=site op=10s",
                               .workers = 2};
  redis_cluster_empty(cluster);
  servers[0] = nginx_kit_start(&plan);
  servers[1] = nginx_kit_another(&plan);
  return 0;
}

static int stop(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) nginx_kit_end(servers[i], 0);
  return 0;
}

static const char *page(const char *stem, int number) {
  static char path[40];
  snprintf(path, sizeof path, "/%s/%d", stem, number);
  return path;
}

static void answers(const char *path) {
  http_origin_answer(
      nginx_kit_origin, path,
      HTTP_ANSWER(.headers = KEPT "Surrogate-Key: red\r\n", .body = "page", .numbered = 1));
}

static void gets(int server, const char *path, const char *body) {
  nginx_kit_expect(servers[server], path, NULL, 200, body, "cache-status");
}

static long keys_of(int shard) {
  redis_server *node = redis_cluster_node(cluster, redis_cluster_primary(cluster, shard));
  return strtol(redis_server_ask(node, "DBSIZE"), NULL, 10);
}

static void pages_of_all_nodes_are_made_once_for_both_servers(void **state) {
  (void)state;
  for (int i = 0; i < PAGES; i++) {
    answers(page("all", i));
    gets(i % 2, page("all", i), "page 1");
    gets(1 - i % 2, page("all", i), "page 1");
    assert_int_equal(http_origin_seen(nginx_kit_origin, page("all", i)), 1);
  }
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++) assert_true(keys_of(i) > 0);
}

static void who_waits_on_the_other_server_is_served_what_was_made_here(void **state) {
  (void)state;
  for (int i = 0; i < PAGES / 4; i++) {
    const char *path = page("held", i);
    http_client *leader = http_client_new(nginx_server_address(servers[0])),
                *waiter = http_client_new(nginx_server_address(servers[1]));
    http_origin_answer(nginx_kit_origin, path,
                       HTTP_ANSWER(.headers = KEPT, .body = "page", .numbered = 1, .held = 1));
    assert_int_equal(http_client_send(leader, &(http_request){.path = path}), 0);
    assert_true(http_origin_await_running(nginx_kit_origin, path, 1));
    assert_int_equal(http_client_send(waiter, &(http_request){.path = path}), 0);
    assert_true(nginx_kit_await_counter(servers[1], "wait", i + 1));
    http_origin_let(nginx_kit_origin, path);
    http_client *both[] = {leader, waiter};
    for (int j = 0; j < 2; j++) {
      http_reply reply = http_client_receive(both[j]);
      assert_string_equal(reply.body, "page 1");
      http_reply_free(&reply);
      http_client_free(both[j]);
    }
    assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1);
  }
}

static void a_purged_tag_voids_the_pages_of_all_nodes(void **state) {
  (void)state;
  for (int i = 0; i < PAGES; i++) {
    answers(page("tag", i));
    gets(0, page("tag", i), "page 1");
  }
  http_reply reply = nginx_kit_ask(servers[1], "POST", "/purge?tag=red", NULL);
  assert_int_equal(reply.status, 200);
  http_reply_free(&reply);
  for (int i = 0; i < PAGES; i++) gets(1, page("tag", i), "page 2");
}

static void slots_that_move_cost_no_request_its_page(void **state) {
  (void)state;
  for (int i = 0; i < PAGES; i++) {
    char key[60];
    const char *path = page("moved", i);
    answers(path);
    gets(0, path, "page 1");
    snprintf(key, sizeof key, "site:httplocalhost%s", path);
    int slot = redis_cluster_slot(cluster, key), to = redis_cluster_next(cluster, slot);
    redis_cluster_begin(cluster, slot, to);
    assert_true(redis_cluster_carry(cluster, slot, to, 100) > 0);
    gets(1, path, "page 1");
    redis_cluster_end(cluster, slot, to);
    gets(0, path, "page 1");
  }
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pages_of_all_nodes_are_made_once_for_both_servers),
      cmocka_unit_test(who_waits_on_the_other_server_is_served_what_was_made_here),
      cmocka_unit_test(a_purged_tag_voids_the_pages_of_all_nodes),
      cmocka_unit_test(slots_that_move_cost_no_request_its_page),
  };
  int failed = 77;
  if (redis_cluster_start(&cluster))
    failed = cmocka_run_group_tests_name("nginx_cluster", tests, start, stop);
  redis_cluster_stop(cluster);
  return failed + nginx_kit_close();
}
