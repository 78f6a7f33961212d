#!/bin/sh
# cli_lock_test.sh: corral lock as a user sees it, on an lmdb: store of its own, and on a Redis of
# its own where there is redis-server.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed. Commands under test wait at a FIFO until this script lets
# them go; the script waits for a state, never for a time. Each case has lock names of its own.
. "$(dirname "$0")/support/cli.sh"

# ends N PID ERR: the command in the background ends with status N.
ends() {
  wait "$2"
  answer=$?
  [ "$answer" -eq "$1" ] && return 0
  echo "# exit status $answer, not $1; stderr: $(head -c 300 "$3")"
  return 1
}

# one_line TEXT FILE: the file is one line of corral's that contains TEXT.
one_line() {
  lines 1 "$2" && grep -q '^corral: ' "$2" && grep -qF -e "$1" "$2" && return 0
  echo "# '$1' is not the one line of: $(cat "$2")"
  return 1
}

# free NAME: nobody holds the lock. held NAME: somebody does.
free() { "$CORRAL" lock --show "$1" >/dev/null 2>&1; [ $? -eq 1 ]; }
held() { "$CORRAL" lock --show "$1" >/dev/null 2>&1; }

# asked N FILE: with -v it asked the store for the lock N times or more.
asked() { [ "$(cat "$2" 2>/dev/null | grep -c '^corral: event lock_asked')" -ge "$1" ]; }

# held_for MS NAME: the lock has been held for so long.
held_for() {
  ms=$("$CORRAL" --json lock --show "$2" | sed -n 's/.*"held_ms":\([0-9]*\).*/\1/p')
  [ "${ms:-0}" -ge "$1" ]
}

# sleeper writes its process id and that of its child, and waits. deaf also ignores SIGTERM.
cat >sleeper <<'END'
#!/bin/sh
sleep 300 &
echo $! >"$1.child"
echo $$ >"$1.tmp" && mv "$1.tmp" "$1.pid"
wait
END
cat >deaf <<'END'
#!/bin/sh
trap '' TERM
sleep 300 &
echo $! >"$1.child"
echo $$ >"$1.tmp" && mv "$1.tmp" "$1.pid"
while :; do wait; sleep 1; done
END
# polite writes down a SIGTERM and ends with status 3.
cat >polite <<'END'
#!/bin/sh
trap 'echo TERM >>"$1.got"; kill "$(cat "$1.child")" 2>/dev/null; exit 3' TERM
sleep 300 &
echo $! >"$1.child"
echo $$ >"$1.tmp" && mv "$1.tmp" "$1.pid"
wait
END
chmod +x sleeper deaf polite

# both_gone NAME: the command of that name, and its child, have ended.
both_gone() { gone "$(cat "$1.pid")" && gone "$(cat "$1.child")"; }

# begin NAME ARGUMENT...: starts corral lock in the background. Its id is in pid, its stderr in
# NAME.err; the command runs when begin returns.
begin() {
  rm -f "$1.pid" "$1.child" "$1.got"
  begun=$1
  shift
  "$CORRAL" lock "$@" >"$begun.out" 2>"$begun.err" &
  pid=$!
  await [ -s "$begun.pid" ]
}

# ---- the command's surroundings ----

passes() {
  status 42 "$CORRAL" lock passes -- sh -c 'echo out; echo err >&2; exit 42' &&
    [ "$(cat out)" = out ] && [ "$(cat err)" = err ] &&
    status 137 "$CORRAL" lock passes sh -c 'kill -9 $$' &&
    status 75 "$CORRAL" lock passes -- sh -c 'exit 75' && [ ! -s err ] && free passes
}

stdin_passes() { printf 'one\ntwo' | "$CORRAL" lock stdin -- cat >out && [ "$(cat out)" = "one
two" ]; }

pipe_ends() {
  "$CORRAL" lock pipe -- sh -c 'exec yes' | head -n 1 >out && [ "$(cat out)" = y ] &&
    await free pipe
}

environment() {
  last=0
  for i in 1 2 3 4; do
    status 0 "$CORRAL" lock 'a name' -- \
      sh -c 'echo "$CORRAL_FENCE"; [ "$CORRAL_LOCK_NAME" = "a name" ]' && fence=$(cat out) &&
      [ "$fence" -gt "$last" ] || return 1
    last=$fence
  done
}

not_there() {
  status 127 "$CORRAL" lock none -- ./no-such-command &&
    one_line "command not found: ./no-such-command" err && free none &&
    : >plain && status 126 "$CORRAL" lock none -- ./plain &&
    one_line "can't execute ./plain: Permission denied" err && free none
}

# The end of the command and an order to its guard may cross.
short() {
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    status 0 "$CORRAL" lock short -- true || return 1
  done
}

left_behind() {
  status 0 "$CORRAL" lock left -- sh -c 'sleep 300 >/dev/null 2>&1 & echo $!' && free left &&
    ! gone "$(cat out)" && kill "$(cat out)"
}

# ---- exclusion ----

cat >count <<'END'
#!/bin/sh
mkdir section || echo overlap >>overlaps
n=$(cat counter)
echo $((n + 1)) >counter
echo "$n" >>log
rmdir section
END
chmod +x count
ten() {
  echo 0 >counter && rm -f overlaps log
  rmdir section 2>/dev/null
  i=0
  pids=
  while [ $i -lt 10 ]; do
    (for j in 1 2 3; do "$CORRAL" lock ten -- ./count || echo "$?" >>overlaps; done) &
    pids="$pids $!"
    i=$((i + 1))
  done
  # shellcheck disable=SC2086
  wait $pids
  [ ! -e overlaps ] && [ "$(cat counter)" -eq 30 ] && lines 30 log
}

busy() {
  begin busy --note 'the note' busy -- ./sleeper busy || return 1
  status 75 "$CORRAL" lock -n busy -- touch ran &&
    one_line "busy: held by $(uname -n)/$pid/" err && one_line " the note: for " err &&
    status 75 "$CORRAL" lock --wait 0 busy -- touch ran && one_line "ms left" err &&
    status 75 "$CORRAL" -q lock --no-wait busy -- touch ran && [ ! -s err ] &&
    status 9 "$CORRAL" lock -n -E 9 busy -- touch ran &&
    status 0 "$CORRAL" lock --no-wait busy --conflict-exit 0 -- touch ran
  got=$?
  kill "$pid"
  wait "$pid"
  [ $got -eq 0 ] && [ ! -e ran ] && free busy
}

waits_so_long() {
  begin long long -- ./sleeper long || return 1
  status 124 "$CORRAL" lock --wait 60ms long -- touch ran &&
    one_line "long: waited for 60ms: held by " err &&
    status 9 "$CORRAL" lock -w 60ms -E 9 long -- touch ran &&
    status 124 "$CORRAL" -q lock -w 60ms long -- touch ran && [ ! -s err ]
  got=$?
  kill "$pid"
  wait "$pid"
  [ $got -eq 0 ] && [ ! -e ran ]
}

# A bare number is seconds: these would be over long before the lock is free, were they less.
waits_seconds() {
  begin sec sec -- ./sleeper sec || return 1
  "$CORRAL" -v lock -w 60 sec -- echo one >sec1.out 2>sec1.err &
  one=$!
  "$CORRAL" -v lock -w1m sec -- echo two >sec2.out 2>sec2.err &
  two=$!
  await asked 3 sec1.err && await asked 3 sec2.err && kill "$pid"
  wait "$pid"
  ends 0 $one sec1.err && ends 0 $two sec2.err && [ "$(cat sec1.out sec2.out)" = "one
two" ]
}

# flock(1) and corral lock end alike, with the same options.
as_flock() {
  begin fl fl -- ./sleeper fl || return 1
  exec 8>fl.flock && flock 8 || return 1
  got=0
  for form in '-w 0' '-w 0.1' -w0.1 '--wait 0.1' --wait=0.1 -n; do
    # shellcheck disable=SC2086
    flock -E 9 $form fl.flock touch ran
    flock=$?
    # shellcheck disable=SC2086
    status $flock "$CORRAL" lock -E 9 $form fl -- touch ran || got=1
    [ $flock -eq 9 ] || got=1
  done
  for form in '-w x' '-w -1' -w; do
    # shellcheck disable=SC2086
    flock $form fl.flock touch ran 2>/dev/null && got=1
    # shellcheck disable=SC2086
    status 125 "$CORRAL" lock $form fl -- touch ran || got=1
  done
  exec 8>&-
  kill "$pid"
  wait "$pid"
  [ $got -eq 0 ] && [ ! -e ran ]
}

waits_for_it() {
  begin turn turn -- ./sleeper turn || return 1
  "$CORRAL" -v lock turn -- echo mine >turn2.out 2>turn2.err &
  waiter=$!
  await asked 2 turn2.err && [ ! -s turn2.out ] &&
    await grep -q "^corral: turn: waiting: held by $(uname -n)/$pid/.*: for [0-9]* ms" turn2.err &&
    kill "$(cat turn.pid)" "$(cat turn.child)" &&
    ends 143 "$pid" turn.err && ends 0 $waiter turn2.err &&
    [ "$(cat turn2.out)" = mine ]
}

shared() {
  begin reader1 --shared shared -- ./sleeper reader1 || return 1
  pid1=$pid
  begin reader2 -s shared -- ./sleeper reader2 || return 1
  status 75 "$CORRAL" lock -n shared -- true && status 0 "$CORRAL" lock --show shared &&
    lines 2 out && [ "$(grep -c '^held shared by ' out)" -eq 2 ] &&
    status 0 "$CORRAL" --json lock --show shared &&
    [ "$(grep -o '"shared":true' out | wc -l)" -eq 2 ]
  got=$?
  kill "$pid1" "$pid"
  wait "$pid1" "$pid"
  begin writer shared -- ./sleeper writer || return 1
  status 75 "$CORRAL" lock -n -s shared -- true || got=1
  kill "$pid"
  wait "$pid"
  [ $got -eq 0 ] && status 0 "$CORRAL" lock -n shared -- true
}

permits() {
  begin permit1 --permits 2 permits -- ./sleeper permit1 || return 1
  pid1=$pid
  begin permit2 permits --permits 2 -- ./sleeper permit2 || return 1
  status 75 "$CORRAL" lock -n --permits 2 permits -- true &&
    status 0 "$CORRAL" lock -n --permits 3 permits -- true &&
    status 75 "$CORRAL" lock -n permits -- true &&
    status 75 "$CORRAL" lock -n -s permits -- true &&
    status 0 "$CORRAL" lock --show permits &&
    lines 2 out && [ "$(grep -c '^held with a permit by ' out)" -eq 2 ] &&
    status 0 "$CORRAL" --json lock --show permits &&
    [ "$(grep -o '"shared":false,"permit":true' out | wc -l)" -eq 2 ]
  got=$?
  kill "$pid1"
  wait "$pid1"
  status 0 "$CORRAL" lock -n --permits 2 permits -- true || got=1
  kill "$pid"
  wait "$pid"
  [ $got -eq 0 ] && status 0 "$CORRAL" lock -n permits -- true
}

in_turn() {
  begin turns --fair --note now turns -- ./sleeper turns || return 1
  "$CORRAL" lock --fair --note next turns -- echo mine >turns2.out 2>turns2.err &
  waiter=$!
  await queued turns && grep -q '^held alone by ' out &&
    grep -q "^place 1 in the queue: $(uname -n)/[0-9/]* next, for [0-9.ms]*\$" out &&
    status 0 "$CORRAL" --json lock --show turns &&
    json='"shared":false,"permit":false,"waited_ms":[0-9]*' &&
    grep -q '"waiters":\[{"who":"[^"]* next",'"$json"'}\]}$' out &&
    kill "$(cat turns.pid)" "$(cat turns.child)" &&
    ends 143 "$pid" turns.err && ends 0 $waiter turns2.err && [ "$(cat turns2.out)" = mine ]
}

queued() { "$CORRAL" lock --show "$1" >out && grep -q '^place 1 ' out; }

# ---- holders ----

# The note sets a terminal's title, begins a control sequence in one character of C1, turns the
# line around, and isn't valid UTF-8.
hostile() {
  note=$(printf 'a\033]0;t\007\177\302\2331m\342\200\256\377\303\244')
  begin hostile --note "$note" hostile -- ./sleeper hostile || return 1
  status 0 "$CORRAL" lock --show hostile && lines 1 out &&
    grep -qF "$(printf 'a\\x1b]0;t\\x07\\x7f\\xc2\\x9b1m\\xe2\\x80\\xae\\xff\303\244, for ')" out &&
    status 0 "$CORRAL" --json lock --show hostile && lines 1 out &&
    grep -qF "$(printf 'a\\u001b]0;t\\u0007\\u007f\\u009b1m\\u202e\\u00ff\303\244",')" out &&
    status 125 "$CORRAL" lock --break hostile && lines 1 out &&
    grep -qF "$(printf 'a\\x1b]0;t\\x07\\x7f\\xc2\\x9b1m\\xe2\\x80\\xae\\xff\303\244, for ')" out
  got=$?
  kill "$pid"
  wait "$pid"
  return $got
}

shows() {
  status 1 "$CORRAL" lock --show shows && [ "$(cat out)" = "nobody holds it" ] && [ ! -s err ] &&
    status 1 "$CORRAL" --json lock --show shows &&
    [ "$(cat out)" = '{"name":"shows","held":false,"holders":[],"waiters":[]}' ] || return 1
  begin shows --note 'say "hi"' shows -- ./sleeper shows || return 1
  holder="$(uname -n)/$pid/[0-9]* say \"hi\"" times='for [0-9.ms]*, [0-9.ms]* left'
  json='"who":"[^"]* say \\"hi\\"","shared":false,"permit":false'
  json=$json',"held_ms":[0-9]*,"left_ms":[0-9]*,"fence":[0-9]*'
  status 0 "$CORRAL" lock --show shows && lines 1 out &&
    grep -q "^held alone by $holder, $times, fencing token [0-9]*\$" out &&
    status 0 "$CORRAL" --json lock shows --show && lines 1 out &&
    grep -q '^{"name":"shows","held":true,"holders":\[{'"$json"'}\],"waiters":\[\]}$' out
  got=$?
  kill "$pid"
  wait "$pid"
  return $got
}

names() {
  long=$(printf '%065536d' 0)
  status 0 "$CORRAL" lock ' two  words
and lines ' -- sh -c '[ "$CORRAL_LOCK_NAME" = " two  words
and lines " ]' &&
    status 0 "$CORRAL" lock "$long" -- true && status 0 "$CORRAL" lock -- --odd -- true &&
    status 1 "$CORRAL" lock --show -- -n && status 0 "$CORRAL" lock -- -n true &&
    status 1 "$CORRAL" --json lock --show 'a
b' &&
    grep -qF '"a\u000ab"' out && refuses "1 to 65536" lock "${long}1" -- true &&
    refuses "0 bytes is not accepted: 1 to 65536" lock "" -- true
}

# ---- the list ----

listed() {
  status 1 "$CORRAL" lock --list 'list ' && [ "$(cat out)" = "no lock is held" ] &&
    status 1 "$CORRAL" --json lock --list 'list ' && [ ! -s out ] || return 1
  begin list1 --note one "$(printf 'list \033[1m')" -- ./sleeper list1 || return 1
  pids=$pid
  begin list2 -s 'list 2' -- ./sleeper list2 || return 1
  pids="$pids $pid"
  begin list3 -s 'list 2' -- ./sleeper list3 || return 1
  pids="$pids $pid"
  status 0 "$CORRAL" lock --list 'list ' && lines 3 out &&
    sed -n 1p out | grep -q '^list \\x1b\[1m: held alone by .* one, for .* token [0-9]*$' &&
    [ "$(sed -n 2,3p out | grep -c '^list 2: held shared by ')" -eq 2 ] &&
    status 0 "$CORRAL" --json lock 'list ' --list && lines 2 out &&
    sed -n 1p out | grep -q '^{"name":"list \\u001b\[1m","held":true,"holders":\[{[^{]*}\]}$' &&
    sed -n 2p out | grep -q '^{"name":"list 2","held":true,"holders":\[{[^{]*},{[^{]*}\]}$' &&
    status 0 "$CORRAL" lock --list && [ "$(grep -c '^list ' out)" -eq 3 ] &&
    status 1 "$CORRAL" --namespace other lock --list &&
    refuses "'more' is one argument too many" lock --list list more
  got=$?
  # shellcheck disable=SC2086 # words
  kill $pids
  # shellcheck disable=SC2086
  wait $pids
  return $got
}

# ---- the watch ----

watched() {
  rm -f watch1.out watch2.out
  "$CORRAL" lock --watch watch >watch1.out 2>watch1.err &
  text=$!
  "$CORRAL" --json lock --watch watch >watch2.out 2>watch2.err &
  json=$!
  await lines 1 watch1.out && await lines 1 watch2.out &&
    begin watched --note seen watch -- ./sleeper watched &&
    await lines 2 watch1.out && await lines 2 watch2.out && kill "$pid" &&
    ends 143 "$pid" watched.err && await lines 3 watch1.out && await lines 3 watch2.out
  got=$?
  kill $text $json
  ends 143 $text watch1.err && ends 143 $json watch2.err || got=1
  [ $got -eq 0 ] && [ "$(grep -c ' [+-][0-9]*: nobody holds it$' watch1.out)" -eq 2 ] &&
    sed -n 2p watch1.out | grep -q ': held alone by .* seen, for ' &&
    [ "$(grep -c '"time":"2[^"]*","held":false,"holders":\[\]}$' watch2.out)" -eq 2 ] &&
    sed -n 2p watch2.out | grep -q '^{"name":"watch",.*"held":true,"holders":\[{.* seen",'
}

tells_times() {
  status 0 "$CORRAL" -v lock times -- true &&
    grep -q '^corral: times: waited for [0-9.ms]*, held for [0-9.ms]*$' err &&
    status 0 "$CORRAL" lock times -- true && [ ! -s err ]
}

# ---- breaking ----

broken() {
  begin broken --ttl 6s --note stuck broken -- ./polite broken || return 1
  status 125 "$CORRAL" lock --break broken && lines 1 out &&
    grep -q '^held alone by .* stuck, ' out && one_line "--yes is needed here" err && held broken &&
    status 0 "$CORRAL" lock --break --yes broken && lines 1 out && [ ! -s err ] &&
    grep -q '^broken: held alone by .* stuck, .* fencing token [0-9]*$' out && free broken &&
    ends 76 "$pid" broken.err && one_line "broken: lost: the hold with fencing token " broken.err &&
    one_line "or it was broken" broken.err && lines 1 broken.got &&
    status 1 "$CORRAL" lock --break --yes broken && [ "$(cat out)" = "nobody holds it" ] &&
    refuses "--yes answers a question" lock --yes broken -- true
}

broken_json() {
  begin json1 -s json -- ./sleeper json1 || return 1
  pid1=$pid
  begin json2 -s json -- ./sleeper json2 || return 1
  status 125 "$CORRAL" --json lock --break json && [ ! -s out ] && held json &&
    status 0 "$CORRAL" --json lock --break --yes json && lines 1 out && free json &&
    grep -q '^{"name":"json","broken":\[{"who":.*"shared":true,.*},{"who":.*"fence":[0-9]*}\]}$' \
      out && ends 76 "$pid1" json1.err && ends 76 "$pid" json2.err &&
    status 1 "$CORRAL" --json lock --break --yes json &&
    [ "$(cat out)" = '{"name":"json","broken":[]}' ]
}

# answers TEXT STATUS: on a terminal, the question is answered so, and the command ends so.
answers() {
  rm -f keys typed.out && mkfifo keys
  on_terminal "$CORRAL lock --break asked; echo status \$?" &
  terminal=$!
  exec 8>keys
  await grep -qs 'Break it?' typed.out && echo "$1" >&8 && wait $terminal &&
    grep -q "status $2" typed.out && grep -q '^held alone by ' typed.out
  got=$?
  exec 8>&-
  return $got
}
broken_asks() {
  begin asked --ttl 6s asked -- ./sleeper asked || return 1
  answers n 125 && grep -q 'nothing was broken' typed.out && held asked && answers '' 125 &&
    held asked && answers y 0 && grep -q '^broken: ' typed.out && free asked &&
    ends 76 "$pid" asked.err
}

# ---- the end of a hold ----

# too_slow NAME: the machine was too busy to extend the hold in time, which is no fault. Then a case
# is repeated with longer times.
too_slow() { grep -q 'as it could not be extended' "$1.err"; }

# A short lease is extended until the job has ended.
held_or_lost() { held_for "$1" "$2" || [ -s "$2.err" ]; }
holds() {
  for ttl in 1500 6000 20000; do
    begin holds --ttl "${ttl}ms" holds -- ./sleeper holds || return 1
    await held_or_lost $((ttl * 5 / 2)) holds && status 75 "$CORRAL" lock -n holds -- true &&
      kill "$pid" && ends 143 "$pid" holds.err && [ ! -s holds.err ] && free holds && return 0
    too_slow holds || break
  done
  echo "# $(cat holds.err)"
  return 1
}

# Only a hold that was extended lasts until --max.
max_ends() {
  for times in "500ms 2s 125ms" "4s 10s 1s" "15s 35s 2s"; do
    # shellcheck disable=SC2086
    set -- $times
    begin max --ttl "$1" --max "$2" max -- ./sleeper max || return 1
    ends 76 "$pid" max.err &&
      one_line "max: lost: --max $2 passes in $3: the command is ended" max.err &&
      both_gone max && free max && return 0
    too_slow max || break
  done
  return 1
}

max_ends_deaf() {
  begin deaf1 --max 1500ms --lost-exit 33 deaf1 -- ./deaf deaf1 || return 1
  ends 33 "$pid" deaf1.err && one_line "--max 1.500s passes in 375ms" deaf1.err &&
    both_gone deaf1 && status 0 "$CORRAL" lock -n deaf1 -- true
}

# A lease is longer: its end would leave the command some 26 ticks.
max_is_not_the_lease() {
  status 76 "$CORRAL" lock --max 1500ms ticks -- sh -c 'while :; do echo tick; sleep 0.5; done' &&
    [ "$(wc -l <out)" -le 12 ]
}

polite_end() {
  begin polite --max 1500ms polite -- ./polite polite || return 1
  ends 76 "$pid" polite.err && lines 1 polite.got
}

# The case holds with a shell that looks after the process group and without one. Without one the
# kernel hangs up on the orphaned group when a member is stopped.
stopped() {
  begin stopped --ttl 1500ms stopped -- ./deaf stopped || return 1
  kill -STOP "$pid" && await both_gone stopped && kill -CONT "$pid" &&
    ends 76 "$pid" stopped.err && one_line "lost: " stopped.err
}

# The guard gives the hold up.
killed() {
  begin killed --ttl 10m killed -- ./deaf killed || return 1
  kill -9 "$pid" && await both_gone killed && wait "$pid"
  status 0 "$CORRAL" lock --wait 60s killed -- sh -c 'echo free' && [ "$(cat out)" = free ]
}

# The next holder never meets the command of one who was killed.
killed_alone() {
  begin alone --ttl 1s alone -- ./deaf alone || return 1
  "$CORRAL" lock alone -- sh -c '
    kill -0 $(cat alone.pid) 2>/dev/null && echo beside
    kill -0 $(cat alone.child) 2>/dev/null && echo beside
    :' >beside 2>&1 &
  next=$!
  kill -9 "$pid"
  ends 0 $next beside && [ ! -s beside ]
}

guard_of() {
  for t in /proc/[0-9]*/stat; do sed -n "s/^\([0-9]*\) .*) [A-Z] $1 .*/\1/p" "$t" 2>/dev/null; done
}

killed_guarded() {
  begin spared --ttl 10m spared -- ./deaf spared || return 1
  guard=$(guard_of "$pid")
  kill -STOP "$guard" && kill -9 "$pid"
  wait "$pid"
  status 75 "$CORRAL" lock -n spared -- touch ran && ! gone "$(cat spared.pid)"
  answer=$?
  kill -CONT "$guard"
  [ $answer -eq 0 ] && await both_gone spared &&
    status 0 "$CORRAL" lock --wait 60s spared -- true && [ ! -e ran ]
}

guard_killed() {
  begin guarded guarded -- ./deaf guarded || return 1
  guard=$(guard_of "$pid")
  kill -9 "$guard" && ends 125 "$pid" guarded.err &&
    one_line "the guard of the command was killed" guarded.err && await both_gone guarded &&
    free guarded
}

out_of_sight() {
  rm -f sight
  "$CORRAL" lock --max 1500ms sight -- sh -c '
    setsid sh -c "
      trap \"\" TERM; echo \$\$ >sight.tmp; mv sight.tmp sight
      while :; do sleep 1; done" &
    wait' 2>sight.err &
  pid=$!
  await [ -s sight ] && ends 76 "$pid" sight.err && gone "$(cat sight)"
}

# ---- signals ----

handed_on() {
  begin handed handed -- ./polite handed || return 1
  kill -TERM "$pid" && ends 3 "$pid" handed.err && lines 1 handed.got && [ ! -s handed.err ] &&
    free handed
}

interrupted() {
  rm -f inted.pid
  env --default-signal=INT "$CORRAL" lock inted -- ./sleeper inted 2>inted.err &
  pid=$!
  await [ -s inted.pid ] && kill -INT "$pid" && ends 130 "$pid" inted.err && both_gone inted &&
    free inted
}

# A command that ends on the signal leaves no process that goes on without the lock.
rest_is_ended() {
  begin rest --grace 100ms rest -- sh -c './deaf rest & wait' || return 1
  kill -TERM "$pid" && ends 143 "$pid" rest.err && both_gone rest && free rest
}

ignored() {
  rm -f ignored.pid
  (trap '' HUP; exec "$CORRAL" lock ignored -- ./sleeper ignored) 2>ignored.err &
  pid=$!
  await [ -s ignored.pid ] && kill -HUP "$pid" && held ignored && kill -TERM "$pid" &&
    ends 143 "$pid" ignored.err
}

wait_ended() {
  begin front front -- ./sleeper front || return 1
  "$CORRAL" -v lock front -- touch ran 2>front2.err &
  waiter=$!
  await asked 2 front2.err && kill -TERM $waiter && ends 143 $waiter front2.err
  got=$?
  kill "$pid"
  wait "$pid"
  [ $got -eq 0 ] && [ ! -e ran ] && free front
}

# ---- the terminal ----

# on_terminal COMMAND: runs a shell's command on a terminal of its own, which reads the FIFO keys.
on_terminal() { env --default-signal=INT script -qec "$1" /dev/null <keys >typed.out 2>&1; }

terminal() {
  rm -f keys at && mkfifo keys
  on_terminal "$CORRAL lock tty -- sh -c 'echo x >at; read line </dev/tty; echo \"got \$line\"'" &
  terminal=$!
  exec 8>keys
  await [ -s at ] && echo typed >&8 && wait $terminal && grep -q 'got typed' typed.out
  got=$?
  exec 8>&-
  return $got
}

ctrl_c() {
  rm -f keys ctrlc.pid && mkfifo keys
  on_terminal "$CORRAL lock tty -- ./sleeper ctrlc; echo status \$?" &
  terminal=$!
  exec 8>keys
  await [ -s ctrlc.pid ] && printf '\003' >&8 && await both_gone ctrlc && await free tty &&
    wait $terminal
  exec 8>&-
  both_gone ctrlc
}

# ---- nested ----

nested() {
  status 125 "$CORRAL" lock nested -- "$CORRAL" lock nested -- touch ran &&
    one_line "nested: this command runs under that lock already" err &&
    status 125 "$CORRAL" lock nested -- \
      sh -c "'$CORRAL' lock other -- sh -c \"'$CORRAL' lock -s nested -- touch ran\"" &&
    [ ! -e ran ] &&
    status 0 "$CORRAL" lock nested -- "$CORRAL" --namespace n lock nested -- \
      "$CORRAL" run --key nested -- "$CORRAL" lock --show nested &&
    free nested
}

warns() {
  begin warns --max 4s --grace 500ms --warn 2s warns -- ./polite warns || return 1
  ends 76 "$pid" warns.err && [ "$(grep -c ' left until --max' warns.err)" -eq 1 ] &&
    head -n 1 warns.err | grep -q ' left until --max' &&
    status 0 "$CORRAL" lock --ttl 30s --warn 15s warns -- sleep 1 && [ ! -s err ]
}

counted() {
  last=0
  for i in 1 2 3; do
    status 0 "$CORRAL" lock --fence-store "lmdb:$dir/tokens" counted -- \
      sh -c 'echo "$CORRAL_FENCE"' && [ "$(cat out)" -gt "$last" ] || return 1
    last=$(cat out)
  done
  status 125 "$CORRAL" lock -n --fence-store "redis+unix://$dir/nowhere" counted -- touch ran &&
    one_line "the fencing counter: " err && [ ! -e ran ] && free counted
}

# ---- handing over ----

# tells writes down its ticket and its fencing token, and waits.
cat >tells <<'END'
#!/bin/sh
echo "$CORRAL_LOCK_TICKET" >"$1.ticket"
echo "$CORRAL_FENCE" >"$1.fence"
exec ./sleeper "$1"
END
chmod +x tells

# A corral that is killed leaves its hold, which its successor gets at once.
adopted() {
  begin giver --ttl 10m --ticket adopted -- ./tells giver || return 1
  kill -9 "$pid" && await both_gone giver && wait "$pid"
  status 75 "$CORRAL" lock -n adopted -- touch ran &&
    status 0 "$CORRAL" lock --adopt "$(cat giver.ticket)" adopted -- \
      sh -c 'echo "$CORRAL_FENCE"; [ -z "$CORRAL_LOCK_TICKET" ]' &&
    [ "$(cat out)" -gt "$(cat giver.fence)" ] && free adopted &&
    status 76 "$CORRAL" lock --adopt "$(cat giver.ticket)" adopted -- touch ran &&
    one_line "adopted: the hold that the ticket is of is over" err &&
    status 76 "$CORRAL" lock --take --adopt "$(cat giver.ticket)" adopted && [ ! -e ran ]
}

# The command of a holder whose hold was taken over is ended.
taken_over() {
  begin old --ttl 3s --ticket over -- ./tells old || return 1
  old=$pid
  begin new --ttl 10m --adopt "$(cat old.ticket)" over -- ./tells new || return 1
  ends 76 "$old" old.err && one_line "somebody else has the lock" old.err && both_gone old &&
    held over && kill "$pid" && ends 143 "$pid" new.err && free over
}

# A daemon starts again, and nobody has its lock between.
left() {
  begin daemon --ttl 10m --ticket --leave daemon -- ./tells daemon || return 1
  last=$(cat daemon.fence)
  for i in 1 2 3; do
    kill "$pid" && ends 143 "$pid" daemon.err && held daemon || return 1
    begin daemon --ttl 10m --adopt "$(cat daemon.ticket)" --ticket --leave daemon -- \
      ./tells daemon || return 1
    [ "$(cat daemon.fence)" -gt "$last" ] || return 1
    last=$(cat daemon.fence)
  done
  kill "$pid" && ends 143 "$pid" daemon.err && held daemon &&
    status 0 "$CORRAL" lock --adopt "$(cat daemon.ticket)" daemon -- true && free daemon &&
    status 127 "$CORRAL" lock --leave daemon -- ./no-such-command && free daemon
}

# ---- wrong use ----

# refuses TEXT ARGUMENT...: exit status 125 and one line on stderr that contains TEXT.
refuses() {
  text=$1
  shift
  status 125 "$CORRAL" "$@" && [ ! -s out ] && one_line "$text" err
}

wrong_use() {
  refuses "no NAME given: corral lock" lock && refuses "no command given: corral lock" lock name &&
    refuses "no command given" lock name -- &&
    refuses "lock: unknown option '--tll': did you mean --ttl?" lock --tll 1s name -- true &&
    refuses "unknown option '-x'" lock name -x -- true &&
    refuses "'5y' is no duration" lock --ttl 5y name -- true &&
    refuses "--ttl: '10ms' is out of range; accepted: 50ms to 1d" lock --ttl 10ms n -- true &&
    refuses "--wait: '2d' is out of range; accepted: off, 1ms to 1d" lock -w 2d n -- true &&
    refuses "--max: '2y' is no duration; accepted: off, 1ms to 365d" lock --max 2y n -- true &&
    refuses "--grace: too long for a --ttl of 10s: accepted is 0 to half of that, 5s" \
      lock --grace 6s n -- true &&
    refuses "--grace: too long for a --max of 2s: accepted is 0 to half of that, 1s" \
      lock --grace 1100ms --max 2s n -- true &&
    refuses "--repair: '2d' is out of range; accepted: off, 1ms to 1d" lock --repair 2d n -- true &&
    refuses "a note of 41 bytes is not accepted: 0 to 40" \
      lock --note "$(printf '%041d' 0)" n -- true &&
    refuses "--conflict-exit: '256' is not accepted: a whole number, 0 to 255" \
      lock -E 256 n -- true &&
    refuses "--lost-exit: 'x' is not accepted: a whole number, 0 to 255" \
      lock --lost-exit x n -- true &&
    refuses "'true' is one argument too many" lock --show n -- true &&
    refuses "option '--note' needs a value" lock --note &&
    refuses "not a ticket of this lock" lock --adopt lock1-x-00 n -- true &&
    refuses "--adopt takes a lock over: a command, or --take" lock --adopt t --show n &&
    refuses "--warn: too long for a --ttl of 10s: accepted is 0 to half of that, 5s" \
      lock --warn 6s n -- true &&
    refuses "--warn is for a command" lock --take --warn 1s n &&
    refuses "--fence-store is for taking" lock --fence-store lmdb:x --show n &&
    refuses "--fence-store memory: forgets" lock --fence-store memory: n -- true &&
    refuses "--fence-store: the lock's own store can't count" \
      --store "lmdb:$dir/own" lock --fence-store "lmdb:$dir/own" n -- true &&
    refuses "--leave is for a command" lock --take --leave n &&
    refuses "--ticket is for a command" lock --check --ticket n &&
    refuses "memory: is of one process alone" --store memory: lock n -- true
}

away() {
  rm -f ran
  refuses "away: " --store "$1" lock away -- touch ran &&
    refuses "away: " --store "$1" lock -n away -- touch ran &&
    refuses "away: " --store "$1" lock --wait 50ms away -- touch ran &&
    refuses "away: " --store "$1" lock --show away && [ ! -e ran ]
}

# ---- cases on Redis alone ----

redis() { redis-cli -s "$dir/redis" "$@" >redis.out 2>&1; }

deleted() {
  begin deleted --ttl 6s deleted -- ./polite deleted || return 1
  redis DEL ~lock::deleted && ends 76 "$pid" deleted.err &&
    one_line "deleted: lost: the hold with fencing token " deleted.err &&
    one_line "is over: its time passed" deleted.err && lines 1 deleted.got
}

flushed_deaf() {
  begin flushed --ttl 6s --grace 100ms flushed -- ./deaf flushed || return 1
  redis FLUSHALL && ends 76 "$pid" flushed.err &&
    one_line "is over: its time passed" flushed.err && both_gone flushed
}

taken() {
  begin taken --ttl 3s taken -- ./polite taken || return 1
  loser=$pid
  redis DEL ~lock::taken && begin taker taken -- ./sleeper taker &&
    ends 76 "$loser" taken.err && one_line "somebody else has the lock" taken.err &&
    held taken && kill "$pid" && ends 143 "$pid" taker.err
}

# The hold is lost before it is first extended.
lost_at_release() {
  status 76 "$CORRAL" lock late -- redis-cli -s "$dir/redis" DEL ~lock::late &&
    one_line "late: lost: the hold with fencing token " err
}

server_stopped() {
  begin cut --ttl 1s cut -- ./deaf cut || return 1
  kill -STOP "$server" && ends 76 "$pid" cut.err && both_gone cut
  got=$?
  kill -CONT "$server"
  [ $got -eq 0 ] && grep -q '^corral: cut: lost: the hold with fencing token ' cut.err
}

# The guard tries again until the server goes on, however long the hold is.
killed_away() {
  begin orphan --ttl 10m orphan -- ./deaf orphan || return 1
  kill -STOP "$server" && kill -9 "$pid" && await both_gone orphan && wait "$pid"
  sleep 2
  kill -CONT "$server"
  status 0 "$CORRAL" lock --wait 60s orphan -- sh -c 'echo free' && [ "$(cat out)" = free ]
}

# waiting_said FILE: it waits for the store, and has said so once.
waiting_said() { [ "$(grep -c ': waiting for the store: ' "$1")" -eq 1 ]; }
# scripts: how many the server has run. more_scripts N: it has run more than N.
scripts() {
  redis INFO commandstats && sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\).*/\1/p' redis.out
}
more_scripts() { [ "$(scripts)" -gt "$1" ]; }
# A wait survives the store once it has been refused; the second request shows that it was.
waits_for_store() {
  begin store1 --ttl 1d store -- ./sleeper store1 || return 1
  before=$(scripts)
  "$CORRAL" --op 3s lock --note waiter store -- true 2>store2.err &
  waiter=$!
  await more_scripts $((before + 1)) && kill -STOP "$server" && await waiting_said store2.err
  got=$?
  kill -CONT "$server"
  kill "$pid"
  wait "$pid"
  [ $got -eq 0 ] && ends 0 $waiter store2.err && one_line "waiting for the store" store2.err
}

foreign() {
  redis SET ~lock::foreign x && refuses "--repair D lets it end after D" lock foreign -- true &&
    redis TTL ~lock::foreign && grep -q -e -1 redis.out &&
    status 0 "$CORRAL" lock --repair 50ms foreign -- true
}

# ---- on each store ----

on_store() {
  rm -f ran ./*.out ./*.err # what an earlier store left would be taken for this one's
  check "the streams and the exit status are the command's own" passes
  check "standard input is the command's" stdin_passes
  check "a pipe that is closed ends the command" pipe_ends
  check "the command knows the lock's name, and a fencing token that grows" environment
  check "a command that can't be run is told, and the lock is released" not_there
  check "what a command leaves behind lives, and has no lock" left_behind
  check "a command that ends at once has its status" short
  check "of ten at once never two run beside each other" ten
  check "--no-wait says who holds it, unless --quiet" busy
  check "--wait ends with 124" waits_so_long
  check "a bare number of -w is seconds" waits_seconds
  if command -v flock >/dev/null; then
    check "-w and -n are those of flock(1)" as_flock
  else
    skip "-w and -n are those of flock(1)" "there is no flock(1)"
  fi
  check "without --wait it waits until it is free" waits_for_it
  check "with --fair it waits in a queue that is shown" in_turn
  check "shared holds are together, others alone" shared
  check "so many commands at once have a permit" permits
  check "--show tells who holds it, as text and as JSON" shows
  check "--show prints a note so that no terminal obeys it" hostile
  check "a name is any text of 1 to 65536 bytes" names
  check "--list tells the locks that are held, and prints no name that a terminal obeys" listed
  check "--watch tells each change of holder until a signal" watched
  check "-v tells how long it was waited for and held" tells_times
  check "--break ends the hold and its holder's command, and not without --yes" broken
  check "--break tells in JSON which holds it broke" broken_json
  check "the hold is extended until the command has ended" holds
  check "--max ends the command, and the hold" max_ends
  check "also one that doesn't hear SIGTERM" max_ends_deaf
  check "before the end of its lease" max_is_not_the_lease
  check "what the command answers to SIGTERM doesn't hide the loss" polite_end
  check "when corral is stopped the command is ended with its hold" stopped
  check "when corral is killed the command is, and then the lock is free" killed
  check "as long as the command of a killed corral may run, nobody has its lock" killed_guarded
  check "nobody has the lock before the command of one who was killed is dead" killed_alone
  check "when the guard is killed the command is, too" guard_killed
  if command -v setsid >/dev/null; then
    check "what left the session is ended as well" out_of_sight
  fi
  check "a signal is handed on, and the lock released when the command has ended" handed_on
  if env --default-signal=INT true 2>/dev/null; then
    check "a command that dies of SIGINT takes corral with it" interrupted
  fi
  check "what remains after a signal is ended before the release" rest_is_ended
  check "an ignored signal stays ignored" ignored
  check "a signal ends the wait" wait_ended
  if script -qec true /dev/null </dev/null >/dev/null 2>&1 &&
    env --default-signal=INT true 2>/dev/null; then
    check "the command reads the terminal" terminal
    check "Ctrl-C ends the command" ctrl_c
    check "--break asks on a terminal" broken_asks
  else
    skip "the command reads the terminal" \
      "there is no script(1), no pseudo-terminal, or no env --default-signal"
  fi
  check "a command that asks for the lock it runs under is refused" nested
  check "a second store counts the fencing tokens, or nobody has the lock" counted
  check "--warn tells that the end is near" warns
  check "the hold of a corral that was killed goes to its successor at once" adopted
  check "a command whose hold was taken over is ended" taken_over
  check "a daemon that is started again keeps its lock" left
}

store=lmdb
CORRAL_STORE=lmdb:$dir/store
CORRAL_PASS_STORE=1 # for what runs the command inside of a command
export CORRAL_STORE CORRAL_PASS_STORE
on_store
check "wrong use is refused, with what is accepted" wrong_use
away_lmdb() {
  refuses "away: /proc/no: No such file" --store lmdb:/proc/no/store lock away -- touch ran &&
    [ ! -e ran ]
}
check "a store that can't be opened runs no command" away_lmdb

store=redis
redis_or_end "corral lock on Redis"
CORRAL_STORE=redis+unix://$dir/redis
on_store
check "a deleted lock ends the command" deleted
check "an emptied store does, also one that doesn't hear SIGTERM" flushed_deaf
check "who lost it to somebody else is told so" taken
check "a loss that no extension has met is told at the release" lost_at_release
check "while the store is away the command is ended with its hold" server_stopped
check "when corral is killed while the store is away, the lock is free after that" killed_away
check "who waits goes on when the store leaves, and says so once" waits_for_store
check "what corral did not write is refused, and ends by --repair" foreign
check "a server that isn't there runs no command" away "redis+unix://$dir/nowhere"
exit $failed
