#!/bin/sh
# cli_stat_test.sh: corral stat: a counted load of many processes, as text, JSON and Prometheus'
# text.
#
# CORRAL is the path of the command.
. "$(dirname "$0")/support/cli.sh"
export CORRAL

CORRAL_STATS_DIR=$dir/stats
CORRAL_STORE=lmdb:$dir/store
export CORRAL_STATS_DIR CORRAL_STORE
slow=
# Users that nobody else is, nor another run of this test: their numbers end with a process' id.
one=$((900000000 + $$)) other=$((2000000000 + $$))
theirs=
# shellcheck disable=SC2086 # words
finish() {
  [ -z "$slow" ] || kill $slow 2>/dev/null
  [ -z "$theirs" ] || kill -9 $theirs 2>/dev/null
  for folder in /dev/shm/corral-stats.9???????? /dev/shm/corral-stats.200???????; do
    [ -d "$folder" ] || continue
    pid=$((${folder##*.} % 100000000))
    { [ $pid -ne $$ ] && [ -d /proc/$pid ]; } || rm -rf "$folder"
  done
}

# Escapes, quotes, backslashes and bytes that are no UTF-8: no output may have them as they are.
odd=$(printf 'odd "\\ \033[31m\377\303\244')

# ---- nothing yet ----

nothing() {
  status 1 "$CORRAL" stat && [ ! -s out ] && grep -q '^corral: stat: no process has counted' err &&
    status 1 "$CORRAL" stat --json && [ ! -s out ] && grep -q '"exit_status":1' err
}
check "before anything is counted the status is 1, and a message says so" nothing

nothing_for_prometheus() {
  status 0 "$CORRAL" stat --prometheus && grep -q '^corral_processes{version="[0-9.]*"} 0$' out &&
    [ ! -s err ]
}
check "Prometheus' text is whole before anything is counted" nothing_for_prometheus

off() {
  CORRAL_STATS_DIR=off status 1 "$CORRAL" stat && grep -q 'CORRAL_STATS_DIR is off' err
}
check "with CORRAL_STATS_DIR=off the message says that nothing is counted" off

wrong_use() {
  status 125 "$CORRAL" stat --stats-dir "$dir/nowhere" && grep -q 'nowhere: No such file' err &&
    status 125 "$CORRAL" stat users && grep -q 'one argument too many' err &&
    status 125 "$CORRAL" stat --output x && grep -q 'for --prometheus' err &&
    status 125 "$CORRAL" stat --json --prometheus && grep -q 'one of them' err &&
    status 125 "$CORRAL" stat --count 2 && grep -q 'for --watch' err &&
    status 125 "$CORRAL" stat --watch=1y && grep -q -e '--watch' err &&
    status 125 "$CORRAL" stat --prometheus --output "$dir/nowhere/x" && grep -q 'nowhere/x' err
}
check "what can't be done is said, with status 125" wrong_use

# ---- a counted load ----

users() { "$CORRAL" --namespace users "$@" >>load.out 2>>load.err; }

# One computes, eight join it; then a value that is fresh for six, and two that find nothing.
load() {
  users run --key slow -- sh -c 'echo >begun; until [ -e go ]; do sleep 0.05; done; echo slow' &
  jobs=$!
  await [ -e begun ] || return 1
  for _ in 1 2 3 4 5 6 7 8; do
    users -v run --key slow -- false &
    jobs="$jobs $!"
  done
  await waiting 8 || return 1
  echo >go
  # shellcheck disable=SC2086 # words
  wait $jobs || return 1
  for _ in 1 2 3 4 5 6; do users run --key slow -- false || return 1; done
  for _ in 1 2; do
    users get nothing
    [ $? -eq 1 ] || return 1
  done
  "$CORRAL" --namespace "$odd" run --key k -- echo k >>load.out
}

# waiting N: so many processes of cache users are alive, beside the one that computes.
waiting() {
  "$CORRAL" stat --json >now.json && python3 - "$1" <<'END'
import json, sys
caches = [c for c in json.load(open("now.json"))["caches"] if c["cache"] == "users"]
now = caches[0]["now"]
sys.exit(now["processes"] != int(sys.argv[1]) + 1 or now["flights"] != 1)
END
}

if ! command -v python3 >/dev/null; then
  skip "the counts are those of a counted load" "there is no python3"
  exit $failed
fi
check "a load of many processes ends well" load

json() {
  status 0 "$CORRAL" stat --json && [ ! -s err ] && cp out all.json && python3 - <<'END'
import json
told = json.load(open("all.json"))
cache = [c for c in told["caches"] if c["cache"] == "users"][0]
results = {name: n for name, n in cache["results"].items() if n > 0}
assert results == {"computed": 1, "joined": 8, "fresh": 6, "miss": 2}, results
assert cache["gets"] == 17 and abs(cache["hit_ratio"] - 6 / 17) < 1e-5, cache
assert cache["computes"] == 1 and cache["computes_saved"] == 14, cache
assert cache["origin_saved_us"] > 0 and cache["times"]["compute"]["count"] == 1, cache
assert cache["store"].startswith("lmdb:") and cache["now"]["processes"] == 0, cache
assert told["processes"] == [], told["processes"]
END
}
check "the counts are those of the load, also of processes that have ended" json

# text_has PATTERN: the block of cache users has such a line.
text_has() { sed -n '/^users at lmdb:/,/^$/p' out | grep -q -e "$1"; }

text() {
  status 0 "$CORRAL" stat && [ ! -s err ] && grep -q '^0 processes$' out &&
    text_has '^  gets      17, hit ratio 35\.3 %$' &&
    text_has '^            fresh 6, computed 1, joined 8, miss 2$' &&
    text_has '^  computes  1, saved 14, the origin saved ' && text_has '^  compute  *1 ' &&
    [ "$(awk 'length > 80' out)" = "" ]
}
check "the text says the same in 80 columns" text

harmless() {
  status 0 env LC_ALL=C "$CORRAL" stat && ! grep -q "$(printf '\033')" out &&
    grep -qF 'odd "\ \x1b[31m\xff' out && status 0 "$CORRAL" stat --prometheus &&
    grep -qF 'cache="odd \"\\ \\x1b[31m\\xff' out
}
check "a name with escapes and other bytes is made harmless" harmless

# ---- Prometheus ----

# value SERIES FILE: the number behind a series.
value() { awk -v series="$1" 'index($0, series " ") == 1 { print $NF }' "$2"; }

prometheus() {
  status 0 "$CORRAL" stat --prometheus && [ ! -s err ] && cp out all.prom &&
    [ "$(value 'corral_gets_total{cache="users",result="joined"}' out)" = 8 ] &&
    [ "$(value 'corral_gets_total{cache="users",result="fresh"}' out)" = 6 ] &&
    [ "$(value 'corral_gets_total{cache="users",result="near"}' out)" = 0 ] &&
    [ "$(value 'corral_events_total{cache="users",event="compute"}' out)" = 1 ] &&
    [ "$(value 'corral_compute_seconds_count{cache="users"}' out)" = 1 ] &&
    [ "$(value 'corral_compute_seconds_bucket{cache="users",le="+Inf"}' out)" = 1 ] &&
    [ "$(value 'corral_fills_refused_total{cache="users",reason="fenced"}' out)" = 0 ] &&
    [ "$(value 'corral_flights{cache="users"}' out)" = 0 ] && ! grep -q '[{,]key=' out
}
check "Prometheus' text says the same, and no key is a label" prometheus

lint() {
  promtool check metrics <all.prom >lint.out 2>&1 && [ ! -s lint.out ] && return
  sed 's/^/# /' lint.out
  return 1
}
if command -v promtool >/dev/null; then
  check "promtool finds nothing wrong" lint
else
  skip "promtool finds nothing wrong" "there is no promtool"
fi

# Buckets rise, and each series is told once.
shape() {
  python3 - <<'END'
last, seen = {}, set()
for line in open("all.prom", encoding="utf-8"):
    if line.startswith("#"):
        continue
    series, number = line.rsplit(" ", 1)
    assert series not in seen, series
    seen.add(series)
    family = series.split(',le="')[0]
    if ',le="' in series:
        assert float(number) >= last.get(family, 0), series
        last[family] = float(number)
assert last and len(seen) > 100
END
}
check "buckets rise, and each series is told once" shape

replaced() {
  echo old >page.prom && chmod 640 page.prom &&
    status 0 "$CORRAL" stat --prometheus --output page.prom && [ ! -s out ] && [ ! -s err ] &&
    grep -v '^corral_processes' page.prom | cmp -s - all.rest &&
    [ "$(ls page.prom*)" = page.prom ] && [ "$(stat -c %a page.prom)" = 640 ]
}
grep -v '^corral_processes' all.prom >all.rest
check "--output replaces the file as a whole, and keeps its mode" replaced

# ---- living processes ----

living() {
  "$CORRAL" --namespace users run --key long -- sh -c 'echo >long; exec sleep 300' >long.out 2>&1 &
  slow=$!
  await [ -e long ] && await waiting 0 && status 0 "$CORRAL" stat &&
    grep -q '^1 process, corral [0-9.]*: 1$' out &&
    text_has '^  now       1 process,.* flights 1' &&
    status 0 "$CORRAL" stat --prometheus &&
    [ "$(value 'corral_flights{cache="users"}' out)" = 1 ] &&
    awk '/^corral_oldest_flight_seconds{cache="users"}/ { exit $NF > 0 ? 0 : 1 }' out &&
    grep -q '^corral_processes{version="[0-9.]*"} 1$' out
}
check "a compute that runs is told, with its process" living

# The rates of all intervals add up to the calls.
rates() {
  "$CORRAL" stat --json --watch=200ms >rates.json &
  watcher=$!
  await [ -s rates.json ] || return 1
  for _ in 1 2 3 4 5; do users run --key slow -- false || return 1; done
  await rated at_least && rated exactly
  got=$?
  kill $watcher
  return $got
}
rated() {
  python3 - "$1" <<'END'
import json, sys
calls = 0
for line in open("rates.json"):
    if line.endswith("\n"):
        told = json.loads(line)
        users = [c for c in told["caches"] if c["cache"] == "users"][0]
        calls += users["gets_per_s"] * told["interval_s"]
sys.exit(calls < 4.9 or (sys.argv[1] == "exactly" and calls > 5.1))
END
}
check "--watch tells the rates of each interval" rates

lines_of_rates() {
  status 0 "$CORRAL" stat --watch=100ms --count 3 && lines 7 out &&
    [ "$(grep -c '^time  *cache  *gets/s  *hits ' out)" = 1 ] &&
    [ "$(grep -c ' users ' out)" = 3 ] && [ "$(awk 'length > 80' out)" = "" ]
}
check "its lines fit 80 columns" lines_of_rates

page_again() {
  rm -f page.prom
  "$CORRAL" stat --prometheus --watch=100ms --output page.prom 2>watch.err &
  watcher=$!
  await [ -s page.prom ] && rm page.prom && await [ -s page.prom ] && kill -TERM $watcher &&
    await gone $watcher || kill -9 $watcher
  wait $watcher
  [ $? -eq 143 ] && [ ! -s watch.err ] && [ "$(ls page.prom*)" = page.prom ]
}
check "--watch writes --output again and again, until a signal" page_again

killed() {
  kill -9 $slow && await waiting_none && status 0 "$CORRAL" stat --json && python3 - <<'END'
import json
cache = [c for c in json.load(open("out"))["caches"] if c["cache"] == "users"][0]
assert cache["results"]["fresh"] == 11 and cache["computes"] == 2, cache
assert cache["now"]["processes"] == 0 and cache["now"]["flights"] == 0, cache
END
}
waiting_none() { "$CORRAL" stat | grep -q '^0 processes$'; }
check "the counts of a process that was killed stay, and what it did is over" killed

nowhere() {
  CORRAL_STATS_DIR=off status 1 "$CORRAL" stat && grep -q 'CORRAL_STATS_DIR is off' err &&
    CORRAL_STATS_DIR=here status 1 "$CORRAL" stat && grep -q 'no absolute path, nor off' err
}
check "stat says why nothing is counted" nowhere

# ---- made-up names ----

# Stats files of 1030 namespaces, copies of one of cache users.
make_many() {
  mkdir -m 700 many && python3 - <<'END'
import os
text = b"\0users" + b"\0" * 8
folder = os.environ["CORRAL_STATS_DIR"]
files = [open(os.path.join(folder, name), "rb").read() for name in os.listdir(folder)]
file = [data for data in files if text in data][0]
for i in range(1030):
    data = file.replace(text, text.replace(b"users", b"n%04d" % i))
    with open("many/%016x.0" % i, "wb") as out:
        for at in range(0, len(data), 4096):
            if data[at:at + 4096].strip(b"\0"):
                out.seek(at)
                out.write(data[at:at + 4096])
        out.truncate(len(data))
END
}
summed() {
  status 0 "$CORRAL" stat --json --stats-dir "$dir/many" && cp out many.json && lines 1 err &&
    grep -q 'stat: more than 1024 caches .*: the rest is summed as (others)' err &&
    python3 - <<'END'
import json
caches = json.load(open("many.json"))["caches"]
others = [c for c in caches if c["cache"] == "(others)"]
each = [c for c in caches if c["cache"] != "(others)"]
gets = each[0]["gets"]
assert gets > 0 and all(c["gets"] == gets for c in each) and len(each) == 1024, len(each)
assert [c["cache"] for c in each] == ["n%04d" % i for i in range(1024)]
assert len(others) == 1 and others[0]["store"] == "several stores", others
assert others[0]["gets"] == 6 * gets and others[0]["computes"] == 6 * each[0]["computes"]
END
}
summed_for_all() {
  status 0 "$CORRAL" -q stat --prometheus --stats-dir "$dir/many" && [ ! -s err ] &&
    [ "$(grep -c '^corral_waiting{' out)" = 1025 ] &&
    grep -q '^corral_waiting{cache="(others)"} ' out &&
    status 0 "$CORRAL" -q stat --stats-dir "$dir/many" && [ "$(grep -c ' at ' out)" = 1025 ] &&
    grep -qx '(others) at several stores' out &&
    status 0 "$CORRAL" stat --watch=100ms --count 2 --stats-dir "$dir/many" && lines 1 err &&
    [ "$(grep -c ' (others) ' out)" = 2 ]
}
check "stats files of a thousand namespaces are made" make_many
check "caches beyond 1024 are one row, and a message says so" summed
check "as text and for Prometheus, too" summed_for_all
rm -rf many

# ---- other users ----

unreadable() {
  mkdir -m 700 "$dir/theirs" && status 125 setpriv --reuid 65534 --clear-groups -- \
    "$CORRAL" stat --stats-dir "$dir/theirs" && grep -q 'theirs: Permission denied' err
}
# exec_as UID WORD...: becomes corral, as that user, who counts in the default folder.
exec_as() {
  uid=$1
  shift
  exec env -u CORRAL_STATS_DIR TMPDIR=/tmp CORRAL_STORE=memory: \
    setpriv --reuid "$uid" --regid "$uid" --clear-groups -- "$CORRAL" --namespace "both-$$" "$@"
}
as() { (exec_as "$@"); }
begin_as() {
  exec_as "$1" run --key slow -- sleep 300 >"$1.out" 2>&1 &
  theirs="$theirs $!"
}
# sees UID...: the object in out has one compute and one process of each of these users. Prints
# the users in the order told.
sees() {
  python3 - "both-$$" "$one" "$other" "$@" <<'END'
import json, sys
told = json.load(open("out"))
name, users, wanted = sys.argv[1], sys.argv[2:4], sys.argv[4:]
caches = [c for c in told["caches"] if c["cache"] == name]
assert len(caches) == 1 and caches[0]["store"].startswith("memory:"), caches
assert caches[0]["computes"] == len(wanted), caches
now = caches[0]["now"]
assert now["processes"] == len(wanted) and now["flights"] == len(wanted), now
found = []
for process in told["processes"]:
    try:
        status = open("/proc/%d/status" % process["pid"]).read()
    except OSError:
        continue
    uid = status.split("Uid:")[1].split()[0]
    found += [uid] if uid in users else []
assert sorted(found) == sorted(wanted), found
print(*found)
END
}
root_sees_both() {
  env -u CORRAL_STATS_DIR "$CORRAL" stat --json >out 2>err </dev/null &&
    sees "$one" "$other" >users 2>sees.err
}
both_are_summed() {
  begin_as "$other" && begin_as "$one" && await root_sees_both &&
    [ "$(cat users)" = "$one $other" ]
}
one_sees_own() {
  status 0 as "$one" stat --json && sees "$one" >users &&
    grep -q 'left out, because only their user and root may read it: /dev/shm/corral-stats' err &&
    status 0 as "$one" -q stat && [ ! -s err ] && grep -q '^1 process, ' out &&
    status 0 as "$other" -q stat --json && [ ! -s err ] && sees "$other" >users
}
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --clear-groups -- "$CORRAL" version >/dev/null 2>&1
then
  chmod 755 "$dir"
  check "a folder that can't be read is named" unreadable
  check "root sums the processes of all users, the smallest number first" both_are_summed
  check "an ordinary user sees his own, and no error" one_sees_own
else
  for sentence in "a folder that can't be read is named" "root sums the processes of all users" \
    "an ordinary user sees his own"; do skip "$sentence" "this needs root"; done
fi

exit $failed
