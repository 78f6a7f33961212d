/* screen.c: the terminal of corral top. */
#include "screen.h"

#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

enum { ROWS = 24, COLUMNS = 80, TYPED = 64 };

static struct {
  bool is_open;
  struct termios before;
  int signals; /* of the window, and of stops */
  unsigned char typed[TYPED];
  size_t at, count;
} screen;

/* ---- size ---------------------------------------------------------------------------------- */

bool screen_is_possible(void) {
  const char *term = getenv("TERM");
  return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term != NULL && term[0] != '\0' &&
         strcmp(term, "dumb") != 0;
}

static size_t within(unsigned n, size_t otherwise, size_t most) {
  return n == 0 ? otherwise : n < most ? n : most;
}

void screen_begin(screen_page *page) {
  struct winsize size = {0};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = (struct winsize){0};
  page->rows = within(size.ws_row, ROWS, SCREEN_ROWS);
  page->columns = within(size.ws_col, COLUMNS, SCREEN_COLUMNS);
  page->count = 0;
  memset(page->is_title, 0, sizeof page->is_title);
}

/* ---- open and closed ----------------------------------------------------------------------- */

static bool say(const char *text) { return cli_write(STDOUT_FILENO, text, strlen(text)); }

/* The other screen, without a cursor; keys come one by one, and aren't shown. */
static bool enter(void) {
  struct termios raw = screen.before;
  raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  return tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) == 0 && say("\033[?1049h\033[?25l");
}

static void leave(void) {
  (void)say("\033[?25h\033[?1049l");
  (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &screen.before);
}

bool screen_open(void) {
  sigset_t taken;
  (void)sigemptyset(&taken);
  (void)sigaddset(&taken, SIGWINCH);
  (void)sigaddset(&taken, SIGTSTP);
  (void)sigprocmask(SIG_BLOCK, &taken, NULL);
  (void)signal(SIGPIPE, SIG_IGN);
  screen.signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  if (screen.signals < 0 || tcgetattr(STDIN_FILENO, &screen.before) != 0) return false;
  screen.is_open = true;
  if (enter()) return true;
  int why = errno;
  screen_close();
  errno = why;
  return false;
}

void screen_close(void) {
  if (!screen.is_open) return;
  leave();
  (void)close(screen.signals);
  screen.is_open = false;
}

/* Stops, as Ctrl-Z asks for, and goes on. */
static void stop(void) {
  leave();
  (void)raise(SIGSTOP);
  (void)tcgetattr(STDIN_FILENO, &screen.before);
  (void)enter();
}

/* ---- drawing ------------------------------------------------------------------------------- */

/* One write draws all: a page isn't seen half. */
bool screen_draw(const screen_page *page) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (f == NULL) return false;
  for (size_t i = 0; i < page->rows; i++) {
    const char *line = i < page->count ? page->lines[i] : "";
    bool is_title = i < page->count && page->is_title[i];
    (void)fprintf(f, "\033[%zu;1H\033[K%s%s%s", i + 1, is_title ? "\033[7m" : "", line,
                  is_title ? "\033[0m" : "");
  }
  bool ok = fclose(f) == 0 && cli_write(STDOUT_FILENO, text, size);
  free(text);
  return ok;
}

/* ---- events -------------------------------------------------------------------------------- */

/* The sequence of a cursor key, and the like, is passed over. 0: no key is left. */
static int next_key(void) {
  while (screen.at < screen.count) {
    unsigned char key = screen.typed[screen.at++];
    bool begins = key == '\033' && screen.at < screen.count &&
                  (screen.typed[screen.at] == '[' || screen.typed[screen.at] == 'O');
    if (key != '\0' && !begins) return key;
    if (!begins) continue;
    screen.at++;
    while (screen.at < screen.count && screen.typed[screen.at] < '@') screen.at++;
    if (screen.at < screen.count) screen.at++;
  }
  return 0;
}

static int signal_of(int fd) {
  struct signalfd_siginfo info;
  return read(fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

/* False: the terminal is gone. */
static bool read_keys(void) {
  ssize_t n = read(STDIN_FILENO, screen.typed, sizeof screen.typed);
  screen.at = 0;
  screen.count = n > 0 ? (size_t)n : 0;
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

static int left_ms(long long at_ns) {
  long long left = (at_ns - cli_now_ns() + 999999) / 1000000;
  return left > INT32_MAX ? INT32_MAX : left > 0 ? (int)left : 0;
}

screen_event screen_next(int signals, long long at_ns, int *ret) {
  struct pollfd pollers[] = {{.fd = signals, .events = POLLIN},
                             {.fd = screen.is_open ? screen.signals : -1, .events = POLLIN},
                             {.fd = screen.is_open ? STDIN_FILENO : -1, .events = POLLIN}};
  for (;;) {
    if ((*ret = next_key()) != 0) return SCREEN_KEY;
    int n = poll(pollers, 3, left_ms(at_ns));
    if (n == 0) return SCREEN_TIME;
    if (n < 0 && errno != EINTR) return SCREEN_GONE;
    if (n < 0) continue;
    if (pollers[0].revents != 0 && (*ret = signal_of(signals)) != 0) return SCREEN_SIGNAL;
    if (pollers[1].revents != 0) {
      if (signal_of(screen.signals) == SIGTSTP) stop();
      return SCREEN_CHANGED;
    }
    if (pollers[2].revents != 0 && !read_keys()) return SCREEN_GONE;
  }
}
