#!/bin/sh
# nginx_addon_test.sh LIBRARY_FOLDER TEST...: builds the nginx module by nginx's own configure
# (src/nginx/config), from the headers of the package nginx-dev, and runs TESTs with it.
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
library=$1
shift
nginx=/usr/share/nginx/src
[ -f $nginx/conf_flags ] || { echo "SKIPPED: it wants nginx-dev"; exit 77; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
for name in auto src configure conf_flags; do ln -s "$nginx/$name" "$work/$name"; done
CORRAL_LIBS="-L$library -Wl,-rpath,$library -lcorral"
export CORRAL_LIBS

build() {
  cd "$work" &&
    bash -c ". ./conf_flags && ./configure \"\${NGX_CONF_FLAGS[@]}\" --builddir=objs \
      --add-dynamic-module=$source/src/nginx" && make -f objs/Makefile modules
}

build >"$work/log" 2>&1 || { tail -30 "$work/log"; echo "not ok - it builds"; exit 1; }
echo "ok - it builds"
CORRAL_NGINX_MODULE=$work/objs/ngx_http_corral_module.so
export CORRAL_NGINX_MODULE
failed=0
for test in "$@"; do
  if "$test" >"$work/log" 2>&1; then
    echo "ok - ${test##*/}"
  else
    sed 's/^/# /' "$work/log"
    echo "not ok - ${test##*/}"
    failed=1
  fi
done
exit $failed
