#!/bin/sh
# clang_tidy_test.sh: the library, the plugins, the command and the conformance suite have no
# finding of clang-tidy's bugprone checks; .clang-tidy says which ones are left out, and why.
# Versions of clang-tidy differ, so it takes version 14 (Debian 12), and else there is nothing to
# compare with: exit status 77.
#   clang_tidy_test.sh BUILD [--all]   --all: the analyzer's checks as well, which takes minutes
cd "$(dirname "$0")/.." || exit 2
build=${1:?clang_tidy_test.sh BUILD [--all]}
for tidy in clang-tidy-14 clang-tidy; do
  command -v "$tidy" >/dev/null && "$tidy" --version | grep -q 'version 14\.' && break
  tidy=
done
[ -n "$tidy" ] || { echo "there is no clang-tidy of version 14" && exit 77; }
[ -f "$build/compile_commands.json" ] || { echo "$build has no compile_commands.json" && exit 77; }
checks='-clang-analyzer-*'
[ "${2:-}" = --all ] && checks=
found=$(find plugins src -name '*.c' ! -path 'src/nginx/*' -type f | sort |
  xargs -n 8 "$tidy" --quiet --checks="$checks" -p "$build" 2>/dev/null |
  grep 'warning: ' | sort -u)
[ -z "$found" ] && echo "clang-tidy: nothing found" && exit 0
echo "$found"
exit 1
