#!/bin/sh
# harden_test.sh reads the traces of hardening (cmake/harden.cmake) in files, by readelf.
#   harden_test.sh --files FILE...
#     Each FILE of a finished optimised build is hardened in every way.
#   harden_test.sh
#     The files of this build are, and so is tests/harden/probe.c, built by harden.cmake with
#     several flags. The environment has FILES, CMAKE, CC, GENERATOR.
set -u
LC_ALL=C
export LC_ALL
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v readelf >/dev/null 2>&1; then
  echo "SKIPPED: there is no readelf"
  exit 77
fi
failed=0

fail() {
  echo "not ok - $1"
  failed=1
}

# lacks prints the kinds of hardening that a linked file lacks, one word a line.
lacks() { # FILE
  readelf -dW "$1" | grep -q -e 'FLAGS.*BIND_NOW' -e '(BIND_NOW)' || echo BIND_NOW
  readelf -lW "$1" | grep -q 'GNU_RELRO' || echo RELRO
  readelf -hW "$1" | grep -q 'Type: *DYN' || echo PIE
  readelf -lW "$1" | grep 'GNU_STACK' | grep -q ' RW ' || echo NOEXECSTACK
  readelf --dyn-syms -W "$1" | grep -q '__stack_chk_fail' || echo STACK_PROTECTOR
}

lacks_fortify() { # FILE
  readelf --dyn-syms -W "$1" | grep -q '__[a-z]*_chk\b' || echo FORTIFY
}

# On x86 the compiler notes branch protection in the object file. The linker keeps the note only
# where all of libc has it.
lacks_cet() { # OBJECT
  readelf -hW "$1" | grep -q 'Machine:.*X86-64' || return 0
  readelf -nW "$1" | grep -q 'IBT, SHSTK' || echo CET
}

whole() { # NAME WORDS: there are none
  # shellcheck disable=SC2086
  if [ -n "$2" ]; then fail "$1 lacks:" $2 && echo "#" $2; else echo "ok - $1"; fi
}

if [ "${1:-}" = --files ]; then
  shift
  for file in "$@"; do whole "$file" "$(lacks "$file"; lacks_fortify "$file")"; done
  exit $failed
fi

for file in ${FILES:-}; do
  case $file in *.a) ;; *) whole "$file" "$(lacks "$file")" ;; esac
done

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

probe() { # NAME CFLAGS OPTION...: builds $dir/NAME/probe
  name=$1 flags=$2
  shift 2
  env -u CFLAGS -u LDFLAGS "${CMAKE:-cmake}" -G "${GENERATOR:-Ninja}" \
    -S "$here/harden" -B "$dir/$name" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER="${CC:-cc}" -DCMAKE_C_FLAGS="$flags" "$@" >"$dir/log" 2>&1 &&
    "${CMAKE:-cmake}" --build "$dir/$name" >"$dir/log" 2>&1 ||
    { cat "$dir/log"; fail "building the probe '$name'"; return 1; }
  binary=$dir/$name/probe object=$(find "$dir/$name" -name 'probe.c.o')
}

everything() { lacks "$binary"; lacks_fortify "$binary"; lacks_cet "$object"; }

probe on "" && whole "a release build is hardened in every way" "$(everything)"

# The checks fail on a build without hardening.
probe off "-no-pie -fno-stack-protector -fcf-protection=none -z lazy" -DCORRAL_HARDEN=OFF && {
  found=$(everything | tr '\n' ' ')
  cet=$(readelf -hW "$object" | grep -q X86-64 && echo CET)
  for word in BIND_NOW PIE STACK_PROTECTOR FORTIFY $cet; do
    case " $found" in *" $word "*) ;; *) fail "an unhardened build seems to have $word" ;; esac
  done
  [ $failed -ne 0 ] || echo "ok - an unhardened build is seen to be one"
}

# The builder's flags win, and none is given twice: a second _FORTIFY_SOURCE would be a warning,
# which is an error here.
probe own "-D_FORTIFY_SOURCE=1 -fno-stack-protector -no-pie" && {
  found=$(everything | tr '\n' ' ')
  [ "$found" = "PIE STACK_PROTECTOR " ] ||
    fail "with -fno-stack-protector and -no-pie of the builder's own are absent: $found"
  grep -q 'FORTIFY_SOURCE=[23]' "$dir/own/build.ninja" 2>/dev/null &&
    fail "the builder's _FORTIFY_SOURCE is overruled"
  echo "ok - the builder's own flags win"
}

# Sanitizers don't see the calls that _FORTIFY_SOURCE makes.
probe sanitized "-O1 -fsanitize=address" && {
  [ "$(lacks_fortify "$binary")" = FORTIFY ] || fail "a sanitized build is fortified"
  echo "ok - a sanitized build isn't fortified"
}
exit $failed
