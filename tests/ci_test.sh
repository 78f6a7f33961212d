#!/bin/sh
# ci_test.sh [ROOT]: the file for a hosting service (.github/workflows/ci.yml) is YAML, each command
# in it is run.sh with a command and parts that run.sh has, and the parts of `portability`, Debian
# 12 and 13, and gcc and clang are all there.
cd "${1:-$(dirname "$0")/..}" || exit 2
python3 -c 'import yaml' 2>/dev/null || { echo "SKIPPED: there is no python3-yaml" && exit 77; }
exec python3 - <<'PYTHON'
import itertools, re, subprocess, sys, yaml

jobs = yaml.safe_load(open(".github/workflows/ci.yml"))["jobs"]
usage = subprocess.run(["./run.sh", "--help"], capture_output=True, text=True, check=True).stdout
known = set(re.findall(r"[a-z0-9]+", usage))
runs = set()


def look_up(row, path):
    for name in path.split("."):
        row = row[name]
    return row


def fill(text, row):
    return re.sub(r"\$\{\{ matrix\.([a-z.]+) \}\}", lambda m: look_up(row, m[1]), text)


for name, job in jobs.items():
    matrix = job["strategy"]["matrix"]
    for values in itertools.product(*matrix.values()):
        row = dict(zip(matrix, values))
        for step in job["steps"]:
            if "run" not in step:
                assert step == {"uses": "actions/checkout@v4"}, step
                continue
            command = fill(step["run"], row)
            words = command.split()
            assert words[0] == "./run.sh" and set(words[1:]) <= known, f"{name}: {command}"
            compiler = fill(step.get("env", {}).get("CC", "cc"), row)
            runs.add((fill(job["container"], row), compiler, " ".join(words[1:])))

parts = re.search(r"each PART is one of ([^;]*);", usage)[1]
parts = set(re.findall(r"[a-z0-9]+", re.sub(r"\(.*?\)", "", parts)))
wanted = {("debian:12", "cc", f"portability {part}") for part in parts}
for release in "12", "13":
    wanted |= {(f"debian:{release}", "gcc", "test"), (f"debian:{release}", "clang", "quick")}
    wanted |= {(f"debian:{release}", "cc", "package")}
if runs != wanted:
    sys.exit(f"only in ci.yml: {runs - wanted}; not in it: {wanted - runs}")
print(f"{len(runs)} runs, each by run.sh")
PYTHON
