#!/bin/sh
# This script builds corral and shows or tests it; it installs missing packages first.
# It works from any folder. `run.sh --help` says more.
set -eu
root=$(cd "$(dirname "$0")" && pwd)
cd "$root"

BUILD_PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libxxhash-dev libzstd-dev libsodium-dev
 liblmdb-dev libhiredis-dev libssl-dev libmemcached-dev libsqlite3-dev"
TEST_PACKAGES="libcmocka-dev redis-server memcached openssl g++ util-linux python3 php-cli
 postgresql libpq-dev mariadb-server libmariadb-dev
 zookeeper libzookeeper-mt-dev default-jre-headless
 etcd-server libcurl4-openssl-dev libcjson-dev sqlite3
 nginx nginx-dev libfcgi-dev fcgiwrap spawn-fcgi libmicrohttpd-dev libevent-dev libuv1-dev
 chromium-headless-shell"

FUZZ_PACKAGES="clang libclang-rt-dev llvm"
BENCH_PACKAGES="valgrind strace"

usage() {
  cat <<'USAGE'
usage: ./run.sh [demo|test|quick] [--no-install]
       ./run.sh fuzz|campaign [MINUTES] [--no-install]
       ./run.sh bench [--no-install]

  demo    (default) build the release and run `corral storm` on the embedded store
  test    build with sanitizers and run all tests
  quick   the inner loop: only the tests without threads, clocks and servers
  fuzz    build with clang and run each fuzz target for MINUTES (1)
  campaign  run what takes longer than `test` may: simulated herds, crowds on locks, soaks,
          fuzzing, builds with options off; steps without an end of their own share MINUTES (60),
          the others take an hour or two besides
  bench   build the benchmarks, run all of them, and print a table: what was measured, and the goal

  --no-install   don't install missing packages: list them and stop
  --help         this text

Missing Debian packages are installed with apt-get, with sudo unless run as root.
Builds go to build/.
USAGE
}

say() { printf 'run.sh: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# as_root is empty for root, else sudo, which asks on the terminal before the work begins.
as_root=
become_root() {
  [ "$(id -u)" -ne 0 ] || return 0
  command -v sudo >/dev/null 2>&1 ||
    fail "installing needs root, and there is no sudo; as root: apt-get install$absent"
  as_root=sudo
  sudo -n true 2>/dev/null || sudo -v || fail "sudo refused; as root: apt-get install$absent"
}

missing() { # PACKAGE...: those that aren't installed
  for package in "$@"; do
    case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) in
      installed) ;;
      *) printf ' %s' "$package" ;;
    esac
  done
}

need() { # PACKAGE...
  if ! command -v dpkg-query >/dev/null 2>&1; then
    say "not a Debian system, so nothing is installed; these (by their Debian names) are needed: $*"
    return
  fi
  absent=$(missing "$@")
  [ -n "$absent" ] || return 0
  [ "$install" = yes ] || fail "missing packages:$absent"
  become_root
  say "installing:$absent"
  # shellcheck disable=SC2086
  {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
      $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y --no-install-recommends install $absent
  } >"$log" 2>&1 </dev/null || { cat "$log" >&2; fail "installing failed"; }
}

build() { # CONFIGURE_PRESET [BUILD_PRESET]
  say "building $1"
  cmake --preset "$1" >"$log" 2>&1 || { cat "$log" >&2; fail "configuring '$1' failed"; }
  cmake --build --preset "${2:-$1}" >"$log" 2>&1 || { cat "$log" >&2; fail "building '$1' failed"; }
}

# Runs the tests of a preset and adds to the sums. A run of ctest without results is an error.
passed=0 failed=0 skipped=0
run_tests() { # CONFIGURE_PRESET TEST_PRESET [LAUNCHER...]
  results=$root/build/$1/results.xml
  preset=$2
  shift 2
  rm -f "$results"
  status=0
  "$@" ctest --preset "$preset" --output-junit "$results" || status=$?
  [ -f "$results" ] || fail "ctest --preset $preset ran nothing (status $status)"
  total=$(attribute tests) bad=$(attribute failures)
  absent=$(attribute skipped) off=$(attribute disabled)
  [ "$total" -gt 0 ] || fail "ctest --preset $preset found no tests"
  absent=$((absent + off))
  [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || fail "ctest --preset $preset ended with status $status"
  failed=$((failed + bad)) skipped=$((skipped + absent)) passed=$((passed + total - bad - absent))
}

attribute() { # of the test suite in $results
  number=$(tr '\n\t' '  ' <"$results" | sed -n "s/^.*<testsuite [^>]* $1=\"\([0-9]*\)\".*/\1/p")
  echo "${number:-0}"
}

report() {
  [ "$skipped" -eq 0 ] || echo "$skipped skipped"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}

# TSan wants its usual memory map: newer kernels randomize more than older compilers expect.
plain_map() {
  if command -v setarch >/dev/null 2>&1 && setarch "$(uname -m)" -R true 2>/dev/null; then
    echo "setarch $(uname -m) -R"
  fi
}

demo() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES
  build release
  say "build/release/corral storm"
  build/release/corral storm
  say "corral is in build/release; README.md and docs/command.md go on from here"
}

quick() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES $TEST_PACKAGES
  build dev pure
  run_tests dev pure
  report
}

all_tests() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES $TEST_PACKAGES
  build dev
  run_tests dev dev
  build tsan
  # shellcheck disable=SC2046
  run_tests tsan tsan $(plain_map)
  report
}

fuzz() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES $TEST_PACKAGES $FUZZ_PACKAGES
  build fuzz
  sh fuzz/explore.sh build/fuzz $((${minutes:-1} * 60))
}

bench() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES $TEST_PACKAGES $BENCH_PACKAGES
  build bench
  sh bench/all.sh build/bench
}

campaign() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES $TEST_PACKAGES $FUZZ_PACKAGES
  for preset in release dev tsan fuzz; do build $preset; done
  sh tests/campaign.sh "${minutes:-60}"
}

install=yes
command=
minutes=
for argument in "$@"; do
  case $argument in
    --no-install) install=no ;;
    -h | --help)
      usage
      exit 0
      ;;
    demo | test | quick | fuzz | campaign | bench)
      [ -z "$command" ] ||
        fail "one of demo, test, quick, fuzz, campaign, bench; not both '$command' and '$argument'"
      command=$argument
      ;;
    [1-9] | [1-9][0-9] | [1-9][0-9][0-9] | [1-9][0-9][0-9][0-9])
      case $command in
        fuzz | campaign) ;;
        *) fail "'$argument': MINUTES are for fuzz and campaign, and stand behind them" ;;
      esac
      minutes=$argument
      ;;
    *)
      say "unknown argument '$argument'"
      usage >&2
      exit 2
      ;;
  esac
done

mkdir -p build
log=$root/build/run.log
case ${command:-demo} in
  demo) demo ;;
  test) all_tests ;;
  quick) quick ;;
  fuzz) fuzz ;;
  campaign) campaign ;;
  bench) bench ;;
esac
