#!/bin/sh
# cli_stories_test.sh: nights of an operator, with real processes: an origin that has become slow, a
# store whose waiters poll, and which then is away, a value that is no longer true, a process that
# stands still in its compute. corral doctor, top, flights and log say so in each, and the story's
# alert fires, no other.
#
# CORRAL is the path of the command, CORRAL_SERVICE that of tests/stories/service.c. The services
# tell their counts in a folder for each story.
rules=$(cd "$(dirname "$0")/.." && pwd)/examples/prometheus/corral.rules.yml
. "$(dirname "$0")/support/cli.sh"
: "${CORRAL_SERVICE:?}"

stuck=
services=
# shellcheck disable=SC2086 # words
finish() { [ -z "$services$stuck" ] || kill -9 $services $stuck 2>/dev/null; }

# story NAME: what follows is about that story.
story() { export CORRAL_STATS_DIR="$dir/$1.stats" CORRAL_STORE="lmdb:$dir/$1.lmdb"; }

# serve NAME KEY THREADS [OPTION=TEXT...]: a service of the cache shop, whose origin is NAME.origin.
serve() {
  name=$1
  key=$2
  threads=$3
  shift 3
  "$CORRAL_SERVICE" "$CORRAL_STORE" shop "$key" "$name.origin" "$threads" "$@" >>"$name.log" 2>&1 &
  service=$!
  services="$services $service"
}

# origin NAME MS VALUE: from now on a compute of that story takes so long.
origin() { echo "$2 $3" >"$1.part" && mv "$1.part" "$1.origin"; }

# end_story NAME: its services end, and have said nothing.
end_story() {
  # shellcheck disable=SC2086 # words
  kill -9 $services
  services=
  [ ! -s "$1.log" ] && return
  sed 's/^/# /' "$1.log"
  return 1
}

# metric FILE SERIES: its number, of cache shop.
metric() { awk -v s="$2" 'index($0, s " ") == 1 { print int($NF) }' "$1"; }
look() { "$CORRAL" stat --prometheus >"$1"; }

# least N SERIES FILE, most N SERIES FILE: a look of which the number is so.
least() { look "$3" && [ "$(metric "$3" "$2")" -ge "$1" ] 2>>test.err; }
most() { look "$3" && [ "$(metric "$3" "$2")" -le "$1" ] 2>>test.err; }

computes='corral_events_total{cache="shop",event="compute"}'
waiting='corral_waiting{cache="shop"}'

# warns TEXT: corral doctor warns of that about the cache, and the host is fit.
warns() { status 0 "$CORRAL" doctor && grep -q "^warning: cache shop at .*: $1" out; }
silent() { status 0 "$CORRAL" doctor && ! grep '^warning: cache' out | sed 's/^/# /' | grep .; }
shows() { status 0 "$CORRAL" "$1" && grep -q -e "$2" out; }
top() { status 0 "$CORRAL" top --every 100ms --count 1 && grep -q -e "$1" out; }

# ---- alerts ----

# It makes a test of promtool of two looks at a service. It has been as in the first one, and has
# gone on for 20 minutes as between them; ALERT fires then, and no other. Of one look nothing fires.
cat >alerts.py <<'END'
import sys
before, now, alert = (sys.argv[1:] + ["", ""])[:3]

def read(name):
    types, series = {}, {}
    for line in open(name):
        if line.startswith("# TYPE "):
            types[line.split()[2]] = line.split()[3]
        elif not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            series[name] = float(value)
    return types, series

def values(name, first, last):
    is_gauge = types.get(name.split("{")[0]) == "gauge"
    return "%r %rx20" % (first, last) if is_gauge else "%r+%rx20" % (first, last - first)

types, last = read(now or before)
first = read(before)[1]
print("rule_files: [story.rules.yml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m")
print("    input_series:")
for name, value in last.items():
    labels = name.replace("{", '{instance="web1",', 1)
    print("      - series: '%s'" % labels)
    print("        values: '%s'" % values(name, first.get(name, 0), value))
print("    promql_expr_test:")
print("      - expr: count by (alertname, cache) (ALERTS{alertstate=\"firing\"})")
print("        eval_time: 20m")
if alert:
    print("        exp_samples: [{labels: '{alertname=\"%s\", cache=\"shop\"}', value: 1}]" % alert)
END

# A compute that has been running for five seconds is stuck, in this test.
sed 's/> 60$/> 5/' "$rules" >story.rules.yml
fires() {
  python3 alerts.py "$@" >story.test.yml && promtool test rules story.test.yml >promtool.out 2>&1 &&
    return
  sed 's/^/# /' promtool.out
  return 1
}
has_alerts=no
command -v python3 >/dev/null && command -v promtool >/dev/null && has_alerts=yes

# alert NAME STORY: the two looks of that story fire it alone, and the first one fires nothing.
alert() {
  if [ $has_alerts = no ]; then
    skip "the alert $1 fires, and no other" "there is no promtool, or no python3"
    return
  fi
  check "before, no alert fires" fires "$2.before"
  check "the alert $1 fires, and no other" fires "$2.before" "$2.now" "$1"
}

# ---- a compute that is stuck: it grows old while the others are told ----

story stuck
origin stuck 20 made
serve stuck report 2 ttl=100ms
stuck=$service
stands_still() {
  await least 3 "$computes" stuck.before && await most 100 "$waiting" stuck.before &&
    origin stuck 600000 late && await shows flights '^report: compute for [0-9.]*s, usually' &&
    kill -STOP $stuck
}
check "a process stands still in its compute" stands_still
services=

# ---- an origin that has become slow ----

store="slow origin"
story slow
origin slow 40 made
serve slow page 70 ttl=40ms lease=30s lease_min=5s
serve slow page 70 ttl=40ms lease=30s lease_min=5s
check "at first nobody waits for long" await most 100 "$waiting" slow.before
check "and doctor has nothing to say" await silent
await least 110 "$computes" slow.now || exit 1
origin slow 400 made
check "then more than a hundred calls wait" await least 101 "$waiting" slow.now
check "top says how many wait" await top '^waiting [0-9]\{3,\}  computing 1 '
check "top has the compute" await top '^page .* compute .* [0-9]* ms .* [0-9]*$'
check "flights says who computes since when, and how many wait" await shows flights \
  '^page: compute for .*, usually .*, [1-9][0-9]* waiting, .*(pid [0-9]*) on .*, cache shop$'
check "doctor says what lets callers go on" await warns 'waited [0-9]*\. Set stale='
alert CorralCallersPileUp slow
frozen() {
  "$CORRAL" -q control shop freeze --for 1m && await most 0 "$waiting" slow.now &&
    await most 0 'corral_flights{cache="shop"}' slow.now
}
check "after corral control freeze nobody waits any more" frozen
check "stat names the order that is followed" await shows stat \
  "^  now .*an operator's order: freeze"
check "and so does top" await top '^orders  shop: freeze'
check "the services have nothing to complain of" end_story slow

# ---- a store whose waiters poll ----

store="store that polls"
story polls
wake="corral_wake{cache=\"shop\",store=\"redis+unix://app:***@$dir/redis\",mode=\"poll\"}"
resting="corral_breaker_open{cache=\"shop\",store=\"redis+unix://app:***@$dir/redis\"}"
if redis_begin redis; then
  redis-cli -s redis ACL SETUSER app on '>secret' '~*' '&*' +@all -client >acl.out
  CORRAL_STORE=redis+unix://app:secret@$dir/redis
  origin polls 20 made
  look polls.before
  serve polls page 2 ttl=50ms
  serve polls page 2 ttl=50ms
  check "doctor says so" await warns 'wake poll\. Ask corral doctor STORE'
  check "stat counts the processes" await least 2 "$wake" polls.now
  check "top says how many poll" await top '  wake poll 2$'
  names_right() {
    status 0 "$CORRAL" doctor "$CORRAL_STORE" && grep -q '^warning: .*ACL SETUSER app +client' out
  }
  check "doctor with the store's URI says which right it lacks" names_right
  check "and shows no secret" [ "$(grep -c secret out)" = 0 ]
  alert CorralStorePolls polls
  kill -9 $server
  check "when the server is away doctor says that" await warns 'servers_resting [12]\. Start'
  check "and no longer that it lacks something" sh -c '! grep -q "wake poll\. " out'
  store="store that is away"
  check "stat counts the servers that rest" await least 2 "$resting" away.now
  cp polls.before away.before
  alert CorralStoreAway away
  check "the services have nothing to complain of" end_story polls
else
  skip "doctor, top and the alert say that waiters poll" "there is no redis-server and redis-cli"
fi

# ---- a value that is no longer true ----

store="untrue value"
story untrue
origin untrue 5 "12.50 EUR"
serve untrue price 2 ttl=1h verify=100%
verified='corral_events_total{cache="shop",event="verified"}'
differs='corral_events_total{cache="shop",event="differs"}'
check "at first all that is verified is true" await least 3 "$verified" untrue.before
check "none differs" [ "$(metric untrue.before "$differs")" = 0 ]
check "and doctor has nothing to say" await silent
"$CORRAL" --namespace shop set --ttl 1h price "9.99 EUR"
check "then hits differ from what the origin says" await least 10 "$differs" untrue.now
check "doctor says so" await warns 'differs [0-9]*\. See corral log --event differs'
names_key() {
  status 0 "$CORRAL" log --past --for 0 --event differs &&
    grep -q ' differs price, .*, [0-9]* bytes \[' out && ! grep -v ' differs price, ' out
}
check "the log has the key, and the age of the value" names_key
check "top says how many by the second" await top '^trouble/s  differs [1-9]'
check "stat has them among the trouble" await shows stat '^  trouble .*differs [1-9]'
check "and says how many of the hits are true" await shows stat \
  '^  true  *[0-9.]* % of [0-9]* verified'
alert CorralValuesDiffer untrue
true_again() {
  "$CORRAL" --namespace shop invalidate price && look untrue.before &&
    await least $(($(metric untrue.before "$verified") + 3)) "$verified" untrue.now
}
check "after corral invalidate hits are true" true_again
check "the services have nothing to complain of" end_story untrue

# ---- the stuck compute, by now ----

services=$stuck
store="stuck compute"
story stuck
check "doctor names its key and its process" \
  await warns "stuck_compute report, for [0-9.]*s in process $stuck\. Look at"
check "flights says since when, and what is usual" await shows flights \
  "^report: compute for [0-9.]*s, usually [0-9]*ms, [0-9]* waiting, .*(pid $stuck) on .*, cache"
check "top has it" await top "^report .* compute .* [0-9.]* s .* ms .* $stuck\$"
look stuck.now
alert CorralComputeStuck stuck
none_is_stuck() { status 1 "$CORRAL" flights && silent && ! grep -q stuck_compute out; }
ended() { kill -9 $stuck && await none_is_stuck; }
check "when the process is killed nothing is stuck" ended
services=
exit $failed
