#!/bin/sh
# http_suite.sh CHECKOUT [BUILD]: runs the public suite for HTTP caches (http-tests/cache-tests)
# against the nginx module, and against those of nginx's proxy_cache, Varnish and Apache Traffic
# Server that are installed, each before the suite's own origin.
# CHECKOUT is a work tree of the suite, in which `npm install` was done; BUILD the build's folder,
# build/release by default. CACHES names the caches, STORE corral's store, CORRAL more directives
# of its location. KEEP=FOLDER keeps the results (CACHE.json, in the suite's format).
# The script prints how many tests each cache passes, and those that corral fails, with the caches
# that pass them. It fails if there is a required one among these that another cache passes; but for
# interim-not-cached: nginx's upstreams take a 103 for the final answer.
set -u
PATH=$PATH:/usr/sbin
[ $# -ge 1 ] || { sed -n '2,10s/^# //p' "$0" >&2; exit 2; }
suite=$(cd "$1" && pwd) || exit 2
build=$(cd "${2:-$(dirname "$0")/../build/release}" && pwd) || exit 2
module=$build/nginx/ngx_http_corral_module.so
for program in node nginx; do
  command -v $program >/dev/null || { echo "SKIPPED: there is no $program" >&2; exit 77; }
done
[ -f "$module" ] ||
  { echo "SKIPPED: there is no $module: was nginx-dev there when it was built?" >&2; exit 77; }

caches=corral
command -v nginx >/dev/null && caches="$caches nginx"
command -v varnishd >/dev/null && caches="$caches varnish"
command -v traffic_server >/dev/null && caches="$caches trafficserver"
caches=${CACHES:-$caches}

folder=$(mktemp -d) || exit 2
running=
stop() {
  # shellcheck disable=SC2086 # numbers
  [ -n "$running" ] && kill $running 2>/dev/null
  wait
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM
chmod 755 "$folder"
first=$((20000 + $$ % 2000 * 5)) # five ports
origin=127.0.0.1:$first
store=${STORE:-lmdb:$folder/pages.corral}

port_of() {
  case $1 in
    corral) echo $((first + 1)) ;;
    nginx) echo $((first + 2)) ;;
    varnish) echo $((first + 3)) ;;
    trafficserver) echo $((first + 4)) ;;
    *) echo "there is no cache '$1'" >&2; exit 2 ;;
  esac
}

start_origin() {
  npm_config_protocol=http npm_config_port=$first npm_config_pidfile="$folder/origin.pid" \
    node "$suite/test-engine/server/server.mjs" >"$folder/origin.log" 2>&1 &
  last=$! running="$running $!"
}

nginx_conf() { # CACHE, with the directives of its http block on standard input
  echo "load_module $module;"
  [ "$(id -u)" = 0 ] && echo "user root;"
  echo "worker_processes 1; daemon off; pid $folder/$1.pid; error_log $folder/$1.log;"
  echo "events {} http { access_log off;"
  for kind in proxy client_body fastcgi uwsgi scgi; do echo "${kind}_temp_path $folder/$kind;"; done
  echo "proxy_http_version 1.1; proxy_set_header Connection '';"
  cat
  echo "server { listen 127.0.0.1:$(port_of "$1"); location / { proxy_pass http://$origin; } } }"
}

start_nginx() { # CACHE
  nginx_conf "$1" >"$folder/$1.conf"
  nginx -c "$folder/$1.conf" -e "$folder/$1.log" &
  last=$! running="$running $!"
}

start_cache() {
  case $1 in
    corral)
      start_nginx corral <<CONF
corral_zone pages store=$store;
corral pages;
${CORRAL:-}
CONF
      ;;
    nginx)
      start_nginx nginx <<CONF
proxy_cache_path $folder/proxy_cache keys_zone=own:8m;
proxy_cache own;
proxy_cache_revalidate on;
CONF
      ;;
    varnish)
      varnishd -F -j none -n "$folder/varnish" -a "127.0.0.1:$(port_of varnish)" -b "$origin" \
        -p default_ttl=0 -p default_grace=0 -p default_keep=3600 -s malloc,64m \
        >"$folder/varnish.log" 2>&1 &
      last=$! running="$running $!"
      ;;
    trafficserver) start_trafficserver ;;
  esac
}

start_trafficserver() {
  ats=$folder/ats
  mkdir -p "$ats/etc" "$ats/run" "$ats/cache" "$ats/log"
  cp -r /etc/trafficserver/. "$ats/etc"
  echo "$ats/cache 64M" >"$ats/etc/storage.config"
  echo "map http://127.0.0.1:$(port_of trafficserver)/ http://$origin/" >"$ats/etc/remap.config"
  cat >>"$ats/etc/records.config" <<CONF
CONFIG proxy.config.http.server_ports STRING $(port_of trafficserver)
CONFIG proxy.config.http.cache.required_headers INT 2
CONFIG proxy.config.url_remap.pristine_host_hdr INT 1
CONFIG proxy.config.admin.user_id STRING #-1
CONF
  cat >"$ats/runroot.yaml" <<CONF
prefix: $ats
exec_prefix: $ats
bindir: /usr/bin
sbindir: /usr/sbin
sysconfdir: $ats/etc
datadir: $ats/cache
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: $ats
runtimedir: $ats/run
logdir: $ats/log
cachedir: $ats/cache
CONF
  traffic_server --run-root="$ats" >"$folder/trafficserver.log" 2>&1 &
  last=$! running="$running $!"
}

# awaits succeeds once the last program that was begun has the port. One that finds the port taken
# ends.
awaits() { # PORT
  for _ in $(seq 600); do
    kill -0 "$last" || return 1
    node -e "require('net').connect($1, '127.0.0.1', () => process.exit(0)).on('error', \
      () => process.exit(1))" && sleep 3 && kill -0 "$last" && return 0
    sleep 0.1
  done
  return 1
}

version_of() {
  case $1 in
    corral) nginx -v 2>&1 | sed 's/.*nginx\//in nginx /' ;;
    nginx) nginx -v 2>&1 | sed 's/.*nginx\///' ;;
    varnish) varnishd -V 2>&1 | sed -n 's/.*varnish-\([0-9.]*\).*/\1/p' ;;
    trafficserver)
      traffic_server --version 2>&1 | sed -n 's/^Traffic Server \([0-9.]*\).*/\1/p' | head -n 1
      ;;
  esac
}

start_origin
awaits "$first" || { cat "$folder/origin.log" >&2; exit 1; }
for cache in $caches; do
  start_cache "$cache"
  awaits "$(port_of "$cache")" ||
    { echo "$cache doesn't start:" >&2; cat "$folder/$cache.log" >&2; exit 1; }
  version_of "$cache" >"$folder/$cache.version"
  npm_config_base=http://127.0.0.1:$(port_of "$cache") npm_package_config_id='' \
    node --no-warnings "$suite/test-engine/cli.mjs" >"$folder/$cache.json" || exit 1
  [ -n "${KEEP:-}" ] && cp "$folder/$cache.json" "$KEEP"
done

cat >"$folder/score.mjs" <<'SCRIPT'
import fs from 'fs'
import { pathToFileURL } from 'url'
const [suite, folder, ...caches] = process.argv.slice(2)
const load = path => import(pathToFileURL(suite + path).href)
const tests = (await load('/tests/index.mjs')).default
const { determineTestResult, resultTypes } = await load('/test-engine/lib/results.mjs')
const read = (cache, kind) => fs.readFileSync(`${folder}/${cache}.${kind}`, 'utf8')
const results = Object.fromEntries(caches.map(cache => [cache, JSON.parse(read(cache, 'json'))]))
const passes = (cache, id) => determineTestResult(tests, id, results[cache]) === resultTypes.pass
const ids = kind => tests.flatMap(part => part.tests)
  .filter(test => (test.kind ?? 'required') === kind && !test.browser_only).map(test => test.id)
const kinds = ['required', 'optimal']

console.log(`| | ${kinds.map(kind => `${kind} (${ids(kind).length})`).join(' | ')} |`)
console.log('|---|---|---|')
for (const cache of caches) {
  const counts = kinds.map(kind => ids(kind).filter(id => passes(cache, id)).length)
  console.log(`| ${cache} ${read(cache, 'version').trim()} | ${counts.join(' | ')} |`)
}
let worse = 0
for (const kind of kinds) {
  for (const id of ids(kind).filter(id => !passes('corral', id))) {
    const others = caches.filter(cache => passes(cache, id))
    if (kind === 'required' && others.length > 0 && id !== 'interim-not-cached') worse++
    console.log(`${kind} ${id}: ${results.corral[id]?.[1] ?? 'a test before it failed'}` +
      (others.length > 0 ? ` (passed by ${others.join(', ')})` : ''))
  }
}
process.exit(worse > 0 ? 1 : 0)
SCRIPT
# shellcheck disable=SC2086 # words
node "$folder/score.mjs" "$suite" "$folder" $caches
