/* fuzz_cli.c: the command line of the corral command: numbers, durations and options, and the
 * printing of foreign bytes.
 *
 * Input: a byte for the kind of check, then words separated by NUL. No command is run and no store
 * is opened. */
#include "fuzz.h"

#include "cli/lock.h"
#include "cli/run.h"
#include "cli/warm.h"

bool __wrap_cli_write(int fd, const void *data, size_t size);

/* Each message must be one plain line. */
bool __wrap_cli_write(int fd, const void *data, size_t size) {
  (void)fd;
  MUST(size > 0 && ((const char *)data)[size - 1] == '\n' && fuzz_is_plain(data, size - 1, 0));
  return true;
}

enum { WORDS = 24 };

typedef struct words {
  int count;
  char *text[WORDS + 2];
} words;

static void read_words(fuzz_input *in, const char *name, words *w) {
  w->count = 0;
  w->text[w->count++] = strdup(name);
  while (in->left > 0 && w->count <= WORDS) w->text[w->count++] = fuzz_text(in, '\0');
  w->text[w->count] = NULL;
  optind = 0;
}

static void check_numbers(words *w) {
  const char *text = w->count > 1 ? w->text[1] : "", *tags[CLI_TAGS];
  char again[CLI_DURATION_TEXT];
  int64_t number = 0, same = 0;
  double real = 0;
  size_t count = 0;
  if (cli_duration("--x", text, 0, INT64_MAX, &number)) {
    MUST(number >= 0);
    (void)cli_duration_text(again, number);
    MUST(cli_duration("--x", again, 0, INT64_MAX, &same) && same == number);
  }
  if (cli_count("--x", text, 5, 500, &number)) MUST(number >= 5 && number <= 500);
  if (cli_real("--x", text, 0.5, 10, &real)) MUST(real >= 0.5 && real <= 10);
  for (int i = 1; i < w->count; i++) (void)cli_tag("--x", w->text[i], tags, &count);
  MUST(count <= CLI_TAGS);
}

static void check_run(words *w) {
  run_options *o = calloc(1, sizeof *o);
  if (o == NULL) abort();
  if (run_options_parse(o, w->count, w->text) == -1)
    MUST(o->key.size >= 1 && o->key.size <= RUN_KEY_ROOM && o->command[0] != NULL &&
         o->tag_count <= RUN_TAGS && o->policy.wait_ms > 0);
  free(o);
}

static void check_warm(words *w) {
  warm_options *o = calloc(1, sizeof *o);
  if (o == NULL) abort();
  if (warm_options_parse(o, w->count, w->text) == -1)
    MUST((o->file_count >= 1 || o->keys_query != NULL || o->sitemap_count >= 1) &&
         o->threads >= 1 && o->threads <= WARM_THREADS && o->tag_count <= CLI_TAGS &&
         o->policy.wait_ms > 0);
  free(o->files);
  free(o);
}

static void check_lock(words *w) {
  lock_options o = {0};
  if (lock_options_parse(&o, w->count, w->text) == -1)
    MUST(o.name != NULL && strlen(o.name) <= LOCK_NAME_MOST && o.grace_ms <= o.ttl_ms / 2 &&
         (o.verb == LOCK_RUN) == (o.command[0] != NULL));
}

static void check_text(const uint8_t *bytes, size_t size) {
  char text[CLI_KEY_TEXT], *json = NULL;
  size_t len = 0;
  (void)cli_key_text(text, bytes, size);
  MUST(fuzz_is_plain(text, strlen(text), 0));
  FILE *f = open_memstream(&json, &len);
  if (f == NULL) abort();
  cli_json_string(f, bytes, size);
  (void)fclose(f);
  MUST(len >= 2 && json[0] == '"' && json[len - 1] == '"' && fuzz_is_plain(json, len, 0));
  free(json);
}

static void check_words(uint8_t kind, fuzz_input *in) {
  static const char *const names[] = {"numbers", "run", "warm", "lock", "explain"};
  static const cli_globals globals;
  words w;
  read_words(in, names[kind], &w);
  switch (kind) {
    case 0: check_numbers(&w); break;
    case 1: check_run(&w); break;
    case 2: check_warm(&w); break;
    case 3: check_lock(&w); break;
    default: (void)cli_explain(&globals, w.count, w.text);
  }
  for (int i = 0; i < w.count; i++) free(w.text[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int is_quiet;
  fuzz_input in = {data, size};
  if (!is_quiet && freopen("/dev/null", "w", stdout) == NULL) abort();
  is_quiet = 1;
  uint8_t kind = fuzz_byte(&in) % 6;
  if (kind == 5)
    check_text(in.at, in.left);
  else
    check_words(kind, &in);
  return 0;
}
