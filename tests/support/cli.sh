# cli.sh: functions shared by the scripts that test the command. They source it:
# `. "$(dirname "$0")/support/cli.sh"`.
# It makes a folder, goes there, and removes it at the end, after the script's own `finish`.
# A case prints "ok - sentence", or "not ok - sentence" and sets $failed to 1.
set -u

: "${CORRAL:?CORRAL must be the path of the corral command}"
dir=$(mktemp -d "${TMPDIR:-/tmp}/corral-cli.XXXXXX") || exit 1
finish() { :; }
servers= # process ids of redis_begin
# shellcheck disable=SC2086 # words
end_servers() { [ -z "$servers" ] || kill -9 $servers 2>/dev/null; }
trap 'finish; end_servers; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP
cd "$dir" || exit 1
failed=0
store= # what the sentences begin with
unset CORRAL_JSON CORRAL_QUIET CORRAL_VERBOSE CORRAL_NAMESPACE CORRAL_GENERATION CORRAL_OP \
  CORRAL_CONTROL \
  CORRAL_OLD_FD CORRAL_LOCK_NAME CORRAL_LOCK_TICKET CORRAL_FENCE CORRAL_RUNNING

# check SENTENCE COMMAND...: the case passes when the command succeeds.
check() {
  sentence="${store:+$store: }$1"
  shift
  if "$@"; then
    echo "ok - $sentence"
  else
    echo "not ok - $sentence"
    failed=1
  fi
}

skip() { echo "ok - $1 # SKIP $2"; }

# status N COMMAND...: the command's exit status is N; its streams are in out and err.
status() {
  wanted=$1
  shift
  "$@" >out 2>err </dev/null
  answer=$?
  [ "$answer" -eq "$wanted" ] && return 0
  echo "# exit status $answer, not $wanted: $*; stderr: $(head -c 300 err)" | head -c 600
  return 1
}

# lines N FILE: the file has N lines.
lines() { [ "$(cat "$2" 2>/dev/null | wc -l)" -eq "$1" ]; }

# await COMMAND...: looks again until the command succeeds; gives up after some 30 s.
await() {
  looks=0
  until "$@"; do
    looks=$((looks + 1))
    [ "$looks" -gt 1500 ] && { echo "# gave up waiting for: $*"; return 1; }
    sleep 0.02
  done
}

# gone PID: the process has ended; it may still be a zombie where process 1 reaps late.
gone() {
  ! kill -0 "$1" 2>/dev/null || sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | grep -q '^[ZX]'
}

# redis_begin NAME [OPTION...]: starts a Redis of this script's own on the socket $dir/NAME; its
# process id is in server. 1: there is no Redis here.
redis_begin() {
  command -v redis-server >/dev/null && command -v redis-cli >/dev/null || return 1
  name=$1
  shift
  deathsig="setpriv --pdeathsig KILL"
  $deathsig true 2>/dev/null || deathsig=
  $deathsig redis-server --port 0 --unixsocket "$dir/$name" --save '' --appendonly no \
    --dir "$dir" "$@" >redis.log 2>&1 &
  server=$!
  servers="$servers $server"
  await redis-cli -s "$dir/$name" PING >redis.out 2>&1 || { cat redis.log; exit 1; }
}

# redis_or_end SUBJECT: redis_begin redis; without a Redis the script ends here, and says so. From
# then on a server that is busy has time to answer.
redis_or_end() {
  redis_begin redis && export CORRAL_OP=5s && return
  skip "$1" "there is no redis-server and redis-cli"
  echo "SKIPPED: $1: there is no redis-server and redis-cli" >&2
  exit $failed
}
