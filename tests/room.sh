#!/bin/sh
# Runs a command in a room: folders for its temporary files, /tmp/corral.PID and
# /dev/shm/corral.PID, which are removed when the command has ended.
#   room.sh COMMAND [ARGUMENT]...
# The command finds them in CORRAL_ROOM, which TMPDIR equals, and CORRAL_SHM. A room is locked as
# long as its owner lives; rooms of owners that were killed are removed by the next run.
set -u

bases="/tmp /dev/shm"
[ -w /dev/shm ] || bases=/tmp

# A process may still be writing to a folder that is being removed.
discard() { # FOLDER
  for _ in 1 2 3; do rm -rf "$1" 2>/dev/null && return; done
}

# The owner of a room that is not locked yet lives.
sweep() { # FOLDER
  [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] || return 0
  owner=${1##*.}
  [ "$owner" = $$ ] || [ ! -d "/proc/$owner" ] || return 0
  flock -n "$1" true && discard "$1"
}

for base in $bases; do
  for old in "$base"/corral.*[0-9]; do sweep "$old"; done
done

CORRAL_ROOM=/tmp/corral.$$ CORRAL_SHM=/tmp/corral.$$
mkdir "$CORRAL_ROOM" && exec 8<"$CORRAL_ROOM" && flock -n 8 || exit 99
trap 'discard "$CORRAL_ROOM"; [ "$CORRAL_SHM" = "$CORRAL_ROOM" ] || discard "$CORRAL_SHM"' EXIT
trap 'exit 130' INT TERM HUP
if [ "$bases" != /tmp ]; then
  CORRAL_SHM=/dev/shm/corral.$$
  mkdir "$CORRAL_SHM" && exec 9<"$CORRAL_SHM" && flock -n 9 || exit 99
fi
chmod 755 "$CORRAL_ROOM" "$CORRAL_SHM" # servers may run as other users
TMPDIR=$CORRAL_ROOM CORRAL_HOST_DIR=$CORRAL_ROOM/host
CORRAL_STATS_DIR=$CORRAL_SHM/stats
mkdir -m 700 "$CORRAL_HOST_DIR" "$CORRAL_STATS_DIR"
export CORRAL_ROOM CORRAL_SHM TMPDIR CORRAL_HOST_DIR CORRAL_STATS_DIR
"$@" 8<&- 9<&-
