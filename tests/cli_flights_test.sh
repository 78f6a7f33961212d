#!/bin/sh
# cli_flights_test.sh: corral flights and corral log, with real processes on an lmdb: store.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed. Commands under test wait for a file; the script waits for a
# state, never for a time.
. "$(dirname "$0")/support/cli.sh"
export CORRAL_STATS_DIR="$dir/stats" CORRAL_STORE="lmdb:$dir/store"

# slow NAME: writes its process id to NAME.pid, and ends when the file NAME.go is there.
cat >slow <<'END_OF_SLOW'
#!/bin/sh
echo $$ >"$1.tmp.$$" && mv "$1.tmp.$$" "$1.pid"
until [ -e "$1.go" ]; do sleep 0.02; done
echo made
END_OF_SLOW
chmod +x slow
log=
watch=
# shellcheck disable=SC2086 # words
finish() {
  touch page.go other.go
  kill $log $watch 2>/dev/null
}

# flights N STATE KEY: N flights of that key are in that state.
flights() {
  "$CORRAL" --json flights >flights.out 2>/dev/null
  [ "$(grep -c "^{\"key\":\"$3\",.*\"state\":\"$2\"" flights.out)" -eq "$1" ]
}
# flight_of PID STATE KEY: that process has such a flight.
flight_of() {
  flights 1 "$2" "$3" && grep "\"state\":\"$2\"" flights.out | grep -q "\"pid\":$1,"
}
# logged FILE EVENT KEY: such an event is in the JSON lines.
logged() { grep -q "\"event\":\"$2\",\"key\":\"$3\"" "$1"; }

# ---- nothing yet ----
none() {
  status 1 "$CORRAL" flights && [ ! -s out ] && [ "$(cat err)" = "corral: no flights" ] &&
    status 1 "$CORRAL" -q flights && [ ! -s out ] && [ ! -s err ] &&
    status 1 "$CORRAL" --json -q flights && [ ! -s out ] && [ ! -s err ]
}
check "without a flight there is nothing to show, and the status says so" none

# ---- a log that follows from here on ----
"$CORRAL" --json log >log.out 2>log.err &
log=$!
follows() { "$CORRAL" run --ttl 0.001 --key begin -- true && logged log.out computed begin; }
check "the log has what processes do that begin later" await follows

# ---- a herd ----
"$CORRAL" run --key page -- ./slow page >leader.out 2>&1 &
leader=$!
check "a compute is a flight of its process" await flight_of $leader compute page
waiters=
for i in 1 2 3; do
  "$CORRAL" run --key page -- ./slow page >waiter.$i.out 2>&1 &
  waiters="$waiters $!"
done
check "three other processes wait for it" await flights 3 wait page
one_leader() { flights 1 compute page && [ "$(wc -l <flights.out)" -eq 4 ]; }
check "one process computes, whoever waits" one_leader
lines_of_text() {
  status 0 "$CORRAL" flights && lines 4 out && [ ! -s err ] && head -n 1 out |
    grep -q "^page: compute for .*, 0 waiting, corral (pid $leader) on $(uname -n)\$"
}
check "the longest flight is the first line" lines_of_text
by_namespace() {
  "$CORRAL" --namespace shop run --key other -- ./slow other >other.out 2>&1 &
  other=$!
  await flights 1 compute other && grep -q '"cache":"shop"' flights.out &&
    "$CORRAL" flights | grep -q '^other: .*, cache shop$' && touch other.go && wait $other
}
check "a flight names its cache" by_namespace

# ---- the leader is killed: its guard kills the command, and only then is the compute over ----
kill -9 $leader
wait $leader 2>/dev/null
without_leader() {
  "$CORRAL" --json flights >flights.out
  ! grep -q "\"pid\":$leader," flights.out
}
check "a killed process has no flight" await without_leader
successor() { flights 1 compute page && flights 2 wait page; }
check "one of those who waited computes in its place" await successor
sleep 0.1 # so that its compute is longer than by_length asks for
touch page.go
# shellcheck disable=SC2086 # words
all_end() { wait $waiters && [ "$(cat waiter.*.out)" = "$(printf 'made\nmade\nmade')" ]; }
check "all get the value" all_end
check "then there is no flight" status 1 "$CORRAL" flights

# ---- what the log had ----
check "the log has the wait" await logged log.out wait page
check "the log has the compute's end" await logged log.out computed page
with_times() {
  grep '"event":"computed","key":"page"' log.out | grep -q '"duration_us":[0-9]\{4,\},"bytes":' &&
    grep '"event":"fill","key":"page"' log.out | grep -q '"bytes":[1-9]'
}
check "an event has its duration and its bytes" with_times
kill $log
wait $log
check "a signal ends the log" [ $? -eq 143 ]
log=
check "the log has no messages" [ ! -s log.err ]

# ---- what is left of the past ----
past() {
  status 0 "$CORRAL" log --past --for 0 --key page --event computed && lines 1 out &&
    grep -q ' computed page, .* bytes \[corral [0-9]*\]$' out
}
check "the past has the events of processes that have ended" past
in_order() {
  "$CORRAL" --json log --past --for 0 | sed -n 's/^{"time":"\([^"]*\)".*/\1/p' >times &&
    [ "$(wc -l <times)" -gt 4 ] && LC_ALL=C sort -c times
}
check "its events are in the order of time, whatever process has them" in_order
by_pattern() {
  status 0 "$CORRAL" log --past --for 0 --key 'oth*' && [ -s out ] &&
    ! grep -qv '^[0-9: .+-]* [a-z_]* other[,: ]' out && status 0 "$CORRAL" log --past --for 0 \
      --key 'oth?' && [ ! -s out ]
}
check "a key is chosen by a pattern" by_pattern
by_length() {
  status 0 "$CORRAL" log --past --for 0 --key page --min 10ms && grep -q ' computed page' out &&
    ! grep -q ' compute page' out && status 0 "$CORRAL" log --past --for 0 --min 1h && [ ! -s out ]
}
check "events are chosen by their length" by_length
without_past() { status 0 "$CORRAL" log --for 0 && [ ! -s out ] && [ ! -s err ]; }
check "without --past there is nothing of before" without_past

# ---- foreign texts ----
escaped() {
  "$CORRAL" run --key "$(printf 'red\033[31m"')" -- true && status 0 "$CORRAL" log --past --for 0 &&
    grep -qF 'red\x1b[31m"' out && status 0 "$CORRAL" --json log --past --for 0 &&
    grep -qF '"key":"red\u001b[31m\""' out && ! grep -q "$(printf '\033')" out
}
check "a terminal obeys no key" escaped

# The files of another version, which has other names for its events.
other_names() {
  mkdir other && for file in "$CORRAL_STATS_DIR"/*; do
    LC_ALL=C sed 's/event\.computed/event.c\x1bmp"ted/' "$file" >"other/${file##*/}"
  done
  ours=$CORRAL_STATS_DIR CORRAL_STATS_DIR=$dir/other
  status 0 "$CORRAL" log --past --for 0 && grep -qF ' c\x1bmp"ted page' out &&
    status 0 "$CORRAL" --json log --past --for 0 && grep -qF '"event":"c\u001bmp\"ted"' out &&
    ! grep -q "$(printf '\033')" out
  other=$?
  CORRAL_STATS_DIR=$ours
  return $other
}
check "nor any name of an event of another version" other_names

# ---- arguments ----
refuses() { status 125 "$CORRAL" log "$2" "$3" && [ ! -s out ] && grep -qF -e "$1" err; }
check "an unknown event is refused" refuses "did you mean compute?" --event compte
check "one that isn't logged is, too" refuses "'hit' is only counted" --event fill,hit
check "an argument too many is, too" refuses "one argument too many" --past x
listed_again() { [ "$(wc -l <watch.out)" -ge 3 ]; }
watches() {
  : >watch.out
  "$CORRAL" flights --watch=100ms >watch.out 2>&1 &
  watch=$!
  await listed_again
  again=$?
  kill $watch
  wait $watch
  [ $? -eq 143 ] && [ $again -eq 0 ]
}
check "flights --watch shows them again and again" watches

exit $failed
