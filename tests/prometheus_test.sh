#!/bin/sh
# prometheus_test.sh: the alert rules of examples/prometheus are right by promtool and by their unit
# tests, and one of them fires and ends in a real Prometheus that scrapes corral stat.
#
# CORRAL is the path of the command. Without promtool and Prometheus the test is skipped.
rules=$(cd "$(dirname "$0")/.." && pwd)/examples/prometheus/corral.rules.yml
unit=$(cd "$(dirname "$0")" && pwd)/prometheus/corral.rules.test.yml
. "$(dirname "$0")/support/cli.sh"

for tool in promtool prometheus python3; do
  command -v $tool >/dev/null && continue
  echo "SKIPPED: there is no $tool"
  exit 77
done
pids=
# shellcheck disable=SC2086 # words
finish() { [ -z "$pids" ] || kill -9 $pids 2>/dev/null; }
CORRAL_STATS_DIR=$dir/stats
CORRAL_STORE=lmdb:$dir/store
export CORRAL_STATS_DIR CORRAL_STORE

# quiet COMMAND...: it succeeds; else its output is shown.
quiet() {
  "$@" >tool.out 2>&1 && return
  sed 's/^/# /' tool.out
  return 1
}

check "promtool finds nothing wrong in the rules" quiet promtool check rules "$rules"
cp "$rules" "$unit" .
check "each alert fires for what it is about" quiet promtool test rules corral.rules.test.yml

# A rule that is silent is found by its unit test.
control() {
  mkdir -p silent && cp "$unit" silent && sed 's/> 0$/> 1000/' "$rules" >silent/corral.rules.yml &&
    ! promtool test rules silent/corral.rules.test.yml >tool.out 2>&1 &&
    grep -q 'CorralStoreAway' tool.out
}
check "the unit tests find a rule that is silent" control

# ---- a real Prometheus ----

# The metrics that the alerts ask for are those that corral stat tells.
names_are_told() {
  "$CORRAL" --namespace users run --key told -- true &&
    "$CORRAL" stat --prometheus >told.prom &&
    for name in $(grep -o 'corral_[a-z_]*' "$rules" | sort -u); do
      grep -q "^# TYPE $name " told.prom || { echo "# $name isn't told"; return 1; }
    done
}
check "the rules ask for metrics that there are" names_are_told

# serve FOLDER: an HTTP server of those files; its port is in the file port.
cat >serve.py <<'END'
import functools, http.server, os, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
with open("port.part", "w") as f:
    f.write("%d\n" % server.server_address[1])
os.rename("port.part", "port")
server.serve_forever()
END

# A port that nobody listens on now.
free_port() {
  python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# The bounds of the rules are for a service, those here for a test.
configure() {
  sed -e 's/> 60$/> 1/' -e 's/for: .*/for: 1s/' "$rules" >fast.rules.yml
  cat >prometheus.yml <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$dir/fast.rules.yml]
scrape_configs:
  - job_name: corral
    metrics_path: /corral.txt
    static_configs: [targets: ["127.0.0.1:$(cat port)"]]
END
}

start() {
  mkdir -p pages data
  "$CORRAL" stat --prometheus --watch=500ms --output pages/corral.txt 2>writer.err &
  pids="$pids $!"
  python3 serve.py pages 2>serve.err &
  pids="$pids $!"
  await [ -s pages/corral.txt ] && await [ -s port ] && configure || return 1
  for _ in 1 2 3 4 5; do # somebody may have taken the port meanwhile
    listen=$(free_port) || return 1
    prometheus --config.file=prometheus.yml --storage.tsdb.path="$dir/data" \
      --web.listen-address="127.0.0.1:$listen" >prometheus.log 2>&1 &
    prometheus=$!
    pids="$pids $prometheus"
    await answers_or_gone && ! gone $prometheus && return
  done
  tail -3 prometheus.log
  return 1
}
answers_or_gone() { alerts >alerts.out || gone $prometheus; }

# alerts: the alerts that are firing, a line each.
alerts() {
  python3 - "$listen" <<'END'
import json, sys, urllib.request
url = "http://127.0.0.1:%s/api/v1/alerts" % sys.argv[1]
try:
    told = json.load(urllib.request.urlopen(url, timeout=10))
except OSError:
    sys.exit(1)
for alert in told["data"]["alerts"]:
    if alert["state"] == "firing":
        print(alert["labels"]["alertname"], alert["labels"].get("cache"))
END
}

is_firing() { alerts | grep -q '^CorralComputeStuck users$'; }
is_silent() { alerts >alerts.out && ! grep -q CorralComputeStuck alerts.out; }

fires() {
  is_silent || return 1
  "$CORRAL" --namespace users run --key stuck -- sleep 300 &
  stuck=$!
  pids="$pids $stuck"
  await is_firing || { tail -3 prometheus.log; return 1; }
}

ends() { kill -9 $stuck && await is_silent && [ ! -s writer.err ]; }

check "a real Prometheus reads what corral stat writes" start
check "a stuck compute fires its alert" fires
check "the alert ends with the compute" ends
exit $failed
