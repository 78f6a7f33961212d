#!/bin/sh
# run_install_test.sh installs the release by run.sh into a folder of its own, does what run.sh then
# says, and uses what is there: README's first program as typed, the command, a staged copy.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset CORRAL_PLUGIN_PATH CORRAL_STORE PKG_CONFIG_PATH LD_LIBRARY_PATH DESTDIR || true

fail() {
  echo "run_install_test: $*" >&2
  exit 1
}

install() { # PREFIX, from the folder
  (cd "$folder" && "$root/run.sh" install "$1" --no-install) >"$folder/log" 2>&1 ||
    { cat "$folder/log"; fail "run.sh install $1 failed"; }
}

install ./own
said=$(sed -n 's/^run\.sh: the [a-z]*: \(export [A-Z_]*=\)/\1/p' "$folder/log")
[ "$(printf '%s\n' "$said" | grep -c .)" = 2 ] || fail "run.sh told to set: $said"
eval "$said"
mkdir "$folder/first"
sh "$root/tests/first_program.sh" "$folder/first"
[ "$(command -v corral)" = "$folder/own/bin/corral" ] || fail "the command is not in PATH"
[ "$(corral --store "lmdb:$folder/store" run --key k -- echo hello)" = hello ] ||
  fail "the command didn't run"

DESTDIR=$folder/stage
export DESTDIR
install /usr/local # so the build has its usual prefix again
[ -x "$folder/stage/usr/local/bin/corral" ] || fail "DESTDIR was not used"
grep -q 'run.sh: the ' "$folder/log" && fail "a staged copy needs no variables"
echo "installed by run.sh, and used as it says"
