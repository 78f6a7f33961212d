#!/bin/sh
# run_elsewhere_test.sh: on a system without dpkg run.sh says what to install: on Alpine by Alpine's
# names, the packages that are missing alone, and nothing when none is. docs/build.md names them.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "run_elsewhere_test: $*" >&2
  exit 1
}

# The system: run.sh in a folder of its own, and few programs; neither dpkg-query nor cmake.
mkdir "$folder/bin"
cp "$root/run.sh" "$folder"
for name in sh dirname mkdir sed cat grep; do
  ln -s "$(command -v $name)" "$folder/bin/$name"
done

said() { # ARGUMENT...: what run.sh prints there; it doesn't get past the build
  ! PATH=$folder/bin "$folder/bin/sh" "$folder/run.sh" "$@" 2>&1 ||
    fail "run.sh $* had success without a compiler"
}

names=$(said demo | sed -n 's/.*(by their Debian names) are needed: //p')
case " $names " in
  *' liblmdb-dev '*) ;;
  *) fail "without a package manager it named '$names'" ;;
esac

# Its apk has all but what stands in the file `missing`.
cat >"$folder/bin/apk" <<'APK'
#!/bin/sh
[ "$1 $2" = "info -e" ] || exit 2
! grep -qx "$3" "${0%/*}/../missing"
APK
chmod +x "$folder/bin/apk"
printf 'samurai\nlmdb-dev\n' >"$folder/missing"
[ "$(said install)" = "run.sh: missing packages; as root: apk add samurai lmdb-dev" ] ||
  fail "on Alpine it said: $(said install)"

: >"$folder/missing"
case $(said demo) in *'are needed'*) fail "nothing is missing, and it said: $(said demo)" ;; esac
case $(said quick) in
  *'by their Debian names) are needed, too: '*libcmocka-dev*) ;;
  *) fail "the packages of the tests were not named: $(said quick)" ;;
esac

wanted=$(sed -n '/^ALPINE_PACKAGES=/,/"$/p' "$root/run.sh" | tr -s ' \n' '\n\n' |
  sed 's/ALPINE_PACKAGES=//; s/"//g')
told=$(sed -n '/^apk add /,/[^\\]$/p' "$root/docs/build.md" | tr -s ' \\\n' '\n\n\n' |
  sed '/^apk$/d; /^add$/d; /^#$/,$d')
[ "$(echo $wanted)" = "$(echo $told)" ] || fail "run.sh wants $wanted; docs/build.md tells $told"
echo "run.sh says what to install without dpkg"
