#!/bin/sh
# package.sh FOLDER: builds the Debian packages of packaging/debian in FOLDER, and checks them by
# lintian. The symbols file must be current: debian/rules compares it with the library.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$1
version=$(sed -n 's/^project(corral VERSION \([0-9.]*\) .*/\1/p' "$root/CMakeLists.txt")
tree=corral-$version

fail() {
  echo "package: $*" >&2
  exit 1
}

release=$(sed -n '1s/^corral (\(.*\)-[^-]*) .*/\1/p' "$root/packaging/debian/changelog")
[ "$release" = "$version" ] ||
  fail "packaging/debian/changelog begins with version $release, and this is $version"

rm -rf "$folder"
mkdir -p "$folder/$tree"
folder=$(cd "$folder" && pwd)
log=$folder/build.log
tar -C "$root" --exclude-vcs --exclude=./build -cf - . | tar -C "$folder/$tree" -xf -
tar -C "$folder" -czf "$folder/corral_$version.orig.tar.gz" "$tree"
cp -R "$root/packaging/debian" "$folder/$tree/debian"
(cd "$folder/$tree" && dpkg-buildpackage -us -uc) >"$log" 2>&1 ||
  { tail -n 60 "$log" >&2; fail "building failed: $log"; }
rm -rf "${folder:?}/$tree"
cd "$folder"
# A package that isn't uploaded to Debian closes no bug there.
lintian --fail-on error --suppress-tags initial-upload-closes-no-bugs corral_*.changes >&2 ||
  fail "lintian found errors"
ls "$folder"/*.deb
