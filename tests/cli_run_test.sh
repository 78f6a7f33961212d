#!/bin/sh
# cli_run_test.sh: a run of the corral command whose lease is lost, that is killed, shown as it
# comes, or waited for; and results that get, inspect, expire and invalidate name by the command.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed. Commands under test wait at a FIFO until this script lets
# them go; the script waits for a state (a line in a file), never for a time.
. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
CORRAL_STORE=lmdb:$dir/store
export TMPDIR CORRAL_STORE CORRAL


# ---- a command that its corral doesn't survive ----

# apart NAME: writes the ids of three processes: the command, its child, and one in a session of its
# own that hears no SIGTERM; all go on until they are killed.
cat >apart <<'END'
#!/bin/sh
setsid sh -c 'trap "" TERM; echo $$ >"$0.session"; while :; do sleep 1; done' "$1" &
sh -c 'echo $$ >"$0.child"; while :; do sleep 1; done' "$1" &
echo $$ >"$1.pid"
wait
END
chmod +x apart
all_run() { [ -s "$1.session" ] && [ -s "$1.child" ] && [ -s "$1.pid" ]; }
all_gone() { gone "$(cat "$1.pid")" && gone "$(cat "$1.child")" && gone "$(cat "$1.session")"; }

# The lease, which grows with each renewal, outlasts what a busy machine may take.
is_long() { "$CORRAL" inspect "$1" | grep -Eq '^lease .*, [0-9]{2,}(\.[0-9]*)?s left'; }

# A successor starts only when all that the first had started is dead, however long its guard, the
# parent of the command, takes for that: here it is stopped. The guard of another run is around it,
# since the kernel would continue a stopped process whose group has lost its parent.
killed() {
  "$CORRAL" --pass-store run --key around --compute 1h -- sh -c '
    "$CORRAL" run --key killed --lease 1h -- ./apart killed & echo $! >killed.corral
    wait; exec sleep 3600' >around.out 2>&1 &
  around=$!
  succeeds_late
  got=$?
  kill -9 "$around"
  wait "$around" 2>/dev/null
  [ "$got" -eq 0 ] && [ "$(cat second.out)" = second ] && all_gone killed && return 0
  echo "# $(cat second.out second.err)"
  return 1
}
polled() { [ "$(grep -c 'event poll' second.err)" -ge 5 ] || grep -q 'event computed' second.err; }
succeeds_late() {
  await all_run killed || return 1
  await is_long killed || return 1
  pid=$(cat killed.corral)
  guard=$(cut -d ' ' -f 4 "/proc/$(cat killed.pid)/stat")
  [ "$guard" != "$pid" ] && kill -STOP "$guard" || return 1
  kill -9 "$pid"
  "$CORRAL" -v run --key killed -- sh -c '
    for role in child session; do
      kill -0 "$(cat killed.$role)" 2>/dev/null && echo "beside $role"
    done; echo second' >second.out 2>second.err &
  second=$!
  await polled # it could have begun too soon
  kill -CONT "$guard"
  wait "$second"
}
check "kill -9 of corral leaves nothing of its command beside the successor" killed

limited() {
  status 124 "$CORRAL" run --key limited --compute 1s -- ./apart limited && all_gone limited
}
check "--compute ends what has a session of its own and hears no SIGTERM" limited

guard_of() {
  for t in /proc/[0-9]*/stat; do sed -n "s/^\([0-9]*\) .*) [A-Z] $1 .*/\1/p" "$t" 2>/dev/null; done
}
guard_killed() {
  "$CORRAL" run --key guarded -- sh -c 'echo $$ >guarded.pid; while :; do sleep 1; done' \
    >guarded.out 2>guarded.err &
  pid=$!
  await [ -s guarded.pid ] && kill -9 "$(guard_of "$pid")"
  wait "$pid"
  [ $? -eq 125 ] && await gone "$(cat guarded.pid)" && grep -q "can't run it" guarded.err
}
check "when the guard is killed the command is, and that is told" guard_killed

left_behind() {
  status 0 "$CORRAL" run --key left -- sh -c 'sleep 300 >/dev/null 2>&1 & echo $!' &&
    ! gone "$(cat out)" && kill "$(cat out)"
}
check "what a command leaves behind lives" left_behind

# ---- live ----

# The word "first" can be seen while the command waits.
cat >two <<'END'
#!/bin/sh
echo first
echo second >&2
echo run >>"$1.runs"
read go <"$1.gate"
echo third
END
chmod +x two
# through_gate NAME CHECK WORD...: runs WORD..., which waits at the gate of that name; CHECK is
# called meanwhile. Its status is in `met`.
through_gate() {
  name=$1
  meanwhile=$2
  shift 2
  mkfifo "$name.gate"
  "$@" &
  pid=$!
  $meanwhile
  met=$?
  echo go >"$name.gate"
  wait "$pid"
}

# shown_live NAME FILE WORD...: the command's first line is in FILE before its end; afterwards FILE
# has each line once. WORD... runs it.
shown_live() {
  live_name=$1
  file=$2
  shift 2
  shows() { await grep -q first "$file"; }
  through_gate "$live_name" shows "$@"
  [ $met -eq 0 ] && [ "$(grep -c first "$file")" -eq 1 ] && [ "$(grep -c third "$file")" -eq 1 ]
}
live() {
  name=$1
  file=$2
  shift 2
  mkfifo "$name.gate"
  "$@" &
  pid=$!
  await grep -q first "$file"
  seen=$?
  echo go >"$name.gate"
  wait "$pid"
  [ $seen -eq 0 ] && [ "$(grep -c first "$file")" -eq 1 ] && [ "$(grep -c third "$file")" -eq 1 ]
}
live() {
  shown_live live live.out sh -c "'$CORRAL' run --key live --live -- ./two live \
      >live.out 2>live.err" && [ "$(cat live.out)" = "first
third" ] && [ "$(cat live.err)" = second ] &&
    status 0 "$CORRAL" run --key live -- false && [ "$(cat out)" = "first
third" ] && [ "$(cat err)" = second ]
}
check "--live shows output as it comes, once, and keeps it as always" live

# not_before_the_end NAME FILE WORD...: nothing is in FILE while the command waits.
not_before_the_end() {
  late_name=$1
  file=$2
  shift 2
  is_empty() {
    await lines 1 "$late_name.runs" && sleep 0.2 # so that what comes too early is there
    ! grep -q first "$file"
  }
  through_gate "$late_name" is_empty "$@"
  [ $met -eq 0 ] && grep -q third "$file"
}
piped() {
  not_before_the_end piped piped.out sh -c "'$CORRAL' run --key piped -- ./two piped \
      >piped.out 2>piped.err"
}
check "where there is no terminal it comes at the end" piped

# The output isn't cut short for the others, nor the run ended, by a reader that leaves.
reader_leaves() {
  mkfifo leaves.gate
  "$CORRAL" run --key leaves --ttl 1h --live -- ./two leaves 2>leaves.err | head -n 1 >leaves.out &
  pid=$!
  await lines 1 leaves.out && echo go >leaves.gate
  wait "$pid"
  kept() { "$CORRAL" run --key leaves -- echo never >out 2>err && grep -q third out; }
  await kept && lines 1 leaves.runs
}
check "a reader that leaves a live run ends neither the run nor its keeping" reader_leaves

if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
  on_terminal() { script -qec "$1" /dev/null </dev/null; }
  terminal() {
    shown_live term term.out on_terminal "$CORRAL run --key term -- ./two term" >term.out
  }
  check "on a terminal output is shown as it comes" terminal
  no_live() {
    not_before_the_end nolive nolive.out \
      on_terminal "$CORRAL run --no-live --key nolive -- ./two nolive" >nolive.out
  }
  check "unless --no-live" no_live
  unmodified() {
    not_before_the_end same same.out \
      on_terminal "$CORRAL run --unmodified-exit 4 --key same -- ./two same" >same.out
  }
  check "or --unmodified-exit, which may put an old result in its place" unmodified
else
  skip "on a terminal output is shown as it comes" "there is no script(1), or no pseudo-terminal"
fi

# ---- who waits says so ----

mkfifo slow.gate
slow_run() { # starts a run of the key $1, in pid
  rm -f slow.runs
  "$CORRAL" run --key "$1" -- sh -c 'echo run >slow.runs; read go <slow.gate; echo done' \
    >slow.out 2>slow.err &
  pid=$!
  await lines 1 slow.runs
}
waits() {
  slow_run waits || return 1
  "$CORRAL" -v run --key waits -- echo never >waits.out 2>waits.err &
  second=$!
  await grep -q "^corral: waits: waiting for $(uname -n)/$pid, which began [0-9.]*[ms]* ago$" \
    waits.err
  got=$?
  echo go >slow.gate
  wait
  [ $got -eq 0 ] && [ "$(cat waits.out)" = "done" ]
}
check "with -v a call that waits says for whom, and since when" waits

quiet_wait() {
  slow_run quiet || return 1
  "$CORRAL" run --key quiet -- echo never >quiet.out 2>quiet.err &
  second=$!
  "$CORRAL" -v run --key quiet -- echo never >quiet2.out 2>quiet2.err &
  await grep -q 'waiting for' quiet2.err
  got=$?
  echo go >slow.gate
  wait
  [ $got -eq 0 ] && [ ! -s quiet.err ] && [ "$(cat quiet.out)" = "done" ]
}
check "without it, and without a terminal, nothing is said" quiet_wait

if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
  terminal_wait() {
    slow_run look || return 1
    on_terminal "$CORRAL run --key look -- echo never" >look.out &
    await grep -q "look: waiting for $(uname -n)/$pid, which began" look.out
    got=$?
    sleep 0.4 # so that what is said twice is there
    echo go >slow.gate
    wait
    [ $got -eq 0 ] && grep -q '^done' look.out && [ "$(grep -c waiting look.out)" -eq 1 ]
  }
  check "on a terminal it is said, once" terminal_wait
fi

# ---- a result named by its command ----

by_command() {
  status 3 "$CORRAL" run --cache-failures 1h -- sh -c 'echo out; echo error >&2; exit 3' &&
    status 0 "$CORRAL" get -- sh -c 'echo out; echo error >&2; exit 3' &&
    [ "$(cat out)" = out ] && [ ! -s err ] &&
    status 0 "$CORRAL" inspect -- sh -c 'echo out; echo error >&2; exit 3' &&
    grep -qx 'key        sh -c echo out; echo error >&2; exit 3' out &&
    grep -qx 'exit       3' out && grep -qx 'stdout     4 bytes' out &&
    grep -qx 'stderr     6 bytes' out &&
    status 0 "$CORRAL" --json inspect -- sh -c 'echo out; echo error >&2; exit 3' &&
    grep -q '"exit_status":3,"stdout_bytes":4,"stderr_bytes":6}$' out &&
    status 1 "$CORRAL" get 'sh -c echo out; echo error >&2; exit 3' &&
    status 1 "$CORRAL" get -- sh -c 'echo out'
}
check "get and inspect find the result of a command without --key" by_command

changed_by_command() {
  status 0 "$CORRAL" run --ttl 1h --stale 1h -- echo x && status 0 "$CORRAL" expire -- echo x &&
    status 0 "$CORRAL" inspect -- echo x && grep -q '^state *stale' out &&
    grep -qx 'exit       0' out && status 0 "$CORRAL" invalidate -- echo x &&
    status 0 "$CORRAL" inspect -- echo x && grep -q '^state *none' out && ! grep -q '^exit' out
}
check "expire and invalidate do, too" changed_by_command

by_context() {
  echo a >file
  A=1 status 0 "$CORRAL" run --env A --cwd --modtime file -- echo x &&
    A=1 status 0 "$CORRAL" get --env A --cwd --modtime file -- echo x && [ "$(cat out)" = x ] &&
    A=2 status 1 "$CORRAL" get --env A --cwd --modtime file -- echo x &&
    A=1 status 1 "$CORRAL" get --env A -- echo x &&
    A=1 status 0 "$CORRAL" invalidate some --tag t --env A --cwd --modtime file -- echo x &&
    A=1 status 1 "$CORRAL" get --env A --cwd --modtime file -- echo x
}
check "with the context that its options name" by_context

dashed() {
  status 0 "$CORRAL" run --key -odd -- echo odd && status 0 "$CORRAL" get --key -odd &&
    [ "$(cat out)" = odd ]
}
check "--key names a key that begins with a dash" dashed

# ---- looks make nothing ----

untouched() {
  CORRAL_STORE=lmdb:$dir/absent/none
  status 1 "$CORRAL" get k &&
    grep -q "k: nothing is stored: lmdb:$dir/absent/none isn't there" err &&
    status 0 "$CORRAL" inspect k && grep -q '^state *none' out &&
    grep -q "isn't there" err && status 0 "$CORRAL" --json inspect k &&
    grep -q '"state":"none"' out && status 1 "$CORRAL" lock --show k &&
    [ "$(cat out)" = "nobody holds it" ] && [ ! -e absent ] && mkdir absent &&
    status 1 "$CORRAL" get k && [ -z "$(ls absent)" ] &&
    status 1 env -u CORRAL_STORE XDG_CACHE_HOME="$dir/cache" "$CORRAL" get k && [ ! -e cache ]
  got=$?
  CORRAL_STORE=lmdb:$dir/store
  return $got
}
check "get, inspect and lock --show make no store that isn't there, and say so" untouched

# ---- a lease that is lost ----

store=redis
redis_or_end "a run whose lease is lost"
CORRAL_STORE=redis+unix://$dir/redis

# begin_lost WORD...: starts a run that waits for the file lost.go; its id is in pid. A FIFO would
# hold this script up where the run was killed.
begin_lost() {
  rm -f lost.runs lost.err lost.go
  "$CORRAL" -v run --key lost --ttl 1h "$@" -- \
    sh -c 'echo run >>lost.runs; until [ -e lost.go ]; do sleep 0.05; done
      echo "run $(wc -l <lost.runs)"; exit 7' \
    >lost.out 2>lost.err &
  pid=$!
  await lines 1 lost.runs
}
told() { grep -q '^corral: event lease_lost' lost.err; }
goes_on() {
  await told && touch lost.go
  wait "$pid"
  [ $? -eq 7 ] && lines 1 lost.runs && [ "$(cat lost.out)" = "run 1" ] &&
    status 0 "$CORRAL" run --key lost -- echo again && [ "$(cat out)" = again ] &&
    status 0 "$CORRAL" invalidate lost
}
emptied() { begin_lost --cache-failures 1h && redis-cli -s redis FLUSHALL >redis.out && goes_on; }
check "a run whose lease is lost goes on, and its caller gets what isn't kept" emptied
restarted() {
  begin_lost --cache-failures 1h && kill -9 $server && wait $server
  redis_begin redis && goes_on
}
check "also through a restart of the server" restarted

if_lost_kill() {
  begin_lost --if-lost kill --cache-failures 1h && redis-cli -s redis FLUSHALL >redis.out &&
    await lines 2 lost.runs
  touch lost.go
  wait "$pid"
  [ $? -eq 7 ] && [ "$(cat lost.out)" = "run 2" ]
}
check "--if-lost kill kills it, and runs it again" if_lost_kill
exit $failed
