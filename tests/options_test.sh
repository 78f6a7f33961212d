#!/bin/sh
# options_test.sh FOLDER [COMBINATION...]: builds the library with some of its options off, and
# runs the tests of that build except the crowds on locks.
# Builds go to FOLDER. The script prints a line for each combination, and the sums.
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" || exit 2
folder=$(cd "$1" && pwd)
shift
optional="POSTGRESQL MARIADB SQLITE ZOOKEEPER ETCD HTTP"
passed=0 failed=0

off() { for name in "$@"; do printf ' -DCORRAL_%s=OFF' "$name"; done; }

# shellcheck disable=SC2086 # words
flags_of() { # COMBINATION
  case $1 in
    without-redis) off REDIS ;;
    without-memcached) off MEMCACHED ;;
    without-lmdb) off LMDB ;;
    without-optional) off $optional NGINX ;;
    without-stores) off REDIS MEMCACHED LMDB $optional NGINX ;;
    without-examples) off EXAMPLES HARDEN ;;
    redis-alone) off MEMCACHED LMDB $optional ;;
    builtin-static)
      echo -DBUILD_SHARED_LIBS=OFF -DCORRAL_NGINX=OFF \
        "-DCORRAL_BUILTIN_PLUGINS=lmdb;redis;memcached"
      ;;
    *) return 1 ;;
  esac
}

# one prints the step that failed.
one() { # COMBINATION
  build=$folder/$1
  flags=$(flags_of "$1") || { echo "there is no combination '$1'"; return 1; }
  # shellcheck disable=SC2086
  cmake -G Ninja -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O1 \
    -DCORRAL_BENCH=ON -DCORRAL_WERROR=ON $flags >"$build.log" 2>&1 ||
    { echo "it doesn't configure: see $build.log"; return 1; }
  cmake --build "$build" >>"$build.log" 2>&1 ||
    { echo "it doesn't build: see $build.log"; return 1; }
  (cd "$build" && ctest -j 4 -E '^lock_chaos_' --no-tests=error --output-on-failure) \
    >>"$build.log" 2>&1 ||
    { echo "tests fail: see $build.log"; sed -n '/tests FAILED/,$s/^/# /p' "$build.log"; return 1; }
}

[ $# -gt 0 ] ||
  set -- without-redis without-memcached without-lmdb without-optional without-stores \
    without-examples redis-alone builtin-static
for combination in "$@"; do
  if why=$(one "$combination"); then
    passed=$((passed + 1))
    echo "ok - $combination"
  else
    failed=$((failed + 1))
    echo "not ok - $combination: $why"
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
