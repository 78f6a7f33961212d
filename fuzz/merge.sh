#!/bin/sh
# merge.sh BUILD [TARGET...]: makes the corpora of the tree anew, from their inputs and those that
# BUILD has learned: as few inputs as reach the same code.
# Inputs whose name begins with "was-" are kept: each of them once broke a promise.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
shift
# shellcheck disable=SC2046 # targets have no spaces
[ $# -gt 0 ] || set -- $(
  find "$build/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sed 's,.*/fuzz_,,' | sort
)
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
for target in "$@"; do
  mkdir -p "$fresh/$target" "$build/fuzz/learned/$target" "$here/corpus/$target"
  nice sh "$here/../tests/room.sh" "$build/fuzz/fuzz_$target" \
    -set_cover_merge=1 -max_len=70000 -close_fd_mask=1 \
    "$fresh/$target" "$here/corpus/$target" "$build/fuzz/learned/$target" \
    >"$fresh/log" 2>&1 || { cat "$fresh/log" >&2; exit 1; }
  find "$here/corpus/$target" -type f ! -name 'was-*' -exec rm {} +
  cp "$fresh/$target"/* "$here/corpus/$target/"
  echo "$target: $(find "$here/corpus/$target" -type f | wc -l) inputs"
done
