#!/bin/sh
# storm_page_test.sh: the page of `corral storm --html` in a browser, headless: on a phone and on a
# desk, light and dark. Skips where there is no Chromium.
#
# CORRAL is the path of the command. The script prints "ok - sentence" or "not ok - sentence" for
# each case and exits 1 when one failed.
set -u

. "$(dirname "$0")/support/cli.sh"
TMPDIR=$dir
export TMPDIR
unset CORRAL_STORE

browser=
for name in chromium-headless-shell chromium google-chrome; do
  [ -n "$browser" ] || browser=$(command -v $name)
done
if [ -z "$browser" ]; then
  echo "SKIPPED: no chromium-headless-shell and no chromium, which look at the page of storm"
  exit 77
fi

# The name of the file is on the page.
"$CORRAL" -q storm --processes 2 --threads 4 --load 2000 --ttl 100ms --duration 500ms --rate 1000 \
  --html "<b>&amp;'s\".html" >out 2>&1 || { cat out; exit 1; }
mv "<b>&amp;'s\".html" page.html
case $0 in
  /*) cp "$(dirname "$0")/support/page_probe.html" probe.html ;;
  *) cp "$OLDPWD/$(dirname "$0")/support/page_probe.html" probe.html ;;
esac

# looked SCHEME WIDTH: what the browser makes of the page is in the file seen, a line for each.
# Chromium numbers the schemes: 0 dark, 1 light.
looked() {
  number=0
  [ "$1" = dark ] || number=1
  timeout 100 "$browser" --headless --no-sandbox --disable-gpu --allow-file-access-from-files \
    --user-data-dir="$dir/profile" --virtual-time-budget=10000 \
    --blink-settings=preferredColorScheme=$number --window-size=1300,900 \
    --dump-dom "file://$dir/probe.html?page.html,$2" >dom 2>log || { tail -n 5 log; return 1; }
  sed -e 's/&lt;/</g' -e 's/&gt;/>/g' -e 's/&amp;/\&/g' dom >seen
  grep -q '^plots=' seen || { echo "# no answer of the probe:"; head -c 600 dom; return 1; }
}

sees() { # LINE...
  for line in "$@"; do
    grep -qxF "$line" seen || { echo "# not $line, but $(grep "^${line%%=*}=" seen)"; return 1; }
  done
}

reads() { # SCHEME WIDTH
  looked "$1" "$2" && sees "scheme=$1" "back=$1" title=true scrolls=false outside=0 pale=0 tiny=0
}
drawn() { sees plots=8 drawn=8 named=8 rows=13 loaded=0; }
escaped() { sees children=0 "command=corral storm --processes 2 --threads 4 --load 2000 --ttl 100ms\
 --duration 500ms --rate 1000 --html '<b>&amp;'\\''s\".html'"; }

for scheme in light dark; do
  for width in 360 1200; do
    check "$scheme, $width pixels wide: all texts are in sight, of contrast and size" \
      reads $scheme $width
    check "$scheme, $width pixels wide: all plots are drawn, and nothing was loaded" drawn
  done
done
check "the name of a file is text, whatever is in it" escaped

exit $failed
