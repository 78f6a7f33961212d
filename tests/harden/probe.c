/* probe.c: a function with a stack buffer, and a copy of a size known only at run time: code that
 * hardening options affect. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  char text[8];
  if (argc < 2) return 1;
  memcpy(text, argv[1], strlen(argv[1]) + 1);
  return puts(text) < 0;
}
