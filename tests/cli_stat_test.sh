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
finish() { [ -z "$slow" ] || kill $slow 2>/dev/null; }

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

# What the text has for a name within the block of cache users.
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

# ---- other users ----

unreadable() {
  mkdir -m 700 "$dir/theirs" && status 125 setpriv --reuid 65534 --clear-groups -- \
    "$CORRAL" stat --stats-dir "$dir/theirs" && grep -q 'theirs: Permission denied' err
}
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --clear-groups -- "$CORRAL" version >/dev/null 2>&1
then
  chmod 755 "$dir"
  check "a folder that can't be read is named" unreadable
else
  skip "a folder that can't be read is named" "this needs root"
fi

exit $failed
