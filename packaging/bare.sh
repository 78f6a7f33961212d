#!/bin/sh
# bare.sh RELEASE FOLDER [PART...]: does what newcomers do, on a bare Debian of that release
# (bookworm, trixie) that debootstrap makes in FOLDER, and prints how long each step took:
#   typed     README's commands, its first program and the first page of docs/nginx.md
#   packages  they are built, installed, tested by packaging/debian/tests, and purged
#   test      every test, by ./run.sh test
# The first two are the default.
#
# It wants root, debootstrap and the network. A FOLDER that has a system already is used as it is.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

fail() {
  echo "bare: $*" >&2
  exit 1
}

# With `network=own` a step has a network of its own, so that no port is taken.
network=
step() { # TITLE COMMAND: runs COMMAND by a shell in the system's copy of the project
  began=$(date +%s)
  unshare -m ${network:+-n} sh -c '
    { [ "$3" != own ] || ip link set lo up; } &&
      mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" &&
      mount --rbind /dev "$1/dev" &&
      mount -t tmpfs tmpfs "$1/tmp" && exec chroot "$1" /usr/bin/env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
        CI=true sh -euc "cd /root/corral; $2"' sh "$folder" "$2" "$network" \
    >"$folder.log" 2>&1 </dev/null ||
    { tail -n 60 "$folder.log" >&2; fail "$1 failed; $folder.log has all that it printed"; }
  echo "ok - $release: $1: $(($(date +%s) - began)) s"
}

[ $# -ge 2 ] || fail "usage: bare.sh RELEASE FOLDER [typed|packages|test...]"
release=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- typed packages
for part in "$@"; do
  case $part in
    typed | packages | test) ;;
    *) fail "'$part' is none of typed, packages, test" ;;
  esac
done
if [ ! -x "$folder/usr/bin/apt-get" ]; then
  debootstrap --variant=minbase "$release" "$folder" >"$folder.log" 2>&1 ||
    { tail -n 20 "$folder.log" >&2; fail "debootstrap failed"; }
fi
folder=$(cd "$folder" && pwd)
printf '#!/bin/sh\nexit 101\n' >"$folder/usr/sbin/policy-rc.d" # no package starts a server
chmod +x "$folder/usr/sbin/policy-rc.d"
rm -rf "$folder/root/corral"
git clone -q "$here" "$folder/root/corral"

typed() {
  step "./run.sh" './run.sh'
  step "./run.sh install" 'apt-get install -qy --no-install-recommends curl nginx nginx-dev
    ./run.sh install'
  step "the first program" 'mkdir /tmp/first; sh tests/first_program.sh /tmp/first'
  network=own
  step "the first page" 'mkdir /tmp/page; export prefix=/usr/local AUTOPKGTEST_TMP=/tmp/page
    sh packaging/debian/tests/first-page'
  network=
  step "removing it" 'xargs -d "\n" rm -f <build/release/install_manifest.txt; ldconfig
    [ -z "$(command -v corral)" ]'
}

packages() {
  step "./run.sh package" './run.sh package'
  step "installing the packages" 'apt-get install -qy --no-install-recommends curl \
      ./build/package/*.deb
    nginx -t; ls /etc/nginx/modules-enabled | grep -q corral'
  network=own
  for name in storm first-program first-page; do
    step "the packages' test $name" \
      "mkdir /tmp/t; AUTOPKGTEST_TMP=/tmp/t sh packaging/debian/tests/$name"
  done
  network=
  step "purging them" 'apt-get purge -qy "?source-package(^corral\$)"
    [ -z "$(command -v corral)" ]; ! ls /etc/nginx/modules-enabled | grep corral
    [ -z "$(find /etc /usr /var/lib -xdev \( -path /usr/local -o -path /var/lib/apt \) -prune \
      -o -name "*corral*" -print)" ]'
}

test_all() {
  step "./run.sh test" './run.sh test'
  grep ' passed, ' "$folder.log" | tail -n 1
}

for part in "$@"; do
  case $part in
    test) test_all ;;
    *) "$part" ;;
  esac
done
