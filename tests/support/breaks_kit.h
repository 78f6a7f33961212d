/* breaks_kit.h: a broken invariant ends the process with its text (base/check.h). */
#ifndef BREAKS_KIT_H
#define BREAKS_KIT_H

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs a story in a child; it must abort, and say this. */
static void breaks(void (*story)(int), int which, const char *says) {
  int out[2], how = 0;
  char text[4096];
  size_t len = 0;
  assert_int_equal(pipe(out), 0);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    signal(SIGABRT, SIG_DFL);
    dup2(out[1], 2);
    story(which);
    _exit(0);
  }
  close(out[1]);
  for (ssize_t n;
       len < sizeof text - 1 && (n = read(out[0], text + len, sizeof text - 1 - len)) > 0;)
    len += (size_t)n;
  text[len] = '\0';
  close(out[0]);
  assert_int_equal(waitpid(pid, &how, 0), pid);
  if (!WIFSIGNALED(how) || WTERMSIG(how) != SIGABRT || strstr(text, says) == NULL)
    fail_msg("'%s' is not said; the child ended with %d: %s", says, how, text);
}

#endif
