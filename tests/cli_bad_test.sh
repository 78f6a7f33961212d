#!/bin/sh
# cli_bad_test.sh: a table of bad inputs of the corral command: exit status and message of each.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed. Of each message it is checked, too, that it is one whole
# line, and that it names no option that wasn't given, but for what it suggests.
. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
CORRAL_STORE=lmdb:$dir/store
CORRAL_HOST_DIR=$dir
export TMPDIR CORRAL_STORE CORRAL_HOST_DIR
rows=0

# blamed: the message in err without what it suggests, which may name options that weren't given.
blamed() {
  sed 's/did you mean .*//; s/accepted .*//; s/may be each of .*//; s/ give .*//; s/, as in .*//
    s/: corral [a-z]* --help shows the usage//; s/it stands .*//; s/nor -.*//; s/ or --force//
    s/corral needs .*//; s/is for .*//; s/: exactly .*//; s/names what .*//
    s/corral lock .*//; s/database is accepted: .*//' <err
}

# names_only WORD...: each option that the message blames is one of the words; letters may stand
# together.
names_only() {
  blamed | tr ' ,:;()' '\n\n\n\n\n\n' | sed -n "s/^'*\(--*[A-Za-z0-9-]*\).*/\1/p" >named
  while read -r option; do
    letter=${option#-}
    case " $* " in
      *" $option"[\ =]*) continue ;;
    esac
    [ "$option" = -- ] && continue
    [ ${#letter} -eq 1 ] && printf '%s\n' "$@" | grep -q "^-[A-Za-z]*$letter" && continue
    echo "# names $option"
    return 1
  done <named
}

# whole: what the message quotes of an error, which has 239 bytes at most, wasn't cut at its end: a
# text of that size has dots where something was left out.
whole() {
  awk '{ text = $0
         while ((at = index(text, ": ")) > 0) {
           text = substr(text, at + 2)
           if (length(text) == 239 && index(text, "...") == 0) exit 1
         } }
       /\.\.\.$/ { exit 1 }' err
}

# bad STATUS TEXT WORD...: the command ends with STATUS and says TEXT, in one whole line.
bad() {
  wanted=$1
  text=$2
  shift 2
  rows=$((rows + 1))
  if status "$wanted" "$CORRAL" "$@" && lines 1 err && [ ! -s out ] &&
    grep -q '^corral: ' err && grep -qF -e "$text" err && LC_ALL=C whole && names_only "$@"; then
    echo "ok - $(printf '%s ' "$@" | head -c 60 | tr '\n' ' ')"
  else
    echo "not ok - $(printf '%s ' "$@" | head -c 60 | tr '\n' ' '): $(cat err out | head -c 400)"
    failed=1
  fi
}

# ---- before the subcommand ----
list='run, get, set, invalidate, expire, inspect, lock, key, explain, warm, storm, doctor,'
bad 125 "no subcommand: accepted are $list"
bad 125 "unknown subcommand 'fetch': accepted are $list" fetch
bad 125 "unknown subcommand 'rnu': did you mean run?" rnu -- true
bad 125 "unknown subcommand 'invaildate': did you mean invalidate?" invaildate k
bad 125 "unknown subcommand 'exlpain': did you mean explain?" help exlpain
bad 125 "unknown subcommand 'redis://u:***@h': accepted are run" redis://u:secret@h get k
bad 125 "unknown option '--sotre': did you mean --store?" --sotre y get k
bad 125 "unknown option '--ttl': it stands behind the subcommand, as in corral run --ttl" \
  --ttl 5m run
bad 125 "unknown option '-x': accepted are --store" -x get k
bad 125 "unknown option '-x'" -qx get k
bad 125 "option '--store' needs a value" --store
bad 125 "option '--json' takes no value" --json=yes get k
bad 125 "option '--ver' may be each of --verbose, --version" --ver get k
bad 125 "version: 'x' is one argument too many: none is accepted" version x
bad 125 "help: 'x' is one argument too many: one SUBCOMMAND is accepted" help run x
bad 125 "unknown subcommand '-x': accepted are run" help -x
bad 125 "completion: no shell given: bash, zsh and fish are accepted" completion
bad 125 "completion: 'tcsh' is not accepted: bash, zsh and fish are" completion tcsh
bad 125 "completion: 'zsh' is one argument too many" completion bash zsh
bad 125 "--op: '5y' is no duration; accepted: 1ms to 1m" --op 5y get k
bad 125 "--op: '0' is out of range; accepted: 1ms to 1m" --op 0 get k

# ---- stores ----
bad 125 "--store: store URI 'nonsense': no scheme" --store nonsense get k
bad 125 "for 'nostore:'; for values: memory lmdb redis memcached; for locks alone: redlock" \
  --store nostore:x get k
bad 125 "no store plugin for 'redsi:': did you mean 'redis:'?" --store redsi://h get k
bad 125 "no store plugin for 'postgres:': did you mean 'postgresql:'?" --store postgres://h get k
bad 125 "no store plugin for 'localhost:': a server is named as in redis://localhost" \
  --store localhost:6379 get k
bad 125 "no store plugin for '10.0.0.5:': a server is named as in redis://10.0.0.5" \
  --store 10.0.0.5:6379 get k
bad 125 "store URI 'redis://h:0': the port must be a number from 1 to 65535" \
  --store redis://h:0 get k
bad 125 "u:***@h:99999': the port" --store redis://u:secret@h:99999 get k
bad 125 "'%' must be followed by two hex digits" --store lmdb:%zz set k v
bad 125 "unknown parameter 'sise'; accepted: size" --store "lmdb:$dir/x?sise=1" set k v
bad 125 "each parameter after '?' must be name=value" --store "lmdb:$dir/x?size" set k v
bad 125 "a parameter is given twice" --store "lmdb:$dir/x?size=1m&size=2m" set k v
bad 125 "/proc/no: No such file or directory" --store lmdb:/proc/no/store set k v
bad 125 "No such file" --store lmdb:/proc/no/store lock k -- true
bad 125 "is of one process alone: a lock in it keeps nobody out" --store memory: lock k -- true

# ---- run ----
bad 125 "run: no command given: corral run" run
bad 125 "run: no command given" run --ttl 5s
bad 125 "run: no command given" run --ttl 5s --
bad 125 "run: unknown option '--tll': did you mean --ttl?" run --tll 5s -- true
bad 125 "run: unknown option '--cache-failure-for'" run --cache-failure-for=1 -- true
bad 125 "run: unknown option '--stale-on-error': did you mean --stale-if-error?" \
  run --stale-on-error 1h -- true
bad 125 "run: unknown option '-x': accepted are --key" run -x -- true
bad 125 "run: unknown option '-x': accepted are --key" run --force -xq -- true
bad 125 "run: unknown option '--store': it stands before the subcommand: corral --store" \
  run --store x -- true
bad 125 "run: unknown option '--json': it stands before the subcommand" run --json -- true
bad 125 "run: option '--co' may be each of --compute, --compress" run --co 3 -- true
bad 125 "run: option '--force' takes no value" run --force=yes -- true
bad 125 "run: option '--ttl' needs a value" run --ttl
bad 125 "run: --ttl: '5y' is no duration; accepted: 1ms to 3650d, as in 500ms, 1h30m" \
  run --ttl 5y -- true
bad 125 "run: --ttl: '' is no duration" run --ttl '' -- true
bad 125 "run: --ttl: '-5' is no duration" run --ttl -5 -- true
bad 125 "run: --ttl: '1m1h' is no duration" run --ttl 1m1h -- true
bad 125 "run: --ttl: '5 m' is no duration" run --ttl '5 m' -- true
bad 125 "run: --ttl: '0' is out of range" run --ttl 0 -- true
bad 125 "run: --lease: '2h' is out of range; accepted: 50ms to 1h" run --lease 2h -- true
bad 125 "run: --compute: '25h' is out of range; accepted: 10ms to 1d" run --compute 25h -- true
bad 125 "run: --wait: 'soon' is no duration" run --wait soon -- true
bad 125 "run: --away: 'maybe' is not accepted; accepted: compute|stale|error" \
  run --away maybe -- true
bad 125 "run: --at-deadline: 'never' is not accepted; accepted: error|compute" \
  run --at-deadline never -- true
bad 125 "run: --if-lost: 'stop' is not accepted; accepted: go-on|kill" run --if-lost stop -- true
bad 125 "run: --fleet-max: '0' is out of range; accepted: off, 1 to 256" run --fleet-max 0 -- true
bad 125 "run: --fleet-max: 'x' is not accepted" run --fleet-max x -- true
bad 125 "run: --origin names what --fleet-max limits: give that too" run --origin db -- true
bad 125 "run: --soft is for a result that only serves on errors" run --soft 1s --stale 1h -- true
bad 125 "run: --compress: '4x' is no size; accepted: off, 1 to 512m" run --compress 4x -- true
bad 125 "run: --compress: '1g' is out of range" run --compress 1g -- true
bad 125 "run: --tag: a tag of 0 bytes is not accepted: 1 to 200 are" run --tag '' -- true
bad 125 "run: --tag: a tag of 201 bytes" run --tag "$(printf '%0201d' 0)" -- true
# shellcheck disable=SC2046
bad 125 "run: --tag: at most 16 are accepted" run $(seq -f '--tag %g' 17) -- true
bad 125 "run: --value-version: '1.2' is not accepted: a whole number" \
  run --value-version 1.2 -- true
bad 125 "run: --value-version: '99999999999999999999' is" \
  run --value-version 99999999999999999999 -- true
bad 125 "run: --pass-exit: '0' is not accepted: a whole number, 1 to 255" run --pass-exit 0 -- true
bad 125 "run: --unmodified-exit: '256' is not" run --unmodified-exit 256 -- true
bad 125 "run: --pass-exit and --unmodified-exit are both 4" \
  run --unmodified-exit 4 --pass-exit 4 -- true
bad 125 "run: --cache-failures: '2d' is out of range; accepted: 0 to 1d" \
  run --cache-failures 2d -- true
bad 125 "run: --key names the whole key: it can't be combined with --env" \
  run --key k --env PATH -- true
bad 125 "can't be combined with --cwd" run --cwd --key k -- true
bad 125 "run: --key: the empty key is not accepted" run --key '' -- true
bad 125 "run: the key has 65537 bytes: at most 65536 are accepted" \
  run --key "$(printf '%065537d' 0)" -- true
bad 125 "run: --env NO_SUCH: there is no such variable" run --env NO_SUCH -- true
bad 125 "run: --modtime $dir/no: No such file or directory" run --modtime "$dir/no" -- true
bad 125 "run: --modtime $dir/named/x: Not a directory" run --modtime "$dir/named/x" -- true
bad 127 "run: command not found: ./no-such" run --cache-failures 0 -- ./no-such
bad 126 "run: can't execute $dir: Permission denied" run --cache-failures 0 -- "$dir"
bad 137 "run: the command was ended by signal 9" run --cache-failures 0 -- sh -c 'kill -9 $$'
bad 124 "run: killed: it ran longer than 100ms (--compute)" \
  run --compute 100ms --cache-failures 0 -- sleep 60
"$CORRAL" set plain x
bad 125 "run: plain: what is stored is no result of corral run" run --key plain -- true
bad 125 "k: this run is part of the run of the same key" \
  --pass-store run --key k --cache-failures 0 -- "$CORRAL" run --key k -- true

# ---- get, set, invalidate, expire, inspect ----
bad 125 "get: no KEY given, nor -- CMD [ARGUMENT]...: corral get --help shows the usage" get
bad 125 "get: no KEY given" get --
bad 125 "get: 'b' is one argument too many: one KEY, or" get a b
bad 125 "get: 'true' is one argument too many" get a -- true
bad 125 "get: --env is for a command: -- CMD" get --env PATH
bad 125 "get: --key names the key: it can't be combined with a command" get --key k -- true
bad 125 "get: unknown option '--ttl'" get --ttl 5m k
bad 125 "get: --env NO_SUCH: there is no such variable" get --env NO_SUCH -- true
bad 125 "1 to 65536" get "$(printf '%065537d' 0)"
bad 1 "k: not in the store" get k
bad 1 "true x: not in the store" get -- true x
bad 1 "k: nothing is stored: lmdb:$dir/none isn't there" --store "lmdb:$dir/none" get k
bad 125 "set: no KEY given" set
bad 125 "set: 'c' is one argument too many" set a b c
bad 125 "set: --ttl: 'x' is no duration" set --ttl x a b
bad 125 "set: unknown option '--tag'" set --tag t a b
bad 125 "invalidate: no KEY given, nor -- CMD, --tag or --all" invalidate
bad 125 "invalidate: --all is every key and tag" --generation invalidate --all k
bad 125 "--all: " invalidate --all
bad 125 "expire: option '--tag' needs a value" expire --tag
bad 125 "expire: unknown option '--al1': did you mean --all?" expire --al1
bad 125 "--tag 0000" invalidate --tag "$(printf '%0201d' 0)"
bad 125 "inspect: no KEY given" inspect
bad 125 "inspect: unknown option '--json': it stands before the subcommand" inspect --json a
bad 125 "inspect: unknown option '--ky': did you mean --key?" inspect --ky a
bad 125 "'': the key is empty; accepted: 1 to 65536 bytes" get ''
bad 125 "'': the key is empty" set '' v
bad 125 "get: --key: the empty key is not accepted" get --key ''
bad 125 "set: --ttl: '0' is out of range; accepted: 1ms to 3650d" set --ttl 0 a b
bad 125 "set: --stale: 'x' is no duration; accepted: off, 1ms" set --stale x a b
bad 125 "expire: no KEY given, nor -- CMD, --tag or --all" expire
bad 125 "expire: --all is every key and tag: it can't be combined" expire --tag t --all
bad 125 "--tag '': the tag has 0 bytes; accepted: 1 to 200" invalidate --tag ''
bad 125 "inspect: 'b' is one argument too many" inspect a b

# ---- key, explain ----
bad 125 "key: no NAME given" key
bad 125 "key: 'b' is one argument too many" key a b
bad 125 "key: --tag, --lock and --variant can't be combined" key --tag --lock --variant v x
bad 125 "key: option '--variant' needs a value" key --variant
bad 125 "key: unknown option '--vairant': did you mean --variant?" key --vairant v a
bad 125 "'': the key is empty" key ''
bad 125 "explain: unknown option '--ttl'" explain --ttl 5
bad 125 "explain: no option is called ''" explain =5
bad 125 "explain: ttl: '' is no duration" explain ttl=
bad 125 "explain: 'ttl' is not accepted: NAME=VALUE is, as in ttl=5m" explain ttl
bad 125 "explain: no option is called 'stael': did you mean 'stale'?" explain stael=5
bad 125 "explain: ttl: '5y' is no duration" explain ttl=5y
bad 125 "explain: ttl_ms: '0' is out of range" explain ttl_ms=0
bad 125 "explain: wait: 'x' is no duration; accepted: 1ms to 1d" explain wait=x

# ---- lock ----
bad 125 "lock: no NAME given" lock
bad 125 "lock: no command given" lock name
bad 125 "lock: a NAME of 0 bytes is not accepted" lock '' -- true
bad 125 "lock: unknown option '--keep': accepted are --no-wait" lock --keep name -- true
bad 125 "lock: unknown option '-c': a shell's command line is written -- sh -c '...'" \
  lock name -c 'echo hi'
bad 125 "run: unknown option '-c': a shell's command line is written -- sh -c" run -c 'echo hi'
bad 125 "lock: unknown option '--mac': did you mean --max?" lock --mac 5 name -- true
bad 125 "lock: option '-w' needs a value" lock -nw
bad 125 "lock: option '-E' needs a value" lock -E
bad 125 "lock: option '--no-wait' takes no value" lock --no-wait=1 name -- true
bad 125 "lock: --wait: '2d' is out of range; accepted: off, 1ms to 1d" lock --wait 2d n -- true
bad 125 "lock: --ttl: '10ms' is out of range; accepted: 50ms to 1d" lock --ttl 10ms n -- true
bad 125 "lock: --max: 'x' is no duration; accepted: off, 1ms to 365d" lock --max x n -- true
bad 125 "lock: --grace: too long for a --ttl of 10s" lock --ttl 10s --grace 6s n -- true
bad 125 "lock: --note: a note of 41 bytes" lock --note "$(printf '%041d' 0)" n -- true
bad 125 "lock: --conflict-exit: '256'" lock --conflict-exit 256 n -- true
bad 125 "lock: --show takes one NAME and no command: 'true'" lock --show n -- true
bad 125 "lock: no NAME given: corral lock [OPTION]... NAME -- CMD" lock --release
bad 125 "lock: --take takes one NAME and no command: 'true'" lock --take n -- true
bad 125 "lock: --pid: '0' is not accepted: a whole number, 1 to" lock --pid 0 --take n
bad 125 "lock: --pid 2147483647: there is no such process" lock --pid 2147483647 --take n
bad 76 "n: this script doesn't have that lock: it was not taken" lock --release n
bad 127 "lock: command not found: ./no-such" lock n -- ./no-such
bad 126 "lock: can't execute $dir: Permission denied" lock n -- "$dir"
bad 76 "n: lost: --max 300ms passes in 75ms: the command is ended" lock --max 300ms n -- sleep 60

# ---- warm, storm ----
bad 125 "warm: nothing to compute with: exactly one is accepted of" warm
bad 125 "warm: unknown option '--jbos': did you mean --jobs?" warm --jbos 3
bad 125 "warm: --jobs: 'x' is not accepted: a whole number, 1 to 256, is" warm --jobs x -- true
bad 125 "warm: --ttl: 'x' is no duration" warm --ttl x -- true
bad 125 "warm: --query is for --sqlite, --pg and --mariadb" warm --query 'SELECT 1' -- true
bad 125 "warm: one database is accepted: --sqlite, --pg or --mariadb" \
  warm --pg x --sqlite y --query 'SELECT 1'
bad 125 "warm: one database is accepted" warm --pg x --mariadb y --keys 'SELECT 1' -- true
bad 125 "warm: --sqlite $dir/no: unable to open database file" \
  warm --sqlite "$dir/no" --query 'SELECT 1'
bad 125 "warm: --rate: 'x' is not accepted: a number and /s, /m or /h is" warm --rate x -- true
bad 125 "warm: option '--ramp' takes no value" warm --ramp=3 -- true
bad 125 "storm: 'x' is one argument too many: only options are accepted" storm x
bad 125 "storm: option '--html' needs a value" storm --html
bad 125 "storm: --html: $dir/no/page: No such file or directory" storm --html "$dir/no/page"
bad 125 "storm: --keys: 'x' is not accepted: a whole number, 1 to 100000, is" storm --keys x
bad 125 "storm: --duration: 'x' is no duration; accepted: 100ms to 1h" storm --duration x
bad 125 "storm: --mode: 'fast' is not accepted" storm --mode fast
bad 125 "storm: unknown option '--kyes': did you mean --keys?" storm --kyes 3
bad 125 "storm: --threads: '0'" storm --threads 0

# ---- warnings ----
memory() {
  status 0 "$CORRAL" --store memory: run -- echo ran && [ "$(cat out)" = ran ] && lines 1 err &&
    grep -q -e '--store memory: is of this process alone' err &&
    status 0 "$CORRAL" -q --store memory: run -- echo ran && [ ! -s err ] &&
    status 0 "$CORRAL" --store memory: key k && [ ! -s err ]
}
check "memory: is warned of, where the store is asked" memory

helps() {
  status 0 "$CORRAL" --help && cp out whole && status 0 "$CORRAL" -h && cmp -s out whole &&
    status 0 "$CORRAL" help && cmp -s out whole && status 0 "$CORRAL" --version &&
    cp out version && status 0 "$CORRAL" -V && cmp -s out version &&
    status 0 "$CORRAL" version && cmp -s out version || return 1
  for sub in run get set invalidate expire inspect key explain lock warm storm; do
    status 0 "$CORRAL" "$sub" --help && cp out whole && status 0 "$CORRAL" "$sub" -h &&
      cmp -s out whole && status 0 "$CORRAL" help "$sub" && cmp -s out whole || return 1
  done
}
check "-h, help and --help, -V, version and --version are the same" helps
many() { [ "$rows" -ge 100 ]; }
check "these are $rows bad inputs" many

# ---- a plugin, or its client library, that isn't there ----
library=$(dirname "$CORRAL")/libcorral.so.0
if [ -e "$library" ] && [ ! -e /usr/local/lib/corral ]; then
  mkdir alone && cp "$CORRAL" "$library" alone
  all=$CORRAL
  CORRAL=$dir/alone/corral
  LD_LIBRARY_PATH=$dir/alone
  export LD_LIBRARY_PATH
  bad 125 "no store plugin for 'postgresql:': install corral-plugin-postgresql (of Debian);" \
    --store postgresql://h/db lock n -- true
  bad 125 "libpq-dev, not CORRAL_POSTGRESQL=OFF; looked for corral_plugin_postgresql.so in " \
    --store postgresql://h/db lock n -- true
  bad 125 "no store plugin for 'redlock:': install corral-plugin-redis (of Debian); a build needs" \
    --store redlock://a,b,c lock n -- true
  bad 125 "no origin plugin for 'https:': install corral-plugin-http (of Debian)" \
    --store https://h get k
  bad 125 "not CORRAL_LMDB=OFF; looked for corral_plugin_lmdb.so in" --store lmdb:x set k v
  CORRAL=$all
  unset LD_LIBRARY_PATH
else
  skip "a plugin that isn't there" "the command is one file, or plugins are in /usr/local"
fi
plugins=$(ls "$(dirname "$CORRAL")/plugins/corral_plugin_postgresql.so" 2>/dev/null)
if [ -n "$plugins" ]; then
  mkdir broken && sed 's/libpq\.so\.5/libqq.so.5/' "$plugins" >broken/corral_plugin_postgresql.so
  CORRAL_PLUGIN_PATH=$dir/broken
  export CORRAL_PLUGIN_PATH
  bad 125 "(Debian has its library in libpq5)" --store postgresql://h/db lock n -- true
  unset CORRAL_PLUGIN_PATH
else
  skip "a plugin whose library isn't there" "it was built without corral_plugin_postgresql.so"
fi

# ---- texts that are too long for a message ----
far=$dir/$(printf '%0180d' 0)
: >"$far"
bad 125 "000...000" --store "lmdb:$far/x.db" set k v
bad 125 "00/x.db?size=0': size=0; accepted: " --store "lmdb:$far/x.db?size=0" set k v
bad 125 "'; accepted: " --store "redis://h/?$(printf '%0300d' 0)=1" get k
bad 125 "00000:': a scheme has at most 63 characters" --store "a$(printf '%0300d' 0):" get k
bad 125 "'a00000000...00000000:'; " --store "a$(printf '%062d' 0):" get k
bad 125 "explain: no option is called '0" explain "$(printf '%0300d' 0)=1"
bad 125 "run: --away: '0" run --away "$(printf '%0300d' 0)" -- true

# missing OPTION LIBRARY PACKAGE: the command, whose LIBRARY isn't there, names the package; if the
# build has the option at all.
missing() {
  if "$CORRAL" warm "$1" '' --query 'SELECT' </dev/null 2>&1 | grep -q 'built without'; then
    skip "$1 without its library" "it was built without $3"
    return
  fi
  sed "s/$2\.so/$2.os/g" "$CORRAL" >without && chmod +x without
  all=$CORRAL
  CORRAL=./without
  bad 125 "warm: $1 needs $4's client library (Debian has it in $3): " \
    warm "$1" '' --query 'SELECT 1'
  CORRAL=$all
}
missing --pg libpq libpq5 PostgreSQL
missing --mariadb libmariadb libmariadb3 MariaDB

# ---- a Redis user whose ACL lacks something ----
if ! redis_begin redis; then
  skip "a Redis ACL" "there is no redis-server and redis-cli"
  exit $failed
fi
acl() { redis-cli -s redis ACL SETUSER "$@" >redis.out 2>&1 && grep -q OK redis.out; }
unix=redis+unix://u:p@$dir/redis
acl u on '>p' '~*' '&*' +get
bad 125 "NOPERM: getrange refused; corral needs +get" --store "$unix" get k
bad 125 "+evalsha +client +select, for locks +watch +unwatch +multi +exec +discard +wait" \
  --store "$unix" lock k -- true
bad 125 "(check user and password" --store "redis+unix://u:q@$dir/redis" get k

# The list in the message is all that is needed: a user with just that works.
enough() {
  status 125 "$CORRAL" --store "$unix" get k || return 1
  # shellcheck disable=SC2046
  acl v on '>p' '~*' '&*' $(grep -o '+[a-z|]*' err) || return 1
  uri="redis+unix://v:p@$dir/redis?db=1"
  status 0 "$CORRAL" --store "$uri" run --key k --tag t --fleet-max 2 --origin o -- echo x &&
    [ ! -s err ] && status 0 "$CORRAL" --store "$uri" get k && [ "$(cat out)" = x ] &&
    head -c 3000000 /dev/zero >large && "$CORRAL" --op 30s --store "$uri" set large <large &&
    status 0 "$CORRAL" --op 30s --store "$uri" get large && cmp -s large out &&
    status 0 "$CORRAL" --store "$uri" inspect k && status 0 "$CORRAL" --store "$uri" expire k &&
    status 0 "$CORRAL" --store "$uri" invalidate k --tag t &&
    status 0 "$CORRAL" --store "$uri" lock k -- true && [ ! -s err ]
}
check "what the message says that corral needs is enough" enough
exit $failed
