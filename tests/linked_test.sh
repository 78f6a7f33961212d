#!/bin/sh
# linked_test.sh COMMAND FILE...: a command that keeps its results in lmdb: doesn't pay for the
# libraries of other stores, nor for the database of `corral storm`. Neither COMMAND nor a FILE is
# linked with them, and a run maps none.
set -u
command=$1
others='libmemcached|libcurl|libhiredis|libssl|libcrypto|libsqlite3'
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

fail() {
  echo "not ok - $1"
  sed 's/^/# /' "$2"
  failed=1
}

for file in "$@"; do
  case $file in "" | *.a) continue ;; esac
  ldd "$file" >"$dir/ldd" || fail "ldd can't read $file" "$dir/ldd"
  if grep -E "$others" "$dir/ldd" >"$dir/bad"; then
    fail "$file is linked with" "$dir/bad"
  else
    echo "ok - $file"
  fi
done

# The command reads the maps of its parent, which is corral.
"$command" --store "lmdb:$dir/store" run -- sh -c 'cat /proc/$PPID/maps' >"$dir/maps" ||
  fail "the run failed" "$dir/maps"
grep -q 'liblmdb' "$dir/maps" || grep -q "$dir/store" "$dir/maps" ||
  fail "these are not the maps of corral run" "$dir/maps"
if grep -E "$others" "$dir/maps" >"$dir/bad"; then
  fail "corral run on lmdb: maps" "$dir/bad"
else
  echo "ok - corral run on lmdb:"
fi
exit $failed
