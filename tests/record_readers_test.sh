#!/bin/sh
# record_readers_test.sh SOURCE_DIR: the readers in docs/record.md read a record of the corpus.
set -u
source=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0 ran=0

reads() { # LANGUAGE INTERPRETER FILE
  command -v "$2" >/dev/null 2>&1 || { echo "# there is no $2: its reader isn't run"; return; }
  sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$source/docs/record.md" | sed '/^```/d' >"$dir/$3"
  [ -s "$dir/$3" ] || { echo "not ok - docs/record.md has no reader in $1"; failed=1; return; }
  ran=1
  said=$("$2" "$dir/$3" "$source/tests/records/2-value" 2>&1)
  if [ "$said" = '1 0 60000 hello' ]; then
    echo "ok - $1"
  else
    echo "not ok - $1: $said"
    failed=1
  fi
  if [ "$1" = python ] && ! python3 -c 'import xxhash' 2>/dev/null; then
    echo '# there is no xxhash for Python: its reader checks no key'
    return
  fi
  if "$2" "$dir/$3" "$source/tests/records/2-other-key" >"$dir/out" 2>&1; then
    echo "not ok - $1 takes the record of another key"
    failed=1
  fi
}

reads python python3 read.py
reads php php read.php
[ "$failed" -ne 0 ] || [ "$ran" -eq 1 ] ||
  { echo 'SKIPPED: neither python3 nor php is here'; exit 77; }
exit $failed
