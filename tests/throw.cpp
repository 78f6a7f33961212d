// throw.cpp: a C++ exception passes through a call out of its compute: the lease is given back, and
// the next call computes.
#include <corral.h>

#include <cstdio>
#include <stdexcept>

static int computes;

static int compute(corral_fill *fill, const void *, size_t, void *) {
  if (computes++ == 0) throw std::runtime_error("no");
  return corral_fill_bytes(fill, "answer", 6);
}

static int compute_many(corral_fill *const *fills, size_t, void *) {
  return compute(fills[0], nullptr, 0, nullptr);
}

static int ask(corral *c, corral_value **value) {
  return corral_get_or_compute(c, "key", 3, nullptr, compute, nullptr, value);
}

static int ask_many(corral *c, corral_value **value) {
  corral_item item = {};
  item.key = "key";
  item.key_len = 3;
  int status = corral_get_many(c, &item, 1, nullptr, compute_many, nullptr);
  *value = item.value;
  return status == CORRAL_OK ? item.status : status;
}

// Two corrals on one store: the second one meets the lease of the first. 0: as it should be.
static int try_out(const char *what, int (*call)(corral *, corral_value **)) {
  corral *one = nullptr, *two = nullptr;
  corral_value *value = nullptr;
  corral_policy policy = {};
  corral_options options = {};
  int caught = 0;
  computes = 0;
  policy.size = sizeof policy;
  policy.lease_ms = policy.lease_min_ms = 3600000;
  options.size = sizeof options;
  options.store = what;
  options.policy = &policy;
  if (corral_open(&options, &one, nullptr) != CORRAL_OK ||
      corral_open(&options, &two, nullptr) != CORRAL_OK)
    return 1;
  try {
    call(one, &value);
  } catch (const std::runtime_error &) {
    caught = 1;
  }
  int status = call(two, &value);
  std::printf("%s: caught %d, then %s, %d computes\n", what, caught, corral_status_name(status),
              computes);
  corral_value_unref(value);
  corral_close(one);
  corral_close(two);
  return caught && status == CORRAL_OK && computes == 2 ? 0 : 1;
}

int main() { return try_out("memory:throw", ask) | try_out("memory:throw_many", ask_many); }
