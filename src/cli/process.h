/* process.h: what the kernel says about a process. */
#ifndef CORRAL_CLI_PROCESS_H
#define CORRAL_CLI_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct process {
  pid_t parent;
  unsigned long long start; /* in ticks since the host began */
  unsigned long long stack; /* where its stack and its arguments are; 0: not told. A copy made by */
  unsigned long long words; /* fork has its parent's, another program hardly ever */
} process;

/* Reads the process `pid`, in digits. False: there is none. */
bool process_read(const char *pid, process *ret);

#endif
