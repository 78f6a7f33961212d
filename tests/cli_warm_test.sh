#!/bin/sh
# cli_warm_test.sh: corral warm as a user sees it, on an lmdb: store of its own.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed. Commands under test wait at a FIFO until this script lets
# them go; the script waits for a state, never for a time. Each case has keys of its own.
set -u

. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
CORRAL_STORE=lmdb:$dir/store
CORRAL_PASS_STORE=1 # for commands that run corral themselves
export TMPDIR CORRAL_STORE CORRAL_PASS_STORE

# keys PREFIX FROM TO: prints keys, one a line.
keys() { i=$2; while [ "$i" -le "$3" ]; do echo "$1$i"; i=$((i + 1)); done; }

# once N FILE: the file has N lines, no two of them alike.
once() { lines "$1" "$2" && [ -z "$(sort "$2" | uniq -d)" ]; }

# report NAME N: the JSON report in out has N under NAME.
report() {
  grep -q "\"$1\":$2[,}]" out || { echo "# not \"$1\":$2 in $(head -c 400 out)"; return 1; }
}

# left KEY: prints the rest of its fresh life, in ms.
left() {
  "$CORRAL" --json inspect "$1" | sed 's/.*"age_ms":\([0-9]*\),"ttl_ms":\([0-9]*\).*/\2 \1/' |
    { read -r ttl age; echo $((ttl - age)); }
}

# ---- commands ----

plain() {
  keys plain 1 5 >plain && status 0 "$CORRAL" --json warm plain -- echo 'value of {}' &&
    report keys 5 && report computed 5 && [ "$("$CORRAL" get plain3)" = 'value of plain3' ]
}
by_shell() {
  key='a b;c "$(touch pwned)"'
  printf '%s\n' "$key" | "$CORRAL" warm --exec 'printf "%s|%s" "$1" "$CORRAL_KEY"' 2>err &&
    [ "$("$CORRAL" get "$key")" = "$key|$key" ] && [ ! -e pwned ]
}
environment() {
  echo key-in-env | "$CORRAL" warm -- sh -c 'printf %s "$CORRAL_KEY"' 2>err &&
    [ "$("$CORRAL" get key-in-env)" = key-in-env ]
}
bytes() {
  head -c 300000 /dev/urandom >blob
  echo blob | "$CORRAL" warm -- cat {} 2>err && "$CORRAL" get blob | cmp -s - blob
}
as_run() {
  echo job | "$CORRAL" warm --as-run --exec 'echo out; echo err >&2' 2>err &&
    status 0 "$CORRAL" run --key job -- false && [ "$(cat out)" = out ] && [ "$(cat err)" = err ]
}
fails() {
  printf 'good\nbad\n' >mixed
  status 1 "$CORRAL" --json warm mixed \
    --exec 'test "$1" = good || { echo first >&2; echo "no such thing as $1" >&2; exit 3; }' &&
    report failed 1 && report computed 1 &&
    grep -q '"key":"bad","reason":"exit status 3: no such thing as bad"' out &&
    grep -q '"message":"warm: bad: failed: exit status 3: no such thing as bad' err
}
no_command() {
  echo nc | status_in 1 "$CORRAL" warm -- ./absent &&
    grep -q 'nc: failed: command not found: ./absent' err
}
status_in() {
  wanted=$1
  shift
  "$@" >out 2>err
  got=$?
  [ $got -eq "$wanted" ] || { echo "# exit status $got, not $wanted"; return 1; }
}
# The origin tale: makes its values up.
tale() { CORRAL_PLUGIN_PATH=$CORRAL_TEST_PLUGINS TALE_FOLDER=$dir status_in "$@"; }
too_long() {
  echo slow | status_in 1 "$CORRAL" warm --compute 100ms -- sleep 60 &&
    grep -q 'slow: failed: killed: it ran longer than 100ms' err
}
nested() {
  echo self | status_in 1 "$CORRAL" warm --exec "echo self | $CORRAL -q warm -- true" &&
    grep -q 'would wait for itself' err
}
many_failures() {
  keys bad 1 150 >mf &&
    tale 1 "$CORRAL" --json warm --progress 1h --origin 'tale://host/{key}' mf &&
    report failed 150 && report failures_left_off 50 && lines 23 err &&
    grep -q '"message":"warm: 150 not warm, such as bad[0-9]*: the tale is sad' err
}

# ---- input ----

odd_lines() {
  { printf '# none\n\nfirst\r\n'; head -c 70000 /dev/zero | tr '\0' x; printf '\nlast'; } >odd
  status 1 "$CORRAL" --json warm --comments odd -- echo {} && report keys 2 && report computed 2 &&
    report bad_lines 1 &&
    grep -q 'odd:4: a key of 70000 bytes is not accepted: 1 to 65536 are' err &&
    [ "$("$CORRAL" get last)" = last ] && "$CORRAL" get first >/dev/null
}
longest() {
  head -c 65536 /dev/zero | tr '\0' y >longest && status 0 "$CORRAL" --json warm longest -- true &&
    report computed 1
}
nul() {
  printf 'two\nlines\0other\0' >nul && status 0 "$CORRAL" --json warm -0 nul -- echo &&
    report computed 2 && "$CORRAL" get 'two
lines' >/dev/null
}
many_files() {
  keys f 1 3 >f1 && keys f 4 6 >f2 &&
    keys f 7 9 | status_in 0 "$CORRAL" --json warm f1 - f2 -- echo && report computed 9
}
absent() {
  status 125 "$CORRAL" warm plain ./absent -- true && grep -q './absent: No such file' err
}
usage() {
  status 125 "$CORRAL" warm plain &&
    grep -q 'nothing to compute with: exactly one is accepted' err &&
    status 125 "$CORRAL" warm plain --sqlite x -- true && grep -q 'more than one' err &&
    status 125 "$CORRAL" warm plain --rate 5/x -- true &&
    grep -q "rate: '5/x' is not accepted" err &&
    status 125 "$CORRAL" warm plain --exec 'echo {}' &&
    status 125 "$CORRAL" warm plain --ttl 10s --ahead 9s -- true && grep -q 'nine tenths' err &&
    status 125 "$CORRAL" warm --origin nowhere plain &&
    status 125 "$CORRAL" warm -j 0 plain -- true && status 0 "$CORRAL" warm --help &&
    [ "$(wc -l <out)" -le 24 ] && [ -z "$(awk 'length > 80' out)" ]
}
no_store() {
  status 125 "$CORRAL" --store redis://127.0.0.1:1/0 warm plain -- sh -c 'echo x >>nostore' &&
    grep -q 'the store' err && [ ! -e nostore ]
}
streamed() {
  mkfifo pipe done.gate
  "$CORRAL" warm pipe -- sh -c 'echo {} >>streamed; echo' 2>err &
  pid=$!
  exec 7>pipe
  echo early >&7
  await lines 1 streamed && echo late >&7 && exec 7>&- && wait $pid && lines 2 streamed
}

# ---- warm keys ----

skips_fresh() {
  keys sf 1 20 >sf && status 0 "$CORRAL" warm sf -- sh -c 'echo x >>sf.runs' &&
    status 0 "$CORRAL" --json warm sf -- sh -c 'echo x >>sf.runs' && report fresh 20 &&
    lines 20 sf.runs && status 0 "$CORRAL" invalidate sf7 &&
    status 0 "$CORRAL" --json warm sf -- sh -c 'echo x >>sf.runs' && report computed 1 &&
    report fresh 19
}
ahead() {
  echo old | status_in 0 "$CORRAL" warm --ttl 1h --spread 0 -- echo &&
    echo young | status_in 0 "$CORRAL" warm --ttl 4h --spread 0 -- echo &&
    sleep 0.1 && printf 'old\nyoung\n' >ah &&
    status 0 "$CORRAL" --json warm ah --ttl 4h --spread 0 --ahead 2h -- echo &&
    report computed 0 && report fresh 2
}
# A life is 20 s. A value with less than 17.9 s left is rebuilt, and the old one serves meanwhile.
ahead_serves() {
  mkfifo ahead.gate && exec 7<>ahead.gate
  echo as | status_in 0 "$CORRAL" warm --ttl 20s --spread 0 -- echo old || return 1
  await eval '[ "$(left as)" -lt 17800 ]' || return 1
  echo as >as
  "$CORRAL" --json warm as --ttl 20s --spread 0 --ahead 17900ms -- \
    sh -c 'echo x >>as.runs; read go <ahead.gate; echo new' >as.out 2>err &
  pid=$!
  await lines 1 as.runs && "$CORRAL" get as >as.served &&
    "$CORRAL" warm as --ttl 20s --spread 0 --ahead 17900ms --wait 50ms -- \
      sh -c 'echo x >>as.runs' 2>err
  got=$?
  echo go >&7
  wait $pid && [ "$(cat as.served)" = old ] && lines 1 as.runs && grep -q '"computed":1' as.out &&
    [ "$("$CORRAL" get as)" = new ] && [ $got -eq 1 ]
}
spread() {
  keys sp 1 60 >sp &&
    tale 0 "$CORRAL" warm sp --ttl 1000s --spread 50 --origin 'tale://host/{key}' || return 1
  for i in $(cat sp); do "$CORRAL" --json inspect "$i"; done |
    sed 's/.*"ttl_ms":\([0-9]*\).*/\1/' | sort -n >sp.lives
  [ "$(head -n 1 sp.lives)" -ge 500000 ] && [ "$(head -n 1 sp.lives)" -lt 600000 ] &&
    [ "$(tail -n 1 sp.lives)" -gt 900000 ] && [ "$(tail -n 1 sp.lives)" -le 1000000 ]
}
lives() {
  echo lv |
    status_in 0 "$CORRAL" warm --ttl 1h --stale 2h --stale-if-error 3h --spread 0 --tag t1 \
      -- echo x &&
    "$CORRAL" --json inspect lv >out &&
    report ttl_ms 3600000 && report swr_ms 7200000 && report sie_ms 10800000 &&
    status 0 "$CORRAL" invalidate --tag t1 && status 1 "$CORRAL" get lv
}
shared() {
  keys sh 1 60 >sh
  "$CORRAL" --json warm sh --exec 'echo $1 >>sh.runs; sleep 0.005; echo $1' >sh.1 2>/dev/null &
  one=$!
  "$CORRAL" --json warm sh --exec 'echo $1 >>sh.runs; sleep 0.005; echo $1' >sh.2 2>/dev/null &
  two=$!
  wait $one && wait $two && once 60 sh.runs && ! grep -q '"computed":0,' sh.1 &&
    ! grep -q '"computed":0,' sh.2
}
in_order() {
  keys io 1 40 >io && status 0 "$CORRAL" warm io -j 1 --exec 'echo $1 >>io.runs' && cmp io io.runs
}
# A key that another run computes is looked at last, and waited for.
waited() {
  mkfifo wt.gate
  "$CORRAL" run --key wt1 -- sh -c 'echo x >>wt.runs; read go <wt.gate' >/dev/null 2>&1 &
  pid=$!
  keys wt 1 9 >wt
  await lines 1 wt.runs || return 1
  "$CORRAL" --json warm wt -- sh -c 'echo {} >>wt.mine' >out 2>err &
  warmer=$!
  await lines 8 wt.mine && echo go >wt.gate && wait $warmer && wait $pid && report fresh 1 &&
    report computed 8 && lines 8 wt.mine
}
busy() {
  mkfifo by.gate
  "$CORRAL" run --key by -- sh -c 'echo x >>by.runs; read go <by.gate' >/dev/null 2>&1 &
  pid=$!
  await lines 1 by.runs && echo by | status_in 1 "$CORRAL" --json warm --wait 100ms -- true &&
    report busy 1 && grep -q 'by: busy: somebody else still computes it' err
  got=$?
  echo go >by.gate
  wait $pid 2>/dev/null
  return $got
}
# The last of 6 computes at 4/s begins 5 quarters of a second after the start, or later, however
# late a busy machine starts the first.
rate() {
  begun=$(date +%s%N)
  keys rt 1 6 >rt &&
    status 0 "$CORRAL" --json warm rt -j 6 --rate 4/s -- sh -c 'date +%s%N >>rt.times' || return 1
  took=$((($(sort -n rt.times | tail -n 1) - begun) / 1000000))
  [ $took -ge 1250 ] || { echo "# 6 computes at 4/s in $took ms"; return 1; }
}
jobs() {
  keys jb 1 8 >jb && mkfifo jb.gate
  exec 8<>jb.gate
  "$CORRAL" warm jb -j 8 -- sh -c 'echo x >>jb.runs; read go <jb.gate' 2>err &
  pid=$!
  await lines 8 jb.runs
  got=$?
  printf 'go\ngo\ngo\ngo\ngo\ngo\ngo\ngo\n' >&8
  wait $pid && [ $got -eq 0 ]
  got=$?
  exec 8>&-
  return $got
}

# ---- signals ----

interrupted() {
  keys int 1 50 >int && mkfifo int.gate
  "$CORRAL" --json warm int -j 2 -- sh -c 'echo {} >>int.runs; read go <int.gate; echo x' \
    >int.out 2>int.err &
  pid=$!
  exec 8<>int.gate
  await lines 2 int.runs && kill -TERM $pid && await grep -q 'once more to kill it' int.err &&
    printf 'go\ngo\n' >&8
  wait $pid 2>/dev/null
  got=$?
  exec 8>&-
  [ $got -eq 143 ] && lines 2 int.runs && grep -q '"computed":2,.*"signal":15' int.out &&
    status 0 "$CORRAL" --json warm int -- sh -c 'echo {} >>int.runs' && report fresh 2 &&
    once 50 int.runs
}
killed() {
  mkfifo kl.gate
  echo kl >kl
  "$CORRAL" --json warm kl -- sh -c 'echo $$ >kl.pid; exec sleep 600' >kl.out 2>kl.err &
  pid=$!
  await [ -s kl.pid ] && kill -TERM $pid && await grep -q 'once more to kill it' kl.err &&
    kill -TERM $pid
  wait $pid 2>/dev/null
  [ $? -eq 143 ] && await gone "$(cat kl.pid)" && grep -q '"computed":0,.*"signal":15' kl.out
}
waiting_ends() {
  mkfifo we.gate
  "$CORRAL" run --key we -- sh -c 'echo x >>we.runs; read go <we.gate' >/dev/null 2>&1 &
  other=$!
  await lines 1 we.runs || return 1
  printf 'we\nwe2\n' >we
  "$CORRAL" -v warm we -- sh -c 'echo x >>we.mine' 2>we.err &
  pid=$!
  await lines 1 we.mine && kill -TERM $pid
  wait $pid 2>/dev/null
  got=$?
  echo go >we.gate
  wait $other 2>/dev/null
  [ $got -eq 143 ]
}
stdin_ends() {
  mkfifo se.keys
  "$CORRAL" warm - -- true <se.keys 2>err &
  pid=$!
  exec 7>se.keys
  echo se1 >&7
  await eval '"$CORRAL" get se1 >/dev/null 2>&1' && kill -TERM $pid
  wait $pid 2>/dev/null
  got=$?
  exec 7>&-
  [ $got -eq 143 ]
}

# ---- watch ----

watches() {
  echo wa1 >wa
  "$CORRAL" --json warm wa --watch=200ms --ttl 1s --spread 0 -- sh -c 'echo {} >>wa.runs; echo x' \
    >wa.out 2>err &
  pid=$!
  await lines 1 wa.runs && await lines 3 wa.runs && echo wa2 >>wa && await grep -q wa2 wa.runs &&
    status 0 "$CORRAL" invalidate wa2 && await eval '[ "$(grep -c wa2 wa.runs)" -ge 2 ]'
  got=$?
  kill -TERM $pid
  wait $pid 2>/dev/null
  [ $? -eq 143 ] && [ $got -eq 0 ] && grep -q '"failed":0,' wa.out
}
# The store remembers the failure for 1 s, 2 s, 4 s: the command isn't begun more often.
watch_fails() {
  echo wf >wf
  "$CORRAL" --json warm wf --watch -- sh -c 'echo x >>wf.runs; exit 1' >wf.out 2>err &
  pid=$!
  began=$(date +%s)
  await lines 1 wf.runs && sleep 1 && kill -TERM $pid
  wait $pid 2>/dev/null
  took=$(($(date +%s) - began))
  [ "$(wc -l <wf.runs)" -le $((2 * took + 2)) ] &&
    [ "$(sed 's/.*"passes":\([0-9]*\).*/\1/' wf.out)" -le $((2 * took + 2)) ]
}

# ---- output ----

plain_lines() {
  keys pl 1 12 >pl && status 0 "$CORRAL" warm pl -j 1 --progress 100ms -- sleep 0.05 &&
    grep -q '^corral: warm: [0-9]*/12  [0-9.]*/s  ETA 0:0' err &&
    ! grep -q "$(printf '\r')" err && grep -q '^corral: warm: 12 keys, 0 fresh, 12 computed in' err
}
quiet() { echo qq | status_in 0 "$CORRAL" -q warm -- true && [ ! -s err ] && [ ! -s out ]; }
verbose() {
  printf 'v1\nv2\n' | status_in 1 "$CORRAL" -v warm --exec 'test $1 = v1' &&
    grep -q '^corral: warm: v1: computed in [0-9]* ms$' err &&
    grep -q '^corral: warm: v2: failed in [0-9]* ms: ' err
}
drawn() {
  keys dr 1 30 >dr
  script -qec "stty cols 70; $CORRAL warm dr -j 1 -- sleep 0.02" /dev/null <$null >dr.out 2>&1
  tr '\r' '\n' <dr.out >dr.lines
  grep -q 'warm .*[0-9]*/30  [0-9.]*/s  ETA 0:0' dr.lines &&
    grep -q 'warm.*###*\.\.*  \|warm.*█' dr.lines &&
    tail -n 2 dr.lines | grep -q '30 keys, 0 fresh, 30 computed' &&
    [ -z "$(LC_ALL=C sed 's/\xe2..\|\x1b\[K/_/g' dr.lines | awk 'length > 70')" ]
}

# ---- SQL ----

sqlite() {
  sqlite3 db '
    CREATE TABLE page(id INTEGER PRIMARY KEY, body TEXT);
    INSERT INTO page VALUES(1, "one"), (2, "two"), (3, NULL), (4, x'"'"'00ff00'"'"');' || return 1
  printf '1\n2\n3\n4\n9\n' >ids
  status 0 "$CORRAL" --json --namespace page warm ids --sqlite db \
    --query 'SELECT body FROM page WHERE id = ?' && report computed 3 && report negative 2 &&
    [ "$("$CORRAL" --namespace page get 2)" = two ] &&
    [ "$("$CORRAL" --namespace page get 4 | od -An -tx1 | tr -d ' ')" = 00ff00 ] &&
    status 0 "$CORRAL" --json --namespace page warm ids --sqlite db \
      --query 'SELECT body FROM page WHERE id = ?' && report fresh 3 && report negative 2
}
sqlite_wrong() {
  status 125 "$CORRAL" warm ids --sqlite db --query 'SELECT body FROM page' &&
    grep -q 'has 0 parameters' err &&
    status 125 "$CORRAL" warm ids --sqlite db --query 'SELEC ?' && grep -q 'syntax error' err &&
    status 125 "$CORRAL" warm ids --sqlite ./no/db --query 'SELECT ?' &&
    grep -q 'unable to open' err
}
endless='WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n)
  SELECT count(*) FROM n WHERE i <> ?'
sqlite_long() {
  echo sl | status_in 1 "$CORRAL" warm --sqlite db --compute 100ms --query "$endless" &&
    grep -q 'sl: failed: the statement was ended' err
}

# ---- an origin ----

origin() {
  printf 'tl1\ntl2\nnone1\nbad1\nflow1\n' |
    tale 1 "$CORRAL" --json warm --origin 'tale://host/{key}' --cache-failures 1h &&
    report computed 2 && report negative 1 && report failed 2 &&
    grep -q 'bad1: failed: the tale is sad' err &&
    grep -q "flow1: failed: it can't be cached" err &&
    [ "$("$CORRAL" get tl2)" = 'value of tl2' ] &&
    printf 'tl1\ntl2\nnone1\n' | tale 0 "$CORRAL" --json warm --origin 'tale://host/{key}' &&
    report fresh 2 && report negative 1 && lines 1 tl1
}
# A value that is stale, or to be rebuilt ahead of its end, is answered at once and rebuilt behind
# that. The warmer waits for the rebuild.
origin_stale() {
  keys ts 1 40 >ts.keys &&
    tale 0 "$CORRAL" --json warm --stale 1h --origin 'tale://host/{key}' ts.keys &&
    report computed 40 && "$CORRAL" expire $(cat ts.keys) &&
    tale 0 "$CORRAL" --json warm --stale 1h --origin 'tale://host/{key}' ts.keys &&
    report computed 40 && lines 2 ts40 && lines 2 ts1
}
origin_ahead() {
  keys ta 1 3 >ta.keys &&
    tale 0 "$CORRAL" warm --ttl 5s --spread 0 --origin 'tale://host/{key}' ta.keys || return 1
  for i in 1 2 3; do await eval "[ \"\$(left ta$i)\" -lt 4400 ]" || return 1; done
  tale 0 "$CORRAL" --json warm --ttl 1h --spread 0 --ahead 4400ms \
    --origin 'tale://host/{key}' ta.keys && report computed 3 && lines 2 ta1 && lines 2 ta3
}
origin_absent() { tale 125 "$CORRAL" warm --origin 'absent://host/{key}' plain; }

null=/dev/null
check "the output of a command is the value, and {} in it the key" plain
check "a text for the shell gets the key as \$1, never as text" by_shell
check "CORRAL_KEY is the key" environment
check "values are kept byte for byte" bytes
check "--as-run keeps what corral run answers" as_run
check "a failing command's last line is the reason, and the exit status is 1" fails
check "a command that isn't there is the reason" no_command
check "a command that runs longer than --compute is ended" too_long
check "a warmer inside of the compute of its key is refused" nested
check "100 failures are listed, and the rest counted" many_failures
check "blank lines and comments are none, a line that is too long is told with its place" odd_lines
check "a key may have 65536 bytes" longest
check "-0 ends keys with NUL" nul
check "keys come from several files, and from standard input" many_files
check "a file that isn't there is an error before anything is done" absent
check "a wrong command line is refused, and says what is accepted" usage
check "a store that is away ends it before anything is computed" no_store
check "keys of a pipe are computed as they come" streamed
check "what is fresh is skipped" skips_fresh
check "--ahead looks at what is left of a life, not at how long it was" ahead
check "what has less than --ahead left is rebuilt by one warmer, and serves meanwhile" ahead_serves
check "lives are spread" spread
check "lives and tags are those that are given" lives
check "two warmers share 60 keys: each is computed once" shared
check "a file is done in its order" in_order
check "what another computes is looked at last, and waited for" waited
check "what another computes for longer than --wait is busy, which is exit status 1" busy
check "--rate is smooth over all threads" rate
check "-j runs so many at once" jobs
check "a signal lets end what runs, and the next run goes on from there" interrupted
check "a second signal kills what runs" killed
check "a signal ends the wait for another's compute" waiting_ends
check "a signal ends the wait for more keys" stdin_ends
check "--watch keeps keys warm, reads a changed file again, and heals an invalidated key" watches
check "--watch respects how long a failure is remembered" watch_fails
check "without a terminal there are plain lines" plain_lines
check "-q says nothing" quiet
check "-v has a line for each key" verbose
if script -qec true /dev/null <$null >/dev/null 2>&1; then
  check "on a terminal a line is redrawn, no wider than that" drawn
else
  skip "on a terminal a line is redrawn" "there is no script(1), or no pseudo-terminal"
fi
if command -v sqlite3 >/dev/null; then
  check "a SQLite database answers: a row, none, NULL, a blob" sqlite
  check "a statement that makes no sense is refused before anything is done" sqlite_wrong
  check "a statement that runs longer than --compute is ended" sqlite_long
else
  skip "a SQLite database answers" "there is no sqlite3(1)"
fi
if [ -n "${CORRAL_TEST_PLUGINS:-}" ]; then
  check "an origin answers: a value, none, a failure, what can't be cached" origin
  check "what an origin rebuilds behind a stale answer is waited for" origin_stale
  check "what an origin rebuilds ahead of its end is waited for" origin_ahead
  check "an origin that isn't there is an error before anything is done" origin_absent
else
  skip "an origin answers" "CORRAL_TEST_PLUGINS, the folder of the tests' plugins, is not set"
fi
[ $failed -eq 0 ] || exit 1
