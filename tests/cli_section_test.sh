#!/bin/sh
# cli_section_test.sh: a lock for a script's own section, corral lock --take, --check and --release,
# on an lmdb: store of its own, and on a Redis of its own where there is redis-server.
#
# CORRAL is the path of the command. The scripts under test wait at a FIFO until this script lets
# them go; it waits for a state, never for a time. Each case has lock names of its own.
. "$(dirname "$0")/support/cli.sh"
export CORRAL

# free NAME: nobody holds the lock. keeper_of NAME: the process that holds it.
free() { "$CORRAL" lock --show "$1" >/dev/null 2>&1; [ $? -eq 1 ]; }
keeper_of() { "$CORRAL" lock --show "$1" | sed -n 's,^held [a-z]* by [^/]*/\([0-9]*\)/.*,\1,p'; }

# one_line TEXT FILE: the file is one line of corral's that contains TEXT.
one_line() {
  lines 1 "$2" && grep -q '^corral: ' "$2" && grep -qF -e "$1" "$2" && return 0
  echo "# '$1' is not the one line of: $(cat "$2")"
  return 1
}

# taker NAME ARGUMENT...: takes a lock, and asks about it whenever a line comes from NAME.gate. The
# statuses are in NAME.took and NAME.said, a signal in NAME.got.
cat >taker <<'END'
#!/bin/sh
name=$1
shift
trap 'echo USR1 >>"$name.got"' USR1
echo $$ >"$name.pid"
"$CORRAL" lock --take "$@" >"$name.out" 2>"$name.err" 7>&-
echo $? >"$name.took.tmp" && mv "$name.took.tmp" "$name.took"
exec 8<"$name.gate"
while kill -0 $PPID; do
  verb= # a signal ends the read
  read -r verb lock <&8 || sleep 0.02
  [ -n "$verb" ] || continue
  [ "$verb" != quit ] || break
  "$CORRAL" lock "--$verb" "$lock" >"$name.out" 2>"$name.err"
  echo "$verb $?" >>"$name.said"
done
END
chmod +x taker

# begin NAME ARGUMENT...: starts a taker in the background; its id is in pid.
begin() {
  rm -f "$1".*
  mkfifo "$1.gate"
  ./taker "$@" 9>&- &
  pid=$!
}

# took N NAME: the taking ended with status N.
took() { await [ -s "$2.took" ] && [ "$(cat "$2.took")" -eq "$1" ]; }

# asks NAME LINE STATUS: the taker of that name asks, and gets that status.
asks() {
  count=$(cat "$1.said" 2>/dev/null | wc -l)
  echo "$2" >&9 && await lines $((count + 1)) "$1.said" &&
    [ "$(tail -n 1 "$1.said")" = "${2%% *} $3" ] && return 0
  echo "# $1: $2: $(tail -n 1 "$1.said"), not $3; $(cat "$1.err")"
  return 1
}

# end NAME PID: the taker comes to its end.
end() {
  gone "$2" || echo quit >&9
  exec 9>&-
  wait "$2" 2>/dev/null
  :
}

whole() {
  begin whole whole && exec 9>whole.gate && took 0 whole && [ ! -s whole.out ] &&
    [ ! -s whole.err ] && keeper=$(keeper_of whole) && [ "$keeper" -gt 0 ] &&
    asks whole 'check whole' 0 && status 75 "$CORRAL" lock -n whole -- true &&
    asks whole 'release whole' 0 && free whole && gone "$keeper" && asks whole 'check whole' 76 &&
    one_line "whole: this script doesn't have that lock" whole.err &&
    asks whole 'release whole' 76
  got=$?
  end whole "$pid"
  return $got
}

ends_with_script() {
  begin normal normal && exec 9>normal.gate && took 0 normal && keeper=$(keeper_of normal) &&
    end normal "$pid" && await free normal && await gone "$keeper"
}

script_killed() {
  begin killed killed && exec 9>killed.gate && took 0 killed && keeper=$(keeper_of killed) &&
    kill -9 "$pid" && await free killed && await gone "$keeper"
  got=$?
  end killed "$pid"
  return $got
}

# The hold ends by its ttl, and the script that waits has it then.
keeper_killed() {
  begin orphan --ttl 5s orphan && exec 9>orphan.gate && took 0 orphan &&
    kill -9 "$(keeper_of orphan)" && asks orphan 'check orphan' 76 &&
    one_line "or its keeper was killed" orphan.err && status 0 "$CORRAL" lock orphan -- true
  got=$?
  end orphan "$pid"
  return $got
}

keeper_killed_early() {
  begin early --ttl 10m early && exec 9>early.gate && took 0 early && keeper=$(keeper_of early) &&
    kill -9 "$keeper" && await gone "$keeper" && status 75 "$CORRAL" lock -n early -- true &&
    status 0 "$CORRAL" lock --break --yes early && free early
  got=$?
  end early "$pid"
  return $got
}

# Signals that end other processes don't end the keeper: the script may yet clean up.
keeper_signalled() {
  begin deaf --ttl 20s deaf && exec 9>deaf.gate && took 0 deaf && keeper=$(keeper_of deaf) &&
    kill -TERM "$keeper" && kill -INT "$keeper" && kill -HUP "$keeper" && kill -PIPE "$keeper" &&
    asks deaf 'check deaf' 0 && ! gone "$keeper"
  got=$?
  end deaf "$pid"
  return $got
}

held_for() {
  ms=$("$CORRAL" --json lock --show "$2" | sed -n 's/.*"held_ms":\([0-9]*\).*/\1/p')
  [ "${ms:-0}" -ge "$1" ]
}
extended() {
  begin long --ttl 5s long && exec 9>long.gate && took 0 long && await held_for 6000 long &&
    asks long 'check long' 0
  got=$?
  end long "$pid"
  return $got
}

cat >count <<'END'
#!/bin/sh
for i in 1 2 3; do
  "$CORRAL" lock --take count || echo "take $?" >>overlaps
  mkdir section || echo overlap >>overlaps
  n=$(cat counter)
  echo $((n + 1)) >counter
  rmdir section
  "$CORRAL" lock --release count || echo "release $?" >>overlaps
done
END
chmod +x count
contend() {
  echo 0 >counter && rm -f overlaps
  pids=
  for i in 1 2 3 4; do ./count & pids="$pids $!"; done
  # shellcheck disable=SC2086
  wait $pids
  [ ! -e overlaps ] && [ "$(cat counter)" -eq 12 ]
}

waits() {
  begin first --note 'the note' turn && exec 9>first.gate && took 0 first || return 1
  first=$pid
  status 75 "$CORRAL" lock --take -n turn && one_line " the note: for " err &&
    status 124 "$CORRAL" lock --take --wait 60ms turn && one_line "turn: waited for 60ms" err &&
    status 9 "$CORRAL" -q lock --take -n -E 9 turn && [ ! -s err ] &&
    begin second turn && { [ ! -e second.took ]; } && asks first 'release turn' 0 &&
    took 0 second && asks first 'check turn' 76
  got=$?
  end first "$first"
  echo quit >second.gate
  wait "$pid"
  [ $got -eq 0 ] && await free turn
}

# A script that is killed in its wait never has the lock, nor has one whose `corral lock` is.
wait_killed() {
  begin front front && exec 9>front.gate && took 0 front || return 1
  first=$pid
  begin gone1 front && kill -9 "$pid"
  wait "$pid" 2>/dev/null
  (exec "$CORRAL" -v lock --take --pid $$ front) >wait.out 2>wait.err &
  waiter=$!
  await grep -q 'waiting: held by' wait.err && kill -TERM $waiter
  wait $waiter
  got=$?
  end front "$first"
  [ $got -eq 143 ] && await free front && status 0 "$CORRAL" lock front -- true && free front
}

# A command that is left behind has another parent, which is no script that could have a lock. It is
# of another session for certain if the script has one of its own.
left_behind() {
  rm -f left.err
  setsid sh -c '(while kill -0 $$ 2>/dev/null; do sleep 0.02; done
    exec "$CORRAL" lock --take left >left.out 2>left.err) &'
  await lines 1 left.err && free left &&
    one_line "the script that ran this command has ended" left.err
}

# A lock that is taken in a subshell is the script's.
cat >subshell <<'END'
fence=$("$CORRAL" lock --take --fence sub || exit 9)
[ "$fence" -gt 0 ] && [ "$("$CORRAL" lock --check --fence sub)" = "$fence" ] || exit 1
(cd / && "$CORRAL" lock --check sub) || exit 2
sh -c '"$CORRAL" lock --check sub; exit' || exit 3
"$CORRAL" lock --show sub | grep -q "fencing token $fence\$" || exit 4
"$CORRAL" lock --check other && exit 5
(: | "$CORRAL" lock --release sub) || exit 6
END
subshells() {
  for shell in sh bash zsh; do
    command -v $shell >/dev/null || continue
    status 0 $shell ./subshell || return 1
    await free sub || return 1
  done
}

of_process() {
  sleep 300 &
  other=$!
  status 0 "$CORRAL" lock --take --pid $other pid && ! free pid &&
    status 76 "$CORRAL" lock --check pid && status 0 "$CORRAL" lock --check --pid $other pid &&
    status 125 "$CORRAL" lock --take --pid $other pid && kill -9 $other && await free pid
  got=$?
  wait $other
  [ $got -eq 0 ] && status 125 "$CORRAL" lock --take --pid $other pid &&
    one_line "lock: --pid $other: there is no such process" err
}

nested() {
  cat >nest <<'END'
"$CORRAL" lock --take nest || exit 1
"$CORRAL" lock --take nest 2>nest.err; [ $? -eq 125 ] || exit 2
"$CORRAL" lock nest -- true 2>>nest.err; [ $? -eq 125 ] || exit 3
sh -c '"$CORRAL" lock --take nest; exit' 2>>nest.err; [ $? -eq 125 ] || exit 4
"$CORRAL" lock --take nest2 || exit 5
"$CORRAL" lock --release nest && "$CORRAL" lock --check nest2
END
  status 0 sh ./nest && lines 3 nest.err &&
    [ "$(grep -c 'runs under that lock already' nest.err)" -eq 3 ] && await free nest2 &&
    status 125 "$CORRAL" lock nest -- "$CORRAL" lock --take nest && free nest
}

# The keeper has nothing of the script's open: not what its output goes to, nor its other files.
nothing_open() {
  cat >open <<'END'
mkfifo other
cat other >read &
reader=$!
exec 7>other
both=$("$CORRAL" lock --take --fence open 2>&1) || exit 1
echo end >&7
exec 7>&-
wait $reader && [ "$(cat read)" = end ] && "$CORRAL" lock --check open
END
  status 0 sh ./open && await free open && rm other
}

max_passes() {
  begin max --ttl 3s --max 7s --lost-signal USR1 max && exec 9>max.gate && took 0 max &&
    await lines 1 max.got && asks max 'check max' 76 &&
    one_line "max: lost: --max 7s passes in 750ms: it counts as lost" max.err && await free max &&
    asks max 'release max' 76 && lines 1 max.got
  got=$?
  end max "$pid"
  return $got
}

json() {
  begin json json && exec 9>json.gate && took 0 json || return 1
  status 0 "$CORRAL" --json lock --check --pid "$pid" json &&
    grep -q '^{"name":"json","held":true,"left_ms":[0-9]*,"fence":[0-9]*}$' out &&
    status 76 "$CORRAL" --json lock --check json &&
    [ "$(cat out)" = '{"name":"json","held":false}' ] &&
    status 75 "$CORRAL" --json lock --take -n json && lines 1 err &&
    grep -q '^{"message":"json: held by .*","left_ms":[0-9]*,"exit_status":75}$' err
  got=$?
  end json "$pid"
  return $got
}

refuses() {
  text=$1
  shift
  status 125 "$CORRAL" "$@" && [ ! -s out ] && one_line "$text" err
}
wrong_use() {
  refuses "one of --take, --check, --release, --show, --list, --watch and --break is accepted" \
    lock --take --release n &&
    refuses "no NAME given" lock --take &&
    refuses "--take takes one NAME and no command" lock --take n -- true &&
    refuses "--pid names a script" lock --pid 1 n -- true &&
    refuses "--lost-signal is for a script" lock --check --lost-signal TERM n &&
    refuses "--lost-signal: 'FOO' is not accepted" lock --take --lost-signal FOO n &&
    refuses "--fence is for a script" lock --release --fence n &&
    refuses "memory: is of one process alone" --store memory: lock --take n &&
    refuses "away: " --store "lmdb:/proc/no/store" lock --take away
}

# ---- cases on Redis alone ----

redis() { redis-cli -s "$dir/redis" "$@" >redis.out 2>&1; }

deleted() {
  begin deleted --ttl 900ms --lost-signal USR1 deleted && exec 9>deleted.gate && took 0 deleted &&
    redis DEL ~lock::deleted && await lines 1 deleted.got && asks deleted 'check deleted' 76 &&
    one_line "deleted: lost: the hold with fencing token " deleted.err
  got=$?
  end deleted "$pid"
  return $got
}

restart() {
  kill -9 "$server" && wait "$server"
  redis_begin redis
}

# Somebody who asks is told no loss while the store is away for less than the ttl.
restarted() {
  begin again --ttl 20s again && exec 9>again.gate &&
    took 0 again && redis SAVE && restart && asks again 'check again' 0 &&
    await extended_since_restart && asks again 'check again' 0 && asks again 'release again' 0 &&
    free again
  got=$?
  end again "$pid"
  return $got
}
extended_since_restart() {
  redis PTTL ~lock::again && before=$(cat redis.out) && sleep 0.2 && redis PTTL ~lock::again &&
    [ "$(cat redis.out)" -gt "$before" ]
}

restarted_empty() {
  begin empty --ttl 1s --lost-signal USR1 empty && exec 9>empty.gate && took 0 empty &&
    rm -f dump.rdb && restart && await lines 1 empty.got && asks empty 'check empty' 76 &&
    one_line "empty: lost: " empty.err && status 0 "$CORRAL" lock empty -- true
  got=$?
  end empty "$pid"
  return $got
}

store_away() {
  begin away --ttl 1s --lost-signal USR1 away && exec 9>away.gate && took 0 away &&
    kill -STOP "$server" && await lines 1 away.got && asks away 'check away' 76
  got=$?
  kill -CONT "$server"
  end away "$pid"
  [ $got -eq 0 ] && grep -q 'away: lost: ' away.err
}

# ---- on each store ----

on_store() {
  rm -f ./*.out ./*.err # what an earlier store left would be taken for this one's
  check "a script takes a lock, and gives it up" whole
  check "the lock ends with the script" ends_with_script
  check "also when that is killed" script_killed
  check "a killed keeper is noticed, and its lock is free by its ttl" keeper_killed
  check "a killed keeper frees nothing: its script may go on" keeper_killed_early
  check "no other signal ends the keeper" keeper_signalled
  check "the hold is extended" extended
  check "of four scripts never two are in their sections" contend
  check "who comes second waits, or is told who has it" waits
  check "who ends while it waits never has the lock" wait_killed
  check "a command that is left behind takes nothing" left_behind
  check "a subshell's lock is the script's, and children can ask about it" subshells
  check "--pid names another script" of_process
  check "a script that would wait for itself is told" nested
  check "the keeper holds nothing that the script has open" nothing_open
  check "--max ends the hold, and --lost-signal tells the script" max_passes
}

store=lmdb
CORRAL_STORE=lmdb:$dir/store
CORRAL_PASS_STORE=1 # for what runs the command inside of a command
export CORRAL_STORE CORRAL_PASS_STORE
on_store
check "answers and messages are JSON with --json" json
check "wrong use is refused, with what is accepted" wrong_use

store=redis
redis_or_end "a script's lock on Redis"
CORRAL_STORE=redis+unix://$dir/redis
on_store
check "a deleted lock is told to the script" deleted
check "a restart of the store that keeps its data is survived" restarted
check "one that loses them is told to the script" restarted_empty
check "a store that is away for longer than the hold is told, too" store_away
exit $failed
