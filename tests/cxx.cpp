// cxx.cpp: the whole library as a C++17 program uses it: builders in place of compound literals,
// and lambdas as callbacks. Prints each difference; exit status 1 when there is one.
#include <corral.h>
#include <corral/child.h>
#include <corral/lock.h>
#include <corral/log.h>
#include <corral/loop.h>

#include <poll.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <string>

static int wrong;

#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) {                                                                                 \
      std::printf("cxx.cpp:%d: not so: %s\n", __LINE__, #what);                                    \
      wrong = 1;                                                                                   \
    }                                                                                              \
  } while (0)

static std::string text_of(corral_value *value) {
  std::string text;
  if (value != nullptr)
    text.assign(static_cast<const char *>(corral_value_data(value)), corral_value_size(value));
  corral_value_unref(value);
  return text;
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  ++*static_cast<int *>(arg);
  corral_fill_tag(fill, "tag", 3);
  return corral_fill_bytes(fill, key, key_len);
}

static int compute_many(corral_fill *const *fills, size_t count, void *) {
  for (size_t i = 0; i < count; i++) {
    size_t size;
    const void *key = corral_fill_key(fills[i], &size);
    corral_fill_bytes(fills[i], key, size);
  }
  return CORRAL_OK;
}

static corral *opened(int *events) {
  corral *c = nullptr;
  corral_error error{};
  corral_event_fn *count = [](const corral_event_info *info, void *arg) {
    if (info->event == CORRAL_EVENT_COMPUTED) ++*static_cast<int *>(arg);
  };
  int status = corral_open(CORRAL_OPTIONS(.store("memory:")
                                              .name_space("cxx")
                                              .policy(CORRAL_POLICY(.ttl_ms(60000).swr_ms(60000)))
                                              .on_event(count)
                                              .event_arg(events)
                                              .on_verify(nullptr)
                                              .verify_arg(events)
                                              .max_value(1 << 20)),
                           &c, &error);
  if (status != CORRAL_OK) std::printf("cxx.cpp: %s\n", error.text);
  return c;
}

static void values(corral *c) {
  corral_error error{};
  corral_value *value = nullptr;
  int computes = 0;
  for (corral_how how : {CORRAL_COMPUTED, CORRAL_FRESH}) {
    MUST(corral_get_or_compute(
             c, "one", 3,
             CORRAL_CALL(.policy(CORRAL_POLICY(.ttl_ms(1000).retry_ms(CORRAL_OFF))).error(&error)),
             compute, &computes, &value) == CORRAL_OK);
    MUST(corral_value_how(value) == how && text_of(value) == "one");
  }
  MUST(computes == 1);
  MUST(corral_invalidate_tag(c, "tag", 3, &error) == CORRAL_OK);
  MUST(corral_get(c, "one", 3, nullptr, &value) == CORRAL_EMISS);
  MUST(corral_get(c, "one", 3, CORRAL_CALL(.policy(CORRAL_POLICY(.ttl_ms(-5))).error(&error)),
                  &value) == CORRAL_EINVAL);
  MUST(std::strstr(error.text, "ttl_ms") != nullptr);

  corral_item items[2] = {};
  items[0].key = "a";
  items[1].key = "b";
  items[0].key_len = items[1].key_len = 1;
  MUST(corral_get_many(c, items, 2, CORRAL_CALL(), compute_many, nullptr) == CORRAL_OK);
  MUST(text_of(items[0].value) == "a" && text_of(items[1].value) == "b");
}

static void logs() {
  std::string text;
  corral_log log =
      CORRAL_LOG(.level(CORRAL_LEVEL_INFO)
                     .per_s(1)
                     .write([](corral_level level, const char *line, size_t len, void *arg) {
                       MUST(level == CORRAL_LEVEL_INFO);
                       static_cast<std::string *>(arg)->assign(line, len);
                     })
                     .write_arg(&text));
  corral_event_info info{};
  info.size = sizeof info;
  info.event = CORRAL_EVENT_FILL;
  info.server = -1;
  corral_log_event(&info, &log);
  MUST(text == "fill, 0us, 0 bytes");
}

static void sets(corral *c) {
  corral_error error{};
  corral_value *value = nullptr;
  const corral_tag tags[] = {{"red", 3}, {"blue", 4}};
  // a builder may be kept
  corral_call_builder german = CORRAL_CALL(.variant("de").variant_len(2).error(&error));
  MUST(corral_set(c, "k", 1,
                  CORRAL_CALL(.tags(tags).tag_count(2).version(7).validator("e").validator_len(1)),
                  "seven", 5) == CORRAL_OK);
  MUST(corral_set(c, "k", 1, CORRAL_CALL(.version(6)), "six", 3) == CORRAL_EOLDER);
  MUST(corral_set(c, "k", 1, german, "sieben", 6) == CORRAL_OK);
  corral_inspection seen{};
  seen.size = sizeof seen;
  MUST(corral_inspect(c, "k", 1, german, &seen) == CORRAL_OK && seen.value_size == 6);
  MUST(corral_invalidate_tag(c, "red", 3, nullptr) == CORRAL_OK);
  MUST(corral_get(c, "k", 1, nullptr, &value) == CORRAL_EMISS);
  MUST(corral_get(c, "k", 1, german, &value) == CORRAL_OK && text_of(value) == "sieben");
  MUST(corral_expire(c, "k", 1, german) == CORRAL_OK);
  MUST(corral_invalidate(c, "k", 1, german) == CORRAL_OK);
  char room[CORRAL_KEY_MAX];
  size_t len = 0;
  MUST(corral_encode_key(c, CORRAL_KEY_VALUE, "k", 1, nullptr, room, sizeof room, &len) ==
       CORRAL_OK);
  MUST(std::string(room, len) == "cxx:k");
}

static void locks(corral *c) {
  corral_error error{};
  corral_lock *lock = nullptr, *other = nullptr;
  corral_cancel_token *token = corral_cancel_token_new();
  corral_lock_lost_fn *lost = [](corral_lock *, const char *, void *) {};
  MUST(corral_lock_take(c, "n", 1, CORRAL_LOCK(.ttl_ms(60000).note("cxx").keep(1).on_lost(lost)),
                        &lock, &error) == CORRAL_OK);
  MUST(corral_lock_take(c, "n", 1, CORRAL_LOCK(.wait_ms(CORRAL_OFF).owner("another")), &other,
                        &error) == CORRAL_EBUSY);
  corral_cancel_token_cancel(token);
  MUST(corral_lock_take(c, "n", 1, CORRAL_LOCK(.owner("another").cancel_token(token)), &other,
                        nullptr) == CORRAL_ECANCELLED);
  MUST(corral_lock_left_ms(lock) > 0);
  MUST(corral_lock_release(lock, &error) == CORRAL_OK);
  corral_cancel_token_free(token);
}

struct request {
  int status = 1, gone = 0;
  std::string text;
};

static void until_gone(corral_loop *loop, const request &r) {
  while (r.gone == 0) {
    pollfd fd = {corral_loop_fd(loop), POLLIN, 0};
    poll(&fd, 1, -1);
    corral_loop_dispatch(loop);
  }
}

static void loops(corral *c) {
  corral_error error{};
  corral_loop *loop = nullptr;
  corral_async_call *call = nullptr;
  MUST(corral_loop_open(c, &loop, &error) == CORRAL_OK);
  corral_async_builder async = CORRAL_ASYNC(
          .done([](void *arg, int status, corral_value *value, const corral_error *) {
            static_cast<request *>(arg)->status = status;
            static_cast<request *>(arg)->text = text_of(value);
          })
          .start([](void *, corral_fill *fill, const void *, size_t) {
            corral_fill_bytes(fill, "async", 5);
            corral_fill_done(fill);
          })
          .gone([](void *arg) { static_cast<request *>(arg)->gone = 1; }));
  request got, ran;
  MUST(corral_loop_get(loop, "async", 5, CORRAL_CALL(.policy(CORRAL_POLICY(.wait_ms(60000)))),
                       async.arg(&got), &call) == CORRAL_OK);
  until_gone(loop, got);
  MUST(got.status == CORRAL_OK && got.text == "async");
  corral_work *work = [](corral *corral_of, void *, corral_error *why) {
    return corral_invalidate(corral_of, "async", 5, CORRAL_CALL(.error(why)));
  };
  MUST(corral_loop_run(loop, work, async.arg(&ran), nullptr, &error) == CORRAL_OK);
  until_gone(loop, ran);
  MUST(ran.status == CORRAL_OK);
  corral_value *value = nullptr;
  MUST(corral_peek(c, "async", 5, nullptr, &value) == CORRAL_EMISS);
  corral_loop_close(loop);
}

static void children() {
  char name[] = "sh", option[] = "-c", script[] = "exit 7";
  char *argv[] = {name, option, script, nullptr};
  corral_child_file files[] = {{CORRAL_CHILD_NULL, 0}};
  corral_child *child = nullptr;
  int status = -1;
  MUST(corral_child_start(argv, CORRAL_CHILD(.files(files).file_count(1)), &child, nullptr) ==
       CORRAL_OK);
  MUST(corral_child_wait(child, &status, nullptr) == CORRAL_OK);
  MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  corral_child_free(child);
}

int main() {
  int computed = 0;
  char text[4096];
  corral *c = opened(&computed);
  if (c == nullptr) return 1;
  values(c);
  logs();
  sets(c);
  locks(c);
  loops(c);
  children();
  MUST(computed >= 3);
  MUST(corral_counter(c, CORRAL_EVENT_COMPUTED) == static_cast<uint64_t>(computed));
  MUST(corral_policy_explain(CORRAL_POLICY(.soft_ms(50)), text, sizeof text, nullptr) == CORRAL_OK);
  MUST(std::strstr(text, "to take after soft_ms") != nullptr);
  MUST(corral_version_number() == CORRAL_VERSION_NUMBER);
  MUST(std::strcmp(corral_version(), CORRAL_VERSION) == 0);
  corral_close(c);
  return wrong;
}
