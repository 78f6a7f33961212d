#!/bin/sh
# cli_doctor_test.sh: corral doctor without a URI: the facts of this host and of its caches, what
# they make it warn of, and its statuses.
#
# CORRAL is the path of the command.
. "$(dirname "$0")/support/cli.sh"
CORRAL_STATS_DIR=$dir/stats
CORRAL_STORE=lmdb:$dir/store
export CORRAL_STATS_DIR CORRAL_STORE
running=
# shellcheck disable=SC2086 # words
finish() { [ -z "$running" ] || kill -9 $running 2>/dev/null; }

# fact NAME VALUE: of the host, or of a cache.
fact() { grep -q "^  $1  *$2\$" out; }
# warning ABOUT NAME VALUE: such a warning, with a fix.
warning() { grep -q "^warning: $1: $2 $3\. [A-Z].*\.\$" out; }
host=$(uname -n)

# ---- the host ----

quiet_host() {
  status 0 "$CORRAL" doctor && [ ! -s err ] && [ "$(head -n 1 out)" = "$host" ] &&
    fact files_most '[0-9]*' && fact clock_synchronised '[a-z]*' && fact shm_left '[0-9]*' &&
    fact stats_dir "$dir/stats" && fact processes 0 && fact versions none &&
    ! grep -q 'cache ' out && tail -n 1 out | grep -q "^$host: fit"
}
check "before anything is counted it tells the host's facts" quiet_host
check "it makes no folder" [ ! -e "$dir/stats" ]

only_findings() {
  status 0 "$CORRAL" -q doctor && [ ! -s err ] && ! grep -v -e '^warning: ' -e "^$host: fit" out &&
    [ "$(tail -n 1 out | cut -d : -f 1)" = "$host" ]
}
check "-q leaves the findings and the verdict" only_findings

few_files() { (ulimit -n 512 && status 0 "$CORRAL" doctor) && warning "$host" files_most 512; }
check "a low limit of open files is a warning" few_files

counted() {
  warnings=$(grep -c '^warning: ' out)
  [ "$warnings" -gt 0 ] && grep -q "^$host: fit, $warnings warning" out
}
check "the verdict counts the warnings" counted

off() { CORRAL_STATS_DIR=off status 0 "$CORRAL" doctor && warning "$host" stats_dir off; }
check "CORRAL_STATS_DIR=off is one, for then nothing is seen" off

for_a_store() {
  status 125 "$CORRAL" doctor --locks && [ ! -s out ] && grep -q 'its URI is missing' err &&
    status 125 "$CORRAL" --json doctor --locks && [ ! -s out ] && grep -q '"exit_status":125' err
}
check "--locks wants a URI" for_a_store

# ---- caches ----

# warm NAMESPACE NUMBER COMMAND: so many computes of that cache.
warm() { seq "$2" | "$CORRAL" --namespace "$1" warm --ttl 1m -- "$3" >>runs.out 2>&1; }
warm seldom 1 false
warm seldom 1 true
warm often 5 false
judged() {
  status 0 "$CORRAL" doctor && grep -q '^cache often at lmdb:' out && fact failure 5 &&
    warning 'cache often at lmdb:.*' failure 5
}
check "computes that fail are a warning, with the command that tells why" judged
seldom() { grep -q '^cache seldom at' out && ! grep '^warning: cache seldom' out; }
check "a single one is none" seldom

begin() {
  "$CORRAL" --namespace "$1" run --key slow -- sh -c "echo >$1.begun; exec sleep 300" \
    >>runs.out 2>&1 &
  running="$running $!"
  await [ -e "$1.begun" ]
}
living() {
  begin seldom && begin often && status 0 "$CORRAL" doctor && fact processes 2 &&
    fact versions '[0-9.]* (2)' && [ "$(grep -c '^  processes  *1$' out)" = 2 ]
}
check "processes are counted, by their version" living

# turn OLD NEW: writes another version, as long, into the stats files of cache often.
turn() {
  python3 - "$1" "$2" <<'END'
import os, sys
old, new = (b"\0" * 8 + text.encode() + b"\0" * 8 for text in sys.argv[1:])
folder = os.environ["CORRAL_STATS_DIR"]
for name in os.listdir(folder):
    with open(os.path.join(folder, name), "r+b") as file:
        data = file.read()
        if b"\0often\0" in data:
            file.seek(data.index(old))
            file.write(new)
END
}
two_versions() {
  version=$("$CORRAL" version | cut -d ' ' -f 2) && other=9${version#?} &&
    turn "$version" "$other" && status 0 "$CORRAL" -q doctor &&
    warning "$host" versions "\($version (1), $other (1)\|$other (1), $version (1)\)" &&
    grep -q 'Restart the processes of the older version' out && turn "$other" "$version" &&
    status 0 "$CORRAL" -q doctor && ! grep -q "^warning: $host: versions" out
}
if command -v python3 >/dev/null; then
  check "processes of two versions side by side are a warning" two_versions
else
  skip "processes of two versions side by side are a warning" "there is no python3"
fi

others_write() {
  uri=redis+unix://$dir/redis
  redis-cli -s redis SET theirs something >redis.set &&
    status 125 "$CORRAL" --store "$uri" get theirs && status 0 "$CORRAL" doctor &&
    warning 'cache (no name) at redis.*' foreign 1
}
# Its examination of a store is none of the host's caches.
leaves_no_counts() {
  "$CORRAL" stat | grep -c ' at ' >before && status 0 "$CORRAL" doctor "redis+unix://$dir/redis" &&
    "$CORRAL" stat | grep -c ' at ' >after && cmp before after
}
if redis_begin redis; then
  check "the examination of a store is not counted" leaves_no_counts
  check "one value of somebody else's is enough for a warning" others_write
else
  skip "the examination of a store is not counted" "there is no redis-server"
  skip "one value of somebody else's is enough for a warning" "there is no redis-server"
fi

# ---- JSON ----

json() {
  status 0 "$CORRAL" --json doctor && [ ! -s err ] && cp out all.json && python3 - "$host" <<'END'
import json, sys
told = json.load(open("all.json"))
assert told["host"] == sys.argv[1] and told["fit"] is True and "store" not in told
of_host = told["servers"][0]
assert of_host["server"] == "" and of_host["processes"] == 2 and of_host["files_most"] > 0
often = [s for s in told["servers"] if s["server"].startswith("cache often at lmdb:")]
assert len(often) == 1 and often[0]["failure"] == 5 and often[0]["processes"] == 1
found = [f for f in told["findings"] if f["fact"] == "failure"]
assert len(found) == 1 and found[0]["server"] == often[0]["server"], found
assert found[0]["verdict"] == "warning" and found[0]["value"] == 5
assert "corral log --event failure" in found[0]["advice"]
END
}
if command -v python3 >/dev/null; then
  check "--json is one object with the same" json
else
  skip "--json is one object with the same" "there is no python3"
fi

# ---- what can't be read ----

unreadable() {
  mkdir -m 700 theirs && CORRAL_STATS_DIR=$dir/theirs status 125 setpriv --reuid 65534 \
    --clear-groups -- "$CORRAL" doctor && [ ! -s out ] && grep -q 'theirs: Permission denied' err
}
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --clear-groups -- "$CORRAL" version >/dev/null 2>&1
then
  chmod 755 "$dir"
  check "a folder that can't be read is no verdict" unreadable
else
  skip "a folder that can't be read is no verdict" "this needs root"
fi
exit $failed
