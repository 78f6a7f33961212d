/* sqlite.h: SQLite's functions, for the subcommands that use them.
 *
 * The library is loaded, not linked: linking would add 0.2 ms to the start of every other
 * subcommand. */
#ifndef CORRAL_CLI_SQLITE_H
#define CORRAL_CLI_SQLITE_H

#include <sqlite3.h>
#include <stdbool.h>

#define CLI_SQLITE_FUNCTIONS(X)                                                                    \
  X(bind_int64)                                                                                    \
  X(bind_parameter_count)                                                                          \
  X(bind_text)                                                                                     \
  X(busy_timeout)                                                                                  \
  X(clear_bindings)                                                                                \
  X(close)                                                                                         \
  X(column_blob)                                                                                   \
  X(column_bytes)                                                                                  \
  X(column_count)                                                                                  \
  X(column_int64)                                                                                  \
  X(column_type)                                                                                   \
  X(errmsg)                                                                                        \
  X(exec)                                                                                          \
  X(finalize)                                                                                      \
  X(open_v2)                                                                                       \
  X(prepare_v2)                                                                                    \
  X(progress_handler)                                                                              \
  X(reset)                                                                                         \
  X(step)

/* SQLite's functions, named without the prefix; valid after cli_sqlite_load has returned true. */
extern struct cli_sqlite {
#define CLI_SQLITE_FIELD(name) __typeof__(sqlite3_##name) *name;
  CLI_SQLITE_FUNCTIONS(CLI_SQLITE_FIELD)
#undef CLI_SQLITE_FIELD
} cli_sqlite;

/* Reports a failure. `who`: the subcommand. To be called before any thread starts. */
bool cli_sqlite_load(const char *who);

#endif
