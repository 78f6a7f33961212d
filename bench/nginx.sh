#!/bin/sh
# The benchmark compares hits of the nginx module with hits of nginx's own proxy_cache: the same
# page, in the same run, by wrk against one worker.
#   cmake --workflow --preset release && bench/nginx.sh [BUILD]
# BUILD is the build's folder, build/release by default.
# Rounds alternate between the four locations; each figure is the median of its rounds.
# Judged are requests per second of the worker's processor time, which other programs on the machine
# hardly change: the near tier must reach 1.2x of proxy_cache, hits from the store 0.9x.
set -u
build=$(cd "${1:-$(dirname "$0")/../build/release}" && pwd) || exit 2
module=$build/nginx/ngx_http_corral_module.so
PATH=$PATH:/usr/sbin
seconds=${SECONDS_EACH:-3} rounds=${ROUNDS:-5} connections=${CONNECTIONS:-32} bytes=${BYTES:-2000}
for program in nginx wrk redis-server; do
  command -v $program >/dev/null || { echo "SKIPPED: there is no $program" >&2; exit 77; }
done
[ -f "$module" ] ||
  { echo "SKIPPED: there is no $module: was nginx-dev there when it was built?" >&2; exit 77; }

folder=$(mktemp -d) || exit 2
redis=
stop() {
  [ -f "$folder/pid" ] && kill "$(cat "$folder/pid")"
  [ -n "$redis" ] && kill "$redis"
  wait
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM

port=$((20000 + $$ % 10000))
origin=http://127.0.0.1:$((port + 1))/
redis-server --port 0 --unixsocket "$folder/redis" --save '' --appendonly no --daemonize no \
  >"$folder/redis.log" 2>&1 &
redis=$!
mkdir "$folder/www"
head -c "$bytes" /dev/zero | tr '\0' x >"$folder/www/page.txt"
chmod -R a+rX "$folder"
cat >"$folder/nginx.conf" <<END
load_module $module;
worker_processes 1;
pid $folder/pid;
error_log $folder/error.log;
events { worker_connections 1024; }
http {
  access_log off;
  keepalive_requests 1000000000;
  default_type text/plain;
  proxy_temp_path $folder/temp; client_body_temp_path $folder/temp;
  fastcgi_temp_path $folder/temp; uwsgi_temp_path $folder/temp; scgi_temp_path $folder/temp;
  proxy_cache_path $folder/cache keys_zone=own:10m;
  corral_zone near store=redis+unix://$folder/redis near=64m near_ttl=10s namespace=near;
  corral_zone store store=redis+unix://$folder/redis near=off namespace=store;
  server { listen 127.0.0.1:$port;
    root $folder/www;
    location /static/ { alias $folder/www/; }
    location /proxy_cache/ { proxy_cache own; proxy_cache_valid 1h; proxy_pass $origin; }
    location /near/ { corral near; corral_valid 1h; proxy_pass $origin; }
    location /store/ { corral store; corral_valid 1h; proxy_pass $origin; } }
  server { listen 127.0.0.1:$((port + 1)); root $folder/www; }
}
END
[ "$(id -u)" = 0 ] && sed -i '1i user root;' "$folder/nginx.conf"
nginx -c "$folder/nginx.conf" -e "$folder/error.log" || exit 1

names="static proxy_cache near store"
# The command is back before the server has written its number, and begun its worker.
await_worker() {
  for _ in $(seq 300); do
    master=$(cat "$folder/pid" 2>/dev/null) &&
      worker=$(cat "/proc/$master/task/$master/children" 2>/dev/null) && worker=${worker%% *}
    [ -z "$worker" ] || return 0
    sleep 0.1
  done
  echo "nginx has no worker" >&2
  return 1
}
worker=
await_worker || exit 1
# The worker's processor time so far, in ticks: the 14th and 15th field, the name being one word.
ticks() { awk '{ print $14 + $15 }' "/proc/$worker/stat"; }
hertz=$(getconf CLK_TCK)
url() { echo "http://127.0.0.1:$port/$1/page.txt"; }
for name in $names; do
  wrk -t1 -c4 -d1 "$(url $name)" | grep -q 'Non-2xx' &&
    { echo "$name: wrong answers" >&2; cat "$folder/error.log" >&2; exit 1; }
done
round=0
while [ $round -lt "$rounds" ]; do
  for name in $names; do
    before=$(ticks)
    wrk -t1 -c"$connections" -d"$seconds" "$(url $name)" >"$folder/out"
    used=$(($(ticks) - before))
    grep -q 'Non-2xx\|Socket errors' "$folder/out" && { cat "$folder/out" >&2; exit 1; }
    awk '/^Requests\/sec/ { print $2 }' "$folder/out" >>"$folder/$name"
    awk -v used=$used -v hertz="$hertz" '/ requests in / { print $1 * hertz / used }' \
      "$folder/out" >>"$folder/$name.worker"
  done
  round=$((round + 1))
done
median() { sort -n "$folder/$1" | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
base=$(median proxy_cache) worker_base=$(median proxy_cache.worker)
for name in $names; do
  echo "$name $(median $name) $(median $name.worker)" | awk -v base="$base" -v own="$worker_base" \
    '{ printf "%-12s %7.0f requests/s, %.2f of proxy_cache; %7.0f per second of the worker, %.2f\n",
       $1, $2, $2 / base, $3, $3 / own }'
done
near=$(median near.worker) store=$(median store.worker)
awk -v base="$worker_base" -v near="$near" -v store="$store" \
  'BEGIN { exit !(near >= 1.2 * base && store >= 0.9 * base) }' ||
  { echo "below what is asked for" >&2; exit 1; }
