#!/bin/sh
# routed_test.sh: corral-conformance finds nothing wrong with a store whose servers come and go,
# also while keys move in the middle of batches, and finds each of its copies that break a promise.
# The environment has CONFORMANCE, the program, and CORRAL_PLUGIN_PATH, the folder of the plugin.
set -eu
: "${CONFORMANCE:?}" "${CORRAL_PLUGIN_PATH:?}"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' HUP INT TERM

cat >"$root/move" <<'MOVE'
#!/bin/sh
echo "$1" >>"${0%/*}/moves"
MOVE
chmod +x "$root/move"

fail() {
  cat "$root"/out*
  echo "routed_test: $*"
  exit 1
}

# checks PARAMETERS ARGUMENT...: runs the cases on a store whose keys have not moved yet.
checks() {
  uri=routed:$root/moves$1
  shift
  : >"$root/moves"
  "$CONFORMANCE" "$@" "$uri" >"$root/out" 2>&1
}

routed="a-value-goes-with-its-key a-lease-goes-with-its-key a-batch-some-of-whose-keys-have-moved
 batches-while-keys-move a-key-that-was-moved-is-found-at-once-from-then-on
 a-refresh-learns-where-keys-are a-watch-tells-that-a-key-has-moved
 a-change-after-a-move-is-told"
chosen=
for name in $routed; do chosen="$chosen --case $name"; done

# The cases of one thread beside it, while each third operation moves its key.
alone=
kinds='claim|settle|late|release|verdict|value|renew|owner|thief|second|missing|batch-is'
for name in $("$CONFORMANCE" --list | grep -E "^an?-($kinds)"); do
  alone="$alone --case $name"
done
# shellcheck disable=SC2086
"$CONFORMANCE" $alone "routed:?every=3" >"$root/out3" 2>&1 &
checks "" --move "$root/move" || fail "the store is sound, and a case failed"
for name in $routed; do
  grep -q "^  ok     $name\$" "$root/out" || fail "$name is not ok"
done
wait $! || fail "a case failed while each third operation moves its key"
# A change that a watch may have missed counts as told.
checks "?missed=yes" --move "$root/move" --case a-watch-tells-that-a-key-has-moved ||
  fail "a watch that says host->missed is sound"

# finds DEFECT CASE: the suite fails, in this case.
finds() {
  # shellcheck disable=SC2086
  ! checks "?defect=$1" --move "$root/move" $chosen || fail "$1 was not found"
  grep -q "^  FAIL   $2" "$root/out" || fail "$1: $2 did not fail"
}
finds splits_not a-value-goes-with-its-key
finds splits_not a-batch-some-of-whose-keys-have-moved
finds loses_a_key a-batch-some-of-whose-keys-have-moved
finds does_and_sends_on a-batch-some-of-whose-keys-have-moved
finds learns_nothing a-refresh-learns-where-keys-are
finds learns_nothing a-key-that-was-moved-is-found-at-once-from-then-on
finds keeps_its_watch a-watch-tells-that-a-key-has-moved
finds keeps_its_watch a-change-after-a-move-is-told
echo "a sound store of servers that come and go is found sound, and five unsound ones are not"
