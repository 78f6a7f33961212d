#!/bin/sh
# make.sh OUT: makes the manual pages in the folder OUT, as man1, man3 and man7, from docs/corral.1,
# the public headers and the documentation. Those of section 7 need lowdown; without it they are
# left out.
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/cmake/manual
rm -rf "$out/man1" "$out/man3" "$out/man7"
mkdir -p "$out/man1" "$out/man3" "$out/man7"
date=$(sed -n 's/^\.Dd //p' "$root/docs/corral.1")

cp "$root/docs/corral.1" "$root/docs/corral-conformance.1" "$out/man1"
awk -v out="$out/man1" -f "$here/subcommands.awk" "$root/docs/corral.1"
cd "$root/include"
awk -v out="$out/man3" -v date="$date" -f "$here/functions.awk" \
  corral.h corral/lock.h corral/loop.h corral/child.h corral/option.h corral/event.h corral/page.h \
  corral/stats.h corral/control.h corral/log.h

page() { # NAME FILE SENTENCE
  {
    printf '# NAME\n\n%s - %s\n\n' "$1" "$3"
    # links to other pages lead nowhere here
    sed 's/\[\([^]]*\)\]([^)]*)/\1/g' "$root/docs/$2"
  } | lowdown -s -Tman -M title="$1" -M section=7 -M date="$date" - |
    sed 's/\\fC/\\fB/g' >"$out/man7/$1.7"
}
command -v lowdown >/dev/null 2>&1 || exit 0
page corral-uri stores.md "the stores of corral and their URIs"
page corral-options options.md "the options of calls, policies and corrals"
page corral-nginx nginx.md "the nginx module of corral"
