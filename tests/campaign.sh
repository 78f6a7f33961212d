#!/bin/sh
# campaign.sh MINUTES: runs the steps that take longer than a test run may: simulated herds, swarms
# of loops, crowds on locks, soaks, fuzz targets, and builds with options off.
#
# The steps without an end of their own share MINUTES (60); the others, the builds above all, take
# an hour or two besides. The builds release, bench, dev, tsan and fuzz must be there.
# The script prints a line for each step, and the sums. Logs go to build/campaign/.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
minutes=${1:-60}
dev=$root/build/dev tests=$root/build/dev/tests logs=$root/build/campaign
passed=0 failed=0 skipped=0
mkdir -p "$logs" || exit 2
ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
UBSAN_OPTIONS=print_stacktrace=1
TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:second_deadlock_stack=1
CORRAL_COMMAND=$dev/corral
CORRAL_SOURCE_DIR=$root
export ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS CORRAL_COMMAND CORRAL_SOURCE_DIR
unset CORRAL_SEED CORRAL_SEEDS CORRAL_SECONDS CORRAL_ACQUISITIONS CORRAL_CHAOS CORRAL_FAIR \
  CORRAL_STOPS CORRAL_KIND CORRAL_FAILOVERS

share() { echo $((minutes * 60 * $1 / 100)); } # PERCENT: seconds

# Each step prints one line. Its output goes to a log; a failure shows the end of it.
step() { # NAME COMMAND...
  name=$1 log=$logs/$1.log
  shift
  began=$(date +%s) status=0
  (cd "$tests" && "$@") >"$log" 2>&1 || status=$?
  took=$(($(date +%s) - began))
  case $status in
    0) passed=$((passed + 1)) && echo "ok - $name (${took}s)" ;;
    77) skipped=$((skipped + 1)) && echo "skipped - $name: $(tail -n 1 "$log")" ;;
    *)
      failed=$((failed + 1))
      echo "not ok - $name (${took}s): status $status, see $log"
      tail -n 15 "$log" | sed 's/^/# /'
      ;;
  esac
}

# COMMAND prints "ok - NAME" and "not ok - NAME" lines, and its sums: each line counts.
steps() { # NAME COMMAND...
  log=$logs/$1.log
  shift
  "$@" >"$log" 2>&1
  grep -e '^ok - ' -e '^not ok - ' -e '^# ' "$log"
  passed=$((passed + $(grep -c '^ok - ' "$log")))
  failed=$((failed + $(grep -c '^not ok - ' "$log")))
  grep -q '^[0-9]* passed' "$log" ||
    { echo "not ok - it ended early: see $log"; failed=$((failed + 1)); }
}

# TSan wants its usual memory map.
plain_map() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

# The seed is the day's, so that each campaign plays other worlds; a failure names its seed.
seed=$(date +%Y%m%d)000000

swarm() { CORRAL_SEED_FROM=$seed CORRAL_SECONDS=$(($(share 10) / 4)) "$tests/test_swarm"; }
loop_swarm() { CORRAL_SECONDS=$(($(share 5) / 2)) "$tests/test_loop_swarm"; }
loop_swarm_tsan() {
  CORRAL_SECONDS=$(($(share 5) / 2)) plain_map "$root/build/tsan/tests/test_loop_swarm"
}
fair_chaos() { CORRAL_FAIR=1 chaos "$1"; }
chaos() { CORRAL_CHAOS=$1 CORRAL_ACQUISITIONS=2000 timeout 1800 "$tests/test_lock_chaos"; }

stops() { CORRAL_STOPS=500 timeout 5400 "$tests/test_stops"; }

# soak runs a herd whose leaders are killed. The command checks the values, ASan the leaks.
soak() { # STORE
  "$dev/corral" --store "$1" storm --mode corral --kill-leader --duration "$(share 5)s" \
    --keys 20 --ttl 500ms --stale 200ms --load 1000 --rate 4000
}

soak_lmdb() {
  folder=$(mktemp -d)
  status=0
  soak "lmdb:$folder/store" || status=$?
  rm -rf "$folder"
  return $status
}

soak_redis() {
  command -v redis-server >/dev/null || { echo "there is no redis-server"; return 77; }
  folder=$(mktemp -d)
  redis-server --port 0 --unixsocket "$folder/s" --save '' --appendonly no --dir "$folder" \
    >/dev/null &
  server=$! status=0
  for _ in 1 2 3 4 5 6 7 8 9 10; do [ -S "$folder/s" ] && break; sleep 1; done
  soak "redis+unix://$folder/s" || status=$?
  kill "$server"
  wait "$server" 2>/dev/null
  rm -rf "$folder"
  return $status
}

# The tests with threads are repeated for so long.
again() { # SECONDS
  until=$(($(date +%s) + $1))
  while [ "$(date +%s)" -lt "$until" ]; do
    (cd "$dev" && ctest -L '^threads$' --output-on-failure --stop-on-failure) || return 1
  done
}

# These steps have goals that hold where nothing else is running.
# Redis is dead for a minute under at least 300 requests a second, also with the origin down.
nginx_away() { CORRAL_SECONDS=60 ctest --test-dir "$dev" -R '^nginx_away$' -V --no-tests=error; }
step nginx_away nginx_away
stalls() {
  for _ in 1 2 3 4 5; do "$tests/test_slow" || return 1; done
}
step stalls stalls
for store in redis memcached lmdb; do
  step "weather_$store" "$root/build/bench/bench/bench_weather" --store "$store" --judge
done

step release_hardened sh "$root/tests/harden_test.sh" --files \
  "$root"/build/release/libcorral.so "$root"/build/release/corral \
  "$root"/build/release/corral-conformance "$root"/build/release/plugins/*.so
step run_install sh "$root/tests/run_install_test.sh"
step swarm swarm
step loop_swarm loop_swarm
step loop_swarm_tsan loop_swarm_tsan
for store in lmdb memcached redis redis_without_scripts redlock sqlite postgresql \
  postgresql_advisory mariadb zookeeper etcd; do
  step "lock_chaos_$store" chaos "$store"
done
for store in lmdb memcached redis redis_without_scripts sqlite postgresql_advisory mariadb \
  zookeeper etcd; do
  step "lock_chaos_fair_$store" fair_chaos "$store"
done
step stops stops
step soak_lmdb soak_lmdb
step soak_redis soak_redis
storm_cluster() { for _ in 1 2 3 4 5; do "$tests/test_redis_storm" || return 1; done; }
step storm_cluster storm_cluster
failovers() { CORRAL_FAILOVERS=12 "$tests/test_redis_failover"; }
step failovers failovers
histories() { # SECONDS
  until=$(($(date +%s) + $1))
  while [ "$(date +%s)" -lt "$until" ]; do "$tests/test_history_live" || return 1; done
}
step histories histories "$(share 10)"
step threads_again again "$(share 10)"
targets=$(find "$root/build/fuzz/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | grep -c .)
steps fuzz sh "$root/fuzz/explore.sh" "$root/build/fuzz" "$(($(share 50) / targets))"
steps options sh "$root/tests/options_test.sh" "$root/build/options"
[ $skipped -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
