#!/bin/sh
# nginx_versions.sh BUILD FOLDER SOURCE...: builds nginx from each SOURCE, with the module, and runs
# the module's tests with it. A SOURCE is one of:
#   PATH         a source tree of nginx, or OpenResty's bundle/nginx-VERSION
#   PATH@TAG     that tag of a git repository of nginx
#   static:...   either of them, with the module as a part of nginx (--add-module)
# BUILD is a build of the preset dev. What is built goes to FOLDER/NAME, a log to FOLDER/NAME.log.
# The script prints a line for each SOURCE, and the sums. CC is the compiler.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 3 ] || { echo "usage: nginx_versions.sh BUILD FOLDER SOURCE..." >&2; exit 2; }
mkdir -p "$2" && build=$(cd "$1" && pwd) && folder=$(cd "$2" && pwd) || exit 2
shift 2
passed=0 failed=0
CORRAL_LIBS="-L$build -Wl,-rpath,$build -lcorral"
export CORRAL_LIBS
# The modules of Debian's nginx that filter or ask for pages; and HTTP/3, where there is one.
MODULES="http_ssl http_v2 http_slice http_auth_request http_realip http_addition http_sub
 http_gunzip http_gzip_static http_stub_status"

# tree copies a source to TO.
tree() { # SOURCE TO
  rm -rf "$2" && mkdir "$2" || return 1
  case $1 in
    *@*) git -C "${1%@*}" archive "${1##*@}" | tar -C "$2" -xf - ;;
    *) cp -R "$1/." "$2" ;;
  esac && { [ -x "$2/configure" ] || cp "$2/auto/configure" "$2"; }
}

# made builds nginx and the module in objs/ of a tree.
made() ( # TREE OPTION
  cd "$1" || exit 1
  set -- "$2=$root/src/nginx" --prefix="$PWD" --with-cc="${CC:-cc}" --with-cc-opt='-g -O1' \
    --with-compat --with-debug --with-threads
  [ ! -d src/http/v3 ] || set -- "$@" --with-http_v3_module
  for module in $MODULES; do set -- "$@" "--with-${module}_module"; done
  ./configure "$@" && make -j "$(nproc)"
)

# Tests that aren't about the module (nginx_fastcgi), or build it by themselves, are left out.
one() { # SOURCE NAME OPTION
  tree "$1" "$folder/$2" && made "$folder/$2" "$3" || return 1
  CORRAL_NGINX=$folder/$2/objs ctest --test-dir "$build" -j 2 -R '^nginx_' \
    -E '^nginx_(addon|fastcgi)$' --no-tests=error --output-on-failure
}

tests_of() { sed -n 's/^100% tests passed.* out of \([0-9]*\)$/\1 tests/p' "$1"; }

for source in "$@"; do
  option=--add-dynamic-module linked=
  case $source in static:*) option=--add-module linked=static- ;; esac
  source=${source#static:}
  name=$linked$(basename "${source##*@}")
  if one "$source" "$name" $option >"$folder/$name.log" 2>&1; then
    passed=$((passed + 1))
    echo "ok - $name, $("$folder/$name/objs/nginx" -v 2>&1): $(tests_of "$folder/$name.log")"
  else
    failed=$((failed + 1))
    tail -n 40 "$folder/$name.log" | sed 's/^/# /'
    echo "not ok - $name: see $folder/$name.log"
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
