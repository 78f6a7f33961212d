#!/bin/sh
# format_test.sh: the C sources are as clang-format leaves them. Versions of clang-format differ, so
# it takes version 14 (Debian 12), and else there is nothing to compare with: exit status 77.
cd "$(dirname "$0")/.." || exit 2
for format in clang-format-14 clang-format; do
  command -v "$format" >/dev/null && "$format" --version | grep -q 'version 14\.' && break
  format=
done
[ -n "$format" ] || { echo "there is no clang-format of version 14" && exit 77; }
find bench examples fuzz include plugins src tests -name '*.[ch]' -type f |
  grep -v '^tests/old_plugin/' | sort | xargs "$format" --dry-run -Werror
