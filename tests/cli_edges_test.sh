#!/bin/sh
# cli_edges_test.sh: the corral command where its surroundings are odd: without standard streams, and with secrets that others may read.
#
# CORRAL is the path of the command. Prints "ok - sentence" or "not ok - sentence" for each case and exits 1 when one failed.
. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
export TMPDIR
unset CORRAL_STORE

# ---- without standard streams ----

# closed STREAMS WORD...: runs the command with these of 0, 1 and 2 closed; its exit status.
closed() {
  streams=$1
  shift
  case $streams in
    0) "$CORRAL" "$@" <&- >out 2>err ;;
    1) "$CORRAL" "$@" </dev/null >&- 2>err ;;
    2) "$CORRAL" "$@" </dev/null >out 2>&- ;;
    01) "$CORRAL" "$@" <&- >&- 2>err ;;
    12) "$CORRAL" "$@" </dev/null >&- 2>&- ;;
    012) "$CORRAL" "$@" <&- >&- 2>&- ;;
  esac
}

cat >deletes <<'END'
#!/bin/sh
printf 'DEL canary\r\n'
printf 'DEL canary\r\n' >&2
exit 0
END
chmod +x deletes

# A value stays what it was while commands print to the numbers that a store's files and sockets could have.
harmless() { # STREAMS
  status 0 "$CORRAL" set canary alive || return 1
  closed "$1" run --key "run.$1" -- ./deletes
  closed "$1" get canary
  closed "$1" -v set "set.$1" x
  closed "$1" lock "lock.$1" -- ./deletes
  status 0 "$CORRAL" get canary && [ "$(cat out)" = alive ]
}

says_so() { # WORD...
  closed 1 "$@"
  answer=$?
  [ $answer -eq 125 ] && grep -q 'output: Bad file descriptor' err && return 0
  echo "# exit status $answer: $(cat err)"
  return 1
}

without_streams() {
  for streams in 0 1 2 01 12 012; do
    check "what is printed where descriptors $streams are closed reaches no store" harmless $streams
  done
  status 0 "$CORRAL" set said x
  check "output that nobody can read is said to be lost" says_so run --key said.1 -- echo x
  check "as that of a get" says_so get said
}

CORRAL_STORE=lmdb:$dir/store
export CORRAL_STORE
store=lmdb
without_streams

store=redis
if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then
  deathsig="setpriv --pdeathsig KILL"
  $deathsig true 2>/dev/null || deathsig=
  $deathsig redis-server --port 0 --unixsocket "$dir/redis" --save '' --appendonly no --dir "$dir" >redis.log 2>&1 &
  server=$!
  finish() { kill -9 $server 2>/dev/null; }
  await redis-cli -s "$dir/redis" PING >redis.out 2>&1 || { cat redis.log; exit 1; }
  CORRAL_STORE=redis+unix://$dir/redis
  without_streams
else
  skip "the same on Redis" "there is no redis-server and redis-cli"
  echo "SKIPPED: closed streams on Redis: there is no redis-server and redis-cli" >&2
fi

exit $failed
