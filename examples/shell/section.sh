#!/bin/sh
# section.sh: a script with a section of its own under a lock, on all hosts that share the store.
#
# The lock is this script's: it is held until --release, or until the script ends, however it does.
# exec 9>/run/lock/deploy; flock 9 is that for one host.
set -u
: "${CORRAL_STORE:?names a store that all hosts share, such as redis://cache.example/0}"

trap 'echo "section.sh: the lock was lost" >&2; exit 76' USR1
fence=$(corral lock --take --wait 10m --lost-signal USR1 --fence deploy) || exit

echo "step one, token $fence"
corral lock --check deploy || exit # before what can't be undone
echo "step two"

corral lock --release deploy || exit
echo "what follows is outside of the section"
