#!/bin/sh
# room_test.sh BUILD: tests tests/room.sh: nothing stays of a run, whether it ends or is killed; and
# each test of the build runs in a room.
set -u
room="$(cd "$(dirname "$0")" && pwd)/room.sh" build=$1
out=$(mktemp -d) || exit 2
runner='' failed=0
trap '[ -z "$runner" ] || kill -9 $runner 2>/dev/null; rm -rf "$out"' EXIT

check() { # SENTENCE COMMAND...
  sentence=$1
  shift
  if "$@"; then echo "ok - $sentence"; else echo "not ok - $sentence"; failed=1; fi
}

await() { # COMMAND...
  looks=0
  until "$@"; do
    looks=$((looks + 1))
    [ "$looks" -le 1500 ] || return 1
    sleep 0.02
  done
}

# Begins a run that lasts until it is killed. $runner: its processes; $folders: its folders.
begin() {
  rm -f "$out/begun"
  sh "$room" sh -c 'touch "$TMPDIR/a" "$CORRAL_SHM/b" &&
    echo $$ "$CORRAL_ROOM" "$CORRAL_SHM" "$CORRAL_HOST_DIR" >"$0.new" && mv "$0.new" "$0" &&
    exec sleep 300' "$out/begun" &
  runner=$!
  await [ -f "$out/begun" ] || return 1
  read -r child folders <"$out/begun"
  runner="$runner $child"
}

end() { # kills the run
  kill -9 $runner 2>/dev/null
  wait 2>/dev/null
  runner=''
}

there() { for folder in $folders; do [ -d "$folder" ] || return 1; done; }
gone() { for folder in $folders; do [ ! -e "$folder" ] || return 1; done; }

ends() {
  sh "$room" sh -c 'touch "$TMPDIR/a" && echo "$CORRAL_ROOM" "$CORRAL_SHM" >"$0"; exit 7' \
    "$out/ended"
  [ $? -eq 7 ] && folders=$(cat "$out/ended") && [ -n "$folders" ] && gone
}
check "the folders of a run are removed at its end, and its status is the command's" ends

killed() { begin && end && there && sh "$room" true && gone; }
check "the folders of a run that was killed are removed by the next one" killed

lives() { begin && sh "$room" true && there && end && sh "$room" true && gone; }
check "the folders of a run that goes on are left alone" lives

fresh() {
  folders=/tmp/corral.$$
  mkdir "$folders" && sh "$room" true && there && rmdir "$folders"
}
check "a folder that its living owner has not locked yet is left alone" fresh

# Prints the names of the tests that are not in a room.
roomless() { # the output of ctest --show-only=json-v1
  python3 -c 'import json, sys
for test in json.load(sys.stdin)["tests"]:
    if test.get("command", [])[1:2] != [sys.argv[1]]: print(test["name"])' "$room"
}

roomed() {
  ctest --test-dir "$build" --show-only=json-v1 >"$out/tests" || return 1
  [ "$(grep -c '"command"' "$out/tests")" -gt 100 ] || return 1
  [ -z "$(roomless <"$out/tests" | tee /dev/stderr)" ]
}
bare() {
  echo '{"tests": [{"name": "bare", "command": ["/bin/true"]}]}' | roomless | grep -qx bare
}
if command -v python3 >/dev/null; then
  check "each test of the build runs in a room" roomed
  check "a test that doesn't is found" bare
else
  echo "SKIPPED: whether each test runs in a room: there is no python3"
fi
exit $failed
