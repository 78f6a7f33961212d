#!/bin/sh
# conformance_test.sh memory|lmdb|redis|redis_cluster|redis_sentinel|redlock|memcached: runs
# corral-conformance on one store, on servers that the script starts.
# The environment has CONFORMANCE, the program, PLUGINS, those that are loaded or built in, and
# perhaps CORRAL_REDIS_SERVER, another program than redis-server.
# Exit status 77 means skipped.
set -eu
: "${CONFORMANCE:?}" "${PLUGINS:=}"
redis=${CORRAL_REDIS_SERVER:-redis-server}
store=${1:?}
root=$(mktemp -d)
pids=
finish() {
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -9 $pids 2>/dev/null || true
  rm -rf "$root"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
unset CORRAL_PLUGIN_PATH || true

skip() {
  echo "SKIPPED: conformance of $store: $*"
  exit 77
}

has() {
  command -v "$1" >/dev/null 2>&1 || skip "there is no $1 in PATH"
}

# The port is below those that other tests keep for their servers (support/server_process.c), also
# while these are stopped. A server that finds it taken is started on another.
number=$$
random_port() {
  number=$(((number * 1103515245 + 12345) % 2147483648))
  port=$((16000 + number / 8 % 4000))
}

# start NAME ARGUMENT...: starts a server on ports of its own, which replace @ and % (its bus).
start() {
  name=$1
  shift
  for try in 1 2 3 4 5 6 7 8 9 10; do
    random_port
    bus=$port
    random_port
    # shellcheck disable=SC2046
    "$name" $(echo "$*" | sed "s/@/$port/g; s/%/$bus/g") >"$root/log" 2>&1 &
    pid=$!
    if answers; then
      pids="$pids $pid"
      return 0
    fi
    kill -9 $pid 2>/dev/null || true
  done
  cat "$root/log"
  echo "conformance_test: $name doesn't start"
  exit 1
}

# answers succeeds when the server that was just started answers at its port, within 10 s.
answers() {
  for wait in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    sleep 0.1
    kill -0 $pid 2>/dev/null || return 1
    if [ "$scheme" = node ]; then
      # not somebody else's, who has the port that this one is about to find taken
      redis-cli -p "$port" info server 2>/dev/null | grep -q "^process_id:$pid[^0-9]" || continue
      return 0
    fi
    if "$CONFORMANCE" --quiet --case an-absent-key-is-a-miss "$scheme://127.0.0.1:$port" \
      >/dev/null 2>&1; then
      kill -0 $pid 2>/dev/null # else it is somebody else's
      return
    fi
  done
  return 1
}

plugin=$store
case $store in redlock | redis_cluster | redis_sentinel) plugin=redis ;; esac
case " $PLUGINS memory " in *[\ _]"$plugin "*) ;; *) skip "its plugin isn't built" ;; esac
case $store in
  memory) uri=memory: ;;
  lmdb) uri=lmdb:$root/store ;;
  redis)
    has "$redis"
    scheme=redis
    start "$redis" --port @ --bind 127.0.0.1 --save "''" --appendonly no --dir "$root"
    uri=redis://127.0.0.1:$port
    ;;
  redis_cluster)
    has "$redis"
    has redis-cli
    scheme=node
    ports=
    for first in 0 5461 10922; do
      mkdir "$root/$first"
      start "$redis" --port @ --cluster-enabled yes --cluster-port % --bind 127.0.0.1 \
        --save "''" --appendonly no --dir "$root/$first"
      last=$((first + 5460))
      [ $first -lt 10922 ] || last=16383
      redis-cli -p "$port" cluster addslotsrange $first $last >"$root/log"
      redis-cli -p "$port" cluster set-config-epoch $((first + 1)) >"$root/log"
      [ -z "$ports" ] ||
        redis-cli -p "${ports%% *}" cluster meet 127.0.0.1 "$port" "$bus" >"$root/log"
      ports="$ports${ports:+ }$port"
    done
    left=300
    for node in $ports; do
      until redis-cli -p "$node" cluster info | grep -q cluster_state:ok &&
        redis-cli -p "$node" cluster info | grep -q cluster_known_nodes:3; do
        left=$((left - 1))
        [ $left -gt 0 ] || {
          echo "conformance_test: the nodes don't become a cluster"
          exit 1
        }
        sleep 0.1
      done
    done
    uri=redis+cluster://127.0.0.1:${ports%% *}/
    move="sh $(dirname "$0")/support/move_slot.sh $ports"
    ;;
  redis_sentinel)
    has "$redis"
    has redis-cli
    scheme=node
    start "$redis" --port @ --bind 127.0.0.1 --save "''" --appendonly no --dir "$root"
    echo "sentinel monitor main 127.0.0.1 $port 1" >"$root/sentinel.conf"
    start "$redis" "$root/sentinel.conf" --sentinel --port @ --bind 127.0.0.1 --dir "$root"
    uri=redis+sentinel://127.0.0.1:$port/main
    ;;
  redlock)
    has "$redis"
    scheme=redis
    hosts=
    for server in 1 2 3; do
      start "$redis" --port @ --bind 127.0.0.1 --save "''" --appendonly no --dir "$root"
      hosts=$hosts${hosts:+,}127.0.0.1:$port
    done
    uri="redlock://$hosts?server_ms=2s"
    ;;
  memcached)
    has memcached
    scheme=memcached
    user=$(id -un)
    start memcached -U 0 -l 127.0.0.1 -p @ -m 64 -I 32m -u "$user"
    first=$port
    start memcached -U 0 -l 127.0.0.1 -p @ -m 64 -I 32m -u "$user"
    uri="memcached://127.0.0.1:$first,127.0.0.1:$port?max_item=32m"
    ;;
  *)
    echo "conformance_test: unknown store '$store'"
    exit 1
    ;;
esac
"$CONFORMANCE" ${move:+--move "$move"} "$uri"
