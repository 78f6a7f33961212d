#!/bin/sh
# The Markdown pages say what the sources say: their lists of options, events and statuses are the
# rows of the headers' tables, README.md's example is examples/first.c, links lead somewhere, and no
# line has more than 100 columns. README.md is short and names all pages. Prints each difference;
# exit status 1 when there is one.
#   readme_test.sh [ROOT]           compare
#   readme_test.sh --print [ROOT]   print the lists as they have to be
set -u
LC_ALL=C
export LC_ALL

COLUMNS_MOST=100
README_LINES=199

print=no
if [ "${1:-}" = --print ]; then
  print=yes
  shift
fi
cd "${1:-$(dirname "$0")/..}" || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
pages="README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md tests/old_plugin/README.md docs/*.md"

different=0
wrong() { # WHAT...
  echo "$*"
  different=1
}

# ---- lists -------------------------------------------------------------------------------------

# A list follows the line "<!-- TABLE -->" of its page, and ends at a blank line.
lists='CORRAL_POLICY_MAP include/corral.h docs/options.md option
CORRAL_OPTION_MAP include/corral.h docs/options.md option
CORRAL_LOCK_MAP include/corral/lock.h docs/locks.md option
CORRAL_EVENT_MAP include/corral/event.h docs/events.md event
CORRAL_STATUS_MAP include/corral.h docs/errors.md status'

# The rows of an X-macro table, one a line, their fields separated by tabs. A row may span lines,
# and a text may be several literals: what stands outside of quotes loses its blanks.
rows() { # TABLE HEADER
  awk -v macro="#define $1(X)" '
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
    }' "$2"
}

# Rows as items of a list.
items() { # KIND
  awk -F '\t' -v kind="$1" -v most=$COLUMNS_MOST '
    function item(text,   words, count, i, line) {
      count = split(text, words, " ")
      line = words[1]
      for (i = 2; i <= count; i++)
        if (length(line) + 1 + length(words[i]) > most) {
          print line
          line = "  " words[i]
        } else {
          line = line " " words[i]
        }
      print line
    }
    kind == "option" { item("- `" $1 "`: " $2 ", " $3 " (" $4 " to " $5 "). " $6) }
    kind == "event" { item("- `" $2 "`: " $3) }
    kind == "status" { item("- `CORRAL_" $1 "` (" $2 "): " $3) }'
}

list_of() { # TABLE PAGE
  awk -v mark="<!-- $1 -->" '
    $0 == mark { inside = 1; next }
    inside && $0 == "" && found { exit }
    inside && $0 != "" { print; found = 1 }' "$2"
}

same() { # WHERE WHAT EXPECTED FOUND
  if [ "$(wc -l <"$3")" -lt 3 ]; then
    wrong "$1: the source of $2 was not found"
  elif ! diff "$3" "$4" >"$work/diff"; then
    wrong "$1: $2 differs (< as it has to be, > as it is):"
    cat "$work/diff"
  fi
}

echo "$lists" >"$work/lists"
while read -r table header page kind; do
  rows "$table" "$header" | items "$kind" >"$work/expected"
  if [ $print = yes ]; then
    printf '%s\n<!-- %s -->\n\n' "$page:" "$table"
    cat "$work/expected"
    echo
    continue
  fi
  list_of "$table" "$page" >"$work/found"
  same "$page" "the list of $table" "$work/expected" "$work/found"
done <"$work/lists"
[ $print = no ] || exit 0

# ---- README.md ---------------------------------------------------------------------------------

awk '/^```/ { if (inside) exit; inside = $0 == "```c"; next } inside { print }' README.md \
  >"$work/found"
same README.md 'the example' examples/first.c "$work/found"
lines=$(wc -l <README.md)
[ "$lines" -le $README_LINES ] || wrong "README.md: it has $lines lines, the limit is $README_LINES"
for page in docs/*.md; do
  grep -qF "]($page)" README.md || wrong "README.md: it has no link to $page"
done

# ---- all pages ---------------------------------------------------------------------------------

# The anchors of a page: its headings, as GitHub and others make them.
anchors() { # PAGE
  awk '
    /^```/ { code = !code }
    !code && sub(/^##* /, "") {
      $0 = tolower($0)
      gsub(/[^a-z0-9 _-]/, "")
      gsub(/ /, "-")
      print
    }' "$1"
}

# Targets of links, without those to other places.
targets() { # PAGE
  grep -o ']([^)]*)' "$1" | sed 's/^](//; s/)$//' | grep -v '^[a-z]*:'
}

for page in $pages; do
  awk -v most=$COLUMNS_MOST -v page="$page" 'length > most {
    printf "%s:%d: %d columns, the limit is %d\n", page, FNR, length, most }' "$page" >"$work/wide"
  [ -s "$work/wide" ] && wrong "$(cat "$work/wide")"
  targets "$page" >"$work/targets"
  while read -r target; do
    file=${target%%#*}
    [ -n "$file" ] && file=$(dirname "$page")/$file || file=$page
    if [ ! -e "$file" ]; then
      wrong "$page: there is no $target to link to"
    elif [ "$target" != "${target#*#}" ] && ! anchors "$file" | grep -qxF -e "${target#*#}"; then
      wrong "$page: $file has no heading #${target#*#}"
    fi
  done <"$work/targets"
done

[ $different -eq 0 ] && echo "the pages: as the sources"
exit $different
