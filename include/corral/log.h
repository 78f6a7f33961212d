/* log.h: a ready hook for events: one line each, by level, at most so many of a kind in a second.
 *
 *   static corral_log events = CORRAL_LOG(.level = CORRAL_LEVEL_INFO);
 *   corral_open(CORRAL_OPTIONS(.on_event = corral_log_event, .event_arg = &events), &c, &error);
 *
 * Without .event_arg all corrals of a process share a log with the defaults. docs/events.md. */
#ifndef CORRAL_LOG_H
#define CORRAL_LOG_H

#include <corral.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The weight of an event for an operator, less and less; numbers and names are those of
 * syslog(3). ERROR: a promise was broken, or data lost. WARNING: something failed; the program goes
 * on without it. NOTICE: a change of state. INFO: work that was done. DEBUG: each step. */
typedef enum corral_level {
  CORRAL_LEVEL_ERROR = 3,
  CORRAL_LEVEL_WARNING,
  CORRAL_LEVEL_NOTICE,
  CORRAL_LEVEL_INFO,
  CORRAL_LEVEL_DEBUG
} corral_level;

/* The level of an event; DEBUG for a number outside of the table. */
CORRAL_API corral_level corral_event_level(corral_event event);
/* "warning"; "?" for another number. Static storage. */
CORRAL_API const char *corral_level_name(corral_level level);

/* Reads the character that `data` begins with; `len` is 1 at least. *ret_len: its bytes. *ret_code:
 * its code point; a byte that is no UTF-8 is one by itself. True when it may be shown as it is:
 * false for such a byte, for controls and invisible characters, and for those that change a text's
 * direction. */
CORRAL_API int corral_character_read(const void *data, size_t len, size_t *ret_len,
                                     uint32_t *ret_code);
/* Writes `len` bytes as text of one line: the bytes of what may not be shown as it is are \xNN. A
 * text that doesn't fit ends with "...". `size` is 8 at least, else the text is empty. Returns the
 * length of the text, which is terminated. */
CORRAL_API size_t corral_text_show(const void *data, size_t len, char *text, size_t size);

enum { CORRAL_EVENT_LINE = 1024 }; /* room for any line of an event but for a long detail's end */

/* Writes an event as one line, "store_error user:42, 201ms, server 0, EIO: connection refused", by
 * the rules of corral_text_show: name, the first 63 bytes of the key, duration, bytes, server,
 * status, detail. What an event doesn't have is left out. Returns the length of the text, which is
 * terminated. */
CORRAL_API size_t corral_event_show(const corral_event_info *info, char *text, size_t size);

/* Takes a line, which is terminated and has no newline, and is valid during the call. Any thread,
 * several at once; the library holds no lock meanwhile. Like all hooks it must be quick: the call
 * that caused the event waits for it. */
typedef void corral_log_write(corral_level level, const char *line, size_t len, void *arg);

/* A log. The caller sets the first members, and keeps it until after corral_close; several corrals
 * may share one. */
typedef struct corral_log {
  size_t size;             /* sizeof(corral_log), set by CORRAL_LOG */
  corral_level level;      /* the last level that is told; 0: NOTICE */
  int32_t per_s;           /* lines of each kind in a second; 0: 5; CORRAL_OFF: no limit */
  corral_log_write *write; /* NULL: "corral: LEVEL: LINE" to standard error, in one write(2), which
                            * may block when that is a pipe that nobody reads */
  void *write_arg;
  uint64_t state[128] __attribute__((aligned(8))); /* the library's, by kind; zero at first */
} corral_log;

/* The value of a new log: CORRAL_LOG(.per_s = 1); in C++ CORRAL_LOG(.per_s(1)), see corral/cxx.h.
 */
#ifndef __cplusplus
#define CORRAL_LOG(...)                                                                            \
  { .size = sizeof(corral_log), __VA_ARGS__ }
#endif

/* For .on_event; `log` is the corral_log of .event_arg. NULL, and one that CORRAL_LOG has not made,
 * is that of the process. Beyond `per_s` lines of a kind in a second by the monotonic clock events
 * are counted; when the kind's next second begins, a line says how many there were: "32 more of
 * store_error within a second". Any thread. No memory is allocated, no lock taken. */
CORRAL_API void corral_log_event(const corral_event_info *info, void *log);
/* Writes those lines that are still due, of kinds that have had no next second. NULL: of the
 * process's log. */
CORRAL_API void corral_log_flush(corral_log *log);

#ifdef __cplusplus
}

#include <corral/cxx.h>

CORRAL_BUILDER_BEGIN(corral_log)
CORRAL_BUILDER_FIELD(corral_log, level)
CORRAL_BUILDER_FIELD(corral_log, per_s)
CORRAL_BUILDER_FIELD(corral_log, write)
CORRAL_BUILDER_FIELD(corral_log, write_arg)
CORRAL_BUILDER_END(corral_log)
#define CORRAL_LOG(...) (*static_cast<const corral_log *>(corral_log_builder() __VA_ARGS__))
#endif
#endif
