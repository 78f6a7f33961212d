#!/bin/sh
# cli_storm_test.sh: corral storm as a user sees it: its schedule, its table, its page. What a
# browser makes of the page is in storm_page_test.sh.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed.
set -u

. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
export TMPDIR
unset CORRAL_STORE

small="--processes 2 --threads 3 --load 2000 --ttl 100ms --duration 500ms"

# ---- schedule ----

# judges CONDITION: python3 finds it true of the JSON in out, with its modes in m.
judges() {
  python3 -c 'import json, sys
o = json.load(open("out"))
m = {mode["mode"]: mode for mode in o["modes"]}
due = {name: mode["requests"] + mode["cut_off"] for name, mode in m.items()}
ok = eval("(" + sys.argv[1] + ")")
if not ok: print("#", sys.argv[1], json.dumps(o)[:900])
sys.exit(not ok)' "$1"
}

# shellcheck disable=SC2086 # words
both() {
  status 0 "$CORRAL" -q --json storm $small --keys 5 --rate 1000 &&
    judges 'list(m) == ["none", "corral"] and
      all(x["requests"] > 0 and x["computes"] > 0 and x["wrong"] == 0 and x["errors"] == 0
          for x in m.values())' &&
    judges 'due["none"] == due["corral"] and 400 < due["corral"] < 600' &&
    judges 'all(x["p50_us"] <= x["p90_us"] <= x["p99_us"] <= x["p999_us"] <= x["max_us"]
      for x in m.values())' &&
    judges 'all(sum(x["timeline"]) <= x["computes"] and 1 <= max(x["at_once"]) <= 6
      for x in m.values())'
}

# shellcheck disable=SC2086
again() {
  status 0 "$CORRAL" -q --json storm $small --keys 9 --rate 1000 --mode corral && mv out first &&
    status 0 "$CORRAL" -q --json storm $small --rate 1000 --mode none &&
    judges 'json.load(open("first"))["modes"][0]["requests"]
      + json.load(open("first"))["modes"][0]["cut_off"] == due["none"]'
}

# One thread computes for each request. Where nearly all are late and all are answered, their waits
# are far longer than the queries: the time in the database is the sum of what a thread that counts
# from its own start would see. A rate that is such a load is looked for.
late='m["none"]["cut_off"] == 0 and m["none"]["late"] > 0.9 * m["none"]["requests"]'
waiting() {
  for rate in 3200 1600 800 400 200 100 50 3200 1600 800 400 200 100 50; do
    status 0 "$CORRAL" -q --json storm --mode none --processes 1 --threads 1 --keys 100000 \
      --zipf 0 --load 5000 --duration 500ms --rate $rate || return
    judges "$late" >/dev/null || continue
    judges 'm["none"]["p50_us"] * m["none"]["requests"] / 2 > m["none"]["database_us"]'
    return
  done
  echo "# at no rate were nearly all requests late, and all answered"
  return 1
}

# Ten times as many requests as one thread can serve in three times the span.
unanswered() {
  status 0 "$CORRAL" storm --mode none --processes 1 --threads 1 --keys 100000 --zipf 0 \
    --rate 1500 --duration 200ms &&
    grep -q '^none: [0-9]* requests had no answer at the end' out
}

# shellcheck disable=SC2086
killed() {
  status 0 "$CORRAL" -q --json storm --mode corral --processes 2 --threads 2 --rate 200 --load 200 \
    --ttl 1ms --duration 3s --kill-every 100ms &&
    judges 'm["corral"]["kills"] > 0 and m["corral"]["cut_off"] == 0' &&
    judges 'm["corral"]["wrong"] == 0 and m["corral"]["errors"] == 0'
}

if command -v python3 >/dev/null 2>&1 && python3 -c pass 2>/dev/null; then
  check "both modes get the same requests, count computes, and give no wrong value" both
  check "a schedule is the same in each run, whatever the keys" again
  check "a request that is due while all threads are busy waits from then on" waiting
  check "the requests of a killed process are taken over, and all are answered" killed
else
  skip "the schedule" "no python3"
fi
check "requests without an answer are told" unanswered

# ---- table ----

# shellcheck disable=SC2086
table() {
  status 0 env LC_ALL=C "$CORRAL" storm $small --rate 1000 &&
    grep -q '^mode  *requests computes  *p50  *p90  *p99  *p99.9  *max  *late errors$' out &&
    grep -Eq '^p99: 99 of 100 requests waited at most .* with corral, .* without\.$' out &&
    [ "$(awk 'length > 80' out err)" = "" ] && [ -z "$(tr -d '\n -~' <out)" ]
}
check "the table says what users felt, and how to read it, in 80 columns of ASCII" table
first() { [ "$(grep -m 1 '[0-9]' out | cut -c 1-4)" = mode ]; }
check "the first numbers of the output are that table" first

# shellcheck disable=SC2086
next() {
  ln -sf "$CORRAL" here && status 0 ./here storm $small --mode corral &&
    grep -q '^  \./here run --ttl 5m -- \./report\.sh' out &&
    status 0 ./here -q storm $small --mode corral && ! grep -q 'Try next' out
}
check "the last lines are commands to type next, by the name that was called" next

many() { status 125 "$CORRAL" storm --rate 1000000 --duration 1h && grep -q 'are too many' err; }
check "a schedule that is too long is refused" many
none() { status 125 "$CORRAL" storm --rate 1 --duration 100ms && grep -q 'higher --rate' err; }
check "a schedule without a request is refused" none

# ---- page ----

page="$small --rate 1000"
# shellcheck disable=SC2086
self_contained() {
  mkdir -p plots && (umask 027 && status 0 "$CORRAL" -q storm $page --html plots/p.html) &&
    [ "$(ls plots)" = p.html ] && [ "$(stat -c %a plots/p.html)" = 640 ] &&
    [ "$(grep -c '<svg' plots/p.html)" = 8 ] && [ "$(tail -n 1 plots/p.html)" = "</html>" ] &&
    ! grep -Ei '://|<script|<img|<link|src=|url\(|@import|href' plots/p.html &&
    ! grep -F -e "$dir" -e "$(uname -n)" plots/p.html
}
check "the page is one file, loads nothing, and names no machine" self_contained

# shellcheck disable=SC2086
behind_link() {
  echo old >real && chmod 600 real && ln -s real link &&
    status 0 "$CORRAL" -q storm $page --mode corral --html link &&
    [ -L link ] && [ "$(stat -c %a real)" = 600 ] && grep -q '<svg' real
}
check "a page that is there is replaced, behind a link, and keeps its mode" behind_link

refused() { # TEXT FILE
  status 125 "$CORRAL" storm --html "$2" && lines 1 err && grep -qF "$1" err && [ ! -s out ]
}
check "a folder that isn't there is told before the storm" refused 'No such file' nowhere/p.html
check "a folder is no page" refused 'Is a directory' plots
check "a device is no page" refused 'not a regular file' /dev/full
check "an empty name is no page" refused 'No such file' ''

cat >full <<'END'
mount -t tmpfs -o size=8k none "$1/tiny" && cd "$1" || exit
shift
echo old >tiny/p.html
"$@"
status=$?
ls -A tiny
cat tiny/p.html
exit $status
END
# shellcheck disable=SC2086
full_disk() {
  status 125 unshare -m sh full "$dir" "$CORRAL" -q --json storm $page --html tiny/p.html &&
    grep -q 'tiny/p.html: No space left' err && [ "$(tail -n 2 out)" = "p.html
old" ] && return 0
  echo "# $(tail -n 2 out): $(head -c 400 err)"
  return 1
}
mkdir tiny
if unshare -m sh -c 'mount -t tmpfs -o size=8k none "$0"' tiny 2>/dev/null; then
  check "on a full disk the old page stays, and no part of the new one" full_disk
else
  skip "a page on a full disk" "no small tmpfs may be mounted here"
fi

storming() { [ -n "$(ls cut)" ]; }
interrupted() {
  mkdir cut
  "$CORRAL" -q storm --duration 1h --rate 10 --html cut/p.html >out 2>err &
  storm=$!
  await storming
  kill -TERM "$storm"
  wait "$storm"
  [ $? -eq 143 ] && [ -z "$(ls -A cut)" ]
}
check "a storm that is interrupted leaves no page" interrupted

clean() { [ -z "$(find "$dir" -maxdepth 1 -name 'corral-storm-*')" ]; }
check "storm leaves no folder behind" clean

# shellcheck disable=SC2086
kills() {
  status 0 env LC_ALL=C "$CORRAL" storm --mode corral $small --ttl 1ms --kill-every 50ms &&
    grep -q 'killed while computing' out && [ "$(awk 'length > 80' out)" = "" ]
}
check "storm --kill-leader goes on with new processes" kills

exit $failed
