#!/bin/sh
# explore.sh BUILD SECONDS [TARGET...]: runs the libFuzzer targets of a build (all of them), each for so long, one after the other.
#
# What it learns is kept in BUILD/fuzz/learned/TARGET; inputs that break a promise are left in BUILD/fuzz/found/TARGET. The exit status is 1
# when there is one. `merge.sh` takes what was learned into the tree.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) || exit 2
seconds=$2
shift 2
# shellcheck disable=SC2046 # targets have no spaces
[ $# -gt 0 ] || set -- $(find "$build/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sed 's,.*/fuzz_,,' | sort)
passed=0 failed=0

figure() { sed -n "s/^stat::$2: *//p" "$1" | tail -n 1; }

for target in "$@"; do
  program=$build/fuzz/fuzz_$target learned=$build/fuzz/learned/$target found=$build/fuzz/found/$target log=$build/fuzz/$target.log
  [ -x "$program" ] || { echo "not ok - $target: there is no $program"; failed=$((failed + 1)); continue; }
  mkdir -p "$learned" "$found"
  if nice "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -close_fd_mask=1 -artifact_prefix="$found/" \
    "$learned" "$here/corpus/$target" >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "ok - $target: $(figure "$log" number_of_executed_units) inputs, $(figure "$log" average_exec_per_sec) a second"
  else
    failed=$((failed + 1))
    echo "not ok - $target: see $log"
    grep -E 'broken promise|runtime error|ERROR:|Test unit written' "$log" | head -n 5 | sed 's/^/# /'
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
