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

all() {
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
check "a store of locks takes no orders" of_a_store_of_locks

redis_or_end "orders on Redis"
export CORRAL_STORE="redis+unix://$dir/redis"
store=redis
all
check "what somebody else wrote is no order, and stays" foreign
check "a control record has a TTL" has_a_ttl
exit $failed
