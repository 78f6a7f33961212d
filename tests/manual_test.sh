#!/bin/sh
# manual_test.sh: each subcommand and each exported function has a page, and mandoc, where it is
# installed, finds nothing wrong in any of them. It prints "ok - sentence" or "not ok - sentence".
#
# CORRAL is the command, MANUAL the folder of the pages, LIBRARY the shared library (empty where
# there is none).
set -u
: "${CORRAL:?}" "${MANUAL:?}" "${LIBRARY:=}"
here=$(cd "$(dirname "$0")" && pwd)
failed=0

check() {
  sentence=$1
  shift
  if "$@"; then echo "ok - $sentence"; else
    echo "not ok - $sentence"
    failed=1
  fi
}

all_subcommands() {
  missing=0
  names=$("$CORRAL" 2>&1 | sed -n 's/.*accepted are \(.*\), help, version$/\1/p' | tr -d ,)
  [ "$(echo "$names" | wc -w)" -ge 15 ] || { echo "# no list of subcommands"; return 1; }
  for name in $names; do
    [ -f "$MANUAL/man1/corral-$name.1" ] || { echo "# corral-$name.1 is missing"; missing=1; }
    grep -q '^\.Nd [a-z]' "$MANUAL/man1/corral-$name.1" || { echo "# $name: no .Nd"; missing=1; }
    grep -q "^\.Cm $name" "$MANUAL/man1/corral-$name.1" ||
      { echo "# $name: no synopsis"; missing=1; }
  done
  return "$missing"
}

# The names that programs may call, by the headers.
all_functions() {
  missing=0
  names=$(cat "$here"/../include/corral.h "$here"/../include/corral/lock.h \
    "$here"/../include/corral/loop.h "$here"/../include/corral/child.h \
    "$here"/../include/corral/option.h "$here"/../include/corral/page.h \
    "$here"/../include/corral/stats.h "$here"/../include/corral/control.h \
    "$here"/../include/corral/log.h |
    sed -n 's/^CORRAL_API.*[ *]\(corral_[a-z0-9_]*\)(.*/\1/p')
  [ "$(echo "$names" | wc -l)" -gt 70 ] || return 1
  for name in $names; do
    [ -f "$MANUAL/man3/$name.3" ] || { echo "# $name.3 is missing"; missing=1; continue; }
    target=$(sed -n 's/^\.so //p' "$MANUAL/man3/$name.3")
    page=$MANUAL/${target:-man3/$name.3}
    grep -q "^\.Fo $name\$" "$page" || { echo "# $name: no synopsis in $page"; missing=1; }
    grep -q "^\.Nm $name" "$page" || { echo "# $name: not named in $page"; missing=1; }
  done
  return "$missing"
}

# An export beyond the headers is a page that is missing.
all_exports() {
  missing=0
  for name in $(nm -D --defined-only "$LIBRARY" | sed -n 's/.* T \(corral_[a-z0-9_]*\).*/\1/p'); do
    [ -f "$MANUAL/man3/$name.3" ] || { echo "# $name.3 is missing"; missing=1; }
  done
  return "$missing"
}

statuses_are_explained() {
  grep -q '^\.It Dv CORRAL_EDEADLINE' "$MANUAL/man3/corral_get_or_compute.3" &&
    ! grep -q 'CORRAL_EFOREIGN' "$MANUAL/man3/corral_open.3"
}

clean() {
  bad=$(cd "$MANUAL" && mandoc -T lint -W warning man1/*.1 man3/*.3 man7/*.7 2>&1 |
    grep -v -e '.so is fragile' -e 'mandoc.db' -e 'PP after S[HS]')
  [ -z "$bad" ] || { echo "$bad" | sed 's/^/# /' | head -20; return 1; }
}

all_sections() {
  missing=0
  for name in corral-uri corral-options corral-nginx; do
    [ -s "$MANUAL/man7/$name.7" ] || { echo "# $name.7 is missing"; missing=1; }
  done
  return "$missing"
}

check "each subcommand has a page" all_subcommands
if command -v lowdown >/dev/null 2>&1; then
  check "the pages of section 7 are there" all_sections
else
  echo "ok - the pages of section 7 are there # SKIP there is no lowdown"
fi
check "each function has a page" all_functions
check "a page explains the statuses that it names, and no others" statuses_are_explained
[ -z "$LIBRARY" ] || check "each export has a page" all_exports
if command -v mandoc >/dev/null 2>&1; then
  check "mandoc finds nothing wrong" clean
else
  echo "ok - mandoc finds nothing wrong # SKIP there is no mandoc"
fi
exit "$failed"
