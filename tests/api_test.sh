#!/bin/sh
# The exported functions follow the rules that corral.h states for parameters, docs/api.md lists
# each of them once, the symbols file of the Debian package has each of them, and the library
# exports them and nothing else, under the node of its version.
# Prints each offence; exit status 1 when there is one.
#   api_test.sh [LIBRARY [ROOT]]   LIBRARY: libcorral.so; without it, or for an archive, no exports
set -u
LC_ALL=C
export LC_ALL

library=${1:-}
cd "${2:-$(dirname "$0")/..}" || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

# prototypes prints the declarations of exported functions, one a line, without comments.
prototypes() {
  for header in corral.h corral/child.h corral/event.h corral/lock.h corral/loop.h \
    corral/option.h corral/page.h corral/stats.h corral/control.h corral/log.h; do
    awk -v file="include/$header" '
      { text = text $0 "\n" }
      END {
        while ((start = index(text, "/*")) > 0) {
          end = start + index(substr(text, start), "*/") + 1
          text = substr(text, 1, start - 1) substr(text, end)
        }
        count = split(text, parts, ";")
        for (i = 1; i <= count; i++)
          if (match(parts[i], /\nCORRAL_API /)) {
            gsub(/[ \t\n]+/, " ", parts[i])
            sub(/.*CORRAL_API /, "", parts[i])
            print file ": " parts[i]
          }
      }' "include/$header"
  done
}

# The order of parameters: the object, what the call is about, `call`, inputs, `ret...`, `error`.
order() {
  awk '
    function say(why) { printf "%s%s: %s\n", file, name, why }
    {
      file = $1 " "; line = $0
      sub(/^[^ ]* /, "", line)
      name = line; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
      if (name !~ /^corral_[a-z]+(_[a-z]+)*$/) say("not a name of the form corral_noun_verb")
      sub(/^[^(]*\(/, "", line); sub(/\)[^)]*$/, "", line)
      count = split(line, params, /, /)
      has_call = has_error = 0
      for (i = 1; i <= count; i++) {
        id = params[i]; sub(/.*[ *]/, "", id)
        before = i > 1 ? params[i - 1] : ""; sub(/.*[ *]/, "", before)
        after = i < count ? params[i + 1] : ""; sub(/.*[ *]/, "", after)
        if (params[i] ~ /^corral_error \*/) {
          has_error = 1
          if (i != count || id != "error") say("detail goes to the last parameter, `error`")
        }
        if (params[i] ~ /^const corral_call \*/) {
          has_call = 1
          if (id != "call" || (before != "key_len" && before != "count"))
            say("`call` comes directly after what it is about")
        }
        if (id ~ /^ret(_|$)/ && after !~ /^(ret(_.*)?|error)?$/)
          say("`" id "` is followed by another parameter than `ret...` or `error`")
        if ((params[i] ~ /\*\*/ || params[i] ~ /^size_t \*/) && id !~ /^ret(_|$)/)
          say("the out-parameter `" id "` is not named ret")
        if (id == "arg" && before !~ /^(compute|compute_many|tell)$/)
          say("`arg` does not follow its callback")
      }
      if (has_call && has_error) say("detail goes to the call, not to a parameter too")
    }' "$work/prototypes"
}

names() { sed 's/(.*//; s/.*[ *]//' "$work/prototypes" | sort; }

listed() {
  sed -n 's/^- `\(corral_[a-z_]*\)`: ..*/\1/p' docs/api.md | sort >"$work/listed"
  uniq -d "$work/listed" | sed 's/.*/docs\/api.md: lists & twice/'
  comm -23 "$work/names" "$work/listed" | sed 's/.*/docs\/api.md: lacks &/'
  uniq "$work/listed" | comm -13 "$work/names" - | sed 's/.*/docs\/api.md: & is no function/'
}

# The node is CORRAL_MAJOR.MINOR of the header's version.
exported() {
  node=$(sed -n 's/^#define CORRAL_VERSION "\([0-9]*\.[0-9]*\)\..*/CORRAL_\1/p' include/corral.h)
  "${NM:-nm}" -D --with-symbol-versions --defined-only "$library" |
    awk -v node="$node" '$2 == "A" && $3 ~ "^" node { next } { print $3 }' | sort >"$work/exported"
  sed "s/\$/@@$node/" "$work/names" | sort >"$work/wanted"
  comm -23 "$work/wanted" "$work/exported" | sed 's/.*/the library does not export &/'
  comm -13 "$work/wanted" "$work/exported" | sed 's/.*/the library exports &, which no header has/'
}

packaged() {
  file=packaging/debian/libcorral0.symbols
  sed -n 's/^ \(corral_[a-z_]*\)@.*/\1/p' "$file" | sort >"$work/packaged"
  comm -23 "$work/names" "$work/packaged" | sed "s,.*,$file: lacks &,"
  comm -13 "$work/names" "$work/packaged" | sed "s,.*,$file: & is no function,"
}

version() {
  awk '
    /^#define CORRAL_VERSION / { split(substr($3, 2), n, /[."]/) }
    /^#define CORRAL_VERSION_NUMBER / { number = $3 }
    END {
      if (number != n[1] * 1000000 + n[2] * 1000 + n[3])
        print "include/corral.h: CORRAL_VERSION_NUMBER is not that of CORRAL_VERSION"
    }' include/corral.h
}

prototypes >"$work/prototypes"
names >"$work/names"
{
  [ -s "$work/names" ] || echo "include/corral.h: no function was found"
  order
  listed
  packaged
  version
  case $library in
  '' | *.a) ;;
  *) exported ;;
  esac
} >"$work/offences"
cat "$work/offences"
[ ! -s "$work/offences" ] || exit 1
echo "api: $(grep -c . "$work/names") functions, as rules, docs/api.md, package and library say"
