#!/bin/sh
# cli_containers_test.sh: the corral command in containers: as process 1 of a PID namespace beside
# another one, with a root file system that can't be written, and as a user without an entry in
# /etc/passwd.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed, 77 when nothing of it may be done here.
. "$(dirname "$0")/support/cli.sh"
unset CORRAL_STORE CORRAL_PASS_STORE CORRAL_HOST_DIR XDG_CACHE_HOME CACHE_DIRECTORY

# ---- the folder of a service ----

mkdir -m 700 first second
service="$dir/first:$dir/second"

kept_there() { # a second run is answered by the file in the first of the folders
  status 0 env -u HOME CACHE_DIRECTORY="$service" "$CORRAL" run --key a -- echo one || return 1
  status 0 env -u HOME CACHE_DIRECTORY="$service" "$CORRAL" run --key a -- echo two || return 1
  [ "$(cat out)" = one ] && [ -f first/corral/store ] && [ ! -e second/corral ]
}
check "the default store is in CACHE_DIRECTORY, the folder that systemd makes for a service" \
  kept_there

own_home() { # HOME: the user's entry in /etc/passwd counts; a look makes nothing there
  status 1 env CACHE_DIRECTORY=first HOME="$1" "$CORRAL" get no.such.key
}
home=$(getent passwd "$(id -u)" | cut -d : -f 6)
if [ -d "$home" ] && [ "$home" != / ]; then
  check "HOME=/ is no home: the user's entry in /etc/passwd has it" own_home /
  check "nor is an empty HOME, or a CACHE_DIRECTORY that is no absolute path" own_home ''
fi

# ---- PID namespaces ----

spaces=
for flags in -pf -Upf; do
  [ -z "$spaces" ] && unshare $flags --mount-proc true 2>/dev/null && spaces=$flags
done

# as_first WORD...: runs the command as process 1 of a new PID namespace.
as_first() { unshare $spaces --mount-proc --kill-child "$CORRAL" "$@"; }

hold_the_file() { # one process 1 reads from the file, and goes on until `go` is there
  as_first --store "lmdb:$dir/first/shared" run --key slow -- \
    sh -c 'touch began; until [ -e go ]; do sleep 0.02; done; echo slow' >slow 2>slow.err &
  holder=$!
  await [ -e began ]
}

same_number() {
  hold_the_file || return 1
  status 0 as_first --store "lmdb:$dir/first/shared" run --key other -- echo alone
  answer=$?
  touch go
  wait "$holder"
  [ $answer -eq 0 ] && [ "$(cat out)" = alone ] && [ "$(cat slow)" = slow ] &&
    grep -q 'in use by a process of another PID namespace with the number 1,' err
}

if [ -n "$spaces" ]; then
  check "two processes 1 don't share an lmdb: file, and are told why" same_number
else
  skip "two processes 1 on an lmdb: file" "no PID namespace may be made here"
fi

# ---- a root file system that can't be written ----

mkdir root cache
cat >enter <<'END'
set -e
mount --make-rprivate /
mount --rbind / "$1/root"
mount -o remount,bind,ro "$1/root"
mount -t tmpfs -o ro none "$1/root/dev/shm"
[ -z "$2" ] || mount -t tmpfs -o mode=700 none "$1/root$2"
shift 2
exec "$@"
END

# read_only FOLDER WORD...: runs a command where only FOLDER (empty: nothing) can be written.
read_only() {
  folder=$1
  shift
  unshare -m sh "$dir/enter" "$dir" "$folder" chroot "$dir/root" "$@"
}

goes_on() {
  status 0 read_only '' env HOME="$dir" "$CORRAL" run --key a -- echo computed &&
    [ "$(cat out)" = computed ] && grep -q 'going on without the store: .*Read-only' err
}

keeps() {
  status 0 read_only "$dir/cache" env -u HOME CACHE_DIRECTORY="$dir/cache" \
    sh -c "'$CORRAL' run --key a -- echo one && '$CORRAL' run --key a -- echo two" &&
    [ "$(cat out)" = "one
one" ] && [ ! -s err ]
}

if read_only '' true 2>/dev/null; then
  check "where nothing can be written, a command runs without the store, and that is told" goes_on
  check "with one folder that can be written, CACHE_DIRECTORY is all that is set" keeps
else
  skip "a root file system that can't be written" "no mount namespace may be made here"
fi

# ---- no entry in /etc/passwd ----

stranger=54321
nobody_s() { # WORD...: runs a command as a user whom /etc/passwd doesn't have
  setpriv --reuid $stranger --regid $stranger --clear-groups env -u HOME "$@"
}

without_entry() {
  status 0 nobody_s CACHE_DIRECTORY="$dir/theirs" "$CORRAL" run --key a -- echo one || return 1
  status 0 nobody_s CACHE_DIRECTORY="$dir/theirs" "$CORRAL" run --key a -- echo two || return 1
  [ "$(cat out)" = one ] && [ ! -s err ]
}

# Where nothing names a folder, what can be done without a store is done.
goes_on_without() { # HOME
  status 0 nobody_s HOME="$1" "$CORRAL" run --key a -- echo ran && [ "$(cat out)" = ran ] &&
    lines 1 err && grep -q 'no store: neither CORRAL_STORE.*going on without one' err &&
    status 0 nobody_s HOME="$1" "$CORRAL" -q run --key a -- echo again &&
    [ "$(cat out)" = again ] && [ ! -s err ] &&
    status 125 nobody_s HOME="$1" "$CORRAL" run --away error --key a -- touch ran &&
    grep -q 'away error forbids' err && [ ! -e ran ] &&
    status 125 nobody_s HOME="$1" "$CORRAL" get a &&
    grep -q "set CORRAL_STORE, CACHE_DIRECTORY, XDG_CACHE_HOME or HOME" err &&
    status 125 nobody_s HOME="$1" "$CORRAL" lock a -- touch ran && [ ! -e ran ] &&
    status 0 nobody_s HOME="$1" "$CORRAL" key a
}

if nobody_s "$CORRAL" --version >/dev/null 2>&1 && mkdir theirs &&
  chown $stranger:$stranger theirs; then
  chmod 711 "$dir"
  check "a user without an entry in /etc/passwd has a store, too" without_entry
  check "where nothing names a folder a run goes on without a store, and the rest says so" \
    goes_on_without ''
  check "also with HOME=/" goes_on_without /
else
  skip "a user without an entry in /etc/passwd" "this user may not become another one"
fi

exit $failed
