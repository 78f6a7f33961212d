#!/bin/sh
# cli_top_test.sh: corral top on a terminal of python3's pty: its size, its keys, and what it leaves
# behind; and without a terminal.
#
# CORRAL is the path of the command.
. "$(dirname "$0")/support/cli.sh"
export CORRAL

if ! command -v python3 >/dev/null; then
  skip "corral top" "there is no python3"
  exit 0
fi
CORRAL_STATS_DIR=$dir/stats
CORRAL_STORE=lmdb:$dir/store
export CORRAL_STATS_DIR CORRAL_STORE
slow=
finish() { [ -z "$slow" ] || kill -9 $slow 2>/dev/null; }

# terminal.py: a program on a terminal of its own, and what that shows. Sequences that it doesn't
# know, and lines that are too long, end the test.
cat >terminal.py <<'END'
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time

PATIENCE = 60

class Terminal:
    def __init__(self, rows, columns, *words, term="xterm"):
        self.master, slave = pty.openpty()
        self.slave = slave  # the terminal outlives the program
        self.size(rows, columns)
        self.before = termios.tcgetattr(slave)
        self.alternate = self.hidden = self.reverse = False
        self.unread = b""
        self.output = b""
        env = dict(os.environ, TERM=term)
        def take():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.child = subprocess.Popen([os.environ["CORRAL"], "top", *words], stdin=slave,
                                      stdout=slave, stderr=slave, env=env, preexec_fn=take)

    def size(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.clear()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def clear(self):
        self.lines = [""] * self.rows
        self.row = 0

    def type(self, text):
        os.write(self.master, text.encode())

    def put(self, text):
        assert self.row < self.rows, (self.row, text)
        self.lines[self.row] += text
        assert len(self.lines[self.row]) <= self.columns, (self.columns, self.lines[self.row])

    def obey(self, sequence):
        place = re.fullmatch(rb"\x1b\[(\d+);1H", sequence)
        if place:
            self.row = int(place[1]) - 1
        elif sequence == b"\x1b[K":
            self.lines[self.row] = ""
        elif sequence in (b"\x1b[?1049h", b"\x1b[?1049l"):
            self.alternate = sequence.endswith(b"h")
        elif sequence in (b"\x1b[?25h", b"\x1b[?25l"):
            self.hidden = sequence.endswith(b"l")
        elif sequence in (b"\x1b[7m", b"\x1b[0m"):
            self.reverse = sequence == b"\x1b[7m"
        else:
            assert False, sequence

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return
        data = os.read(self.master, 65536)
        self.output += data
        self.unread += data
        while self.unread:
            found = re.match(rb"\x1b\[[?0-9;]*[A-Za-z]", self.unread)
            text = re.match(rb"[^\x1b]+", self.unread)
            if found:
                self.obey(found[0])
                self.unread = self.unread[found.end():]
            elif text:
                if self.alternate:
                    self.put(text[0].decode("utf-8", "replace"))
                self.unread = self.unread[text.end():]
            else:
                break  # the rest of a sequence comes later

    def wait(self, what, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            if self.child.poll() is not None:
                self.read(0)  # the last of what it wrote
                assert condition(), (what, self.child.returncode, self.output[-300:])
            assert time.monotonic() < end, (what, self.lines, self.output[-300:])
            self.read(0.05)

    # The whole page is drawn at this size.
    def drawn(self):
        return self.lines[0].startswith("corral top") and "q quit" in self.lines[-1]

    def shows(self, text):
        return self.drawn() and any(text in line for line in self.lines)

    def ended(self, status):
        self.wait("the end", lambda: self.child.poll() is not None)
        self.read(0)
        assert self.child.returncode == status, (self.child.returncode, self.output[-300:])
        self.restored()

    def restored(self):
        self.wait("the screen of before", lambda: not self.alternate and not self.hidden)
        assert termios.tcgetattr(self.slave) == self.before

def opened(*words):
    t = Terminal(24, 80, "--stats-dir", os.environ["CORRAL_STATS_DIR"], *words)
    t.wait("a page", t.drawn)
    assert t.alternate and t.hidden
    assert not termios.tcgetattr(t.slave)[3] & (termios.ECHO | termios.ICANON)
    return t
END

# play SENTENCE: a case of python3, from stdin.
play() {
  { echo 'from terminal import *'; cat; } >play.py
  check "$1" env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$dir" timeout 300 python3 play.py
}

load() {
  odd=$(printf '\033[31m\377odd')
  long=$(printf '%0100d' 0)
  for name in users pages "$odd" "$long"; do
    for _ in 1 2; do
      "$CORRAL" --namespace "$name" run --key k -- echo k >/dev/null || return 1
    done
  done
  "$CORRAL" --namespace users run --key "$odd" -- sh -c 'echo >begun; exec sleep 1000' &
  slow=$!
  await [ -e begun ]
}
check "a load for the page" load

play "the page fits 24 lines of 80 columns, and each other size" <<'END'
t = opened("-d", "1h")
assert t.shows("CACHE") and t.shows("\\x1b[31m\\xffodd") and t.shows("users")
assert t.shows("0000...") and not any("0" * 40 in line for line in t.lines)
for rows, columns in (12, 50), (5, 20), (1, 1), (50, 160), (24, 80):
    t.size(rows, columns)
    if columns >= 20:
        t.wait("the page of %d columns" % columns, t.drawn)
    else:
        t.read(0.5)
t.type("q")
t.ended(0)
END

play "the flight that runs is told, with its key made harmless" <<'END'
t = opened()
t.wait("the flight", lambda: t.shows("FLIGHT") and t.shows("compute") and t.shows("\\x1b[31m"))
t.type("q")
t.ended(0)
END

play "keys sort, filter, pause, and choose the interval" <<'END'
t = opened()
assert "by gets" in t.lines[0] and "every 1s" in t.lines[0]
for name in "computes", "saved", "waiting", "name", "gets":
    t.type("s")
    t.wait(name, lambda: ("by " + name) in t.lines[0])
t.type("9")
t.wait("every 9s", lambda: "every 9s" in t.lines[0])
t.type("\x1b[A\x1bOB")  # cursor keys do nothing
t.type("/usxx\x7f\x7fe")
t.wait("the filter", lambda: "/use_" in t.lines[0])
t.wait("users alone", lambda: t.shows("users ") and not t.shows("pages "))
t.type("q1\r")
t.wait("a q that is typed", lambda: "/useq1" in t.lines[0] and "_" not in t.lines[0])
t.wait("no cache", lambda: not t.shows("users ") and not t.shows("pages "))
t.type("/\x1b")
t.wait("all caches", lambda: t.shows("users ") and t.shows("pages "))
t.type("p")
t.wait("paused", lambda: "paused" in t.lines[0])
t.type("p")
t.wait("not paused", lambda: t.drawn() and "paused" not in t.lines[0])
t.type("q")
t.ended(0)
END

play "signals end it, and the terminal is as before" <<'END'
for signo in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT:
    t = opened()
    t.child.send_signal(signo)
    t.ended(128 + signo)
t = opened()
t.type("\x03")
t.ended(128 + signal.SIGINT)
END

play "stopped by Ctrl-Z the terminal is as before, and the page comes back" <<'END'
t = opened("-d", "1h")
t.type("\x1a")
def is_stopped():
    pid, status = os.waitpid(t.child.pid, os.WUNTRACED | os.WNOHANG)
    return pid != 0 and os.WIFSTOPPED(status)
t.wait("the stop", is_stopped)
t.restored()
t.clear()
t.child.send_signal(signal.SIGCONT)
t.wait("the page", lambda: t.alternate and t.drawn())
t.type("q")
t.ended(0)
END

play "it ends when its terminal is gone" <<'END'
t = opened("-d", "1h")
os.close(t.slave)
os.close(t.master)
assert t.child.wait(PATIENCE) in (125, 128 + signal.SIGHUP), t.child.returncode
END

play "--count ends it" <<'END'
t = opened("--count", "2", "-d", "0.1")
t.ended(0)
END

play "a dumb terminal gets page after page without a sequence" <<'END'
t = Terminal(24, 80, "--count", "3", "-d", "0.1", term="dumb")
t.ended(0)
assert b"\x1b" not in t.output, t.output
lines = t.output.decode("utf-8").split("\r\n")
assert len([line for line in lines if line.startswith("corral top ")]) == 3, lines
assert all(len(line) <= 80 for line in lines), lines
END

# ---- no terminal ----

pages() {
  status 0 "$CORRAL" top --count 2 -d 0.1 && [ ! -s err ] && ! grep -q "$(printf '\033')" out &&
    [ "$(grep -c '^corral top ' out)" = 2 ] && lines_of_a_page out &&
    grep -q '^users ' out && grep -qF '\x1b[31m\xffodd' out &&
    [ "$(LC_ALL=C awk 'length > 80' out)" = "" ]
}
# Each page has at most 24 lines; an empty one is between two.
lines_of_a_page() {
  awk '/^corral top / { n = 0 } { n++ } n > 25 { exit 1 }' "$1"
}
check "without a terminal page follows page" pages

# A herd asks for one key so often that it is hot.
hot() {
  "$CORRAL" storm --mode corral --keys 1 --duration 4s --rate 1000 --load 1000 >storm.out 2>&1 &
  storm=$!
  await tells_hot
  got=$?
  wait $storm && return $got
}
tells_hot() {
  "$CORRAL" top --count 1 -d 0.1 >hot.out &&
    sed -n '/^HOT KEY  *CACHE  *GETS LATELY  *AT LEAST$/,$p' hot.out |
    grep -Eq '^[^ ]+  *storm-corral-[^ ]*  *[1-9][0-9]*  *[0-9]+$'
}
check "the hottest keys are told" hot
stat_tells_hot() { "$CORRAL" stat | grep -q '^  hot keys  *[^ ]* [0-9]\{3,\}'; }
check "stat tells them, too" await stat_tells_hot

reader_leaves() {
  "$CORRAL" top --count 1000 -d 0.1 | head -n 1 >first.out && grep -q '^corral top ' first.out
}
check "it ends when the reader of its pages is gone" reader_leaves

signalled() {
  "$CORRAL" top >pages.out &
  top=$!
  await [ -s pages.out ] && kill -TERM $top && await gone $top || kill -9 $top
  wait $top
  [ $? -eq 143 ]
}
check "a signal ends the pages, too" signalled

wrong_use() {
  status 125 "$CORRAL" top --stats-dir "$dir/nowhere" && grep -q 'nowhere: No such file' err &&
    status 125 "$CORRAL" top users && grep -q 'one argument too many' err &&
    status 125 "$CORRAL" top -d 1y && status 125 "$CORRAL" top --count 0
}
check "what can't be done is said, with status 125" wrong_use
exit $failed
