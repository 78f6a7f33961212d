#!/bin/sh
# This script builds corral and shows or tests it; it installs missing packages first.
# It works from any folder. `run.sh --help` says more.
set -eu
called_from=$PWD
root=$(cd "$(dirname "$0")" && pwd)
cd "$root"

BUILD_PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libxxhash-dev libzstd-dev libsodium-dev
 liblmdb-dev libhiredis-dev libssl-dev libmemcached-dev libsqlite3-dev lowdown"
# The same by Alpine's names.
ALPINE_PACKAGES="gcc musl-dev linux-headers cmake samurai pkgconf xxhash-dev zstd-dev libsodium-dev
 lmdb-dev hiredis-dev openssl-dev libmemcached-dev sqlite-dev lowdown"
# Without these a part is left out.
PART_PACKAGES="libpq-dev libmariadb-dev libzookeeper-mt-dev libcurl4-openssl-dev libcjson-dev
 libexpat1-dev zlib1g-dev nginx-dev"
TEST_PACKAGES="$PART_PACKAGES libcmocka-dev mandoc redis-server nutcracker memcached openssl g++
 util-linux python3 php-cli postgresql mariadb-server zookeeper default-jre-headless etcd-server
 sqlite3 nginx libfcgi-dev fcgiwrap spawn-fcgi libmicrohttpd-dev libevent-dev libuv1-dev
 python3-yaml zsh fish chromium-headless-shell systemd prometheus"
# Not every release has these; they are installed where there are any.
RELEASE_PACKAGES="valkey-server"
PACKAGE_PACKAGES="build-essential debhelper lintian"
FUZZ_PACKAGES="clang libclang-rt-dev llvm"
case ${CC:-} in *clang*) BUILD_PACKAGES="$BUILD_PACKAGES $FUZZ_PACKAGES" ;; esac
BENCH_PACKAGES="valgrind strace liburcu-dev wrk"
PORTABILITY_PACKAGES="gcc-s390x-linux-gnu gcc-arm-linux-gnueabihf gcc-i686-linux-gnu
 qemu-user-static musl-tools make dpkg-dev clang"

usage() {
  cat <<'USAGE'
usage: ./run.sh [demo|test|quick|package] [--no-install]
       ./run.sh install [PREFIX] [--no-install]
       ./run.sh fuzz|campaign [MINUTES] [--no-install]
       ./run.sh bench [--idle|--both|--write] [--no-install]
       ./run.sh portability [PART...] [--no-install]

  demo    (default) build the release and run `corral storm` on the embedded store
  install  build the release and install it into PREFIX (/usr/local), as root where that is needed;
          parts whose packages are missing are left out, and named
  package  build the Debian packages in build/package, and check them by lintian
  test    build with sanitizers and run all tests
  quick   the inner loop: only the tests without threads, clocks and servers
  fuzz    build with clang and run each fuzz target for MINUTES (1)
  campaign  run what takes longer than `test` may: simulated herds, crowds on locks, soaks,
          fuzzing, builds with options off; steps without an end of their own share MINUTES (60),
          the others take an hour or two besides
  bench   build the benchmarks, run all of them, and print a table: what was measured, and the goal;
          processors are kept awake, or with --idle may sleep; --both: both, one by one; --write
          writes the table of both into docs/performance.md
  portability  build for other machines, C libraries and compilers, and run the tests of `quick`;
          each PART is one of s390x, armhf, i386 (under qemu-user), musl, clang, lto, nginx
          (its module in other versions, also in those of $NGINX_SOURCES); default: all

  --no-install   don't install missing packages of the system: list them and stop
  --help         this text

Missing packages are installed with apt-get, with sudo unless run as root; on Alpine they are named.
CC and CXX in the environment choose the compilers; a build keeps them until CC names another.
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
become_root() { # COMMAND...: what needs root
  [ "$(id -u)" -ne 0 ] || return 0
  command -v sudo >/dev/null 2>&1 ||
    fail "installing needs root, and there is no sudo; as root: $*"
  as_root=sudo
  sudo -n true 2>/dev/null || sudo -v || fail "sudo refused; as root: $*"
}

missing() { # PACKAGE...: those that aren't installed
  for package in "$@"; do
    case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) in
      installed) ;;
      *) printf ' %s' "$package" ;;
    esac
  done
}

# A system without dpkg is told what to install. On Alpine these are the packages of a build; those
# of the tests have Debian's names.
need_elsewhere() { # PACKAGE...
  if ! command -v apk >/dev/null 2>&1; then
    say "not a Debian system, so nothing is installed; these (by their Debian names) are needed: $*"
    return
  fi
  absent=
  for package in $ALPINE_PACKAGES; do
    apk info -e "$package" >/dev/null 2>&1 || absent="$absent $package"
  done
  [ -z "$absent" ] || fail "missing packages; as root: apk add$absent"
  [ "$*" = "$(echo $BUILD_PACKAGES)" ] ||
    say "more than a build is wanted; these (by their Debian names) are needed, too: $*"
}

need() { # PACKAGE...
  if ! command -v dpkg-query >/dev/null 2>&1; then
    need_elsewhere "$@"
    return
  fi
  absent=$(missing "$@")
  [ -n "$absent" ] || return 0
  [ "$install" = yes ] || fail "missing packages:$absent"
  become_root "apt-get install$absent"
  say "installing:$absent"
  # shellcheck disable=SC2086
  {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
      $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y --no-install-recommends install $absent
  } >"$log" 2>&1 </dev/null || { cat "$log" >&2; fail "installing failed"; }
}

known() { # PACKAGE...: those that this release has
  for package in "$@"; do
    ! apt-cache show "$package" >/dev/null 2>&1 || printf ' %s' "$package"
  done
}

# A build that is there begins anew when CC names another compiler than its own.
anew() { # PRESET
  compiler=$(sed -n 's/^CMAKE_C_COMPILER:.*=//p' "build/$1/CMakeCache.txt" 2>/dev/null) || return 0
  [ -z "${CC:-}" ] || [ "$(command -v "$CC")" = "$compiler" ] || echo --fresh
}

build() { # CONFIGURE_PRESET [BUILD_PRESET]
  say "building $1"
  # shellcheck disable=SC2046
  cmake --preset "$1" $(anew "$1") ${prefix:+"-DCMAKE_INSTALL_PREFIX=$prefix"} >"$log" 2>&1 ||
    { cat "$log" >&2; fail "configuring '$1' failed"; }
  left_out=$(sed -n 's/^-- corral: left out: //p' "$log")
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

writable() { # FOLDER: it, or the first that exists above it, can be written to
  folder=$1
  until [ -e "$folder" ]; do folder=$(dirname "$folder"); done
  [ -w "$folder" ]
}

# Says what a shell has to know of a prefix that it doesn't search.
hints() {
  libdir=$prefix/$(sed -n 's/^CMAKE_INSTALL_LIBDIR:.*=//p' build/release/CMakeCache.txt)
  case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) say "the command: export PATH=$prefix/bin:\$PATH" ;;
  esac
  [ "$(pkg-config --variable=libdir corral 2>/dev/null | xargs -r realpath)" = \
    "$(realpath "$libdir")" ] ||
    say "the library: export PKG_CONFIG_PATH=$libdir/pkgconfig"
}

# DESTDIR, for packagers, is put before the prefix.
install_release() {
  prefix=${prefix:-/usr/local}
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES
  build release
  writable "${DESTDIR:-}$prefix" || become_root cmake --install build/release
  $as_root env ${DESTDIR:+"DESTDIR=$DESTDIR"} cmake --install build/release >"$log" 2>&1 ||
    { cat "$log" >&2; fail "installing failed"; }
  say "installed into ${DESTDIR:-}$prefix; build/release/install_manifest.txt lists the files"
  printf '%s\n' "$left_out" | sed -n 's/..*/run.sh: left out: &/p' >&2
  [ -z "${DESTDIR:-}" ] || return 0
  # The loader's cache; a program that is linked by corral.pc doesn't need it.
  [ "$(id -u)" -ne 0 ] && [ -z "$as_root" ] || $as_root ldconfig 2>/dev/null || true
  hints
}

package() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES $PART_PACKAGES $PACKAGE_PACKAGES
  say "building the packages"
  sh packaging/package.sh build/package
  say "the packages are in build/package; docs/build.md says what each has"
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
  # shellcheck disable=SC2046,SC2086
  set -- $(known $RELEASE_PACKAGES)
  [ $# -eq 0 ] || need "$@"
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
  # shellcheck disable=SC2086
  sh bench/all.sh build/bench $regime
}

campaign() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES $TEST_PACKAGES $FUZZ_PACKAGES
  for preset in release bench dev tsan fuzz; do build $preset; done
  sh tests/campaign.sh "${minutes:-60}"
}

portability() {
  # shellcheck disable=SC2086
  need $BUILD_PACKAGES $TEST_PACKAGES $PORTABILITY_PACKAGES
  # shellcheck disable=SC2086
  sh cmake/portability.sh build/portability ${parts:-s390x armhf i386 musl clang lto nginx}
}

install=yes
command=
parts=
minutes=
prefix=
regime=
for argument in "$@"; do
  case $argument in
    --no-install) install=no ;;
    -h | --help)
      usage
      exit 0
      ;;
    demo | install | package | test | quick | fuzz | campaign | bench | portability)
      [ -z "$command" ] || fail "one command at a time; not both '$command' and '$argument'"
      command=$argument
      ;;
    s390x | armhf | i386 | musl | clang | lto | nginx)
      [ "$command" = portability ] || fail "'$argument' is for portability, and stands behind it"
      parts="$parts $argument"
      ;;
    --idle | --both | --write)
      [ "$command" = bench ] || fail "'$argument' is for bench, and stands behind it"
      regime=$argument
      ;;
    */*)
      [ "$command" = install ] || fail "'$argument': PREFIX is for install, and stands behind it"
      case $argument in
        /*) prefix=$argument ;;
        *) prefix=$called_from/${argument#./} ;;
      esac
      ;;
    [1-9] | [1-9][0-9] | [1-9][0-9][0-9] | [1-9][0-9][0-9][0-9])
      case $command in
        fuzz | campaign) ;;
        *) fail "'$argument': MINUTES are for fuzz and campaign, and stand behind them" ;;
      esac
      minutes=$argument
      ;;
    *)
      case $command,$argument in
        install,-*) ;;
        install,*) fail "PREFIX is a folder with a slash in it: ./$argument" ;;
        fuzz,[0-9]* | campaign,[0-9]*) fail "MINUTES is a number from 1 to 9999, not '$argument'" ;;
      esac
      say "unknown argument '$argument'; ./run.sh --help lists all"
      exit 2
      ;;
  esac
done

mkdir -p build
log=$root/build/run.log
case ${command:-demo} in
  demo) demo ;;
  install) install_release ;;
  package) package ;;
  test) all_tests ;;
  quick) quick ;;
  fuzz) fuzz ;;
  campaign) campaign ;;
  bench) bench ;;
  portability) portability ;;
esac
