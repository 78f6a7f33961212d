#!/bin/sh
# cli_edges_test.sh: the corral command in odd surroundings: without standard streams, and with
# secrets that others may read.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed.
. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
export TMPDIR
unset CORRAL_STORE CORRAL_PASS_STORE

# ---- without standard streams ----

# closed STREAMS WORD...: runs the command with the descriptors STREAMS closed; its exit status.
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

# A value stays the same while commands print to descriptors whose numbers a store's files and
# sockets could have.
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
if redis_begin redis; then
  CORRAL_STORE=redis+unix://$dir/redis
  export CORRAL_OP=5s # a busy server answers in time
  without_streams
  unset CORRAL_OP
else
  skip "the same on Redis" "there is no redis-server and redis-cli"
  echo "SKIPPED: closed streams on Redis: there is no redis-server and redis-cli" >&2
fi

# ---- secrets ----

store=
CORRAL_STORE=lmdb:$dir/store

silent() { # WORD...: the command's output has no s3cr3t
  "$@" >out 2>err </dev/null
  grep -q s3cr3t out err || return 0
  echo "# $*: $(grep -h s3cr3t out err)"
  return 1
}

unspoken() {
  for uri in redis://u:s3cr3t@h:99999 redis://u:s3cr3t redis://s3cr3t@h redis:/u:s3cr3t@h \
    u:s3cr3t@h 'redis://h?password=s3cr3t' 'redis://h?password_env=s3cr3t'; do
    silent "$CORRAL" -v --store "$uri" get k && silent "$CORRAL" --store "$uri" run -- true &&
      silent "$CORRAL" --store "$uri" explain ttl_ms=1s || return 1
  done
}
check "no message shows the password of a malformed URI" unspoken

misplaced() {
  silent "$CORRAL" redis://u:s3cr3t@h get k && silent "$CORRAL" --stor3=redis://u:s3cr3t@h get k &&
    silent "$CORRAL" --store redis://u:s3cr3t@h:x storm --json &&
    silent "$CORRAL" --store redis://u:s3cr3t@h:x lock name -- true &&
    for url in 'https://u:s3cr3t@h/' 'https://u:a/s3cr3t@h/{key}' 'u:s3cr3t@h' \
      '://u:s3cr3t@h/{key}' 'https://u:s3#cr3t@s3cr3t/{key}' \
      'https://u:s3cr3t@h/{key}#header=Cookie:s3cr3t&max=x' \
      'https://u:s3cr3t@h/{key}#password_env=s3cr3t'; do
      silent "$CORRAL" warm --origin "$url" || return 1
    done
}
check "nor does a message that names a word of the command line" misplaced

# seen_words NAME WORD...: reads the words of the process as others see them, while its command
# waits at the FIFO NAME.gate.
seen_words() {
  name=$1
  shift
  mkfifo "$name.gate"
  "$CORRAL" "$@" -- sh -c 'echo started >>'"$name"'.runs; read go <'"$name"'.gate' >out 2>err &
  pid=$!
  await lines 1 "$name.runs" && tr '\0' '\n' <"/proc/$pid/cmdline" >"$name.words"
  echo go >"$name.gate"
  wait $pid
  grep -q "$name" "$name.words" && ! grep -q s3cr3t "$name.words"
}
scrubbed() {
  seen_words word --store 'redis://u:s3cr3t@127.0.0.1:1' run --key word &&
    grep -q 'redis://u:\*\*\*@127' word.words &&
    seen_words equal --store='redis://u:s3cr3t@127.0.0.1:1' run --key equal
}
check "other users' ps doesn't show the password of --store" scrubbed

handed() { # WANTED WORD...: a command finds WANTED in CORRAL_STORE
  told=$1
  shift
  status 0 "$CORRAL" "$@" -- sh -c 'echo "<$CORRAL_STORE>"' && [ "$(cat out)" = "<$told>" ] &&
    return 0
  echo "# told $told: $(cat out err)"
  return 1
}
own_store() {
  handed withheld run --key kept && handed withheld lock kept &&
    handed "$CORRAL_STORE" --pass-store run --key passed &&
    handed "$CORRAL_STORE" --pass-store lock passed &&
    handed "lmdb:$dir/other" --pass-store --store "lmdb:$dir/other" run --key passed &&
    CORRAL_PASS_STORE=1 handed "$CORRAL_STORE" run --key variable && echo k >keys &&
    status 0 "$CORRAL" warm --exec 'echo "$CORRAL_STORE"' keys && status 0 "$CORRAL" get k &&
    [ "$(cat out)" = withheld ]
}
check "a command isn't told of the store unless --pass-store asks for it" own_store

nested() {
  status 0 "$CORRAL" --pass-store run --key outer -- "$CORRAL" set inner x &&
    status 0 "$CORRAL" get inner && [ "$(cat out)" = x ] &&
    status 125 "$CORRAL" run --key outer2 -- "$CORRAL" set inner2 x &&
    grep -q 'give --store here, or --pass-store there' err &&
    status 0 "$CORRAL" run --key outer3 -- "$CORRAL" --store "$CORRAL_STORE" set inner3 x
}
check "a corral command below uses the same store, or none, but never another one unasked" nested

# ---- passwords from files, descriptors and variables ----

if redis_begin closed --requirepass s3cr3t; then
  unix=redis+unix://$dir/closed
  (umask 077 && echo s3cr3t >pw && printf s3cr3t >bare && echo wrong >wrong && : >empty &&
    echo s3cr3t >open && chmod 644 open && head -c 5000 /dev/zero | tr '\0' x >long &&
    printf 's3\0cr3t' >nul && mkfifo fifo)
  # An operation has 250 ms, which a busy machine may exceed: hence five tries.
  opens() {
    for try in 1 2 3 4 5; do
      status 0 "$CORRAL" --store "$1" set k v && status 0 "$CORRAL" --store "$1" get k && return 0
    done
    return 1
  }
  refused() { # SENTENCE PARAMETER
    status 125 "$CORRAL" --store "$unix?$2" get k && grep -q -e "$1" err && ! grep -q s3cr3t err &&
      return 0
    echo "# $(cat err)"
    return 1
  }
  from_file() {
    opens "$unix?password_file=$dir/pw" && opens "$unix?password_file=$dir/bare" &&
      opens "redis+unix://default@$dir/closed?password_file=$dir/pw"
  }
  check "a password is read from a file" from_file
  wrong_file() {
    refused 'Permission denied\|others may read' "password_file=$dir/open" &&
      refused 'is empty' "password_file=$dir/empty" &&
      refused 'longer than 4096' "password_file=$dir/long" &&
      refused 'NUL' "password_file=$dir/nul" && refused 'No such file' "password_file=$dir/none" &&
      refused 'no regular file' "password_file=$dir/fifo" &&
      refused 'no regular file' "password_file=$dir" && refused WRONGPASS "password_file=$dir/wrong"
  }
  check "a file that is none, or that others may read, is refused" wrong_file
  from_fd() {
    opens "$unix?password_fd=7" 7<pw &&
      { echo s3cr3t | "$CORRAL" --store "$unix?password_fd=0" get k >out 2>err; } &&
      [ "$(cat out)" = v ] && refused 'Bad file' password_fd=8 &&
      refused 'number of a descriptor' password_fd=x &&
      refused 'number of a descriptor' password_fd=-1
  }
  check "a password is read from a descriptor" from_fd
  kept_fd() {
    status 0 "$CORRAL" --store "$unix?password_fd=7" run --key fd -- \
      sh -c 'cat <&7 2>/dev/null || echo closed' 7<pw && [ "$(cat out)" = closed ]
  }
  check "which a command doesn't get" kept_fd
  from_env() {
    PW=s3cr3t opens "$unix?password_env=PW" && refused "isn't set" password_env=NOT_SET &&
      PW= refused 'is empty' password_env=PW
  }
  check "a password is read from a variable" from_env
  one_only() {
    refused 'accepted is one of' "password_env=PW&password_file=$dir/pw" &&
      status 125 \
        "$CORRAL" --store "redis+unix://:s3cr3t@$dir/closed?password_file=$dir/pw" get k &&
      grep -q 'accepted is one of' err
  }
  check "there is one password at most" one_only
else
  skip "passwords from elsewhere" "there is no redis-server and redis-cli"
fi
no_password() {
  status 125 "$CORRAL" --store "lmdb:$dir/p?password_env=PATH" get k &&
    grep -q "unknown parameter 'password_env'" err &&
    status 125 "$CORRAL" --store "memcached://127.0.0.1?password_env=PATH" get k &&
    grep -q -e 'are not supported' -e 'no store plugin' err
}
check "a store without passwords takes none from elsewhere either" no_password

exit $failed
