#!/bin/sh
# library_alone_test.sh makes corral a part of another project (add_subdirectory, as FetchContent
# calls it too): the library alone is built, without SQLite; nothing of it is tested or installed.
# Then it configures corral itself without the command, and without libraries that parts need: each
# part that was left out is named with its package.
# The environment has CMAKE, CC, GENERATOR.
set -eu
: "${CMAKE:=cmake}" "${CC:=cc}" "${GENERATOR:=Ninja}"
source=$(cd "$(dirname "$0")/.." && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
unset CORRAL_PLUGIN_PATH CORRAL_STORE || true

fail() {
  echo "library_alone_test: $*" >&2
  exit 1
}

run() { # COMMAND...: the command's output is shown when it fails
  "$@" >"$root/log" 2>&1 || { cat "$root/log"; fail "failed: $*"; }
}

cat >"$root/CMakeLists.txt" <<PROJECT
cmake_minimum_required(VERSION 3.25)
project(parent C)
include(CTest)
set(CORRAL_BUILTIN_PLUGINS lmdb)
add_subdirectory($source corral)
add_executable(consumer $source/tests/consumer/consumer.c)
target_link_libraries(consumer PRIVATE corral::corral)
install(TARGETS consumer)
PROJECT
run "$CMAKE" -G "$GENERATOR" -S "$root" -B "$root/build" -DCMAKE_C_COMPILER="$CC" \
  -DCMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON
run "$CMAKE" --build "$root/build" --parallel 2
run "$root/build/consumer" "lmdb:$root/store"

built=$(cd "$root/build" && find . -name CMakeFiles -prune -o -type f \
  \( -perm -u+x -o -name '*.so*' -o -name '*.a' \) -print | sort | tr '\n' ' ')
[ "$built" = "./consumer ./corral/libcorral.a " ] || fail "these were built: $built"
grep -q '^BUILD_SHARED_LIBS' "$root/build/CMakeCache.txt" &&
  fail "the other project's BUILD_SHARED_LIBS was set"
tests=$("${CMAKE%cmake}ctest" --test-dir "$root/build" -N | sed -n 's/^Total Tests: //p')
[ "$tests" = 0 ] || fail "the other project has $tests tests of corral"
run "$CMAKE" --install "$root/build" --prefix "$root/prefix"
installed=$(cd "$root/prefix" && find . -type f)
[ "$installed" = ./bin/consumer ] || fail "these were installed: $installed"

run "$CMAKE" -G "$GENERATOR" -S "$source" -B "$root/own" -DCMAKE_C_COMPILER="$CC" \
  -DCORRAL_COMMAND=OFF -DCORRAL_NGINX=OFF \
  -DCMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON -DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON
for part in "sqlite: locks; it wants libsqlite3-dev" \
  "http: origins; it wants libcurl4-openssl-dev" \
  "etcd: locks; it wants libcurl4-openssl-dev and libcjson-dev"; do
  grep -qxF -e "-- corral: left out: $part" "$root/log" || fail "not said: left out: $part"
done
run "$CMAKE" --build "$root/own" --target help
grep -q '^corral:' "$root/log" || fail "there is no target corral"
grep -E '^(corral_command|test_[a-z]*):' "$root/log" && fail "without the command there is more"
echo "the library alone was built, in another project and by itself"
