#!/bin/sh
# cli_samples_test.sh: the samples of examples/shell run: the script, each line for cron, and the
# service's command in a cache folder as systemd makes one.
#
# CORRAL is the path of the command.
samples=$(cd "$(dirname "$0")/../examples/shell" && pwd)
. "$(dirname "$0")/support/cli.sh"

# Here stand corral, and jobs that the samples name.
mkdir bin
ln -s "$CORRAL" bin/corral
PATH=$dir/bin:$PATH
for job in nightly report page; do
  printf '#!/bin/sh\necho %s "$@" >>%s/ran\n' "$job" "$dir" >bin/$job
  chmod +x bin/$job
done

section() {
  sh -n "$samples/section.sh" && CORRAL_STORE=lmdb:$dir/section status 0 "$samples/section.sh" &&
    lines 3 out && grep -q '^step one, token [0-9][0-9]*$' out && [ ! -s err ] &&
    status 2 env -u CORRAL_STORE sh "$samples/section.sh" && [ ! -s out ]
}

# While one is in its section the other waits, and gets a larger token.
sections() {
  CORRAL_STORE=lmdb:$dir/section
  export CORRAL_STORE
  for i in 1 2 3; do "$samples/section.sh" >section.$i & pids="${pids:-} $!"; done
  # shellcheck disable=SC2086
  wait $pids
  [ "$(cat section.* | grep -c '^what follows')" -eq 3 ] &&
    [ "$(cat section.* | sed -n 's/^step one, //p' | sort -u | wc -l)" -eq 3 ]
}

# Five fields, a user, a command: cron's file has nothing else but variables and comments.
cron() {
  grep -v -e '^#' -e '^$' "$samples/corral.cron" >entries
  grep -v '^[A-Z_]*=' entries >jobs
  [ "$(grep -c . jobs)" -eq 3 ] && grep -q '^CORRAL_STORE=redis:' entries || return 1
  ! grep -qvE '^([0-9*/,-]+ ){5}[a-z-]+ corral ' jobs || return 1
  ! grep -q '[^\\]%' jobs || return 1
  echo key >keys
  CORRAL_STORE=lmdb:$dir/cron
  export CORRAL_STORE
  while read -r _ _ _ _ _ _ job; do
    job=$(echo "$job" | sed "s,/usr/local/bin,$dir/bin,; s,/etc/corral,$dir,")
    sh -n -c "$job" && sh -c "$job" >job.out 2>job.err </dev/null && [ ! -s job.out ] &&
      [ ! -s job.err ] && continue
    echo "# $job: $(cat job.out job.err)"
    return 1
  done <jobs
  [ "$(sort ran | tr '\n' ' ')" = "nightly page key report " ]
}

# The sentence of the sample: who comes while another host runs the job leaves it, without mail.
cron_busy() {
  CORRAL_STORE=lmdb:$dir/cron
  export CORRAL_STORE
  corral lock nightly -- sh -c 'echo >holds; exec sleep 300' &
  holder=$!
  rm -f ran
  job=$(sed -n 's/.* root \(corral .*\)/\1/p' "$samples/corral.cron")
  await [ -e holds ] && status 0 sh -c "$job" && [ ! -s out ] && [ ! -s err ] && [ ! -e ran ]
  got=$?
  kill $holder
  wait $holder
  return $got
}

# value NAME: of a line of the service.
value() { sed -n "s/^$1=//p" "$samples/corral-report.service"; }
service() {
  mkdir -p cache/corral-report
  [ "$(value CacheDirectory)" = corral-report ] || return 1
  for i in 1 2; do
    env -u CORRAL_STORE -u HOME -u XDG_CACHE_HOME CACHE_DIRECTORY="$dir/cache/corral-report" \
      sh -c "$(value ExecStart)" >service.$i 2>err || return 1
  done
  [ -s service.1 ] && cmp -s service.1 service.2 && [ ! -s err ] &&
    [ -e cache/corral-report/corral/store ]
}

verified() {
  mkdir units
  sed "s,^ExecStart=corral,ExecStart=$CORRAL," "$samples/corral-report.service" \
    >units/corral-report.service
  cp "$samples/corral-report.timer" units
  systemd-analyze verify --man=no units/corral-report.service units/corral-report.timer \
    >verify.out 2>&1
  got=$?
  grep 'corral-report' verify.out >complaints
  [ $got -eq 0 ] && [ ! -s complaints ] && return
  echo "# $got: $(cat verify.out)"
  return 1
}

check "the script takes its lock, and gives it up" section
check "three of them are in their sections one after another" sections
check "each line for cron is one, and runs without output" cron
check "a job that another host runs is left to that one" cron_busy
check "the service's command keeps its result in the service's folder" service
if command -v systemd-analyze >/dev/null; then
  check "systemd accepts the service and the timer" verified
else
  skip "systemd accepts the service and the timer" "there is no systemd-analyze"
fi
exit $failed
