/* sqlite.c: loads SQLite. */
#include "sqlite.h"

#include "cli.h"

#include <dlfcn.h>

struct cli_sqlite cli_sqlite;

bool cli_sqlite_load(const char *who) {
  void *library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
  /* the path known at build time */
  if (library == NULL) library = dlopen(CORRAL_SQLITE, RTLD_NOW | RTLD_LOCAL);
  bool ok = library != NULL;
#define LOAD(name)                                                                                 \
  ok = ok && (*(void **)&cli_sqlite.name = dlsym(library, "sqlite3_" #name)) != NULL;
  CLI_SQLITE_FUNCTIONS(LOAD)
#undef LOAD
  if (!ok) cli_say("%s: it needs SQLite: %s", who, dlerror());
  return ok;
}
