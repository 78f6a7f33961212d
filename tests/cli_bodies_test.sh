#!/bin/sh
# cli_bodies_test.sh: large results of corral run on a real Redis take one run each and don't
# disturb other keys.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed, 77 without redis-server. It judges the counts of runs and
# of events.
. "$(dirname "$0")/support/cli.sh"
CORRAL_HOST_DIR=$dir
CORRAL_OP=5s # for the small keys, on a machine that is busy; a large result takes longer
export CORRAL_HOST_DIR CORRAL_OP

command -v redis-server >/dev/null ||
  { echo "SKIPPED: there is no redis-server (apt-get install redis-server)"; exit 77; }
redis-server --port 0 --unixsocket "$dir/redis" --dir "$dir" --save '' --appendonly no \
  >redis.log 2>&1 &
redis=$!
finish() { kill -9 "$redis" 2>/dev/null; }
await [ -S redis ] || exit 1
CORRAL_STORE=redis+unix://$dir/redis
export CORRAL_STORE

asking= # processes in the background, the server aside
# asks NAME BYTES CALLERS: so many processes ask at once for a result of so many bytes. Each that
# got all of it adds a line to NAME.got.
asks() {
  i=0
  while [ $i -lt "$3" ]; do
    (
      size=$("$CORRAL" -v run --key "$1" -- sh -c "echo run >>$1.runs; head -c $2 /dev/zero" \
        2>"$1.$i.err" | wc -c)
      [ "$size" -eq "$2" ] && echo got >>"$1.got"
    ) &
    asking="$asking $!"
    i=$((i + 1))
  done
}

# small NAME: asks for 20 results of a few bytes, one after the other, two callers each.
small() {
  i=0
  while [ $i -lt 20 ]; do
    "$CORRAL" -v run --key "$1$i" -- sh -c "echo run >>$1.runs" 2>"$1.$i.a.err" &
    beside=$!
    "$CORRAL" -v run --key "$1$i" -- sh -c "echo run >>$1.runs" 2>"$1.$i.b.err"
    wait "$beside"
    i=$((i + 1))
  done
}

degraded() { cat "$1".*.err | grep -c '^corral: event degraded:'; }

# once NAME CALLERS: all callers got the result of one run, and none went on without the store.
once() { lines 1 "$1.runs" && lines "$2" "$1.got" && [ "$(degraded "$1")" -eq 0 ]; }

asks tens 64000000 10
asks huge 256000000 1
small few
wait $asking
check "10 who ask for 64 MB share one run" once tens 10
check "256 MB are stored beside them" once huge 1
one_each() { lines 20 few.runs && [ "$(degraded few)" -eq 0 ]; }
check "other keys meanwhile have one run each, none without the store" one_each
kept() {
  "$CORRAL" -v run --key huge -- sh -c 'echo run >>huge.runs' 2>huge.again.err |
    wc -c | grep -qx 256000000 && once huge 1
}
check "256 MB are read again" kept

long() {
  status 125 "$CORRAL" --op 2m get k &&
    grep -q -- "--op: '2m' is out of range; accepted: 1ms to 1m" err
}
check "--op names what it accepts" long
wrong() {
  CORRAL_OP=soon status 125 "$CORRAL" get k && grep -q 'CORRAL_OP: .soon. is no duration' err
}
check "so does CORRAL_OP" wrong
set_op() {
  "$CORRAL" --op 5s set k v && CORRAL_OP=5s status 0 "$CORRAL" get k && [ "$(cat out)" = v ]
}
check "--op and CORRAL_OP are accepted" set_op

exit $failed
