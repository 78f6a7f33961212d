#!/bin/sh
# explore.sh BUILD SECONDS [TARGET...]: runs the libFuzzer targets of a build (by default all of
# them) one after the other, each for SECONDS.
#
# New inputs are kept in BUILD/fuzz/learned/TARGET; `merge.sh` takes them into the tree.
# Inputs that break a promise are left in BUILD/fuzz/found/TARGET; then the exit status is 1.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) || exit 2
seconds=$2
shift 2
# shellcheck disable=SC2046 # targets have no spaces
[ $# -gt 0 ] || set -- $(
  find "$build/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sed 's,.*/fuzz_,,' | sort
)
passed=0 failed=0

figure() { sed -n "s/^stat::$2: *//p" "$1" | tail -n 1; }

for target in "$@"; do
  program=$build/fuzz/fuzz_$target log=$build/fuzz/$target.log
  learned=$build/fuzz/learned/$target found=$build/fuzz/found/$target
  [ -x "$program" ] ||
    { echo "not ok - $target: there is no $program"; failed=$((failed + 1)); continue; }
  mkdir -p "$learned" "$found"
  if nice sh "$here/../tests/room.sh" "$program" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -close_fd_mask=1 -artifact_prefix="$found/" \
    "$learned" "$here/corpus/$target" >"$log" 2>&1; then
    passed=$((passed + 1))
    inputs=$(figure "$log" number_of_executed_units) rate=$(figure "$log" average_exec_per_sec)
    echo "ok - $target: $inputs inputs, $rate a second"
  else
    failed=$((failed + 1))
    echo "not ok - $target: see $log"
    grep -E 'broken promise|runtime error|ERROR:|Test unit written' "$log" | head -n 5 |
      sed 's/^/# /'
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
