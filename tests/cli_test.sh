#!/bin/sh
# cli_test.sh: the corral command as a user sees it, on an lmdb: store of its own.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed. Commands under test wait at a FIFO until this script lets
# them go; the script waits for a state (a line in a file), never for a time.
here=$(cd "$(dirname "$0")/.." && pwd)
. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
CORRAL_STORE=lmdb:$dir/store
CORRAL_PASS_STORE=1 # for commands that run corral themselves
export TMPDIR CORRAL_STORE CORRAL_PASS_STORE

# waiting N PREFIX: N of the runs that write to PREFIX.*.err with -v wait for another run.
waiting() { [ "$(cat "$2".*.err 2>/dev/null | grep -c '^corral: event wait:')" -ge "$1" ]; }

docs=$here/docs # absolute, since the cases change folders

# ---- replay ----

cat >noise <<'END'
#!/bin/sh
echo run >>noise.runs
head -c 300000 noise.bin
head -c 70000 noise.bin >&2
exit 42
END
chmod +x noise
head -c 300000 /dev/urandom >noise.bin
head -c 70000 noise.bin >noise.err
replays() {
  status 42 "$CORRAL" run --cache-failures 1h -- ./noise &&
    cmp -s out noise.bin && cmp -s err noise.err &&
    status 42 "$CORRAL" run --cache-failures 1h -- ./noise &&
    cmp -s out noise.bin && cmp -s err noise.err && lines 1 noise.runs
}
check "both streams and the exit status are replayed byte for byte" replays

empty() {
  status 0 "$CORRAL" run -- true && [ ! -s out ] && [ ! -s err ] &&
    status 0 "$CORRAL" run -- true && [ ! -s out ]
}
check "a command that prints nothing is replayed as nothing" empty

null_stdin() { echo data | "$CORRAL" run --key stdin -- cat >out && [ ! -s out ]; }
check "the command reads an empty standard input" null_stdin

json_run() {
  status 0 "$CORRAL" --json run --key j -- printf x && [ "$(cat out)" = x ] &&
    grep -q '"how":"computed"' err
}
check "--json leaves standard output to the command" json_run

# ---- once ----

mkfifo once.gate
once() {
  i=0
  while [ $i -lt 20 ]; do
    "$CORRAL" -v run --key once -- \
      sh -c 'echo run >>once.runs; read go <once.gate; echo "result $$"' \
      >once.$i.out 2>once.$i.err &
    i=$((i + 1))
  done
  await lines 1 once.runs && await waiting 19 once && echo go >once.gate
  wait
  lines 1 once.runs && grep -q "^result" once.0.out &&
    [ "$(cat once.*.out | sort -u | wc -l)" -eq 1 ] && [ "$(cat once.*.out | wc -l)" -eq 20 ]
}
check "20 who ask at the same time share one run" once

mkfifo fail.gate
fail_shared() {
  i=0
  while [ $i -lt 5 ]; do
    (
      "$CORRAL" -v run --key fail --cache-failures 1h -- \
        sh -c 'echo run >>fail.runs; read go <fail.gate; echo no; exit 7' \
        >fail.$i.out 2>fail.$i.err
      echo $? >fail.$i.status
    ) &
    i=$((i + 1))
  done
  await lines 1 fail.runs && await waiting 4 fail && echo go >fail.gate
  wait
  lines 1 fail.runs && [ "$(cat fail.*.status | sort | uniq -c | tr -s ' ')" = " 5 7" ] &&
    [ "$(cat fail.*.out | grep -c '^no$')" -eq 5 ]
}
check "a failing command runs once for those who wait, and each gets its output and status" \
  fail_shared

not_kept() {
  status 3 "$CORRAL" run --key off --cache-failures 0 -- \
    sh -c 'echo run >>off.runs; echo x; exit 3' && [ "$(cat out)" = x ] &&
    status 3 "$CORRAL" run --key off --cache-failures 0 -- \
      sh -c 'echo run >>off.runs; echo x; exit 3' && lines 2 off.runs
}
check "--cache-failures 0 keeps no failure" not_kept

stale() {
  echo good >stale.in
  status 0 "$CORRAL" run --key stale --ttl 1h --stale 1h -- cat stale.in && rm stale.in &&
    status 0 "$CORRAL" expire stale &&
    status 0 "$CORRAL" run --key stale --ttl 1h --stale 1h -- cat stale.in &&
    [ "$(cat out)" = good ] && grep -q 'exit status 1: serving the result' err
}
check "a stale result is served, with a note, when the command fails" stale

forced() {
  status 0 "$CORRAL" run --key force -- sh -c 'echo run >>force.runs' &&
    status 0 "$CORRAL" run --key force --force -- sh -c 'echo run >>force.runs' &&
    lines 2 force.runs
}
check "--force runs the command again" forced

# ---- deadlines ----

mkfifo own.gate
own_at_deadline() {
  "$CORRAL" run --key own -- sh -c 'echo run >own.runs; read go <own.gate; echo theirs' \
    >own.out 2>/dev/null &
  await lines 1 own.runs &&
    status 0 "$CORRAL" run --key own --wait 50ms --at-deadline compute -- echo mine &&
    [ "$(cat out)" = mine ]
  got=$?
  echo go >own.gate
  wait
  [ $got -eq 0 ] && [ "$(cat own.out)" = theirs ] &&
    status 0 "$CORRAL" run --key own -- echo never && [ "$(cat out)" = theirs ]
}
check "--at-deadline compute runs it beside the run it waited for, whose result alone is kept" \
  own_at_deadline

mkfifo soft.gate
soft() {
  status 0 "$CORRAL" run --key soft --ttl 1h --stale-if-error 1h -- echo old &&
    status 0 "$CORRAL" expire soft
  "$CORRAL" run --key soft --ttl 1h -- sh -c 'echo run >soft.runs; read go <soft.gate; echo new' \
    >soft.out 2>/dev/null &
  await lines 1 soft.runs &&
    status 0 "$CORRAL" run --key soft --stale-if-error 1h --soft 50ms -- echo never &&
    [ "$(cat out)" = old ]
  got=$?
  echo go >soft.gate
  wait
  [ $got -eq 0 ] && [ "$(cat soft.out)" = new ]
}
check "--soft takes a result that serves on errors only, before --wait ends" soft

if_error() {
  status 0 "$CORRAL" run --key sie --ttl 1h --stale-if-error 1h -- echo good &&
    status 0 "$CORRAL" expire sie &&
    status 0 "$CORRAL" run --key sie --stale-if-error 1h -- false && [ "$(cat out)" = good ]
}
check "--stale-if-error serves an old result when the command fails" if_error

# ---- tags, versions and other properties of a result ----

# kept KEY TEXT: a run of KEY is answered TEXT, from the store.
kept() {
  status 0 "$CORRAL" run --key "$1" --ttl 1h --stale 1h -- echo again && [ "$(cat out)" = "$2" ]
}

tagged() {
  status 0 "$CORRAL" run --key t1 --tag news --ttl 1h -- echo one &&
    status 0 "$CORRAL" run --key t2 --tag de --tag news --ttl 1h -- echo two &&
    status 0 "$CORRAL" run --key t3 --tag de --ttl 1h -- echo three && kept t1 one && kept t2 two &&
    status 0 "$CORRAL" invalidate --tag news && kept t1 again && kept t2 again && kept t3 three
}
check "invalidate --tag voids all results with that tag, and no others" tagged

tag_and_key() {
  status 0 "$CORRAL" run --key t4 --tag x --ttl 1h -- echo four &&
    status 0 "$CORRAL" run --key t5 --tag y --ttl 1h -- echo five &&
    status 0 "$CORRAL" set t6 six && status 0 "$CORRAL" invalidate --tag x t6 --tag y &&
    kept t4 again && kept t5 again && status 1 "$CORRAL" get t6
}
check "tags and keys are invalidated in one call" tag_and_key

mkfifo during.gate
tagged_meanwhile() {
  "$CORRAL" run --key during --tag during --ttl 1h -- \
    sh -c 'echo run >during.runs; read go <during.gate; echo early' >during.out 2>/dev/null &
  await lines 1 during.runs && status 0 "$CORRAL" invalidate --tag during
  echo go >during.gate
  wait
  [ "$(cat during.out)" = early ] && kept during again
}
check "a run under way whose tag is invalidated is answered to its caller and not kept" \
  tagged_meanwhile

tagged_failure() {
  status 1 "$CORRAL" run --key tf --tag tf --cache-failures 1h -- false &&
    status 1 "$CORRAL" run --key tf -- echo never && status 0 "$CORRAL" invalidate --tag tf &&
    kept tf again
}
check "a kept failure goes with its tag as well" tagged_failure

tag_expired() {
  status 0 "$CORRAL" run --key te --tag te --ttl 1h --stale 1h -- echo old &&
    status 0 "$CORRAL" expire --tag te &&
    status 0 "$CORRAL" run --key te --tag te --ttl 1h --stale 1h -- false &&
    [ "$(cat out)" = old ] && grep -q 'serving the result' err &&
    status 0 "$CORRAL" invalidate te && kept te again
}
check "expire --tag ends fresh lives and leaves the grace" tag_expired

all() {
  export CORRAL_NAMESPACE=all
  status 0 "$CORRAL" --generation run --key a1 --ttl 1h -- echo one &&
    status 0 "$CORRAL" --generation run --key a2 --ttl 1h --stale 1h -- echo two &&
    status 0 "$CORRAL" --generation run --key a1 -- echo again && [ "$(cat out)" = one ] &&
    status 0 "$CORRAL" --generation expire --all &&
    status 0 "$CORRAL" --generation run --key a2 --ttl 1h --stale 1h -- false &&
    [ "$(cat out)" = two ] && status 0 env CORRAL_GENERATION=1 "$CORRAL" invalidate --all &&
    status 0 "$CORRAL" --generation run --key a1 -- echo again && [ "$(cat out)" = again ] &&
    status 1 "$CORRAL" --generation run --key a2 --ttl 1h -- false
  got=$?
  unset CORRAL_NAMESPACE
  return $got
}
check "expire --all and invalidate --all reach every value of a namespace with --generation" all

cat >page <<'END'
#!/bin/sh
echo run >>page.runs
if [ -n "${CORRAL_OLD_FD:-}" ]; then
  cat <&"$CORRAL_OLD_FD" >page.old
  "$CORRAL" run --key inner.$$ --unmodified-exit 4 -- \
    sh -c 'echo "${CORRAL_OLD_FD-none}"' >page.inner
  [ "$(cat page.state)" = same ] && { echo not this; exit 4; }
fi
echo "page $(wc -l <page.runs)"
END
chmod +x page
unmodified() {
  "$CORRAL" run --key page --ttl 1h --stale 1h --tag page --value-version 5 \
    --unmodified-exit 4 -- ./page >out 3<page 4<page 5<page
}
page_is() { [ "$(cat out)" = "$1" ]; }
not_modified() {
  export CORRAL
  echo same >page.state
  unmodified && page_is "page 1" && status 0 "$CORRAL" expire page && unmodified &&
    page_is "page 1" && [ "$(cat page.old page.inner)" = "page 1
none" ] &&
    lines 2 page.runs && status 0 "$CORRAL" inspect page && grep -q '^state *fresh' out &&
    grep -q '^version *5' out && kept page "page 1" && echo new >page.state &&
    status 0 "$CORRAL" expire --tag page && unmodified && page_is "page 3" &&
    [ "$(cat page.old)" = "page 1" ]
}
check "a command that gets the old result may say that it still holds, and its life begins anew" \
  not_modified

nothing_old() {
  status 4 "$CORRAL" run --key nothing.old --unmodified-exit 4 -- \
    sh -c 'echo "${CORRAL_OLD_FD-none}"; exit 4' && [ "$(cat out)" = none ] &&
    status 3 "$CORRAL" run --key failed.old --cache-failures 1h --unmodified-exit 4 -- \
      sh -c 'exit 3' && status 0 "$CORRAL" expire failed.old &&
    status 0 "$CORRAL" run --key failed.old --unmodified-exit 4 -- \
      sh -c 'echo "${CORRAL_OLD_FD-none}"' && [ "$(cat out)" = none ]
}
check "without an old good result that is a failure like any other" nothing_old

large_old() {
  status 0 "$CORRAL" run --key large.old --ttl 1h --stale 1h --compress 1k -- cat noise.bin &&
    status 0 "$CORRAL" expire large.old &&
    status 0 "$CORRAL" run --key large.old --ttl 1h --stale 1h --unmodified-exit 4 -- \
      sh -c 'cmp - noise.bin <&$CORRAL_OLD_FD && exit 4' && cmp -s out noise.bin
}
check "an old result of any size is handed over and served byte for byte" large_old

mkfifo pass.gate
pass() {
  status 9 "$CORRAL" run --key pass --pass-exit 9 -- sh -c 'echo mine; exit 9' &&
    [ "$(cat out)" = mine ] && status 0 "$CORRAL" inspect pass &&
    grep -q '^state *pass' out || return 1
  for i in 1 2; do
    "$CORRAL" run --key pass --pass-exit 9 -- \
      sh -c 'echo run >>pass.runs; read go <pass.gate; echo "own $0"; exit 9' $i \
      >pass.$i.out 2>/dev/null &
  done
  await lines 2 pass.runs && echo go >pass.gate
  wait
  [ "$(cat pass.1.out pass.2.out)" = "own 1
own 2" ]
}
check "--pass-exit keeps a result for its caller, and lets the others run in parallel" pass

mkfifo passing.gate
pass_while_waiting() {
  "$CORRAL" run --key passing --pass-exit 9 -- \
    sh -c 'echo run >passing.runs; read go <passing.gate; echo first; exit 9' \
    >passing.1.out 2>/dev/null &
  await lines 1 passing.runs
  "$CORRAL" -v run --key passing --pass-exit 9 -- sh -c 'echo second; exit 9' \
    >passing.2.out 2>passing.2.err &
  await waiting 1 passing && echo go >passing.gate
  wait
  [ "$(cat passing.1.out passing.2.out)" = "first
second" ]
}
check "who waited for such a run makes his own" pass_while_waiting

compressed() {
  status 0 "$CORRAL" run --key zip --compress 64k --ttl 1h -- head -c 300000 /dev/zero &&
    status 0 "$CORRAL" run --key zip -- echo never && [ "$(wc -c <out)" -eq 300000 ] &&
    [ "$(tr -d '\0' <out | wc -c)" -eq 0 ] &&
    status 0 "$CORRAL" inspect zip && grep -q '^size *300028 bytes ([0-9]\{1,4\} as stored)' out &&
    status 0 "$CORRAL" run --key unzip --compress 1m --ttl 1h -- head -c 300000 /dev/zero &&
    status 0 "$CORRAL" inspect unzip && grep -q '^size *300028 bytes (300[0-9]* as stored)' out
}
check "--compress stores what is large enough in less room" compressed

versions() {
  status 0 "$CORRAL" run --key version --ttl 1h --stale 1h --value-version 7 -- echo seven &&
    status 0 "$CORRAL" inspect version && grep -q '^version *7$' out &&
    status 0 "$CORRAL" --json inspect version && grep -q '"version":7,' out &&
    status 0 "$CORRAL" expire version &&
    status 0 "$CORRAL" -v run --key version --ttl 1h --stale 1h --value-version 6 -- echo six &&
    [ "$(cat out)" = six ] && grep -q 'not kept: what is stored has a later version' err &&
    kept version seven
}
check "a result never replaces one of a later --value-version" versions

# ---- ends that leave no result ----

killed() {
  status 137 "$CORRAL" run --key killed --cache-failures 0 -- \
    sh -c 'echo run >>killed.runs; kill -9 $$' && grep -q 'signal 9' err &&
    status 137 "$CORRAL" run --key killed --cache-failures 0 -- \
      sh -c 'echo run >>killed.runs; kill -9 $$' && lines 2 killed.runs
}
check "a command ended by a signal answers 128+N and is not kept" killed

mkfifo limit.gate
limit() {
  status 124 "$CORRAL" run --key limit --compute 200ms -- \
    sh -c 'echo $$ >limit.pid; trap "" TERM; read go <limit.gate' &&
    grep -q 'longer than 200ms' err && gone "$(cat limit.pid)"
}
check "a command that outlives --compute is killed, also when it ignores SIGTERM" limit

mkfifo wait.gate
wait_limit() {
  "$CORRAL" run --key wait -- sh -c 'echo run >wait.runs; read go <wait.gate; echo late' \
    >wait.out 2>/dev/null &
  await lines 1 wait.runs && status 124 "$CORRAL" run --key wait --wait 50ms -- echo never
  got=$?
  echo go >wait.gate
  wait
  [ $got -eq 0 ] && [ "$(cat wait.out)" = late ]
}
check "--wait ends a wait with 124 and leaves the run alone" wait_limit

check "a command that is not found answers 127" status 127 "$CORRAL" run -- ./no-such-command
check "a command that can't be executed answers 126" status 126 "$CORRAL" run -- "$dir"

mkfifo term.gate
forwarded() {
  "$CORRAL" run --key term -- \
    sh -c 'trap "echo term >term.seen; exit 0" TERM; echo run >term.runs; read go <term.gate' &
  pid=$!
  await lines 1 term.runs && kill -TERM $pid
  wait $pid 2>/dev/null
  [ $? -eq 143 ] && lines 1 term.seen && status 1 "$CORRAL" get term
}
check "SIGTERM is handed on to the command, reported, and nothing is kept" forwarded

mkfifo lead.gate
cat >lead <<'END'
#!/bin/sh
if [ -e lead.pids ]; then echo second; exit 0; fi
sh -c 'echo $$ >>lead.inner; read go <lead.gate' &
echo $$ >>lead.pids
wait
END
chmod +x lead
leader_killed() {
  "$CORRAL" run --key lead -- ./lead >/dev/null 2>&1 &
  leader=$!
  await lines 1 lead.pids && await lines 1 lead.inner
  "$CORRAL" -v run --key lead -- ./lead >lead.1.out 2>lead.1.err &
  second=$!
  await waiting 1 lead && kill -9 $leader
  wait $second && [ "$(cat lead.1.out)" = second ] && await gone "$(cat lead.pids)" &&
    await gone "$(cat lead.inner)"
}
check "a leader killed with SIGKILL is replaced, and its command's processes are gone" leader_killed

large() {
  "$CORRAL" run --key large --cache-failures 1h -- head -c 1073741824 /dev/zero >large.out 2>err
  [ $? -eq 0 ] && [ "$(wc -c <large.out)" -eq 1073741824 ] &&
    [ "$(tr -d '\0' <large.out | wc -c)" -eq 0 ]
}
if [ "$(df -Pk "$dir" | awk 'NR==2 {print $4}')" -gt 2500000 ]; then
  check "1 GiB of output reaches whoever ran the command" large
  rm -f large.out
  check "the others are told that it is too large" \
    status 125 "$CORRAL" run --key large --cache-failures 1h -- true
else
  skip "1 GiB of output reaches whoever ran the command" "less than 2.5 GB free in $dir"
fi

# ---- keys ----

# The same command in another context is another key: each run adds a line to env.runs.
env_key() {
  A=1 status 0 "$CORRAL" run --env A -- sh -c 'echo run >>env.runs; echo "$A"' &&
    [ "$(cat out)" = 1 ] &&
    A=2 status 0 "$CORRAL" run --env A -- sh -c 'echo run >>env.runs; echo "$A"' &&
    [ "$(cat out)" = 2 ] &&
    A=1 status 0 "$CORRAL" run --env A -- sh -c 'echo run >>env.runs; echo "$A"' &&
    [ "$(cat out)" = 1 ] && lines 2 env.runs
}
check "--env makes a variable part of the key" env_key

cwd_key() {
  mkdir one two
  (cd one && "$CORRAL" run --cwd -- sh -c 'basename "$PWD"') >out1
  (cd two && "$CORRAL" run --cwd -- sh -c 'basename "$PWD"') >out2
  [ "$(cat out1 out2 | tr '\n' ' ')" = "one two " ]
}
check "--cwd makes the working directory part of the key" cwd_key

modtime_key() {
  echo a >mod.in
  status 0 "$CORRAL" run --modtime mod.in -- cat mod.in && [ "$(cat out)" = a ] &&
    echo bb >mod.in && status 0 "$CORRAL" run --modtime mod.in -- cat mod.in &&
    [ "$(cat out)" = bb ]
}
check "--modtime makes a file's state part of the key" modtime_key

argv_key() {
  status 0 "$CORRAL" run -- printf '%s.' 'a b' && [ "$(cat out)" = 'a b.' ] &&
    status 0 "$CORRAL" run -- printf '%s.' a b && [ "$(cat out)" = 'a.b.' ]
}
check "arguments are told apart in the default key" argv_key

# ---- the ladder, the store away, limits ----

# No server listens at this port.
nowhere=redis://127.0.0.1:9
if "$CORRAL" --store $nowhere get k 2>&1 | grep -q 'no store plugin'; then
  nowhere=memcached://127.0.0.1:9
fi

away_run() {
  status 0 "$CORRAL" --store $nowhere run --key a -- echo ran && [ "$(cat out)" = ran ] &&
    lines 1 err && grep -q "going on without the store" err
}
check "while the store is away the command runs, and that is said once" away_run

away_fail() {
  status 125 "$CORRAL" --store $nowhere run --key a --away error -- sh -c 'echo run >>away.runs' &&
    [ ! -e away.runs ] && grep -q "can't connect" err
}
check "--away error does not run it" away_fail

# Each run writes "begin" and "end"; overlap FILE: two were under way at once.
script='echo begin >>"$1"; sleep 0.05; echo end >>"$1"'
overlap() { awk '/begin/ { n++ } /end/ { n-- } n > 1 { bad = 1 } END { exit !bad }' "$1"; }

mkdir host
export CORRAL_HOST_DIR="$PWD/host"
host_elects() {
  for i in 1 2 3 4 5 6; do
    "$CORRAL" -q --store $nowhere run --key h -- sh -c "$script" sh host.runs >/dev/null 2>&1 &
  done
  wait
  lines 12 host.runs && ! overlap host.runs
}
check "while the store is away a host runs one at a time" host_elects

no_host_lock() {
  status 0 "$CORRAL" --no-host-lock --store $nowhere run --key n -- true &&
    rm -f host/corral.lock &&
    CORRAL_NO_HOST_LOCK=1 status 0 "$CORRAL" --store $nowhere run --key n -- true &&
    [ ! -e host/corral.lock ]
}
check "--no-host-lock takes no lock" no_host_lock

bad_host_dir() {
  CORRAL_HOST_DIR=/dev/null status 0 "$CORRAL" --store $nowhere run --key b -- echo ran &&
    [ "$(cat out)" = ran ] &&
    [ "$(grep -c "without the host's lock: the lock file in /dev/null" err)" -eq 1 ]
}
check "a folder that can't hold the lock is named once, and the command runs" bad_host_dir
unset CORRAL_HOST_DIR

fleet_limit() {
  for i in 1 2 3 4 5; do
    "$CORRAL" run --key f$i --fleet-max 1 --origin db -- sh -c "$script" sh fleet.runs &
  done
  wait
  lines 10 fleet.runs && ! overlap fleet.runs
}
check "--fleet-max 1 runs commands of other keys one after another" fleet_limit

nested() {
  status 125 "$CORRAL" run --key k -- "$CORRAL" run --key k -- true &&
    grep -q "would wait for itself" err
}
check "a run inside of its own key's run is refused" nested

deeper() {
  status 125 "$CORRAL" run --key k1 -- "$CORRAL" run --key k2 -- "$CORRAL" run --key k1 -- true &&
    grep -q "would wait for itself" err
}
check "and so it is at any depth" deeper

other_key() {
  status 0 "$CORRAL" run --key o1 -- "$CORRAL" run --key o2 -- echo inner &&
    [ "$(cat out)" = inner ] &&
    status 0 "$CORRAL" run --key o3 -- "$CORRAL" --namespace other run --key o3 -- echo inner &&
    [ "$(cat out)" = inner ]
}
check "another key, or another namespace, is not" other_key

# ---- get, set, invalidate, expire, inspect ----

set_get() {
  "$CORRAL" set bin <noise.bin && status 0 "$CORRAL" get bin && cmp -s out noise.bin &&
    "$CORRAL" set word --ttl 1h hello && status 0 "$CORRAL" get word && [ "$(cat out)" = hello ] &&
    printf dash | "$CORRAL" set dash - && status 0 "$CORRAL" get dash && [ "$(cat out)" = dash ]
}
check "set and get move raw bytes" set_get
check "get answers 1 for what is not there" status 1 "$CORRAL" get nothing

voided() {
  status 0 "$CORRAL" invalidate bin word && status 1 "$CORRAL" get bin &&
    status 1 "$CORRAL" get word
}
check "invalidate voids every key it is given" voided

# A key with blanks that was meant as a command: what isn't there is told, and how it is named.
meant_as_command() {
  status 0 "$CORRAL" run -- echo hinted && status 0 "$CORRAL" invalidate 'echo hinted' &&
    lines 1 err && grep -qF "nothing is stored of the key 'echo hinted'" err &&
    grep -qF 'corral invalidate -- echo hinted' err && kept_run &&
    status 0 "$CORRAL" expire 'echo hinted' && grep -qF 'corral expire -- echo hinted' err &&
    status 0 "$CORRAL" -q invalidate 'echo hinted' && [ ! -s err ] &&
    status 0 "$CORRAL" invalidate absent && [ ! -s err ] &&
    "$CORRAL" set 'a b' c && status 0 "$CORRAL" invalidate 'a b' && [ ! -s err ] &&
    status 1 "$CORRAL" get 'a b' && status 0 "$CORRAL" invalidate -- echo hinted &&
    [ ! -s err ] && status 1 "$CORRAL" get -- echo hinted
}
kept_run() { status 0 "$CORRAL" get -- echo hinted && [ "$(cat out)" = hinted ]; }
check "invalidate of a command's text says that nothing is there, and how to name it" \
  meant_as_command

expired() {
  "$CORRAL" set old --ttl 1h --stale 1h x && status 0 "$CORRAL" expire old &&
    status 0 "$CORRAL" inspect old && grep -q '^state *stale' out
}
check "expire ends the fresh life and leaves the grace" expired

inspected() {
  "$CORRAL" set look --ttl 1h four && status 0 "$CORRAL" inspect look &&
    grep -q '^state *fresh' out && grep -q '^size *4 bytes' out
}
check "inspect shows state and size" inspected

# The text of the failure clears the screen; the store's message and this process's have it.
foreign_text() {
  name=$(printf 'no\033[2Jsuch\302\233\377')
  shown='no\x1b[2Jsuch\xc2\x9b\xff'
  replayed='no?[2Jsuch\xc2\x9b\xff'
  status 127 "$CORRAL" run --key hostile --cache-failures 1h -- "$name" && grep -qF "$shown" err &&
    ! LC_ALL=C grep -q "$(printf '[\033\377]')" err &&
    status 127 "$CORRAL" run --key hostile -- true && grep -qF "$replayed" err &&
    ! LC_ALL=C grep -q "$(printf '[\033\377]')" err &&
    status 0 "$CORRAL" inspect hostile &&
    grep -qF "failure    command not found: $shown (code" out &&
    ! LC_ALL=C grep -q "$(printf '[\033\377]')" out &&
    status 0 "$CORRAL" --json inspect hostile &&
    grep -qF '"failure":"command not found: no\u001b[2Jsuch\u009b\u00ff",' out &&
    status 1 "$CORRAL" get "$name" && grep -qF "corral: $shown: " err
}
check "no text of others reaches the terminal as it is" foreign_text

apart() {
  "$CORRAL" --namespace n set apart x && status 1 "$CORRAL" get apart &&
    CORRAL_NAMESPACE=n status 0 "$CORRAL" get apart
}
check "--namespace and CORRAL_NAMESPACE keep keys apart" apart

mkfifo hold.gate
holder() {
  "$CORRAL" run --key hold -- sh -c 'echo run >hold.runs; read go <hold.gate' &
  await lines 1 hold.runs && status 0 "$CORRAL" inspect hold && cp out hold.seen
  echo go >hold.gate
  wait
  grep -q "^lease *[^ ]*/[0-9]*, .* left" hold.seen
}
check "inspect shows who holds the lease" holder

if command -v python3 >/dev/null 2>&1 && python3 -c pass 2>/dev/null; then
  json_inspect() {
    key=$(printf 'q"\\\n\377\303\251')
    "$CORRAL" set "$key" v && status 0 "$CORRAL" --json inspect "$key" &&
      python3 -c 'import json
o = json.load(open("out", encoding="utf-8"))
assert o["key"] == "q\"\\\n\u00ff\u00e9", o
assert o["state"] == "fresh" and o["size"] == 1, o'
  }
  check "inspect --json is JSON for any key" json_inspect
else
  skip "JSON is valid" "no python3"
fi

# ---- wrong use ----

# refuses TEXT ARGUMENT...: exit status 125 and one line on stderr that contains TEXT.
refuses() {
  text=$1
  shift
  status 125 "$CORRAL" "$@" && lines 1 err && [ ! -s out ] && grep -qF -e "$text" err && return 0
  echo "# stderr: $(cat err)"
  return 1
}
check "an unknown subcommand is named, with those accepted" \
  refuses "'fetch': accepted are run, get" fetch
check "no subcommand is reported" refuses "no subcommand" -q
check "an unknown option is named, with the one that is meant" \
  refuses "'--tll': did you mean --ttl?" run --tll 5s -- true
check "an unknown global option is named" \
  refuses "'--stor3': did you mean --store?" --stor3 x get y
check "an option without its value is named" refuses "'--ttl' needs a value" run --ttl
seconds() {
  "$CORRAL" run --key sec --ttl 300 --stale 0.2 --stale-if-error 1h30m -- true &&
    "$CORRAL" inspect sec >out && grep -q '^ttl  *[23][0-9.]*[0-9.]s$\|^ttl  *[45]m$' out &&
    grep -q '^swr  *200ms' out && grep -q '^sie  *90m' out
}
check "a duration without a unit is in seconds" seconds
absent_from_stderr() { # WORD
  ! grep -q -e "$1" err
}

check "a duration with an unknown unit is refused" \
  refuses "'5y' is no duration" run --ttl 5y -- true
check "a duration out of range is refused with the range" \
  refuses "accepted: 50ms to 1h" run --lease 2h -- true
explain() {
  status 0 env -u HOME -u CORRAL_STORE \
    "$CORRAL" explain ttl=90 stale=10m lease_ms=60000 jitter=off &&
    grep -q '^A value is fresh for 90s\.$' out && grep -q '^For 10m after that' out &&
    grep -q '^warning: lease_ms (1m)' out && [ ! -s err ] &&
    grep -qxF 'Set: ttl=90s stale=10m jitter=off lease=1m.' out
}
check "explain says what a policy does, and warns" explain
check "explain names the option that is meant" \
  refuses "'stael': did you mean 'stale'?" explain stael=5
# Each line of a recipe, up to its "and" for a corral's options, makes sense.
recipes() {
  sed -n '/^## Three recipes/,/^<!--/s/^\(ttl=.*\)/\1/p' "$docs/options.md" |
    sed 's/ *and .*//' >recipes.txt
  lines 3 recipes.txt || return 1
  while read -r recipe; do
    # shellcheck disable=SC2086 # words
    "$CORRAL" explain $recipe >out 2>err && ! grep '^warning' out || return 1
  done <recipes.txt
}
check "the recipes of docs/options.md make sense" recipes
check "explain wants a value" refuses "'ttl' is not accepted: NAME=VALUE is" explain ttl
check "explain names the range" \
  refuses "ttl_ms: 'off' is no duration; accepted: 1ms to 3650d" explain ttl_ms=off
check "an unknown --away is refused" \
  refuses "accepted: compute|stale|error" run --away maybe -- true
check "--fleet-max out of range is refused" refuses "1 to 256" run --fleet-max 0 -- true
check "--origin alone is refused" refuses "give that too" run --origin db -- true
check "a missing command is reported" refuses "no command given" run --ttl 5s
check "an unknown --at-deadline is refused" \
  refuses "accepted: error|compute" run --at-deadline never -- true
check "--soft without a result to take is refused" \
  refuses "give --stale-if-error" run --soft 1s --stale 1h -- true
check "a size that is none is refused" \
  refuses "'4x' is no size; accepted: off, 1 to 512m" run --compress 4x -- true
check "a size out of range is refused" refuses "'1g' is out of range" run --compress 1g -- true
check "an empty tag is refused" refuses "1 to 200 are" run --tag "" -- true
check "a long tag is refused" \
  refuses "a tag of 201 bytes is not accepted" run --tag "$(printf '%0201d' 0)" -- true
check "a tag too many is refused" refuses "at most 16" run $(seq -f '--tag %g' 17) -- true
check "a tag that the library refuses is named" \
  refuses "--tag 0000" invalidate --tag "$(printf '%0201d' 0)"
check "a version that is none is refused" \
  refuses "a whole number, 1 to" run --value-version 1.2 -- true
check "--pass-exit 0 is refused" refuses "1 to 255" run --pass-exit 0 -- true
check "--unmodified-exit out of range is refused" \
  refuses "1 to 255" run --unmodified-exit 256 -- true
check "one exit status can't say two things" \
  refuses "are both 4" run --unmodified-exit 4 --pass-exit 4 -- true
check "--all without --generation is refused" refuses "generation" invalidate --all
check "expire --all as well" refuses "generation" expire --all
check "--all and a key exclude each other" \
  refuses "can't be combined" --generation invalidate --all k
check "invalidate of nothing is refused" \
  refuses "no KEY given, nor -- CMD, --tag or --all" invalidate
check "--key and --env exclude each other" \
  refuses "can't be combined with --env" run --key k --env A -- true
check "a missing key is reported" refuses "no KEY given" get
check "an argument too many is named" refuses "'b' is one argument too many" get a b
check "a bad store URI is named" refuses "--store: store URI 'nonsense'" --store nonsense get k
check "a password is not told" refuses 'u:***@h' --store redis://u:secret@h:99999 get k
check "nor anywhere in what is said" absent_from_stderr secret
check "an unknown store is named" refuses "nostore:" --store nostore:x get k
check "an unknown storm mode is named" refuses "'fast' is not accepted" storm --mode fast

foreign() {
  "$CORRAL" set foreign x && refuses "is no result of corral run" run --key foreign -- true
}
check "a value that is no result of a run is refused" foreign

no_store() {
  status 0 "$CORRAL" --store "lmdb:/proc/no/store" run --key away -- echo ran &&
    [ "$(cat out)" = ran ]
}
check "the command runs when the store can't be opened" no_store

keys() {
  status 0 "$CORRAL" key users:42 && [ "$(cat out)" = ":users:42" ] &&
    status 0 "$CORRAL" --namespace users key 42 && [ "$(cat out)" = "users:42" ] &&
    status 0 "$CORRAL" --namespace a:b key --variant de x:y &&
    [ "$(cat out)" = "~variant:a%3Ab:de:x:y" ] &&
    status 0 "$CORRAL" key --tag blue && [ "$(cat out)" = "~tag::blue" ] &&
    status 0 "$CORRAL" key --lock deploy && [ "$(cat out)" = "~lock::deploy" ] &&
    status 0 "$CORRAL" key "$(printf 'a\\b\033')" && [ "$(cat out)" = 'a\x5cb\x1b' ] &&
    status 0 "$CORRAL" --json key a:b && [ "$(cat out)" = '{"name":"a:b","key":":a:b"}' ] &&
    refuses "one of them is accepted" key --tag --lock x && refuses "no NAME" key &&
    refuses "one argument too many" key x y
}
check "key prints the stored form of a value, a variant, a tag and a lock" keys

helps() {
  for sub in "" run get set invalidate expire inspect key explain lock warm storm doctor \
    stat top flights log completion; do
    status 0 "$CORRAL" $sub --help && awk 'length > 80 {bad = 1} END {exit bad || NR > 24}' out ||
      return 1
  done
}
check "each --help fits 80 columns and 24 lines" helps

exit $failed
