#!/bin/sh
# portability.sh FOLDER PART...: builds corral, and runs its tests without servers, for other
# machines, C libraries and compilers:
#   s390x, armhf, i386  cross-built, with UBSan, under qemu-user; the libraries are Debian's
#   musl                with musl-gcc; the libraries are built from Debian's sources, and plugins
#                       with other libraries are compiled alone
#   clang, lto          with clang, and with gcc -O3 -flto
#   nginx               the module, into the nginx of other releases of Debian, and into the sources
#                       that NGINX_SOURCES lists as tests/nginx_versions.sh takes them
# A warning of a compiler is a failure. Builds and libraries go to FOLDER; no package is installed.
# The script prints a line for each part, and the sums. docs/build.md says more.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" || exit 2
folder=$(cd "$1" && pwd)
shift
passed=0 failed=0

LIBRARIES="libxxhash-dev libzstd-dev libsodium-dev liblmdb-dev libsqlite3-dev libcmocka-dev"
PLUGINS="libhiredis-dev libssl-dev libmemcached-dev libpq-dev libmariadb-dev libzookeeper-mt-dev
 libcurl4-openssl-dev libcjson-dev libexpat1-dev zlib1g-dev"
# These look at the sources, or need programs of this machine.
OF_SOURCES='^(ci|run_elsewhere|readme|record_readers|tidy|manual|format|clang_tidy|arrows)$'

# debian runs apt-get for ARCH with a state of its own in HOME, beside the system's; $release is
# another Debian's name.
release=
debian() { # HOME ARCH ARGUMENT...
  home=$1 arch=$2
  shift 2
  mkdir -p "$home/lists/partial" "$home/archives/partial"
  # shellcheck source=/dev/null
  codename=${release:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
  key=signed-by=/usr/share/keyrings/debian-archive-keyring.gpg
  for kind in deb deb-src; do
    echo "$kind [$key] http://deb.debian.org/debian $codename main"
  done >"$home/sources.list"
  : >>"$home/status"
  apt-get -q -y -o APT::Architecture="$arch" -o APT::Architectures="$arch" \
    -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Dir::Etc::SourceParts=- \
    -o Dir::Etc::SourceList="$home/sources.list" -o Dir::State="$home" \
    -o Dir::State::status="$home/status" -o Dir::Cache="$home" "$@"
}

# sysroot unpacks the packages of ARCH, and all that they depend on, into HOME/root.
sysroot() { # HOME ARCH PACKAGE...
  home=$1 arch=$2
  shift 2
  [ ! -e "$home/whole" ] || return 0
  debian "$home" "$arch" update &&
    debian "$home" "$arch" --no-install-recommends --download-only install "$@" || return 1
  mkdir -p "$home/root/usr/lib" && ln -sfn usr/lib "$home/root/lib" || return 1
  for package in "$home"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" |
      tar -C "$home/root" --keep-directory-symlink -xf - || return 1
  done
  : >"$home/whole"
}

# built configures, builds and tests a build in FOLDER/PART. TARGETS are separated by spaces.
built() { # PART TARGETS OPTION...
  part=$1 targets=$2
  shift 2
  # shellcheck disable=SC2086
  cmake -G Ninja -S "$root" -B "$folder/$part" -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS_DEBUG="-g -O1" -DCORRAL_CHECKS=ON "$@" &&
    cmake --build "$folder/$part" --target $targets &&
    (cd "$folder/$part" && ctest -j 4 -L '^pure$' -E "$OF_SOURCES" --no-tests=error \
      --output-on-failure)
}

# used runs the command of a build: a result is stored in lmdb:, found, and computed again.
used() { # PART
  room=$(mktemp -d) || return 1
  want=first,first,second
  got=$(
    for word in first second; do
      run_corral "$1" "$room" run --key k -- echo $word
      run_corral "$1" "$room" lock l -- true || exit 1
      [ $word != first ] || run_corral "$1" "$room" run --key k -- echo other
      run_corral "$1" "$room" invalidate k >&2
    done | paste -sd,
  )
  rm -rf "$room"
  [ "$got" = $want ] || { echo "the command printed '$got', not '$want'"; return 1; }
}

# qemu is the emulator of a part, and its argument, or nothing.
qemu=
run_corral() ( # PART FOLDER ARGUMENT...
  build=$folder/$1
  export CORRAL_PLUGIN_PATH="$build/plugins" CORRAL_HOST_DIR="$2" CORRAL_STORE="lmdb:$2/store"
  shift 2
  # shellcheck disable=SC2086
  $qemu "$build/corral" "$@"
)

cross() { # ARCH
  # shellcheck disable=SC2086
  sysroot "$folder/$1.root" "$1" libc6-dev libubsan1 $LIBRARIES $PLUGINS &&
    built "$1" corral_portable -DCMAKE_TOOLCHAIN_FILE="$root/cmake/cross.cmake" \
      -DCORRAL_ARCH="$1" -DCORRAL_ROOT="$folder/$1.root/root" -DCORRAL_SANITIZE=undefined \
      -DCORRAL_EXAMPLES=OFF -DCORRAL_NGINX=OFF || return 1
  qemu="$(sed -n 's/^CORRAL_QEMU:.*=//p' "$folder/$1/CMakeCache.txt") -L $folder/$1.root/root"
  used "$1"
}

# ---- musl ----------------------------------------------------------------------------------

# source_of unpacks a source of Debian into HOME/NAME.
source_of() { # HOME NAME
  mkdir -p "$1/$2" && (cd "$1" && debian "$1" "$(dpkg --print-architecture)" source --tar-only \
    --download-only "$2") || return 1
  for archive in "$1/$2"_*.orig.tar.*; do
    tar -C "$1/$2" --strip-components=1 -xf "$archive" || return 1
  done
}

# sodium builds libsodium, whose source has no configure script, by its portable code.
sodium() ( # SOURCE PREFIX
  cd "$1" || exit 1
  sed -e 's/@VERSION@/0/; s/@SODIUM_LIBRARY_VERSION_M.*@/0/; /^@/d' \
    include/sodium/version.h.in >include/sodium/version.h
  find . -name '*.c' | sed 's,\./\(.*\)\.c$,\1,' >list
  while read -r name; do
    musl-gcc -O1 -fPIC -w -DCONFIGURED=1 -DNATIVE_LITTLE_ENDIAN=1 -Iinclude -Iinclude/sodium \
      -c "$name.c" -o "$name.o" || exit 1
  done <list
  find . -name '*.o' -exec ar rcs "$2/lib/libsodium.a" {} + && cp -R include/sodium* "$2/include"
)

# musl_libraries builds what corral needs, as archives, and the kernel's headers, into PREFIX. Their
# own warnings (-w) are none of the part's.
musl_libraries() ( # HOME PREFIX
  set -e
  mkdir -p "$2/lib/pkgconfig" "$2/include"
  debian "$1" "$(dpkg --print-architecture)" update
  for name in libzstd libsodium lmdb cmocka; do source_of "$1" "$name"; done
  make -C "$1/libzstd/lib" CC=musl-gcc CFLAGS="-O1 -fPIC -w" PREFIX="$2" libzstd.a install-pc \
    install-static install-includes
  sodium "$1/libsodium/src/libsodium" "$2"
  make -C "$1/lmdb/libraries/liblmdb" CC=musl-gcc XCFLAGS="-fPIC -w" liblmdb.a
  cp "$1/lmdb/libraries/liblmdb/liblmdb.a" "$2/lib"
  cp "$1/lmdb/libraries/liblmdb/lmdb.h" "$2/include"
  cmake -S "$1/cmocka" -B "$1/cmocka.build" -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_C_FLAGS=-w \
    -DWITH_EXAMPLES=OFF \
    -DCMAKE_INSTALL_PREFIX="$2" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF
  cmake --build "$1/cmocka.build" --target install
  cp /usr/include/xxhash.h /usr/include/sqlite3.h "$2/include"
  cp -R /usr/include/linux /usr/include/asm-generic "$2/include"
  cp -R "/usr/include/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/asm" "$2/include"
  # Tests are linked with SQLite; those that run here don't call it. Debian's gcc unwinds stacks by
  # a function of glibc; this one finds nothing, so that no exception passes the library.
  echo 'int _dl_find_object(void *at, void *ret) { return at && ret ? -1 : -2; }' >"$1/find.c"
  musl-gcc -fPIC -c "$1/find.c" -o "$2/lib/find.o"
  ar rcs "$2/lib/libsqlite3.a"
  : >"$1/whole"
)

# compiled compiles, by Debian's headers of their client libraries, the plugins that musl isn't
# linked with here, and what speaks HTTP.
compiled() { # PREFIX
  arch=/usr/include/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
  mkdir -p "$1/clients/openssl"
  for name in hiredis libmemcached libmemcached-1.0 libhashkit libhashkit-1.0 sasl postgresql \
    mariadb zookeeper cjson; do
    ln -sfn "/usr/include/$name" "$1/clients/$name"
  done
  ln -sfn "$arch/curl" "$1/clients/curl"
  cp -R /usr/include/openssl/. "$arch/openssl/." "$1/clients/openssl"
  for file in "$root"/plugins/*/*.c "$root"/src/http/*.c; do
    musl-gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -O1 \
      -I"$root/include" -I"$root/src" -I"$root/plugins" -isystem "$1/include" \
      -isystem "$1/clients" -isystem "$1/clients/postgresql" -isystem "$1/clients/mariadb" \
      -isystem "$1/clients/zookeeper" -isystem "$1/clients/cjson" \
      -c "$file" -o /dev/null || return 1
  done
}

musl() {
  home=$folder/musl.root
  [ -e "$home/whole" ] || musl_libraries "$home" "$home/usr" || return 1
  PKG_CONFIG_LIBDIR=$home/usr/lib/pkgconfig built musl corral_portable \
    -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_CXX_COMPILER= -DCMAKE_FIND_ROOT_PATH="$home" \
    -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY \
    -DCMAKE_C_STANDARD_LIBRARIES="$home/usr/lib/find.o" -DCORRAL_REDIS=OFF \
    -DCORRAL_MEMCACHED=OFF -DCORRAL_SQLITE=OFF -DCORRAL_EXAMPLES=OFF -DCORRAL_NGINX=OFF &&
    compiled "$home/usr" && used musl
}

# ---- compilers -----------------------------------------------------------------------------

clang() {
  built clang all -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCORRAL_BENCH=ON &&
    used clang
}

# Each program of the tests is optimized anew when it is linked, so those that aren't run here are
# left out.
lto() {
  built lto "corral_portable ngx_http_corral_module examples/all bench/all" \
    -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Release -DCORRAL_BENCH=ON \
    -DCMAKE_C_FLAGS_RELEASE="-O3 -DNDEBUG" && used lto
}

# ---- nginx ---------------------------------------------------------------------------------

nginx_of() { # RELEASE: its source is in $folder/nginx.sources/RELEASE
  release=$1 home=$folder/nginx.sources
  [ ! -e "$home/$1" ] || return 0
  rm -rf "$home"/nginx*
  debian "$home" "$(dpkg --print-architecture)" update && source_of "$home" nginx &&
    mv "$home/nginx" "$home/$1"
}

# The module may also be a part of nginx, which the last one shows.
nginx() {
  nginx_of bookworm && nginx_of trixie || return 1
  cmake -G Ninja -S "$root" -B "$folder/nginx" -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS_DEBUG="-g -O1" -DCORRAL_CHECKS=ON -DCORRAL_SANITIZE=address,undefined \
    -DCORRAL_NGINX=ON &&
    cmake --build "$folder/nginx" --target corral_nginx_tests || return 1
  # shellcheck disable=SC2086
  sh "$root/tests/nginx_versions.sh" "$folder/nginx" "$folder/nginx.versions" \
    "$home/bookworm" "$home/trixie" "static:$home/trixie" ${NGINX_SOURCES:-}
}

# one runs a part, with a log.
one() { # PART
  log=$folder/$1.log
  case $1 in
    s390x | armhf | i386) cross "$1" ;;
    *) "$1" ;;
  esac >"$log" 2>&1 || { tail -n 30 "$log" | sed 's/^/# /'; echo "failed: see $log"; return 1; }
  ! grep -n 'warning: ' "$log" || { echo "warnings: see $log"; return 1; }
}

tests_of() {
  sed -n 's/^100% tests passed.* out of \([0-9]*\)$/\1 tests/p
    s/^\([0-9]*\) passed, 0 failed$/\1 versions/p' "$folder/$1.log"
}

for part in "$@"; do
  if why=$(one "$part"); then
    passed=$((passed + 1))
    echo "ok - $part: $(tests_of "$part")"
  else
    failed=$((failed + 1))
    echo "not ok - $part: $why"
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
