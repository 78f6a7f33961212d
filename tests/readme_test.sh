#!/bin/sh
# README.md says what the sources say: its tables are those of the headers, its example is
# examples/first.c, and what it links to exists. Prints each difference; exit status 1 when there is
# one.
#   readme_test.sh [ROOT]           compare
#   readme_test.sh --print [ROOT]   print the tables as they have to be
set -u
LC_ALL=C
export LC_ALL

print=no
if [ "${1:-}" = --print ]; then
  print=yes
  shift
fi
cd "${1:-$(dirname "$0")/..}" || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

# The rows of an X-macro table, one a line, their fields separated by tabs. A row may span lines,
# and a text may be several literals: what stands outside of quotes loses its blanks.
rows() { # HEADER MACRO
  awk -v macro="#define $2(X)" '
    index($0, macro) == 1 { inside = 1; $0 = substr($0, length(macro) + 1) }
    inside { more = sub(/[ \t]*\\$/, ""); text = text "\n" $0; if (!more) exit }
    END {
      for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (quoted && c == "\\") row = row substr(text, ++i, 1)
        else if (c == "\"") quoted = !quoted
        else if (quoted) row = row c
        else if (c == "(" && depth++ == 0) row = ""
        else if (c == ")" && --depth == 0) print row
        else if (c == "," && depth == 1) row = row "\t"
        else if (c !~ /[ \t\n]/) row = row c
      }
    }' "$1"
}

options() { # HEADER MACRO
  echo '| option | unit | default | range | |'
  echo '|---|---|---|---|---|'
  rows "$1" "$2" | awk -F '\t' '{
    printf "| `%s` | %s | %s | %s to %s | %s |\n", $1, $2, $3, $4, $5, $6 }'
}

events() {
  echo '| event | when |'
  echo '|---|---|'
  rows include/corral/event.h CORRAL_EVENT_MAP |
    awk -F '\t' '{ printf "| `%s` | %s |\n", $2, $3 }'
}

# The table of README.md that begins with this line: the first, or the one of that number.
table() { # LINE NUMBER
  awk -v line="$1" -v number="$2" '
    $0 == line && ++count == number { inside = 1 }
    inside && !/^\|/ { exit }
    inside { print }' README.md
}

example() {
  awk '/^```/ { if (inside) exit; inside = $0 == "```c"; next } inside { print }' README.md
}

# Targets of links, without those to other places.
links() {
  grep -o ']([^)]*)' README.md CONTRIBUTING.md CHANGELOG.md | sed 's/](\([^)#]*\).*/\1/' |
    grep -v ':http'
}

different=0
same() { # WHAT EXPECTED FOUND
  if [ "$(wc -l <"$2")" -lt 3 ]; then
    echo "README.md: the source of $1 was not found"
    different=1
  elif ! diff "$2" "$3" >"$work/diff"; then
    echo "README.md: $1 differs (< as it has to be, > as it is):"
    cat "$work/diff"
    different=1
  fi
}

options include/corral.h CORRAL_POLICY_MAP >"$work/policy"
options include/corral.h CORRAL_OPTION_MAP >"$work/options"
options include/corral/lock.h CORRAL_LOCK_MAP >"$work/lock"
events >"$work/events"
if [ $print = yes ]; then
  cat "$work/policy" "$work/options" "$work/events" "$work/lock"
  exit 0
fi
table "$(head -n 1 "$work/policy")" 1 >"$work/policy.found"
table "$(head -n 1 "$work/options")" 2 >"$work/options.found"
table "$(head -n 1 "$work/lock")" 3 >"$work/lock.found"
table "$(head -n 1 "$work/events")" 1 >"$work/events.found"
example >"$work/example.found"
same 'the table of CORRAL_POLICY_MAP' "$work/policy" "$work/policy.found"
same 'the table of CORRAL_OPTION_MAP' "$work/options" "$work/options.found"
same 'the table of CORRAL_LOCK_MAP' "$work/lock" "$work/lock.found"
same 'the table of CORRAL_EVENT_MAP' "$work/events" "$work/events.found"
same 'the example' examples/first.c "$work/example.found"
links >"$work/links"
while IFS=: read -r file target; do
  [ -e "$target" ] && continue
  echo "$file: there is no $target to link to"
  different=1
done <"$work/links"
[ $different -eq 0 ] && echo "README.md: as the sources"
exit $different
