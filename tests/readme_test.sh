#!/bin/sh
# The pages say what the sources say: their lists of options, events and statuses are the rows of
# the headers' tables; corral.1 and nginx.md have each flag and directive of the tables; README.md's
# example is examples/first.c, links lead somewhere, and no line has more than 100 columns.
# README.md is short and names all pages. Prints each difference; exit status 1 when there is one.
#   readme_test.sh [ROOT]           compare
#   readme_test.sh --write [ROOT]   write the lists as they have to be
set -u
LC_ALL=C
export LC_ALL

COLUMNS_MOST=100
README_LINES=199

write=no
if [ "${1:-}" = --write ]; then
  write=yes
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

# A list follows the line "<!-- TABLE -->" of its page, and ends at a blank line; in a manual page
# it follows the comment "TABLE" and ends at the comment "end".
lists='CORRAL_POLICY_MAP include/corral/option.h docs/options.md option
CORRAL_TEXT_MAP include/corral/option.h docs/options.md text
CORRAL_OPTION_MAP include/corral/option.h docs/options.md option
CORRAL_POLICY_MAP include/corral/option.h docs/corral.1 manual
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

# Functions of awk about the rows of options: 1 field, 2 name, 3 group, 4 unit, 5 default, 6 least,
# 7 most, 8 command, 9 nginx, 10 sentence. Numbers are shown as corral_policy_set takes them.
option_functions='
  function whole(n, units, names, count,   u, w, i) {
    split(units, u, " "); split(names, w, " ")
    for (i = 1; i <= count; i++) if (n >= u[i] && n % u[i] == 0) return n / u[i] w[i]
    return n
  }
  function shown(n) {
    if ($4 ~ /\|/) { split($4, names, "|"); return names[n] }
    if ($6 < 0 && n <= 0) return "off"
    if ($4 == "flag") return "on"
    if ($4 == "ms" && n > 0) return whole(n, "86400000 3600000 60000 1000 1", "d h m s ms", 5)
    if ($4 == "bytes") return whole(n, "1099511627776 1073741824 1048576 1024", "t g m k", 4)
    if ($4 == "ppm") return n / 10000 "%"
    return n ($4 == "%" ? "%" : "")
  }
  function range(   least, choices) {
    if ($4 == "flag") return "on or off"
    if ($4 ~ /\|/) { choices = $4; gsub(/\|/, ", ", choices); return choices }
    least = $6 < 0 ? 1 : $6
    return ($6 < 0 ? "off, or " : "") shown(least) " to " shown($7)
  }
  function argument(   word) {
    if ($4 == "flag") return "on | off"
    if ($4 ~ /\|/) { word = $4; gsub(/\|/, " | ", word); return word }
    word = $4 == "ms" ? "TIME" : $4 == "bytes" ? "SIZE" : $4 == "%" ? "PERCENT" : \
      $4 == "ppm" ? "SHARE" : "COUNT"
    return word ($6 < 0 ? " | off" : "")
  }'

# Rows as items of a list; options are listed by group.
items() { # KIND
  awk -F '\t' -v kind="$1" -v most=$COLUMNS_MOST "$option_functions"'
    function item(text, indent,   words, count, i, line) {
      count = split(text, words, " ")
      line = indent words[1]
      for (i = 2; i <= count; i++)
        if (length(line) + 1 + length(words[i]) > most) {
          print line
          line = indent "  " words[i]
        } else {
          line = line " " words[i]
        }
      print line
    }
    function places(   text) {
      text = $8
      gsub(/ /, "`, `", text)
      if (text == "corral") text = "` Flag of the command."
      else if (text != "") text = "` Flag of `" text "`."
      if ($9 == "ZONE") text = text " nginx: `" $2 "=`."
      if ($9 == "LOCATION") text = text " nginx: `corral_" $2 "`."
      sub(/^`/, "", text)
      return text
    }
    kind == "option" {
      if (!($3 in first)) { groups[++count] = $3; first[$3] = 1 }
      rows[$3] = rows[$3] "- `" $1 "`" ($1 == $2 ? "" : " (`" $2 "`)") ": " shown($5) "; " \
        range() ". " $10 " " places() "\n"
    }
    END {
      for (i = 1; i <= count; i++) {
        print "- " toupper(substr(groups[i], 1, 1)) substr(groups[i], 2) ":"
        n = split(rows[groups[i]], lines, "\n")
        for (j = 1; j < n; j++) item(lines[j], "  ")
      }
    }
    kind == "manual" {
      printf ".It Li %s\n%s; %s.\n", $2, shown($5), range()
      gsub(/\\/, "\\e", $10)
      print $10
    }
    kind == "text" { item("- `" $1 "`" ($1 == $2 ? "" : " (`" $2 "`)") ": " $6, "") }
    kind == "event" { item("- `" $2 "`: " $3, "") }
    kind == "status" { item("- `CORRAL_" $1 "` (" $2 "): " $3, "") }'
}

mark_of() { # TABLE PAGE
  case $2 in *.md) echo "<!-- $1 -->" ;; *) echo ".\\\" $1" ;; esac
}

list_of() { # TABLE PAGE
  mark=$(mark_of "$1" "$2") awk '
    $0 == ENVIRON["mark"] { inside = 1; next }
    inside && ($0 == "" && found || $0 == ".\\\" end") { exit }
    inside && $0 != "" { print; found = 1 }' "$2"
}

# Replaces the list by that of the file.
write_list() { # TABLE PAGE FILE
  mark=$(mark_of "$1" "$2") awk -v list="$3" '
    inside && ($0 == "" && found || $0 == ".\\\" end") { inside = 0 }
    inside { found = found || $0 != ""; next }
    { print }
    $0 == ENVIRON["mark"] {
      inside = 1; found = 0
      if (/^</) print ""
      while ((getline line < list) > 0) print line
    }' "$2" >"$work/page" && cat "$work/page" >"$2"
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
  [ $write = no ] || write_list "$table" "$page" "$work/expected"
  list_of "$table" "$page" >"$work/found"
  same "$page" "the list of $table" "$work/expected" "$work/found"
done <"$work/lists"

# ---- flags and directives ------------------------------------------------------------------------

# The options of the tables, as "FLAG SUBCOMMAND" and as the heads of their items in nginx.md.
options() {
  rows CORRAL_POLICY_MAP include/corral/option.h
  rows CORRAL_OPTION_MAP include/corral/option.h
  rows CORRAL_LOCK_MAP include/corral/lock.h
}

flags() {
  {
    options
    rows CORRAL_TEXT_MAP include/corral/option.h |
      awk -F '\t' '{ print $1 "\t" $2 "\t\t\t\t\t\t" $4 }'
  } | awk -F '\t' '{
    gsub(/_/, "-", $2)
    n = split($8, commands, " ")
    for (i = 1; i <= n; i++) print $2, commands[i]
  }'
}

# The module has some defaults of its own.
heads() {
  options | awk -F '\t' "$option_functions"'
    { word = argument(); gsub(/ /, "", word); def = shown($5) }
    $2 == "compute" { def = "10m" }
    $2 == "wait" { def = "the location\047s read timeout" }
    $2 == "at_deadline" { def = "compute" }
    $2 == "stale_if_error" { def = "10m" }
    $2 == "away" { def = "stale" }
    $9 == "LOCATION" && $2 == "at_failure" { def = "wait" }
    $9 == "ZONE" { print "- `" $2 "=" word "`, default `" def "`:" }
    $9 == "LOCATION" { print "**corral_" $2 "** " argument() " · Default: " def }'
}

# The part of corral.1 about a subcommand, "corral" for the options before it.
part_of() { # SUBCOMMAND
  awk -v title=".Ss corral $1" -v general="$1" '
    general == "corral" && /^\.Sh DESCRIPTION/ { inside = 1; next }
    $0 == title { inside = 1; next }
    /^\.S[sh] / { inside = 0 }
    inside' docs/corral.1
}

flags >"$work/flags"
[ -s "$work/flags" ] || wrong "the options that are flags were not found"
while read -r flag subcommand; do
  part_of "$subcommand" | grep -qE -e "Fl .*-$flag( |\$)" ||
    wrong "docs/corral.1: corral $subcommand has no --$flag"
done <"$work/flags"
heads >"$work/heads"
[ -s "$work/heads" ] || wrong "the options of nginx were not found"
while read -r head; do
  grep -qF -e "$head" docs/nginx.md || wrong "docs/nginx.md: there is no line with: $head"
done <"$work/heads"

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
