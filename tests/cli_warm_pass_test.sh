#!/bin/sh
# cli_warm_pass_test.sh: what corral warm tells of a pass, passes that warmers share, and where the
# keys come from; as cli_warm_test.sh has it, on lmdb: and, where it says so, on a Redis of its own.
set -u

. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
CORRAL_STORE=lmdb:$dir/store
export TMPDIR CORRAL_STORE

keys() { i=$2; while [ "$i" -le "$3" ]; do echo "$1$i"; i=$((i + 1)); done; }
once() { lines "$1" "$2" && [ -z "$(sort "$2" | uniq -d)" ]; }
# number NAME FILE: prints the number under NAME of a report.
number() { sed 's/.*"'"$1"'":\([0-9]*\)[,}].*/\1/' "$2"; }
report() {
  [ "$(number "$1" out)" = "$2" ] || { echo "# not \"$1\":$2 in $(head -c 400 out)"; return 1; }
}

# ---- what is told ----

# The first two values end while the third one is computed.
ended() {
  mkfifo en.gate && keys en 1 3 >en
  "$CORRAL" --json warm en -j 1 --ttl 1s --spread 0 \
    --exec 'echo $1 >>en.runs; test $1 != en3 || read go <en.gate' >out 2>err &
  pid=$!
  await lines 3 en.runs && await eval '! "$CORRAL" get en2 >/dev/null 2>&1' && echo go >en.gate
  wait $pid
  got=$?
  [ $got -eq 1 ] && report computed 3 && [ "$(number ended out)" -ge 2 ] && once 3 en.runs &&
    grep -q "of 3 values ended before the pass did: a life of 1s can't be held at this rate" err &&
    grep -q ' 3 computed; [23] ended before the pass did in ' err
}
none_ended() {
  keys ne 1 3 >ne && status 0 "$CORRAL" --json warm ne --ttl 1h -- true && report ended 0 &&
    ! grep -q ended err
}
# A value that was found fresh ends while the next one is computed.
found_fresh() {
  mkfifo ff.gate && printf 'ff1\nff2\n' >ff
  echo ff1 | "$CORRAL" -q warm --ttl 5s --spread 0 -- true || return 1
  "$CORRAL" --json warm ff -j 1 --ttl 1h --exec 'echo $1 >>ff.runs; read go <ff.gate' >out 2>err &
  pid=$!
  await lines 1 ff.runs && await eval '! "$CORRAL" get ff1 >/dev/null 2>&1' && echo go >ff.gate
  wait $pid
  [ $? -eq 1 ] && report fresh 1 && report ended 1 && grep -q 'ended before the pass did' err
}
# The compute takes longer than the first part of a pass waits for somebody else's.
slow_once() {
  echo so >so && status 1 "$CORRAL" --json warm so --ttl 1ms --spread 0 \
    --exec 'echo x >>so.runs; sleep 0.7' && report computed 1 && report ended 1 && lines 1 so.runs
}
causes() {
  printf '7\n8\n9\nbad\n' >ca
  status 1 "$CORRAL" --json --namespace ca warm ca --exec \
    'test $1 != bad || { echo "bad: sick" >&2; exit 1; }; echo "no row for $1" >&2; exit 2' &&
    report causes_left_off 0 &&
    grep -q '"causes":\[{"count":3,"example":"[789]","reason":"exit status 2: no row' out &&
    grep -q '{"count":1,"example":"bad","reason":"exit status 1: {}: sick"}\]' out &&
    grep -q '"message":"warm: 3 not warm, such as [789]: exit status 2: no row for {}"' err
}

# ---- shared passes ----

# Each compute waits until both warmers have begun one. A life is over before the next look.
both='echo $1 >>"$RUNS"; echo $WARMER >>"$RUNS.who"
  until grep -q 1 "$RUNS.who" && grep -q 2 "$RUNS.who"; do sleep 0.01; done'
# shared N LIFE OPTION...: two warmers over N keys leave their reports in one and two.
shared() {
  n=$1 life=$2 RUNS=$dir/shared.$store.$1.runs
  shift 2
  export RUNS
  keys "sh$store$n." 1 "$n" >sh.keys
  WARMER=1 "$CORRAL" --json "$@" warm sh.keys --ttl "$life" --spread 0 --exec "$both" \
    >one 2>one.err &
  first=$!
  WARMER=2 "$CORRAL" --json "$@" warm sh.keys --ttl "$life" --spread 0 --exec "$both" \
    >two 2>two.err
  second=$?
  wait $first
  first=$?
}
# A value that is looked at within its millisecond is still fresh then.
shared_once() {
  shared 120 1ms
  once 120 "$RUNS" && [ $first -eq 1 ] && [ $second -eq 1 ] &&
    [ $(($(number computed one) + $(number computed two))) -eq 120 ] &&
    [ "$(number computed one)" -gt 0 ] && [ "$(number computed two)" -gt 0 ] &&
    [ "$(number elsewhere one)" -le "$(number computed two)" ] &&
    [ "$(number elsewhere two)" -le "$(number computed one)" ] &&
    [ "$(number ended one)" -gt 100 ] && [ "$(number ended two)" -gt 100 ] && return
  echo "# $(wc -l <"$RUNS") runs, $first, $second: $(cut -c -160 one) $(cut -c -160 two)"
  sort "$RUNS" | uniq -d | sed 's/^/# twice: /'
  return 1
}
shared_without_host() {
  shared 100 1h --no-host-lock
  once 100 "$RUNS" && [ $first -eq 0 ] && [ $second -eq 0 ] &&
    [ $(($(number computed one) + $(number fresh one))) -eq 100 ] &&
    [ $(($(number computed two) + $(number fresh two))) -eq 100 ]
}
# A warmer that begins after the pass is over begins one of its own.
shared_after() {
  keys "sa$store" 1 5 >sa
  for i in 1 2; do
    status 1 "$CORRAL" --json warm sa --ttl 1ms --spread 0 --exec 'echo $1 >>sa.runs' &&
      report computed 5 || return 1
  done
  lines 10 sa.runs && rm sa.runs
}
# Another command makes other values: its pass is another one, and the keys' leases share the work.
not_shared() {
  mkfifo ns.gate && keys ns 1 2 >ns
  "$CORRAL" --json warm ns -j 1 --ttl 1ms --spread 0 \
    --exec 'echo $1 >>ns.one; test $1 != ns2 || read go <ns.gate' >one 2>one.err &
  pid=$!
  await lines 2 ns.one &&
    status 1 "$CORRAL" --json warm ns --wait 100ms --exec 'echo $1 >>ns.two' &&
    report computed 1 && report busy 1
  got=$?
  echo go >ns.gate
  wait $pid
  [ $got -eq 0 ] && [ "$(cat ns.two)" = ns1 ]
}
# The keys of the killed one's range, here one, are the only ones that are computed again.
gated='echo $1 >>$RUNS
  test $(wc -l <$RUNS) -ne 1 || { echo $$ >>$RUNS.pid; read go <$GATE; }'
taken_over() {
  mkfifo "to$store.gate" && keys "to$store" 1 20 >to
  export RUNS="$dir/to$store.runs" GATE="$dir/to$store.gate"
  "$CORRAL" -q warm to -j 1 --ttl 1ms --spread 0 \
    --exec "$gated" &
  dead=$!
  await [ -s "$RUNS.pid" ] || return 1
  "$CORRAL" --json warm to -j 1 --ttl 1ms --spread 0 \
    --exec "$gated" >out 2>err &
  pid=$!
  await lines 20 "$RUNS" && kill -9 $dead
  wait $dead 2>/dev/null
  wait $pid
  [ $? -eq 1 ] && report computed 20 && report elsewhere 0 && lines 21 "$RUNS" &&
    [ "$(sort "$RUNS" | uniq -d)" = "to${store}1" ]
}
on_each() {
  check "two warmers compute each of 120 keys once, though each value ends at once" shared_once
  check "two warmers without a host in common compute each of 100 keys once" shared_without_host
  check "a pass that is over isn't joined" shared_after
  check "the keys of a killed warmer are taken over, and no others" taken_over
}

# ---- keys ----

sql_keys() {
  sqlite3 db 'CREATE TABLE page(id TEXT, hits INT, body TEXT);
    INSERT INTO page VALUES("cold", 1, "c"), ("hot", 9, "h"), ("mild", 5, "m"), (NULL, 7, "n");' ||
    return 1
  status 0 "$CORRAL" --json warm -j 1 --sqlite db --keys 'SELECT id FROM page ORDER BY hits DESC' \
    --exec 'echo $1 >>sk.runs' && report keys 3 &&
    [ "$(tr '\n' ' ' <sk.runs)" = 'hot mild cold ' ] &&
    status 0 "$CORRAL" --json --namespace sk warm --sqlite db --keys 'SELECT id FROM page' \
      --query 'SELECT body FROM page WHERE id = ?' && report computed 3 &&
    [ "$("$CORRAL" --namespace sk get hot)" = h ]
}
sql_keys_wrong() {
  status 125 "$CORRAL" warm --sqlite db --keys 'SELEC' -- true &&
    grep -q 'keys: .*syntax error' err &&
    status 125 "$CORRAL" warm --sqlite ./no/db --keys 'SELECT 1' -- true &&
    grep -q 'keys: unable to open' err && status 125 "$CORRAL" warm --keys 'SELECT 1' -- true &&
    grep -q -e '--keys is a statement for --sqlite, --pg or --mariadb' err &&
    status 125 "$CORRAL" warm --sqlite db --keys 'SELECT 1' &&
    grep -q 'nothing to compute with' err
}
map='<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="urn:x">
<url><loc>tale://host/cold</loc><lastmod>2026-01-01</lastmod><priority>0.1</priority></url>
<url><loc> tale://host/a%20b?c&amp;d </loc><lastmod>2024-01-01</lastmod>
  <image:image><image:loc>tale://host/image</image:loc></image:image></url>
<url><loc>tale://host/new</loc><lastmod>2025-01-01</lastmod></url>
<url><loc>tale://host/hot</loc><priority>1.0</priority></url></urlset>'
sitemap() {
  echo "$map" >map.xml && gzip -c map.xml >map.gz || return 1
  for file in map.xml map.gz; do
    status 0 "$CORRAL" --namespace $file warm -j 1 --sitemap $file \
      --exec 'echo $1 >>'$file.runs || return 1
    printf 'tale://host/%s\n' hot new 'a%20b?c&d' cold | cmp - $file.runs || return 1
  done
}
sitemap_origin() {
  echo '<urlset><url><loc>tale://host/tl%31</loc></url>
    <url><loc>tale://else/tl2</loc></url></urlset>' >origin.xml
  CORRAL_PLUGIN_PATH=$CORRAL_TEST_PLUGINS TALE_FOLDER=$dir status 1 "$CORRAL" --json warm \
    --sitemap origin.xml --origin 'tale://host/{key}' && report computed 1 && report bad_lines 1 &&
    grep -q 'tale://else/tl2: it is no page of --origin' err &&
    [ "$("$CORRAL" get tl1)" = 'value of tl1' ]
}
# refused TEXT SENTENCE: as a sitemap, the text is refused, and nothing is computed.
refused() {
  printf %s "$1" >bad.xml
  status 125 "$CORRAL" --json warm --sitemap bad.xml --exec 'echo x >>refused' &&
    report keys 0 && [ ! -e refused ] && grep -qF "$2" err
}
sitemap_refused() {
  one='<url><loc>tale://host/x</loc></url>'
  refused '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><urlset>&b;</urlset>' \
    'a document type declaration is refused' &&
    refused "<urlset>$one" 'no element found' && refused "<urlset>$one</urls>" 'mismatched tag' &&
    refused "<rss>$one</rss>" 'it is no sitemap' && refused '' 'no element found' &&
    refused '<sitemapindex><sitemap><loc>/etc/passwd</loc></sitemap></sitemapindex>' \
      '/etc/passwd is refused' &&
    refused "$(printf '\037\213\010rubbish')" 'its gzip is damaged' &&
    status 125 "$CORRAL" warm --sitemap ./absent.xml -- true &&
    grep -q 'absent.xml: No such file' err
}
sitemap_bounded() {
  { echo '<urlset>'; head -c 60000000 /dev/zero | tr '\0' ' '
    echo '</urlset>'; } | gzip -1 >big.gz
  status 125 "$CORRAL" warm --sitemap big.gz -- true && grep -q 'more than 50 MiB' err || return 1
  { echo '<urlset>'; yes '<url><loc>tale://host/x</loc></url>' | head -n 50001
    echo '</urlset>'; } >many.xml
  status 125 "$CORRAL" warm --sitemap many.xml -- true && grep -q 'more than 50000 entries' err
}

# ---- the ramp ----

# most LINE N FILE: prints how many were under way at most from that line on until N had ended. A
# compute writes b and e.
most() {
  awk -v from="$1" -v n="$2" '{ now += $1 == "b" ? 1 : -1; ends += $1 == "e" }
    NR >= from && ends < n && now > most { most = now }
    END { print most }' "$3"
}
ramp_begins() {
  keys rb 1 24 >rb && status 0 "$CORRAL" warm rb -j 12 --ramp \
    --exec 'echo b >>rb.log; sleep 0.05; echo e >>rb.log' && [ "$(most 1 4 rb.log)" -le 2 ] &&
    [ "$(grep -c b rb.log)" -eq 24 ]
}
# After 20 computes all fail, so each round halves the limit; the last 40 computes are far behind.
ramp_adapts() {
  keys ra 1 120 >ra && status 1 "$CORRAL" warm ra -j 64 --ramp \
    --exec 'echo b >>ra.log; sleep 0.1; echo e >>ra.log; test $(grep -c b ra.log) -le 20' &&
    [ "$(most 161 120 ra.log)" -le 2 ] && [ "$(grep -c b ra.log)" -eq 120 ]
}

check "values that ended before the pass did are counted, told, and change the status" ended
check "a pass without such values says nothing of them" none_ended
check "a value that was fresh and ended meanwhile is counted" found_fresh
check "a slow compute whose value ends at once is done once" slow_once
check "failures are grouped by cause, whatever their keys" causes
store=lmdb
on_each
store=
check "a warmer with another command shares no pass" not_shared
if redis_begin redis; then
  CORRAL_STORE=redis+unix://$dir/redis
  store=redis
  on_each
  store=
  CORRAL_STORE=lmdb:$dir/store
else
  skip "passes on a Redis" "there is no redis-server and redis-cli"
fi
if command -v sqlite3 >/dev/null; then
  check "keys come from a statement, in its order" sql_keys
  check "a statement for keys that makes no sense is told" sql_keys_wrong
else
  skip "keys come from a statement" "there is no sqlite3(1)"
fi
if ! "$CORRAL" warm --sitemap /dev/null -- true 2>&1 | grep -q 'built without'; then
  check "a sitemap's pages come by priority and date, gzip'd or not" sitemap
  check "a page's key is what stands for {key}" sitemap_origin
  check "what is no sitemap is refused" sitemap_refused
  check "a sitemap is bounded in bytes and entries" sitemap_bounded
else
  skip "sitemaps" "built without libexpat or zlib"
fi
check "--ramp begins with two at once" ramp_begins
check "--ramp goes back to two at once when the origin fails" ramp_adapts
exit $failed
