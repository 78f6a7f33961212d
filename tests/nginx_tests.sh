#!/bin/sh
# nginx_tests.sh CHECKOUT [BUILD] [NAME.t...]: runs nginx's own public tests (nginx/nginx-tests)
# three times: without the module; with `corral` in http, where answers that say nothing are passed
# on; and with `corral` where every answer that may be is taken, kept and sent as a page, by a key
# that no two requests share.
# CHECKOUT is a work tree of the suite; BUILD the build's folder, build/release by default; without
# names all tests of http are run. NGINX is the nginx, MODULES a folder of its dynamic modules that
# tests may use, JOBS how many tests run at once (2), PATIENCE how many seconds one may take (300),
# STORE corral's store (a file by default), KEEP=FOLDER keeps what the tests print. CORRAL_ASAN
# names a library to load before a module that was built with a sanitizer.
# The script prints each check that fails with the module alone. A test with one is run three times.
# docs/nginx.md names the causes that are known.
set -u
PATH=$PATH:/usr/sbin

# One run of one test: its output goes to FOLDER/MODE/NAME, the checks that pass to NAME.passed.
one() { # FOLDER MODE NAME
  out=$1/$2/$3 own=$1/$2/$3.d
  mkdir -p "$own"
  zone="corral_zone corral_pages store=${STORE:-lmdb:$own/pages.corral} namespace=$2.$3.$$;"
  zone="$zone corral corral_pages;"
  globals=$(cat "$1/globals") http=
  if [ "$2" != without ]; then globals="load_module $(cat "$1/module"); $globals"; fi
  case $2 in
    passed) http=$zone ;;
    kept) http="$zone corral_valid any 1m; corral_key \$request_id\$uri\$is_args\$args;" ;;
  esac
  (
    cd "$(cat "$1/suite")" || exit 1
    TMPDIR=$own TEST_NGINX_BINARY=$1/nginx TEST_NGINX_GLOBALS=$globals \
      TEST_NGINX_GLOBALS_HTTP=$http timeout "${PATIENCE:-300}" perl "$3" >"$out" 2>&1
  )
  sed -n 's/^ok [0-9]* - //p' "$out" | sort >"$out.passed"
  rm -rf "$own"
}

# Names the checks that pass without the module alone.
worse() { # FOLDER MODE NAME
  comm -23 "$1/without/$3.passed" "$1/$2/$3.passed"
}

# All three runs of one test, repeated while they differ.
compare() { # FOLDER NAME
  for _ in 1 2 3; do
    for mode in without passed kept; do one "$1" $mode "$2"; done
    [ -z "$(worse "$1" passed "$2")$(worse "$1" kept "$2")" ] && break
  done
  for mode in passed kept; do
    worse "$1" $mode "$2" | sed "s/^/$2 $mode: /"
  done >"$1/$2.worse"
  cat "$1/$2.worse"
}

if [ "${1:-}" = --compare ]; then
  compare "$2" "$3"
  exit 0
fi

[ $# -ge 1 ] || { sed -n '2,12s/^# //p' "$0" >&2; exit 2; }
suite=$(cd "$1" && pwd) || exit 2
build=$(cd "${2:-$(dirname "$0")/../build/release}" && pwd) || exit 2
[ $# -gt 1 ] && shift
shift
module=$build/nginx/ngx_http_corral_module.so
nginx=$(command -v "${NGINX:-nginx}") || { echo "SKIPPED: there is no nginx" >&2; exit 77; }
[ -f "$module" ] ||
  { echo "SKIPPED: there is no $module: was nginx-dev there when it was built?" >&2; exit 77; }

folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
chmod 755 "$folder"
mkdir "$folder/without" "$folder/passed" "$folder/kept"
echo "$suite" >"$folder/suite"
echo "$module" >"$folder/module"

# The suite takes it from `nginx -V` which dynamic modules there are: it is told of those that are.
cat >"$folder/nginx" <<WRAPPER
#!/bin/sh
[ "\$*" = -V ] && exec sh -c '"$nginx" -V 2>&1 | sed "s/--with-[a-z_]*=dynamic//g"'
LD_PRELOAD=${CORRAL_ASAN:-} ASAN_OPTIONS=detect_leaks=0 exec "$nginx" "\$@"
WRAPPER
chmod 755 "$folder/nginx"
{
  [ "$(id -u)" = 0 ] && echo "user root;"
  [ -n "${PERL5LIB:-}" ] && echo "env PERL5LIB;"
  for name in http_geoip http_image_filter http_perl http_xslt_filter; do
    file=${MODULES:-/usr/lib/nginx/modules}/ngx_${name}_module.so
    [ -f "$file" ] && echo "load_module $file;"
  done
} >"$folder/globals"

if [ $# = 0 ]; then
  # shellcheck disable=SC2046 # names
  set -- $(cd "$suite" && grep -l '^http {' ./*.t | sed 's/^\.\///' |
    grep -v -e '^mail_' -e '^stream_')
fi
printf '%s\n' "$@" | xargs -P "${JOBS:-2}" -I '{}' sh "$0" --compare "$folder" '{}'

for mode in without passed kept; do
  sum=0
  for name in "$@"; do sum=$((sum + $(wc -l <"$folder/$mode/$name.passed"))); done
  echo "$mode: $sum checks passed"
done
count=$(cat "$folder"/*.worse | wc -l)
echo "$# tests; $count checks fail with the module alone"
[ -z "${KEEP:-}" ] || cp -r "$folder/." "$KEEP"
