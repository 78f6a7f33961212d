#!/bin/sh
# cli_control_test.sh: corral control as an operator sees it, on an lmdb: store, and on a Redis of
# its own where there is one.
#
# CORRAL is the path of the command.
. "$(dirname "$0")/support/cli.sh"

# shows TEXT NAMESPACE: corral control NAMESPACE prints a line that begins so.
shows() {
  status 0 "$CORRAL" control "$2" && lines 1 out && [ ! -s err ] &&
    case $(cat out) in "$1"*) return 0 ;; esac
  echo "# $(cat out), not $1"
  return 1
}

# says TEXT: stderr is one line of corral's with that text.
says() {
  lines 1 err && grep -q '^corral: ' err && grep -qF -e "$1" err && return
  echo "# '$1' is not the one line of: $(cat err)"
  return 1
}

gives_and_ends() {
  shows normal shop &&
    status 0 "$CORRAL" control shop freeze && says 'freeze ends by itself in 10m' && [ ! -s out ] &&
    shows 'freeze: compute nothing, and serve stale values; ends in ' shop &&
    status 0 "$CORRAL" control shop limit 4 --for 1h && says 'limit 4 ends by itself in 1h' &&
    shows 'limit 4: ' shop &&
    status 0 "$CORRAL" -q control shop drop-near && [ ! -s err ] && shows 'limit 4: ' shop &&
    status 0 "$CORRAL" -q control --for 90s shop bypass && [ ! -s err ] && shows 'bypass: ' shop &&
    status 0 "$CORRAL" control shop normal && [ ! -s err ] && shows normal shop
}

of_one_namespace() {
  status 0 "$CORRAL" -q control one freeze && shows freeze one && shows normal two &&
    shows normal '' && status 0 "$CORRAL" -q control '' bypass && shows bypass '' &&
    shows freeze one && status 0 "$CORRAL" --namespace one -q control two limit 2 &&
    shows freeze one && shows 'limit 2' two
}

as_json() {
  status 0 "$CORRAL" -q control json limit 7 && status 0 "$CORRAL" --json control json &&
    grep -q '^{"namespace":"json","order":"limit","number":7,"left_ms":[1-9][0-9]*}$' out &&
    status 0 "$CORRAL" --json control none &&
    grep -q '^{"namespace":"none","order":"normal","number":0,"left_ms":0}$' out
}

wrong() {
  status 125 "$CORRAL" control && says 'no NAMESPACE given' &&
    status 125 "$CORRAL" control shop freze && says 'did you mean freeze?' &&
    status 125 "$CORRAL" control shop xyzzy && says 'accepted are bypass, freeze, drop-near' &&
    status 125 "$CORRAL" control shop limit && says 'limit N is accepted' &&
    status 125 "$CORRAL" control shop limit 0 && says 'limit' &&
    status 125 "$CORRAL" control shop freeze 3 && says "'3' is one argument too many" &&
    status 125 "$CORRAL" control shop freeze --for 2d && says '--for' &&
    status 125 "$CORRAL" control shop freeze --for 10ms && says '--for' &&
    status 125 "$CORRAL" control shop normal --for 1m && says '--for' &&
    status 125 "$CORRAL" control --fro 1m shop freeze && says 'did you mean --for?' &&
    shows normal shop
}

ends_by_itself() {
  status 0 "$CORRAL" -q control brief freeze --for 1s && await shows normal brief
}

of_a_store_of_locks() {
  status 125 "$CORRAL" --store sqlite:locks.db control shop freeze && says 'locks only'
}

foreign() {
  redis-cli -s "$dir/redis" SET '~control:foreign:' x >/dev/null &&
    shows normal foreign && status 125 "$CORRAL" control foreign freeze && says 'did not write' &&
    [ "$(redis-cli -s "$dir/redis" GET '~control:foreign:')" = x ]
}

# A record has a TTL, a moment longer than the order at the most.
has_a_ttl() {
  status 0 "$CORRAL" -q control ttl freeze --for 1h || return 1
  left=$(redis-cli -s "$dir/redis" PTTL '~control:ttl:')
  [ "$left" -gt 0 ] && [ "$left" -le 3610000 ] || { echo "# $left ms"; return 1; }
}

doctor_tells() {
  status 0 "$CORRAL" --namespace told -q doctor "$CORRAL_STORE" && ! grep -q ': order ' out &&
    status 0 "$CORRAL" -q control told freeze &&
    status 0 "$CORRAL" --namespace told -q doctor "$CORRAL_STORE" &&
    grep -q ': order freeze, ends in [0-9hms.]*\. Processes with .* corral control' out &&
    status 0 "$CORRAL" --namespace untold -q doctor "$CORRAL_STORE" && ! grep -q ': order ' out
}

# ---- explain ---------------------------------------------------------------------------------

# explains NAMESPACE LINES: corral explain says so many lines of an order there.
explains() {
  status 0 "$CORRAL" --namespace "$1" explain ttl=5m && [ ! -s err ] &&
    grep -q '^A value is fresh for 5m' out &&
    [ "$(grep -c "^An operator's order is in force in namespace $1: " out)" -eq "$2" ]
}
explained() {
  explains rows 0 && status 0 "$CORRAL" -q control rows limit 3 --for 1h && explains rows 1 &&
    grep -q ': limit 3: at most .* in each process; ends in [0-9hms]*\. .* option control ' out &&
    explains another 0 && status 0 "$CORRAL" control rows normal && explains rows 0
}
unknown() {
  status 0 "$CORRAL" --store "redis+unix://$dir/nowhere" explain ttl=5m &&
    grep -q 'fresh for 5m' out &&
    says "whether an operator's order is in force isn't known: " &&
    status 0 "$CORRAL" --store "lmdb:$dir/absent" explain ttl=5m && [ ! -s err ] &&
    [ ! -e absent ] && status 125 "$CORRAL" --store nosuch:x explain ttl=5m && says '--store: '
}

# ---- run ---------------------------------------------------------------------------------------

# runs N TEXT OPTION...: corral run of the key `job`, in the namespace `jobs`, has status N and
# prints TEXT. The command adds a line to $store.runs.
runs() {
  wanted=$1 text=$2
  shift 2
  status "$wanted" "$CORRAL" --namespace jobs run --key job "$@" -- \
    sh -c "echo run >>$store.runs; wc -l <$store.runs | tr -d ' '" && [ "$(cat out)" = "$text" ]
}
frozen() {
  status 0 "$CORRAL" -q control jobs freeze --for 1h && runs 125 '' --control &&
    says "job: not in the store, and an operator's order is in force: freeze: compute nothing" &&
    grep -q 'ends in [0-9hms]*$' err && [ ! -e "$store.runs" ] &&
    (export CORRAL_CONTROL=1 && runs 125 '') && [ ! -e "$store.runs" ] &&
    runs 0 1 --ttl 1ms --stale 1h
}
# is STATE KEY: inspect shows the state.
is() { "$CORRAL" --namespace jobs inspect "$2" | grep -q "^state  *$1"; }
frozen_stale() {
  await is stale job && runs 0 1 --control --stale 1h &&
    says "run: an operator's order is in force, freeze: serving the result of " &&
    runs 0 1 --control --stale 1h && lines 1 "$store.runs"
}
frozen_force() {
  runs 125 '' --control --force && says "job: --force: an operator's order is in force: freeze: " &&
    is stale job && lines 1 "$store.runs"
}
thawed() {
  status 0 "$CORRAL" control jobs normal && runs 0 2 --control --ttl 1h && [ ! -s err ] &&
    runs 0 2 --control --ttl 1h && lines 2 "$store.runs"
}
bypassed() {
  status 0 "$CORRAL" -q control jobs bypass --for 1h && runs 0 3 --control && [ ! -s err ] &&
    runs 0 4 --control && runs 0 2 &&
    status 3 "$CORRAL" --namespace jobs run --control --key job -- sh -c 'echo no; exit 3' &&
    [ "$(cat out)" = no ] && status 0 "$CORRAL" control jobs normal && runs 0 2 --control
}

# ---- warm --------------------------------------------------------------------------------------

seq 4 >keys
# warms N ORDER: corral warm under the order has status N, and computes nothing.
warms() {
  status 0 "$CORRAL" -q control warm "$2" --for 1h &&
    status "$1" "$CORRAL" --namespace warm --json warm --control --patience 0 --wait 1s keys -- \
      sh -c "echo {} >>$store.warmed" && grep -q "an operator's order is in force: $2: " err &&
    grep -q '"exit_status":125' err && grep -q '"computed":0' out && [ ! -e "$store.warmed" ]
}
warm_held() { warms 125 freeze && warms 125 bypass; }
warm_waits() {
  rm -f warm.err
  "$CORRAL" --namespace warm warm --control --patience 1h keys -- \
    sh -c "echo {} >>$store.warmed" 2>warm.err &
  warmer=$!
  await grep -q "^corral: warm: waiting: an operator's order is in force: bypass: " warm.err &&
    [ ! -e "$store.warmed" ] && status 0 "$CORRAL" control warm normal && await gone $warmer ||
    kill -9 $warmer
  wait $warmer && lines 4 "$store.warmed" && grep -q "the operator's order has ended" warm.err
}
warm_fresh() {
  status 0 "$CORRAL" -q control warm freeze &&
    status 0 "$CORRAL" --namespace warm warm --control --patience 0 --wait 30s keys -- false &&
    status 0 "$CORRAL" control warm normal
}
# Each command notes the ones that run beside it.
warm_limited() {
  status 0 "$CORRAL" -q control limited limit 1 --for 1h &&
    status 0 "$CORRAL" --namespace limited warm --control -j 4 keys -- sh -c \
      "mkdir $store.one || echo {} >>$store.beside; sleep 0.1; rmdir $store.one" &&
    [ ! -e "$store.beside" ]
}

all() {
  check "explain tells the order in force of its namespace" explained
  check "frozen, run --control runs nothing, and says why" frozen
  check "frozen, run --control serves a stale result, and says so" frozen_stale
  check "frozen, run --force leaves the result alone" frozen_force
  check "once the order has ended, run runs the command" thawed
  check "under bypass, run --control runs the command and stores nothing" bypassed
  check "under freeze and bypass, warm --control computes nothing, and says so" warm_held
  check "warm --control waits for the end of an order" warm_waits
  check "what is fresh needs no compute: warm is done" warm_fresh
  check "under limit 1, warm --control computes one after the other" warm_limited
  check "an order is given, shown and ended" gives_and_ends
  check "an order is of one namespace" of_one_namespace
  check "with --json the order is an object" as_json
  check "what is no order is refused, and nothing is changed" wrong
  check "an order ends by itself" ends_by_itself
  check "doctor tells the order in force of its namespace" doctor_tells
}

export CORRAL_STORE="lmdb:$dir/db"
store=lmdb
all
if "$CORRAL" --store sqlite:locks.db lock probe -- true 2>err; then
  check "a store of locks takes no orders" of_a_store_of_locks
else
  skip "a store of locks takes no orders" "$(cat err)"
fi
check "explain of a store that can't be asked says so" unknown

redis_or_end "orders on Redis"
export CORRAL_STORE="redis+unix://$dir/redis"
store=redis
all
check "what somebody else wrote is no order, and stays" foreign
check "a control record has a TTL" has_a_ttl

# The number of commands that the server has had, this question among them.
commands() {
  redis-cli -s "$dir/redis" INFO stats | tr -d '\r' | sed -n 's/^total_commands_processed://p'
}
# cost OPTION...: the fewest commands of five runs that find a fresh result.
cost() {
  least=1000
  for _ in 1 2 3 4 5; do
    before=$(commands)
    status 0 "$CORRAL" --namespace cost run "$@" --key k --ttl 1h -- false || return 1
    after=$(commands)
    [ $((after - before)) -ge $least ] || least=$((after - before))
  done
  echo $least
}
one_more() {
  status 0 "$CORRAL" --namespace cost run --key k --ttl 1h -- true && without=$(cost) &&
    with=$(cost --control) && [ "$with" -eq $((without + 1)) ] && return
  echo "# $with commands, $without without --control"
  return 1
}
check "run --control asks the store one question more" one_more
exit $failed
