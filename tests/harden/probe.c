/* probe.c: a function with a buffer on its stack, and a copy whose size is known at run time only:
 * what hardening has something to do with. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  char text[8];
  if (argc < 2) return 1;
  memcpy(text, argv[1], strlen(argv[1]) + 1);
  return puts(text) < 0;
}
