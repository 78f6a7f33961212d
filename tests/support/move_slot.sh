#!/bin/sh
# move_slot.sh PORT... KEY: moves the slot of KEY to the next of a cluster's primaries, which listen
# at these ports of 127.0.0.1.
set -eu
ports=
while [ $# -gt 1 ]; do
  ports="$ports $1"
  shift
done
key=$1

at() { # PORT COMMAND...
  port=$1
  shift
  redis-cli -p "$port" "$@"
}

tells() { # PORT COMMAND...: it must be answered by OK
  answer=$(at "$@")
  [ "$answer" = OK ] || { echo "move_slot: $*: $answer" >&2; exit 1; }
}

first=${ports# } first=${first%% *}
slot=$(at "$first" cluster keyslot "$key")
place=$(at "$first" strlen "$key")
case $place in
  MOVED*) from=${place##*:} ;;
  *) from=$first ;;
esac
to=$first
for port in $ports; do
  [ "$port" != "$from" ] || { to=; continue; }
  [ -n "$to" ] || { to=$port; break; }
done
[ -n "$to" ] || to=$first

from_id=$(at "$from" cluster myid) to_id=$(at "$to" cluster myid)
tells "$to" cluster setslot "$slot" importing "$from_id"
tells "$from" cluster setslot "$slot" migrating "$to_id"
while :; do
  keys=$(at "$from" cluster getkeysinslot "$slot" 100)
  [ -n "$keys" ] || break
  for name in $keys; do
    case $(at "$from" migrate 127.0.0.1 "$to" "$name" 0 5000) in
      OK | NOKEY) ;;
      *) echo "move_slot: $name can't be moved" >&2; exit 1 ;;
    esac
  done
done
for port in "$to" $ports; do tells "$port" cluster setslot "$slot" node "$to_id"; done
