#!/bin/sh
# example_heads.sh EXAMPLES FOLDER [FLAG...]: each example is built by the command line in its own
# head, in a copy of EXAMPLES in FOLDER, without a warning. pkg-config finds corral. The FLAGs go to
# the compiler besides. An example whose libraries are missing, or a line for a static corral where
# there is none, is left out loudly.
set -eu
examples=$1
folder=$2
shift 2
flags="-Wall -Wextra -Wpedantic -Werror $*"
cp -R "$examples" "$folder"
libdir=$(pkg-config --variable=libdir corral)
built=0

fail() {
  echo "example_heads: $*" >&2
  exit 1
}

# shellcheck disable=SC2086,SC2317 # flags are words; the command line calls this
cc() { command "${CC:-cc}" $flags "$@"; }

# The command lines in the head of a file, one a line: continued ones are joined, and what is run
# after the build is cut off.
lines_of() { # FILE
  sed -n '1,/\*\//p' "$1" | sed 's, *\*/$,,; s,^ \*,,' | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' |
    sed -n 's/^ *\(cc .*\)/\1/p' | sed 's/ && .*//'
}

# The packages and archives that a command line names and that are not here.
missing() { # LINE
  # shellcheck disable=SC2016 # the pattern has a $ of its own
  for package in $(printf '%s\n' "$1" | sed -n 's/.*\$(pkg-config \([^)]*\)).*/\1/p'); do
    case $package in -*) continue ;; esac
    pkg-config --exists "$package" || printf '%s ' "$package"
  done
  for library in $(printf '%s\n' "$1" | tr ' ' '\n' | sed -n 's/^-l//p'); do
    name=lib$library.so
    case $library in :*) name=${library#:} ;; esac
    [ -e "$libdir/$name" ] ||
      [ "$("${CC:-cc}" -print-file-name="$name")" != "$name" ] || printf '%s ' "$name"
  done
}

build() { # FILE LINE
  absent=$(missing "$2")
  if [ -n "$absent" ]; then
    echo "example_heads: not built, for there is no $absent: $1: $2"
    return
  fi
  (cd "$(dirname "$1")" && eval "$2") || fail "$1: failed: $2"
  built=$((built + 1))
}

for file in $(find "$folder" -name '*.c' | sort); do
  lines_of "$file" >"$folder/lines"
  if [ ! -s "$folder/lines" ]; then
    # a part of another program, or a program that doesn't say how it is built
    ! grep -q '^int main(' "$file" || fail "$file: its head has no command line that builds it"
    continue
  fi
  while read -r line; do build "$file" "$line"; done <"$folder/lines"
done
[ "$built" -gt 0 ] || fail "nothing was built"
echo "example_heads: $built examples built by their heads"
