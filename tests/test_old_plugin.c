/* test_old_plugin.c: plugins that are loaded: tables longer and shorter than ours; and those that
 * must be refused with a reason: one built against the header of an older ABI, and odd ones. The
 * folder of CORRAL_TEST_PLUGINS has them (tests/old_plugin). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/registry.h"
#include "support/room.h"

static const char *plugins;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  ++*(int *)arg;
  return corral_fill_bytes(fill, "answer", 6);
}

static corral_how ask(corral *c, int *runs) {
  corral_value *value = NULL;
  corral_error error = {0};
  if (corral_get_or_compute(c, "key", 3,
                            CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 600000), .error = &error),
                            compute, runs, &value) != CORRAL_OK)
    fail_msg("%s", error.text);
  assert_int_equal(corral_value_size(value), 6);
  assert_memory_equal(corral_value_data(value), "answer", 6);
  corral_how how = corral_value_how(value);
  corral_value_unref(value);
  return how;
}

static void computes_once(const char *uri) {
  corral *c = NULL;
  corral_error error = {0};
  int runs = 0;
  if (corral_open(CORRAL_OPTIONS(.store = uri), &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  assert_int_equal(ask(c, &runs), CORRAL_COMPUTED);
  assert_int_equal(ask(c, &runs), CORRAL_FRESH);
  assert_int_equal(runs, 1);
  assert_int_equal(corral_invalidate(c, "key", 3, NULL), CORRAL_OK);
  assert_int_equal(ask(c, &runs), CORRAL_COMPUTED);
  assert_int_equal(ask(c, &runs), CORRAL_FRESH);
  assert_int_equal(runs, 2);
  corral_close(c);
}

static void a_plugin_with_a_shorter_table_loads_and_what_it_lacks_is_none(void **state) {
  (void)state;
  const corral_store *plugin = NULL;
  computes_once("shorter:");
  assert_int_equal(crl_registry_find("shorter", &plugin, NULL), CORRAL_OK);
  assert_true(plugin->size < sizeof *plugin);
  assert_null(plugin->route);
  assert_null(plugin->connect_server);
  assert_null(plugin->watch);
}

/* Its open refuses an info that isn't preset to one server and the whole fleet. */
static void a_plugin_with_a_longer_table_loads_and_finds_its_info_preset(void **state) {
  (void)state;
  computes_once("longer:");
}

/* It aborts when an operation is shorter than it declares, or its unknown rest isn't zero. */
static void a_plugin_with_longer_operations_gets_them_ended_in_zeros(void **state) {
  (void)state;
  computes_once("longop:");
}

static char warned[240];

static void on_warning(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event == CORRAL_EVENT_WARNING) snprintf(warned, sizeof warned, "%s", info->detail);
}

static void a_plugin_that_warns_of_its_server_is_heard(void **state) {
  (void)state;
  corral *c = NULL;
  corral_error error = {0};
  int runs = 0;
  if (corral_open(CORRAL_OPTIONS(.store = "warns:", .on_event = on_warning), &c, &error) !=
      CORRAL_OK)
    fail_msg("%s", error.text);
  for (int i = 0; i < 2; i++) (void)ask(c, &runs);
  assert_int_equal(runs, 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_WARNING), 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_STORE_ANEW), 0);
  assert_string_equal(warned, "warns: its disk is slow");
  corral_close(c);
}

static void refused(const char *scheme, const char *const texts[]) {
  corral *c = NULL;
  corral_error error = {0};
  char uri[64];
  snprintf(uri, sizeof uri, "%s:", scheme);
  for (int i = 0; i < 40; i++) /* more often than there is room for plugins */
    assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uri), &c, &error), CORRAL_ENOPLUGIN);
  assert_null(c);
  for (size_t i = 0; texts[i] != NULL; i++)
    if (strstr(error.text, texts[i]) == NULL)
      fail_msg("%s: \"%s\" lacks \"%s\"", uri, error.text, texts[i]);
}

#define REFUSED(scheme, ...) refused(scheme, (const char *const[]){__VA_ARGS__, NULL})

static void a_plugin_of_an_older_abi_is_refused_with_both_numbers(void **state) {
  (void)state;
  REFUSED("old", "corral_plugin_old.so", "ABI 1", "ABI 3");
}

static void a_plugin_of_abi_2_is_refused_with_both_numbers(void **state) {
  (void)state;
  REFUSED("old2", "corral_plugin_old2.so", "ABI 2", "ABI 3");
}

static void a_plugin_of_another_abi_is_refused_with_both_numbers(void **state) {
  (void)state;
  REFUSED("otherabi", "corral_plugin_otherabi.so", "ABI 7", "ABI 3");
}

static void a_table_that_is_none_is_refused_with_the_reason(void **state) {
  (void)state;
  REFUSED("notable", "corral_plugin_notable.so", "returned no table");
  REFUSED("zerosize", "corral_plugin_zerosize.so", "the size of its table is 0");
  REFUSED("hugesize", "corral_plugin_hugesize.so", "the size of its table is 18446744073709551615");
  REFUSED("shortsize", "corral_plugin_shortsize.so", "bytes; the least is");
  REFUSED("noperform", "corral_plugin_noperform.so", "has no perform");
  REFUSED("noname", "corral_plugin_noname.so", "has no name");
}

static void an_op_size_that_is_none_is_refused(void **state) {
  (void)state;
  REFUSED("shortop", "corral_plugin_shortop.so", "its op_size is 40; accepted are ");
  REFUSED("hugeop", "corral_plugin_hugeop.so", "its op_size is 18446744073709551615");
}

/* corral_plugin_two.so has the scheme two: in its second table. */
static void all_tables_of_a_plugin_are_found_by_its_file(void **state) {
  (void)state;
  const corral_store *first = NULL, *second = NULL;
  computes_once("two:");
  assert_int_equal(crl_registry_find("two", &second, NULL), CORRAL_OK);
  assert_int_equal(crl_registry_find("first-of-two", &first, NULL), CORRAL_OK);
  assert_ptr_not_equal(first, second);
  computes_once("first-of-two:");
}

static void one_bad_table_of_two_refuses_both(void **state) {
  (void)state;
  REFUSED("twobad", "corral_plugin_twobad.so", "has no perform");
}

static void route_and_connect_server_come_both_or_neither(void **state) {
  (void)state;
  REFUSED("routeonly", "route and no connect_server", "both or neither");
  REFUSED("connectonly", "connect_server and no route", "both or neither");
}

static void a_plugin_that_serves_another_scheme_is_refused_with_the_ones_it_serves(void **state) {
  (void)state;
  REFUSED("stranger", "corral_plugin_stranger.so", "serves 'somebody else', not 'stranger:'");
}

static void a_library_without_the_entry_point_is_no_plugin(void **state) {
  (void)state;
  REFUSED("noentry", "corral_plugin_noentry.so", "no function corral_plugin");
}

static void a_text_file_and_a_folder_are_no_plugins(void **state) {
  (void)state;
  char folder[ROOM_PATH], text[80], dir[80];
  room_folder(folder, "plugins");
  snprintf(text, sizeof text, "%s/corral_plugin_text.so", folder);
  snprintf(dir, sizeof dir, "%s/corral_plugin_dir.so", folder);
  FILE *f = fopen(text, "w");
  assert_non_null(f);
  assert_true(fputs("no library\n", f) >= 0);
  assert_int_equal(fclose(f), 0);
  assert_int_equal(mkdir(dir, 0700), 0);
  setenv("CORRAL_PLUGIN_PATH", folder, 1);
  REFUSED("text", text);
  REFUSED("dir", dir);
  setenv("CORRAL_PLUGIN_PATH", plugins, 1);
  unlink(text);
  rmdir(dir);
  rmdir(folder);
}

#ifdef CORRAL_HAVE_lmdb
#define ANOTHER " lmdb"
#else
#define ANOTHER " memory"
#endif

static void an_unknown_scheme_says_which_exist_and_where_it_looked(void **state) {
  (void)state;
  setenv("CORRAL_PLUGIN_PATH", "/nowhere", 1);
  REFUSED("nosuch", "'nosuch:'", " memory", ANOTHER,
          "corral_plugin_nosuch.so in /nowhere and elsewhere");
  setenv("CORRAL_PLUGIN_PATH", plugins, 1);
}

static void a_long_plugin_path_cuts_nothing_essential_from_that(void **state) {
  (void)state;
  char path[6000];
  memset(path, 'd', sizeof path);
  path[0] = '/';
  for (size_t i = 600; i <= sizeof path; i = i == 600 ? sizeof path : i + 1) {
    path[i - 1] = '\0';
    setenv("CORRAL_PLUGIN_PATH", path, 1);
    REFUSED("nosuch", "'nosuch:'", " memory", ANOTHER,
            "corral_plugin_nosuch.so in $CORRAL_PLUGIN_PATH and elsewhere");
    REFUSED("averyveryverylongschemeindeed", "'averyvery...meindeed:'", " memory", ANOTHER,
            "$CORRAL_PLUGIN_PATH");
    path[i - 1] = 'd';
  }
  setenv("CORRAL_PLUGIN_PATH", plugins, 1);
}

static void a_plugin_is_found_behind_a_long_path(void **state) {
  (void)state;
  char path[8000];
  memset(path, 'd', 5000);
  path[0] = '/';
  snprintf(path + 5000, sizeof path - 5000, ":%s", plugins);
  setenv("CORRAL_PLUGIN_PATH", path, 1);
  REFUSED("otherabi", "ABI 7");
  setenv("CORRAL_PLUGIN_PATH", plugins, 1);
}

static void the_reason_survives_a_long_path_of_the_file(void **state) {
  (void)state;
  char folder[ROOM_PATH], deep[512], file[600];
  room_folder(folder, "plugins");
  snprintf(deep, sizeof deep, "%s/%0200d", folder, 1);
  assert_int_equal(mkdir(deep, 0700), 0);
  snprintf(file, sizeof file, "%s/corral_plugin_deep.so", deep);
  assert_int_equal(mkdir(file, 0700), 0);
  setenv("CORRAL_PLUGIN_PATH", deep, 1);
  REFUSED("deep", "corral_plugin_deep.so: ", "directory");
  assert_int_equal(rmdir(file), 0);
  snprintf(file, sizeof file, "%s/corral_plugin_deep.so", plugins);
  snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "/corral_plugin_deep.so");
  char other[600];
  snprintf(other, sizeof other, "%s/corral_plugin_otherabi.so", plugins);
  assert_int_equal(symlink(other, deep), 0);
  REFUSED("deep", "corral_plugin_deep.so", "ABI 7", "ABI 3");
  unlink(deep);
  *strrchr(deep, '/') = '\0';
  rmdir(deep);
  rmdir(folder);
  setenv("CORRAL_PLUGIN_PATH", plugins, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_plugin_with_a_shorter_table_loads_and_what_it_lacks_is_none),
      cmocka_unit_test(a_plugin_with_a_longer_table_loads_and_finds_its_info_preset),
      cmocka_unit_test(a_plugin_of_an_older_abi_is_refused_with_both_numbers),
      cmocka_unit_test(a_plugin_of_abi_2_is_refused_with_both_numbers),
      cmocka_unit_test(a_plugin_with_longer_operations_gets_them_ended_in_zeros),
      cmocka_unit_test(a_plugin_that_warns_of_its_server_is_heard),
      cmocka_unit_test(an_op_size_that_is_none_is_refused),
      cmocka_unit_test(all_tables_of_a_plugin_are_found_by_its_file),
      cmocka_unit_test(one_bad_table_of_two_refuses_both),
      cmocka_unit_test(a_plugin_of_another_abi_is_refused_with_both_numbers),
      cmocka_unit_test(a_table_that_is_none_is_refused_with_the_reason),
      cmocka_unit_test(route_and_connect_server_come_both_or_neither),
      cmocka_unit_test(a_plugin_that_serves_another_scheme_is_refused_with_the_ones_it_serves),
      cmocka_unit_test(a_library_without_the_entry_point_is_no_plugin),
      cmocka_unit_test(a_text_file_and_a_folder_are_no_plugins),
      cmocka_unit_test(an_unknown_scheme_says_which_exist_and_where_it_looked),
      cmocka_unit_test(a_long_plugin_path_cuts_nothing_essential_from_that),
      cmocka_unit_test(a_plugin_is_found_behind_a_long_path),
      cmocka_unit_test(the_reason_survives_a_long_path_of_the_file),
  };
  plugins = getenv("CORRAL_TEST_PLUGINS");
  if (plugins == NULL) {
    printf("SKIPPED: CORRAL_TEST_PLUGINS names no folder\n");
    return 77;
  }
  setenv("CORRAL_PLUGIN_PATH", plugins, 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
