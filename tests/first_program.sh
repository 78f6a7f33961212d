#!/bin/sh
# first_program.sh FOLDER [FLAG...]: README.md's first C program is compiled and run, twice, by the
# command line in its own head. It runs in FOLDER, which takes the place of /tmp. The FLAGs go to
# the compiler besides.
set -eu
page=$(cd "$(dirname "$0")/.." && pwd)/README.md
folder=$1
shift
flags=$*
cd "$folder"

fail() {
  echo "first_program: $*" >&2
  exit 1
}

# shellcheck disable=SC2086,SC2317 # flags are words; the command line calls this
cc() { command "${CC:-cc}" $flags "$@"; }

sed -n '/^```c$/,/^```$/p' "$page" | sed '/^```/d' >first.c
typed=$(sed -n 's,^ \* \(cc first\.c .*\) \*/$,\1,p' first.c | sed "s,:/tmp/,:$folder/,")
[ -n "$typed" ] || fail "there is no command line in the head of the program"
for want in "asking the database,the row of 42 (computed)," "the row of 42 (fresh),"; do
  out=$(eval "$typed" 2>&1) || fail "failed: $typed: $out"
  out=$(printf '%s\n' "$out" | tr '\n' ,)
  [ "$out" = "$want" ] || fail "it printed '$out', not '$want': $typed"
done
