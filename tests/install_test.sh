#!/bin/sh
# install_test.sh installs the build into an empty prefix and uses it as a stranger would: by
# pkg-config, by find_package, by the command, by README's first program as it is typed, and by the
# examples as their heads say.
# The environment has BUILD (a finished build), CMAKE, CC, GENERATOR, CONSUMER_CFLAGS (sanitizers
# of the build), PLUGINS (those that are loaded, not built in).
set -eu
: "${BUILD:?}" "${CMAKE:=cmake}" "${CC:=cc}" "${GENERATOR:=Ninja}"
: "${CONSUMER_CFLAGS:=}" "${PLUGINS:=}"
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
prefix=$root/prefix
unset CORRAL_PLUGIN_PATH CORRAL_STORE LD_LIBRARY_PATH || true

fail() {
  echo "install_test: $*" >&2
  exit 1
}

"$CMAKE" --install "$BUILD" --prefix "$prefix" >"$root/log" ||
  { cat "$root/log"; fail "installing failed"; }
for file in bin/corral bin/corral-conformance include/corral.h include/corral/plugin.h \
  include/corral/event.h share/man/man1/corral.1 share/man/man1/corral-conformance.1 \
  share/bash-completion/completions/corral share/zsh/site-functions/_corral \
  share/fish/vendor_completions.d/corral.fish; do
  [ -f "$prefix/$file" ] || fail "$file was not installed"
done
pc=$(find "$prefix" -name corral.pc)
[ -f "$pc" ] || fail "corral.pc was not installed"
libdir=$(dirname "$(dirname "$pc")")
for plugin in $PLUGINS; do
  [ -f "$libdir/corral/$plugin.so" ] || fail "$plugin.so was not installed"
done

static=
if [ ! -e "$libdir/libcorral.so" ]; then # a static library doesn't know where it was installed
  static=--static CORRAL_PLUGIN_PATH=$libdir/corral
  export CORRAL_PLUGIN_PATH
fi
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046,SC2086
"$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror $CONSUMER_CFLAGS -o "$root/by_pkg_config" \
  "$here/consumer/consumer.c" $(pkg-config --cflags --libs $static corral)
"$root/by_pkg_config" "lmdb:$root/one.lmdb" ||
  fail "the consumer by pkg-config failed"
[ "$(pkg-config --modversion corral)" = "$("$prefix/bin/corral" --version | sed 's/.* //')" ] ||
  fail "corral.pc and corral --version tell different versions"

if [ -z "$static" ]; then
  mkdir "$root/first"
  # shellcheck disable=SC2086
  CC=$CC sh "$here/first_program.sh" "$root/first" $CONSUMER_CFLAGS
  # shellcheck disable=SC2086
  CC=$CC sh "$here/example_heads.sh" "$prefix/share/doc/corral/examples" "$root/examples" \
    $CONSUMER_CFLAGS || fail "an example isn't built by the line in its head"
fi

"$CMAKE" -G "$GENERATOR" -S "$here/consumer" -B "$root/build" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$CC" -DCMAKE_C_FLAGS="$CONSUMER_CFLAGS" >"$root/log" ||
  { cat "$root/log"; fail "find_package(corral) failed"; }
"$CMAKE" --build "$root/build" >"$root/log" ||
  { cat "$root/log"; fail "building against corral::corral failed"; }
"$root/build/consumer" "lmdb:$root/two.lmdb" || fail "the consumer by find_package failed"

out=$("$prefix/bin/corral" --store "lmdb:$root/three.lmdb" run --key k -- echo hello) ||
  fail "the installed command failed"
[ "$out" = hello ] || fail "the installed command printed '$out'"
# A store of one file is built with the installed headers alone.
"$CC" -std=c11 -shared -fPIC -pthread -Wall -Wextra -Wpedantic -Werror -I "$prefix/include" \
  -o "$root/corral_plugin_tiny.so" "$here/../examples/store_tiny.c" ||
  fail "examples/store_tiny.c doesn't compile alone"
[ "$(wc -l <"$here/../examples/store_tiny.c")" -lt 200 ] ||
  fail "examples/store_tiny.c has 200 lines or more"
CORRAL_PLUGIN_PATH=$root "$prefix/bin/corral-conformance" --quiet tiny: ||
  fail "examples/store_tiny.c doesn't conform"
"$prefix/bin/corral-conformance" --quiet --case an-owner-settles "lmdb:$root/four.lmdb" \
  >"$root/log" ||
  { cat "$root/log"; fail "the installed corral-conformance doesn't find the installed plugins"; }
"$prefix/bin/corral" completion bash |
  cmp -s - "$prefix/share/bash-completion/completions/corral" ||
  fail "the installed completion isn't that of the installed command"
echo "installed, found by pkg-config and by find_package, and run"
