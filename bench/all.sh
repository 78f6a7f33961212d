#!/bin/sh
# all.sh BUILD [--idle | --both] [--write]: runs the benchmarks of a build with CORRAL_BENCH=ON, and
# prints what was measured beside its goal.
#
# Ratios are against a floor in the same run; counts of instructions and system calls are exact. The
# programs' own output goes to BUILD/results/. docs/performance.md tells how to read the table.
#
# While it runs, a loop of the lowest priority keeps each processor awake, and what has one caller
# at a time shares one processor with its server: an idle virtual processor, and a word from one to
# another, take longer than most of what is measured. With --idle, or CORRAL_BENCH_IDLE=1, neither
# is done. With --both it measures awake, and then what that makes a difference to once more, idle.
# --write measures both, and writes the table into docs/performance.md, and docs/growth.svg.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
usage="usage: all.sh BUILD [--idle | --both] [--write]"
build=${1:?$usage}
shift
regimes=awake write=no
[ "${CORRAL_BENCH_IDLE:-}" != 1 ] || regimes=idle
for option in "$@"; do
  case $option in
    --idle) regimes=idle ;;
    --both) regimes="awake idle" ;;
    --write) regimes="awake idle" write=yes ;;
    *) echo "$usage" >&2 && exit 2 ;;
  esac
done
programs=$build/bench
mkdir -p "$build/results" || exit 2
server=
keepers=
folder=$(mktemp -d) || exit 2
finish() {
  stop_redis
  let_sleep
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

# ---- processors kept awake ----

# The processors that this process may use, one a line.
processors() {
  awk '$1 == "Cpus_allowed_list:" {
    count = split($2, ranges, ",")
    for (i = 1; i <= count; i++) {
      split(ranges[i] "-" ranges[i], ends, "-")
      for (at = ends[1]; at <= ends[2]; at++) print at
    }
  }' /proc/self/status
}

# A loop ends soon after this script, however that ends.
keep_awake() {
  for processor in $(processors); do
    # shellcheck disable=SC2016
    taskset -c "$processor" chrt -i 0 sh -c '
      while kill -0 "$1" 2>/dev/null; do
        i=0
        while [ $i -lt 20000 ]; do i=$((i + 1)); done
      done' awake $$ &
    keepers="$keepers $!"
  done
}

# A process that begins doesn't displace such a loop at once, as one that is woken does.
without_loops() { # COMMAND
  had=$keepers
  let_sleep
  "$1"
  [ -z "$had" ] || keep_awake
}

let_sleep() {
  # shellcheck disable=SC2086
  [ -z "$keepers" ] || { kill $keepers && wait $keepers; } 2>/dev/null
  keepers=
}

# ---- rows ----

# A goal is <= or >= and a number.
judge='
  function is_missed(now, goal,   g) {
    split(goal, g, " ")
    return now ~ /^[0-9.]+$/ && (g[1] == "<=" && now + 0 > g[2] + 0 ||
                                 g[1] == ">=" && now + 0 < g[2] + 0)
  }'

# Rows are printed, and kept in $results/rows. Where a program has not given the figure, its output
# tells why.
row() { # WHAT NOW GOAL
  echo "$1|${2:-none}|$3" | tee -a "$results/rows" | awk -F '|' "$judge"'
    { printf "%-46s %-14s %-10s %s\n", $1, $2, $3, is_missed($2, $3) ? "missed" : "" }'
}

part() { # NAME: of the rows that follow
  echo "$1" >>"$results/rows"
  printf '\n%s\n' "$1"
}

# run_alone NAME: of a program with one caller at a time.
run_alone() {
  together=
  [ "$regime" = idle ] || together="taskset -c $(processors | head -n 1)"
  run "$1"
  together=
}

# run NAME [ARGUMENT...]: runs bench_NAME; its output is in $results/NAME.txt.
together=
run() {
  name=$1
  shift
  if [ ! -x "$programs/bench_$name" ]; then
    echo "bench_$name is not built" >"$results/$name.txt"
    return
  fi
  # shellcheck disable=SC2086
  $together "$programs/bench_$name" "$@" >"$results/$name.txt" 2>&1 # some fail beyond their goal
}

# behind NAME LINE WORD: the number behind WORD, in the first line of NAME's output with LINE.
behind() {
  awk -v line="$2" -v word="$3" 'index($0, line) {
    at = index($0, word)
    if (at == 0) next
    split(substr($0, at + length(word)), rest, /[^0-9.]+/)
    print rest[1] != "" ? rest[1] : rest[2]
    exit
  }' "$results/$1.txt"
}

# column NAME LINE N: the Nth word of the first line of NAME's output that begins with LINE.
column() { awk -v line="$2" -v n="$3" 'index($0, line) == 1 { print $n; exit }' "$results/$1.txt"; }

# within NAME PART LINE N: the Nth word of the first line whose first word is LINE, behind the first
# line that begins with PART.
within() {
  awk -v part="$2" -v line="$3" -v n="$4" '
    index($0, part) == 1 { inside = 1 }
    inside && $1 == line { print $n; exit }' "$results/$1.txt"
}

# last NAME LINE: the last word of the first line of NAME's output with LINE.
last() { awk -v line="$2" 'index($0, line) { print $NF; exit }' "$results/$1.txt"; }

# Hits through nginx against those of its proxy_cache, and the first byte of a slow answer.
through_nginx() {
  sh "$root/bench/nginx.sh" "$build" >"$results/nginx.txt" 2>&1 # it fails below its goals
  row "nginx: near hits, to those of proxy_cache" "$(column nginx near 4)" ">= 1.2"
  row "nginx: near hits, by the worker's time" "$(column nginx near 13)" ">= 1.2"
  row "nginx: store hits, to those of proxy_cache" "$(column nginx store 4)" ">= 0.9"
  row "nginx: store hits, by the worker's time" "$(column nginx store 13)" ">= 0.9"
  run stream
  row "nginx: first byte, alone, to proxy_pass" "$(behind stream alone ratio)" "<= 1.1"
  row "nginx: first byte, the last of 21 at once" "$(behind stream 'of 21' ratio)" "<= 1.1"
}

# ---- counts: of 2000 more hits, or locks ----

instructions() { # STORE HITS [NEAR_BYTES [loop] | lock]
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$programs/bench_count" "$@" 2>&1 |
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

system_calls() { # STORE HITS [lock]
  strace -f -c -o "$folder/calls" "$programs/bench_count" "$@" &&
    awk '$NF == "total" { print $4 }' "$folder/calls"
}

per_hit() { # COMMAND STORE [NEAR_BYTES [loop] | lock]
  command=$1 store=$2
  shift 2
  few=$($command "$store" 1000 "$@") many=$($command "$store" 3000 "$@")
  [ -n "$few" ] && [ -n "$many" ] && awk "BEGIN { printf \"%d\", ($many - $few) / 2000 + .5 }"
}

start_redis() {
  redis=
  command -v redis-server >/dev/null || return
  redis=redis+unix://$folder/s
  redis-server --port 0 --unixsocket "$folder/s" --save '' --appendonly no --dir "$folder" \
    >/dev/null &
  server=$!
  for _ in 1 2 3 4 5 6 7 8 9 10; do [ -S "$folder/s" ] && return; sleep 1; done
}

stop_redis() {
  [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null
  server=
}

count_all() {
  lmdb=lmdb:$folder/store
  start_redis
  if command -v valgrind >/dev/null; then
    row "memory: hit, instructions" "$(per_hit instructions memory:)" "<= 2000"
    row "lmdb: hit, instructions" "$(per_hit instructions "$lmdb")" "<= 2000"
    [ -z "$redis" ] ||
      row "Redis hit, instructions" "$(per_hit instructions "$redis")" "<= 2500"
    row "near hit, instructions" "$(per_hit instructions memory: 1000000)" ""
    row "loop, memory: hit, instructions" "$(per_hit instructions memory: 0 loop)" ""
    row "loop, lmdb: hit, instructions" "$(per_hit instructions "$lmdb" 0 loop)" ""
    row "loop, near hit, instructions" "$(per_hit instructions memory: 1000000 loop)" ""
    [ -z "$redis" ] ||
      row "Redis lock, instructions of a pair" "$(per_hit instructions "$redis" lock)" ""
  else
    row "instructions" "no valgrind" ""
  fi
  for store in memory: "$lmdb" $redis; do
    row "$(name_of "$store") hit, bytes of stack" \
      "$("$programs/bench_count" "$store" stack)" "<= 600"
  done
  if command -v strace >/dev/null; then
    for store in memory: "$lmdb" $redis; do
      row "$(name_of "$store") hit, system calls" "$(per_hit system_calls "$store")" \
        "<= $([ "$store" = "$redis" ] && echo 2 || echo 0)"
    done
    [ -z "$redis" ] ||
      row "Redis lock, system calls of a pair" "$(per_hit system_calls "$redis" lock)" ""
  else
    row "system calls" "no strace" ""
  fi
  stop_redis
}

name_of() { # STORE
  case $1 in
    redis*) echo Redis ;;
    *) echo "${1%%:*}:" ;;
  esac
}

# ---- the table ----

hits() {
  run_alone hit
  row "Redis hit, 1 thread, to a raw GET" "$(behind hit 'redis    one' ratio)" "<= 1.05"
  run_alone stats
  row "Redis hit, with a stats file, to one without" "$(behind stats 'redis ' ratio)" "<= 1.02"
  row "near hit, ns more with a stats file" "$(behind stats 'near ' difference)" "<= 2"
}

threads() {
  run threads -u
  for n in 4 16 64; do
    row "$n threads, throughput to a connection each" "$(column threads "unix   1 x $n " 7)" \
      "$(case $n in 4) echo '>= 1.0' ;; 16) echo '>= 1.3' ;; *) echo '>= 2.0' ;; esac)"
    row "$n threads, p99" "$(column threads "unix   1 x $n " 10)" "<= 1.0"
  done
  row "4 processes x 16 threads, throughput" "$(column threads 'unix   4 x 16 ' 7)" ">= 1.8"
  row "4 processes x 16 threads, p99" "$(column threads 'unix   4 x 16 ' 10)" "<= 1.0"
  row "4 processes x 16 threads, the server's CPU" "$(column threads 'unix   4 x 16 ' 11)" "<= 0.4"
}

clusters() {
  run_alone cluster
  row "hit on 3 nodes, 1 thread, to one Redis" "$(behind cluster '1 thread, us' ratio)" "<= 1.05"
  row "the servers' CPU of it" "$(behind cluster "1 thread, servers' CPU" ratio)" ""
  row "the same hit on keys of one node" "$(behind cluster 'one node, 1 thread, us' ratio)" \
    "<= 1.05"
  run cluster
  row "hits of 64 threads, throughput to one Redis" "$(behind cluster '64 threads, us' inverse)" \
    "$([ "$(processors | wc -l)" -lt 4 ] || echo '>= 1.5')"
  row "the servers' CPU of each" "$(behind cluster "64 threads, servers' CPU" ratio)" "<= 1.05"
  row "the same on keys of one node" \
    "$(behind cluster "one node, 64 threads, servers' CPU" ratio)" "<= 1.05"
  row "commands of a hit, to one Redis" "$(behind cluster 'hit, commands' ratio)" "<= 1.0"
}

misses() {
  run_alone miss
  row "cold miss, round trips to the value" "$(behind miss 'corral ' 'round trips,')" "<= 2"
  row "cold miss, the same with settle_behind" "$(behind miss 'behind ' 'round trips,')" "<= 2"
  row "expected miss, round trips to the value" "$(behind miss 'expected ' 'round trips,')" "<= 1"
  row "expected miss, the same with settle_behind" \
    "$(behind miss 'expected, behind' 'round trips,')" "<= 1"
  row "the server's time, to SET NX GET + SET" "$(behind miss ratio executing)" "<= 3"
  run fill
  row "lmdb: miss alone, us" "$(column fill alone 2)" ""
  row "lmdb: miss beside 1 other thread, to alone" "$(behind fill '2 threads' ratio)" ""
  row "lmdb: miss beside 1 other process" "$(behind fill '2 processes' ratio)" ""
  row "lmdb: miss beside 3 other processes" "$(behind fill '4 processes' ratio)" ""
}

waking() {
  run woken
  row "fill to the last of 4 x 50, to a bare wake" "$(column woken woken 5)" "<= 1.4"
  row "commands of each of them" "$(column woken woken 6)" "<= 0.1"
}

near() { # AS_PRINTED WHAT THREADS GOAL COLUMN: the column of the ratio to a bare look
  row "$2, $3, to a bare look" "$(column near "$1        ${3%% *}" "$5")" "$4"
  row "$2, $3, to a look that copies" "$(column near "$1        ${3%% *}" $(($5 + 1)))" "$4"
}

near_tier() {
  run near
  near '10,000 keys' 'near hit' '1 thread' '<= 1.35' 8
  near '10,000 keys' 'near hit' '2 threads' '<= 1.2' 8
  near 'one hot key' 'one hot key' '1 thread' '<= 1.5' 9
  near 'one hot key' 'one hot key' '2 threads' '<= 1.5' 9
  for keys in '10,000 keys' 'one hot key'; do
    for threads in '1 thread' '2 threads'; do
      row "whole call, $keys, $threads, ns" \
        "$(behind near "corral_get, $keys, $threads:" 'near tier')" "<= 120"
    done
  done
  run readers
  row "enter and leave, 1 thread, to liburcu-bp" "$(behind readers '1 thread ' ratio)" "<= 1.0"
  row "enter and leave, 2 threads, to liburcu-bp" "$(behind readers '2 threads' ratio)" "<= 1.0"
}

memcached() {
  run_alone memcached
  row "memcached hit, to the raw protocol" "$(last memcached 'hit ')" "<= 1.1"
  row "memcached claim + settle" "$(last memcached 'claim')" "<= 1.05"
}

locks() {
  run_alone lock
  for way in TCP unix; do
    row "lock, $way, to two GETs" "$(behind lock "uncontended, $way" 'to two GETs')" "<= 1.4"
    row "lock, $way, scripts=no" "$(behind lock "uncontended, $way" 'of scripts=no')" "<= 1.2"
  done
}

commands() {
  run startup
  row "corral run, miss, to 1.3 x sh -c + 2 ms" "$(last startup 'run, miss')" "<= 0.9"
  row "corral run, hit" "$(last startup 'run, hit')" ""
}

loops() {
  run_alone loop
  for store in memory: lmdb: 'near ' redis:; do
    row "loop, ${store% }, 1 in flight, to corral_get" "$(behind loop "$store" ratio)" "<= 3"
  done
  for store in memory: lmdb: 'near '; do
    row "loop, ${store% }, corral_peek, to corral_get" "$(behind loop "$store" corral_peek)" ""
    row "loop, ${store% }, begun between dispatches" "$(last loop "$store")" "<= 3"
  done
}

growth() {
  run growth --svg "$results/growth.svg"
  for store in memory: lmdb: near; do
    row "$store hit, 1,000,000 keys to 100" "$(within growth keys "$store" 8)" ""
    row "$store hit, 64 threads to 1" "$(within growth threads "$store" 10)" ""
    row "$store hit, 16 tags to none" "$(within growth tags "$store" 9)" ""
  done
  row "lmdb: hit, 16 processes to 1" "$(within growth processes lmdb: 8)" ""
  row "memory: wake of 400 waiters to that of 1" "$(within growth waiters memory: 9)" ""
}

# ---- both regimes ----

# Says what is measured, and where.
introduce() { # REGIME
  printf '\n%s processors, %s; load before: %s\n' "$(processors | wc -l)" "$(
    case $1 in
      awake) echo "kept awake by loops of the lowest priority" ;;
      *) echo "which sleep when nobody has work for them" ;;
    esac
  )" "$(cut -d ' ' -f 1 /proc/loadavg)"
  printf '%-46s %-14s %s\n' what now goal
}

measure() { # REGIME PART...
  regime=$1 results=$build/results/$1
  shift
  mkdir -p "$results" && : >"$results/rows" || exit 2
  introduce "$regime"
  [ "$regime" = idle ] || keep_awake
  for name in "$@"; do
    case $name in
      hits) part "A hit on Redis" && hits ;;
      threads) part "Many threads on one Redis, unix socket" && threads ;;
      clusters) part "A hit on a Redis Cluster" && clusters ;;
      misses) part "A miss" && misses ;;
      waking) part "Waking" && waking ;;
      memcached) part "memcached" && memcached ;;
      locks) part "A lock on Redis" && locks ;;
      commands) part "The command" && without_loops commands ;;
      loops) part "Event loops" && loops ;;
      counts) part "Counts" && count_all ;;
      nginx) part "nginx" && through_nginx ;;
      near) part "The near tier" && near_tier ;;
      growth) part "Growth" && growth ;;
    esac
  done
  let_sleep
}

# The table as Markdown, from the rows of both regimes. What misses its goal is bold.
markdown() {
  echo "| what, on $(processors | wc -l) processors, $(date +%Y-%m-%d) | goal | awake | idle |"
  echo "|---|---|---|---|"
  awk -F '|' "$judge"'
    function shown(now, goal) { return is_missed(now, goal) ? "**" now "**" : now }
    NR == FNR { idle[$1] = $2; next }
    NF < 3 { print "| **" $1 "** | | | |"; next }
    { print "| " $1 " | " $3 " | " shown($2, $3) " | " shown(idle[$1], $3) " |" }
  ' "$build/results/idle/rows" "$build/results/awake/rows"
}

# A table follows the line "<!-- bench/all.sh -->" of the page, and ends at a blank line.
write_table() {
  page=$root/docs/performance.md
  markdown >"$folder/table"
  awk -v table="$folder/table" '
    !inside { print }
    $0 == "<!-- bench/all.sh -->" {
      inside = 1
      while ((getline line <table) > 0) print line
    }
    inside && $0 == "" { inside = 0; print }' "$page" >"$folder/page" &&
    cp "$folder/page" "$page" && cp "$build/results/awake/growth.svg" "$root/docs/growth.svg"
}

if [ "$regimes" != idle ] && ! taskset -c "$(processors | head -n 1)" chrt -i 0 true; then
  echo "chrt -i or taskset is not permitted here: the processors may sleep"
  regimes=idle write=no
fi
sleepy="hits threads clusters misses waking memcached locks commands loops"
for regime in $regimes; do
  case "$regimes $regime" in
    "awake idle idle")
      # shellcheck disable=SC2086
      measure idle $sleepy
      ;;
    *)
      # shellcheck disable=SC2086
      measure "$regime" $sleepy counts near nginx growth
      ;;
  esac
done
[ "$write" = no ] || write_table
