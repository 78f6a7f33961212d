#!/bin/sh
# arrows_test.sh: tests/arrows finds each kind of offence, in copies of the sources with one more
# line.
root=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d) || exit 2
trap 'rm -rf "$copy"' EXIT
failed=0

# finds FILE LINE SENTENCE: with this line at its end, the file makes the gate say so, and be red.
finds() {
  rm -rf "$copy/src" "$copy/plugins"
  cp -r "$root/src" "$root/plugins" "$copy"
  echo "$2" >>"$copy/$1"
  if said=$("$root/tests/arrows" "$copy"); then
    echo "not ok - green with $2 in $1"
    failed=1
  elif echo "$said" | grep -q "$3"; then
    echo "ok - $2 in $1"
  else
    printf 'not ok - %s in %s: it says\n%s\n' "$2" "$1" "$said"
    failed=1
  fi
}

cp -r "$root/src" "$root/plugins" "$copy"
"$root/tests/arrows" "$copy" || failed=1
finds src/store/pool.c '#include "run/run.h"' 'src/store may not include run/run.h'
finds src/record/key.h '#include "store/pool.h"' 'src/record may not include store/pool.h'
finds src/run/run.c '#include "driver/block.h"' 'src/run may not include driver/block.h'
finds src/flight/flight.c '#include "os/env.h"' 'src/flight may not include os/env.h'
finds src/store/breaker.h '#include "store/server.h"' 'src/store/breaker.c:1: in a circle'
finds plugins/redis/ops.c 'int again(void) { return crl_redis_perform(NULL, NULL, 0, NULL); }' \
  'plugins/redis/ops.c:1: in a circle'
finds plugins/redis/ops.c \
  '/* a*b */ int again(void) { return crl_redis_perform(NULL, NULL, 0, NULL); } /* **c */' \
  'plugins/redis/ops.c:1: in a circle'
finds plugins/lmdb/kv.c '#include "store/pool.h"' 'plugins/lmdb/kv.c:.* outside of the library'
finds plugins/lmdb/kv.c '#include "../../src/os/env.h"' 'a store may not include'
finds src/cli/main.c '#include "os/env.h"' 'src/cli/main.c:.* outside of the library'
finds src/os/env.c '#include "nowhere/x.h"' 'nowhere/x.h is in no room'
exit $failed
