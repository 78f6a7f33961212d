/* fuzz_warm_sitemap.c: a sitemap, plain or gzip'd, in pieces of any size. */
#include "fuzz.h"

#include "../src/cli/warm_keys.c"
#include "../src/cli/warm_sitemap.c"

static void check(const sitemap *s) {
  MUST(s->count <= ENTRIES && s->other_count <= ENTRIES);
  for (size_t i = 0; i < s->count; i++) {
    MUST(s->pages[i].priority >= 0 && s->pages[i].priority <= 1);
    MUST(s->pages[i].url[0] != '\0' && strlen(s->pages[i].url) < TEXT_ROOM);
    MUST(decode(s->pages[i].url) < TEXT_ROOM);
  }
  for (size_t i = 0; i < s->other_count; i++)
    (void)is_same_server("https://user@host:1/a", s->others[i]);
}

/* Byte 0: size of the pieces, less one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static warm_options o;
  static warm_keys k;
  static warm_reading reading;
  static bool is_loaded;
  fuzz_input in = {data, size};
  size_t piece = 1 + fuzz_byte(&in), part = 0;
  if (!is_loaded && !(is_loaded = warm_sitemap_load())) abort();
  k = (warm_keys){.o = &o, .stop = -1};
  reading = (warm_reading){.k = &k};
  sitemap s = {.reading = &reading, .place = "map.xml"};
  document *d = document_new(&s, s.place, true);
  MUST(d != NULL);
  bool ok = true;
  while (ok && in.left > 0) {
    char *bytes = (char *)fuzz_bytes(&in, piece, &part);
    ok = feed(d, bytes, part);
    free(bytes);
  }
  ok = ok && parse(d, "", 0, true);
  document_free(d);
  check(&s);
  if (s.count > 0) qsort(s.pages, s.count, sizeof s.pages[0], is_colder);
  sitemap_clear(&s);
  return 0;
}
