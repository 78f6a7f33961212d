#!/bin/sh
# all.sh BUILD: runs the benchmarks of a build with CORRAL_BENCH=ON, and prints what was measured
# beside its goal.
#
# Ratios are against a floor in the same run; counts of instructions and system calls are exact. The
# programs' own output goes to BUILD/results/. docs/performance.md tells how to read the table.
set -u
build=${1:?usage: all.sh BUILD}
programs=$build/bench results=$build/results
mkdir -p "$results" || exit 2
server=
folder=$(mktemp -d) || exit 2
finish() {
  [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

row() { printf '%-46s %-28s %s\n' "$@"; }

# run NAME [ARGUMENT...]: runs bench_NAME; its output is in $results/NAME.txt.
run() {
  name=$1
  shift
  if [ ! -x "$programs/bench_$name" ]; then
    echo "bench_$name is not built" >"$results/$name.txt"
    return
  fi
  "$programs/bench_$name" "$@" >"$results/$name.txt" 2>&1 # some fail beyond their goal
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

# The first byte of a slow answer through nginx.
streams() {
  run stream
  row "nginx: first byte, alone, to proxy_pass" "$(behind stream alone ratio)" "<= 1.1"
  row "nginx: first byte, the last of 21 at once" "$(behind stream 'of 21' ratio)" "<= 1.1"
}

# ---- counts: of 2000 more hits ----

instructions() { # STORE HITS [NEAR_BYTES [loop]]
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$programs/bench_count" "$@" 2>&1 |
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

system_calls() { # STORE HITS
  strace -f -c -o "$folder/calls" "$programs/bench_count" "$@" &&
    awk '$NF == "total" { print $4 }' "$folder/calls"
}

per_hit() { # COMMAND STORE [NEAR_BYTES [loop]]
  command=$1 store=$2
  shift 2
  few=$($command "$store" 1000 "$@") many=$($command "$store" 3000 "$@")
  [ -n "$few" ] && [ -n "$many" ] && awk "BEGIN { printf \"%.1f\", ($many - $few) / 2000 }"
}

count_all() {
  if command -v valgrind >/dev/null; then
    row "memory: hit, instructions" "$(per_hit instructions memory:)" "<= 2000"
    row "lmdb: hit, instructions" "$(per_hit instructions "lmdb:$folder/store")" "<= 2000"
    row "near hit, instructions" "$(per_hit instructions memory: 1000000)" ""
    row "loop, memory: hit, instructions" "$(per_hit instructions memory: 0 loop)" ""
    row "loop, lmdb: hit, instructions" "$(per_hit instructions "lmdb:$folder/store" 0 loop)" ""
    row "loop, near hit, instructions" "$(per_hit instructions memory: 1000000 loop)" ""
    [ -z "$server" ] ||
      row "Redis hit, instructions" "$(per_hit instructions "$redis")" "<= 2500"
  else
    row "instructions" "not counted: no valgrind" ""
  fi
  row "memory: hit, bytes of stack" "$("$programs/bench_count" memory: stack)" "<= 600"
  [ -z "$server" ] ||
    row "Redis hit, bytes of stack" "$("$programs/bench_count" "$redis" stack)" "<= 600"
  if command -v strace >/dev/null && [ -n "$server" ]; then
    row "Redis hit, system calls" "$(per_hit system_calls "$redis")" "2"
  else
    row "system calls" "not counted: no strace" ""
  fi
}

start_redis() {
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

# ---- the table ----

row "what" "now" "goal"
row "----" "---" "----"
start_redis
count_all
stop_redis
run hit
row "Redis hit, 1 thread, to a raw GET" "$(behind hit 'redis    one' ratio)" "<= 1.05"
run threads -u
for n in 4 16 64; do
  row "$n threads, to a connection each" "$(column threads "unix   1 x $n " 7)" \
    "$(case $n in 4) echo '>= 1.0' ;; 16) echo '>= 1.3' ;; *) echo '>= 2.0' ;; esac)"
done
row "4 processes x 16 threads" "$(column threads 'unix   4 x 16 ' 7)" ">= 1.8"
run miss
row "cold miss, round trips to the value" "$(behind miss 'corral ' 'round trips,')" "<= 2"
row "the same with settle_behind" "$(behind miss 'behind ' 'round trips,')" "<= 2"
row "an expected miss, with settle_behind" "$(behind miss 'expected, behind' 'round trips,')" "<= 1"
row "server's time, to SET NX GET + SET" "$(behind miss ratio executing)" "<= 3"
run woken
row "fill to the last of 4 x 50, to a bare wake" "$(column woken woken 5)" "<= 1.4"
row "  commands of each of them" "$(column woken woken 6)" "<= 0.1"
run near
row "near hit, 1 thread, to the bare table" "$(column near '10,000 keys        1' 9)" "<= 1.35"
row "near hit, 2 threads" "$(column near '10,000 keys        2' 9)" "<= 1.2"
row "near hit, one hot key, 1 thread" "$(column near 'one hot key        1' 10)" "<= 1.5"
row "near hit, one hot key, 2 threads" "$(column near 'one hot key        2' 10)" "<= 1.5"
run memcached
row "memcached hit, to the raw protocol" "$(last memcached 'hit ')" "<= 1.1"
row "memcached claim + settle" "$(last memcached 'claim')" "<= 1.05"
run fill
row "lmdb: miss beside 1 other thread, to alone" "$(behind fill '2 threads' ratio)" ""
row "lmdb: miss beside 3 other processes" "$(behind fill '4 processes' ratio)" ""
run lock
row "lock, TCP, to two GETs" "$(behind lock 'uncontended, TCP' 'us, ratio')" "<= 1.4"
row "lock, unix socket" "$(behind lock 'uncontended, unix' 'us, ratio')" "<= 1.4"
run startup
row "corral run, miss, to 1.3 x sh -c + 2 ms" "$(last startup 'run, miss')" "<= 0.9"
run loop
row "loop, memory:, 1 in flight, to corral_get" "$(behind loop 'memory:' ratio)" "<= 3"
row "loop, lmdb:, 1 in flight" "$(behind loop 'lmdb:' ratio)" "<= 3"
row "loop, near, 1 in flight" "$(behind loop 'near ' ratio)" "<= 3"
row "loop, redis:, 1 in flight" "$(behind loop 'redis:' ratio)" "<= 3"
row "loop, memory:, begun between dispatches" "$(last loop 'memory:')" ""
row "loop, lmdb:, begun between dispatches" "$(last loop 'lmdb:')" ""
row "loop, near, begun between dispatches" "$(last loop 'near ')" ""
run growth --svg "$results/growth.svg"
for store in memory: lmdb: near; do
  row "$store hit, 1,000,000 keys to 100" "$(within growth keys "$store" 8)" ""
  row "$store hit, 64 threads to 1" "$(within growth threads "$store" 10)" ""
  row "$store hit, 16 tags to none" "$(within growth tags "$store" 9)" ""
done
row "lmdb: hit, 16 processes to 1" "$(within growth processes lmdb: 8)" ""
row "memory: wake of 400 waiters to that of 1" "$(within growth waiters memory: 9)" ""
streams
