#!/bin/sh
# bench_table_test.sh: bench/all.sh --write puts the figures that bench/nginx.sh prints into the
# table of docs/performance.md, and "none" where a program gave none. Nothing is measured: the
# output is one that was captured, and the build has no other program.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "bench_table_test: $*" >&2
  exit 1
}

chrt -i 0 true 2>/dev/null && taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')" true ||
  { echo "SKIPPED: chrt -i or taskset is not permitted here" && exit 77; }

# Programs that would measure aren't found.
mkdir -p "$folder/bin" "$folder/bench" "$folder/docs" "$folder/build/bench"
for name in sh awk cat chrt cp cut date dirname head mkdir mktemp rm sleep taskset tee wc; do
  ln -s "$(command -v $name)" "$folder/bin/$name"
done
cp "$root/bench/all.sh" "$folder/bench"
cat >"$folder/bench/nginx.sh" <<'END'
cat <<OUT
static         16853 requests/s, 3.21 of proxy_cache;  162855 per second of the worker, 1.53
proxy_cache     5252 requests/s, 1.00 of proxy_cache;  106560 per second of the worker, 1.00
near             980 requests/s, 0.19 of proxy_cache;  102800 per second of the worker, 0.96
store           6277 requests/s, 1.20 of proxy_cache;  105283 per second of the worker, 0.99
OUT
echo "below what is asked for" >&2
exit 1
END
printf '#!/bin/sh\n' >"$folder/bin/true"
printf '#!/bin/sh\n: >"$2"\n' >"$folder/build/bench/bench_growth"
chmod +x "$folder/bin/true" "$folder/build/bench/bench_growth"
printf 'Before.\n\n<!-- bench/all.sh -->\n| an old table |\n\nBehind.\n' \
  >"$folder/docs/performance.md"

PATH=$folder/bin "$folder/bin/sh" "$folder/bench/all.sh" "$folder/build" --write \
  >"$folder/said" 2>&1 || fail "it failed: $(cat "$folder/said")"

page=$folder/docs/performance.md
row() { # LINE
  grep -qxF "$1" "$page" || fail "no line '$1' in: $(cat "$page")"
}
row "| nginx: near hits, to those of proxy_cache | >= 1.2 | **0.19** |  |"
row "| nginx: near hits, by the worker's time | >= 1.2 | **0.96** |  |"
row "| nginx: store hits, to those of proxy_cache | >= 0.9 | 1.20 |  |"
row "| nginx: store hits, by the worker's time | >= 0.9 | 0.99 |  |"
row "| nginx: first byte, alone, to proxy_pass | <= 1.1 | none |  |"
row "| Redis hit, 1 thread, to a raw GET | <= 1.05 | none | none |"
grep -q 'an old table' "$page" && fail "the old table is still there"
row "Behind."
grep -q "^nginx: near hits, by the worker's time  *0.96  *>= 1.2  *missed\$" "$folder/said" ||
  fail "a missed goal isn't told: $(cat "$folder/said")"
