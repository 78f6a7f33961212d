#!/bin/sh
# cli_json_test.sh: with --json the messages of every subcommand are JSON, and say the same as
# without it.
#
# CORRAL is the path of the command.
. "$(dirname "$0")/support/cli.sh"
export CORRAL

if ! command -v python3 >/dev/null; then
  skip "messages are JSON" "there is no python3"
  exit 0
fi

# same PLAIN JSON STATUS: each line of JSON is an object with the text of that line of PLAIN; the
# last one alone has that exit status, unless it is 0.
cat >same.py <<'END'
import json, sys
plain = open(sys.argv[1], "rb").read().decode("utf-8").splitlines()
objects = [json.loads(line) for line in open(sys.argv[2], "rb").read().decode("utf-8").splitlines()]
status = int(sys.argv[3])
objects = [o for o in objects if "how" not in o]
texts = ["corral: " + o["message"] for o in objects]
wanted = [status if status and i + 1 == len(objects) else None for i in range(len(objects))]
ok = texts == plain and [o.get("exit_status") for o in objects] == wanted
ok = ok and all(set(o) <= {"message", "exit_status"} for o in objects)
sys.exit(0 if ok else "differs: %r is not %r, %d" % (objects, plain, status))
END

# tells STATUS ARGUMENT...: that is the exit status with --json and without it, and one message or
# more says so.
tells() {
  wanted=$1
  shift
  status "$wanted" "$CORRAL" "$@" && mv err plain && mv out plain.out &&
    status "$wanted" "$CORRAL" --json "$@" && [ -s plain ] &&
    python3 same.py plain err "$wanted" && [ ! -s plain.out ] && return
  echo "# $*"
  return 1
}

odd=$(printf 'say "hi" \\ \377\303\244\033[1m\302\233')

wrong_use() {
  tells 125 && tells 125 fetch && tells 125 "$odd" && tells 125 inspect &&
    tells 125 run --ttl "$odd" -- true && tells 125 get a b && tells 125 set &&
    tells 125 invalidate --all k && tells 125 expire && tells 125 key && tells 125 explain "$odd" &&
    tells 125 lock --ttl 1y n -- true && tells 125 warm --rate x && tells 125 storm --mode x &&
    tells 125 completion tcsh &&
    tells 125 doctor --locks && tells 125 doctor "redis://h?$odd" &&
    tells 125 --store nothing: inspect k &&
    CORRAL_JSON=1 status 125 "$CORRAL" --bogus && python3 -m json.tool err >json.out
}

failures() {
  printf 'value' | "$CORRAL" set plain && tells 125 run --key plain -- true &&
    tells 127 run --cache-failures 0 -- "./$odd" &&
    tells 126 run --cache-failures 0 -- ./same.py &&
    tells 1 get "$odd" && tells 127 lock n -- "./$odd" &&
    tells 124 run --cache-failures 0 --compute 100ms -- sleep 300 &&
    tells 125 --store redis+unix:///nowhere inspect k &&
    tells 125 doctor redis+unix:///nowhere && tells 125 warm /nowhere/keys -- true &&
    tells 1 --store "lmdb:$dir/$odd" get k
}

busy() {
  "$CORRAL" lock "$odd" -- sh -c 'echo >busy; exec sleep 300' &
  pid=$!
  await [ -e busy ] && status 75 "$CORRAL" --json lock -n "$odd" -- true && lines 1 err &&
    python3 -c 'import json, sys; o = json.load(open("err"))
is_told = o["exit_status"] == 75 and "held by" in o["message"] and 0 < o["left_ms"] <= 10000
sys.exit(0 if is_told else str(o))'
  got=$?
  kill $pid
  wait $pid
  return $got
}

# A message of a corral that goes on has no exit status; a command's own status is not corral's.
notes() {
  status 3 "$CORRAL" -v --json run --key note -- sh -c 'echo it; exit 3' && [ "$(cat out)" = it ] &&
    python3 -c '
import json
objects = [json.loads(line) for line in open("err")]
assert len(objects) > 2
assert all(set(o) == {"message"} for o in objects if "how" not in o), objects
assert [o["exit_status"] for o in objects if "how" in o] == [3], objects' &&
    status 0 "$CORRAL" --json run --key good -- true &&
    python3 -c 'import json; assert json.load(open("err"))["how"] == "computed"'
}

answers() {
  "$CORRAL" set k v && for words in 'inspect k' 'key k' 'lock --show k' 'doctor memory:' \
    "doctor $CORRAL_STORE" "doctor lmdb:$dir/%22%5c%1b%ff"; do
    # shellcheck disable=SC2086
    "$CORRAL" --json $words >out 2>err
    python3 -m json.tool out >json.out && [ ! -s err ] || { echo "# $words"; return 1; }
  done
}

CORRAL_STORE=lmdb:$dir/store
export CORRAL_STORE
check "wrong use" wrong_use
check "failures" failures
check "a lock that somebody else has" busy
check "notes have no exit status" notes
check "answers are JSON, too, and alone" answers
exit $failed
