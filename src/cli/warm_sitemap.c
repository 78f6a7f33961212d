/* warm_sitemap.c: keys from sitemaps (sitemaps.org, protocol 0.9), the hottest first: by priority,
 * then by the date of the last change, the latest first, then as they stand.
 *
 * A sitemap is a file or what a URL answers, plain or gzip'd. A sitemap index leads to others, by
 * URL; one that came by a URL only to others on its own server. All of it is foreign: each document
 * is parsed as it is unpacked, and is bounded in bytes as the protocol has it; a document type
 * declaration is refused, and with it all entities but XML's own five; an index in an index is
 * refused.
 *
 * With --origin the key is what the URL has in the place of {key}; a URL elsewhere is no key. With
 * {uri} there it is the module's key of the URL's page. Else the key is the whole URL. */
#include "warm.h"

#ifdef CORRAL_EXPAT

#include <dlfcn.h>
#include <errno.h>
#include <expat.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* X(name, function) */
#define FUNCTIONS(X)                                                                               \
  X(create, XML_ParserCreate)                                                                      \
  X(parse, XML_Parse)                                                                              \
  X(stop, XML_StopParser)                                                                          \
  X(free, XML_ParserFree)                                                                          \
  X(set_data, XML_SetUserData)                                                                     \
  X(set_elements, XML_SetElementHandler)                                                           \
  X(set_text, XML_SetCharacterDataHandler)                                                         \
  X(set_doctype, XML_SetStartDoctypeDeclHandler)                                                   \
  X(code, XML_GetErrorCode)                                                                        \
  X(code_text, XML_ErrorString)                                                                    \
  X(line, XML_GetCurrentLineNumber)
#define ZLIB_FUNCTIONS(X)                                                                          \
  X(inflate_init, inflateInit2_)                                                                   \
  X(inflate, inflate)                                                                              \
  X(inflate_end, inflateEnd)

static struct {
#define FIELD(name, function) __typeof__(function) *name;
  FUNCTIONS(FIELD) ZLIB_FUNCTIONS(FIELD)
#undef FIELD
} xml;

enum {
  DOCUMENT = 52428800, /* bytes of a document, unpacked: the protocol's limit */
  ENTRIES = 50000,     /* in a document: the protocol's limit */
  PAGES = 10000000,
  TEXT_ROOM = 8192,
  DATE_ROOM = 40,
  SHOWN = 512,
  GZIP_OR_ZLIB = 15 + 32,
  PIECE = 65536
};

typedef struct page {
  char *url;
  double priority;
  char date[DATE_ROOM];
  size_t number; /* where it stands */
} page;

typedef struct sitemap {
  warm_reading *reading;
  const char *place; /* as given */
  page *pages;
  size_t count, room;
  char **others; /* URLs of the sitemaps of an index */
  size_t other_count;
  bool is_broken; /* reported */
} sitemap;

/* One document. */
typedef struct document {
  sitemap *s;
  char shown[SHOWN]; /* its place, for messages */
  XML_Parser parser;
  z_stream *packed; /* NULL: it is plain */
  size_t bytes;     /* unpacked */
  size_t entries;
  int depth;
  bool may_be_index, is_index;
  page page; /* under way */
  char text[TEXT_ROOM];
  size_t text_size; /* TEXT_ROOM: too long */
  const char *why;  /* what ended the parser */
} document;

/* ---- XML ----------------------------------------------------------------------------------- */

static void end_parser(document *d, const char *why) {
  if (d->why == NULL) d->why = why;
  (void)xml.stop(d->parser, XML_FALSE);
}

static void on_doctype(void *data, const char *name, const char *system, const char *public,
                       int has_subset) {
  (void)name;
  (void)system;
  (void)public;
  (void)has_subset;
  end_parser(data, "a document type declaration is refused");
}

static void on_begin(void *data, const char *name, const char **attributes) {
  document *d = data;
  (void)attributes;
  d->depth++;
  d->text_size = 0;
  if (d->depth == 1) d->is_index = strcmp(name, "sitemapindex") == 0;
  if (d->depth == 1 && !d->is_index && strcmp(name, "urlset") != 0)
    end_parser(d, "it is no sitemap: urlset or sitemapindex is accepted");
  if (d->is_index && !d->may_be_index) end_parser(d, "an index in an index is refused");
  if (d->depth == 2 && ++d->entries > ENTRIES) end_parser(d, "it has more than 50000 entries");
}

static void on_text(void *data, const char *text, int size) {
  document *d = data;
  for (int i = 0; i < size && d->depth == 3 && d->text_size < TEXT_ROOM; i++)
    d->text[d->text_size++] = text[i];
}

/* The element's text without the blanks around it, as a text; NULL: it is too long. */
static char *trimmed(document *d) {
  static const char blanks[] = " \t\r\n";
  size_t begin = 0, end = d->text_size;
  if (end >= TEXT_ROOM) return NULL;
  while (end > 0 && strchr(blanks, d->text[end - 1]) != NULL) end--;
  while (begin < end && strchr(blanks, d->text[begin]) != NULL) begin++;
  d->text[end] = '\0';
  return d->text + begin;
}

static void take_field(document *d, const char *name) {
  const char *text = trimmed(d);
  if (text == NULL || text[0] == '\0') {
    if (text == NULL) warm_reading_bad(d->s->reading, d->shown, "an entry is too long");
  } else if (strcmp(name, "loc") == 0) {
    free(d->page.url);
    if ((d->page.url = strdup(text)) == NULL) end_parser(d, "out of memory");
  } else if (strcmp(name, "lastmod") == 0) {
    (void)snprintf(d->page.date, sizeof d->page.date, "%.*s", DATE_ROOM - 1, text);
  } else if (strcmp(name, "priority") == 0) {
    double priority = strtod(text, NULL);
    if (priority >= 0 && priority <= 1) d->page.priority = priority;
  }
}

/* Keeps the URL, which is the sitemap's from now on. */
static bool keep_entry(document *d) {
  sitemap *s = d->s;
  if (d->is_index) {
    if (s->others == NULL) s->others = calloc(ENTRIES, sizeof *s->others);
    if (s->others == NULL || s->other_count == ENTRIES) return false;
    s->others[s->other_count++] = d->page.url;
    return true;
  }
  if (s->count == s->room) {
    size_t room = s->room * 2 + 1024;
    page *more = s->count < PAGES ? realloc(s->pages, room * sizeof *more) : NULL;
    if (more == NULL) return false;
    s->pages = more;
    s->room = room;
  }
  d->page.number = s->count;
  s->pages[s->count++] = d->page;
  return true;
}

static void on_end(void *data, const char *name) {
  document *d = data;
  if (d->depth == 3) take_field(d, name);
  if (d->depth == 2) {
    bool is_kept = d->page.url != NULL && keep_entry(d);
    if (d->page.url != NULL && !is_kept) end_parser(d, "out of memory, or too many entries");
    if (!is_kept) free(d->page.url);
    d->page = (page){.priority = 0.5};
  }
  d->depth--;
  d->text_size = 0;
}

/* ---- one document -------------------------------------------------------------------------- */

static bool parse(document *d, const char *bytes, size_t size, bool is_end) {
  char text[WARM_REASON];
  d->bytes += size;
  if (d->bytes > DOCUMENT) d->why = "it has more than 50 MiB";
  if (d->why == NULL && xml.parse(d->parser, bytes, (int)size, is_end) == XML_STATUS_OK)
    return true;
  if (d->why == NULL)
    (void)snprintf(text, sizeof text, "line %lu: %s", (unsigned long)xml.line(d->parser),
                   xml.code_text(xml.code(d->parser)));
  if (!d->s->is_broken)
    warm_say("warm: --sitemap: %s: %s", d->shown, d->why != NULL ? d->why : text);
  d->s->is_broken = true;
  return false;
}

static bool unpack(document *d, const char *bytes, size_t size) {
  char plain[PIECE];
  d->packed->next_in = (unsigned char *)(uintptr_t)bytes;
  d->packed->avail_in = (unsigned)size;
  for (bool is_full = true; is_full;) {
    d->packed->next_out = (unsigned char *)plain;
    d->packed->avail_out = sizeof plain;
    int status = xml.inflate(d->packed, Z_NO_FLUSH);
    size_t got = sizeof plain - d->packed->avail_out;
    bool is_bad = status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR;
    if (is_bad) d->why = "its gzip is damaged";
    if (is_bad || got > 0) {
      if (!parse(d, plain, got, false)) return false;
    }
    is_full = status == Z_OK && d->packed->avail_out == 0;
  }
  return true;
}

/* The first bytes tell whether a document is packed. */
static bool feed(document *d, const char *bytes, size_t size) {
  bool is_gzip =
      d->bytes == 0 && d->packed == NULL && size > 2 && memcmp(bytes, "\x1f\x8b", 2) == 0;
  if (is_gzip && (d->packed = calloc(1, sizeof *d->packed)) != NULL &&
      xml.inflate_init(d->packed, GZIP_OR_ZLIB, ZLIB_VERSION, (int)sizeof *d->packed) != Z_OK)
    d->why = "out of memory";
  return d->packed != NULL ? unpack(d, bytes, size) : parse(d, bytes, size, false);
}

static bool feed_file(document *d, const char *path) {
  char buffer[PIECE];
  ssize_t n = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  bool ok = fd >= 0;
  while (ok && (n = read(fd, buffer, sizeof buffer)) > 0)
    ok = feed(d, buffer, (size_t)n) && !warm_reading_is_stopped(d->s->reading);
  if (fd < 0 || n < 0) {
    warm_say("warm: --sitemap: %s: %s", path, strerror(errno));
    d->s->is_broken = true;
  }
  if (fd >= 0) (void)close(fd);
  return ok && n == 0;
}

/* The length of "https://user@host:8080/" in a URL; 0: it is none. */
static size_t server_length(const char *url) {
  const char *host = strncmp(url, "https://", 8) == 0  ? url + 8
                     : strncmp(url, "http://", 7) == 0 ? url + 7
                                                       : NULL;
  size_t len = host != NULL ? strcspn(host, "/?#") : 0;
  return len > 0 && host[len] == '/' ? (size_t)(host - url) + len + 1 : 0;
}

/* True when both are on the same server; the first one may name a user. */
static bool is_same_server(const char *place, const char *url) {
  size_t scheme = strcspn(place, ":") + strlen("://"), len = server_length(place);
  const char *at = memchr(place, '@', len);
  size_t host = at != NULL ? (size_t)(at - place) + 1 : scheme;
  return strncmp(place, url, scheme) == 0 && server_length(url) == len - (host - scheme) &&
         strncmp(place + host, url + scheme, len - host) == 0;
}

/* Fetches by the library's HTTP origin, with its limits on what may be asked and answered. User and
 * parameters are those of the URL that was given; a foreign URL has no say in them. */
static bool feed_url(document *d, const char *url) {
  corral *c = NULL;
  corral_value *value = NULL;
  corral_error error = {0};
  const char *given = strstr(d->s->place, "://") != NULL ? d->s->place : url;
  const char *parameters = given == d->s->place ? strchr(given, '#') : NULL;
  size_t server = server_length(url), end = strcspn(url, "#"), room = strlen(given) + 16;
  char *origin = malloc(room);
  int status = CORRAL_EINVAL;
  bool ok = origin != NULL && server > 0 && end > server;
  if (ok) {
    (void)snprintf(origin, room, "%.*s{key:raw}%s", (int)server_length(given), given,
                   parameters != NULL ? parameters : "");
    const corral_options options = {.size = sizeof options,
                                    .store = "memory:",
                                    .origin = origin,
                                    .workers = 1,
                                    .max_value = DOCUMENT};
    const corral_call *call =
        CORRAL_CALL(.error = &error, .cancel_token = warm_reading_token(d->s->reading));
    status = corral_open(&options, &c, &error);
    if (status == CORRAL_OK) status = corral_get(c, url + server, end - server, call, &value);
  }
  ok = status == CORRAL_OK;
  if (!ok && !warm_reading_is_stopped(d->s->reading))
    warm_say("warm: --sitemap: %s: %s", d->shown,
             status == CORRAL_ENOTFOUND ? "the server doesn't have it"
             : error.text[0] != '\0'    ? error.text
                                        : "a URL as in https://host/sitemap.xml is accepted");
  if (!ok) d->s->is_broken = true;
  ok = ok && feed(d, corral_value_data(value), corral_value_size(value));
  corral_value_unref(value);
  corral_close(c);
  free(origin);
  return ok;
}

static void document_free(document *d) {
  if (d == NULL) return;
  if (d->packed != NULL) (void)xml.inflate_end(d->packed);
  free(d->packed);
  free(d->page.url);
  if (d->parser != NULL) xml.free(d->parser);
  free(d);
}

/* NULL without memory. */
static document *document_new(sitemap *s, const char *place, bool may_be_index) {
  document *d = calloc(1, sizeof *d);
  if (d == NULL || (d->parser = xml.create(NULL)) == NULL) return document_free(d), NULL;
  d->s = s;
  d->may_be_index = may_be_index;
  d->page.priority = 0.5;
  corral_uri_show(place, d->shown, sizeof d->shown);
  xml.set_data(d->parser, d);
  xml.set_elements(d->parser, on_begin, on_end);
  xml.set_text(d->parser, on_text);
  xml.set_doctype(d->parser, on_doctype);
  return d;
}

static bool read_document(sitemap *s, const char *place, bool may_be_index) {
  document *d = document_new(s, place, may_be_index);
  if (d == NULL) return warm_say("warm: out of memory"), false;
  bool ok = strstr(place, "://") != NULL ? feed_url(d, place) : feed_file(d, place);
  ok = ok && parse(d, "", 0, true);
  document_free(d);
  return ok;
}

static void sitemap_clear(sitemap *s) {
  for (size_t i = 0; i < s->count; i++) free(s->pages[i].url);
  for (size_t i = 0; i < s->other_count; i++) free(s->others[i]);
  free(s->pages);
  free(s->others);
}

/* ---- keys ---------------------------------------------------------------------------------- */

static int is_colder(const void *a, const void *b) {
  const page *one = a, *other = b;
  if (one->priority < other->priority || one->priority > other->priority)
    return one->priority < other->priority ? 1 : -1;
  int dates = strcmp(other->date, one->date);
  if (dates != 0) return dates;
  return (one->number > other->number) - (one->number < other->number);
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)(c | ' ');
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Replaces %XX in place. Returns the new length. */
static size_t decode(char *text) {
  size_t used = 0;
  for (const char *at = text; *at != '\0'; at++) {
    int high = *at == '%' ? hex(at[1]) : -1;
    int low = high >= 0 ? hex(at[2]) : -1;
    text[used++] = low >= 0 ? (char)(16 * high + low) : *at;
    if (low >= 0) at += 2;
  }
  return used;
}

/* Makes of a URL the key that the nginx module has for its page by default: scheme, host, path and
 * query, one behind the other. False: it is none. */
static bool make_module_key(char *url) {
  char *to = strstr(url, "://");
  if (to == NULL || to == url) return false;
  char *host = to + 3, *rest = host + strcspn(host, "/?#"),
       *user = memchr(host, '@', (size_t)(rest - host));
  if (user != NULL) host = user + 1;
  size_t len = *host == '[' ? strcspn(host, "]/?#") + 1 : strcspn(host, ":/?#");
  if (len > (size_t)(rest - host)) return false;
  for (size_t i = 0; i < len; i++)
    *to++ = host[i] >= 'A' && host[i] <= 'Z' ? (char)(host[i] + 32) : host[i];
  if (*rest != '/') *to++ = '/'; /* where "://" was there is room */
  size_t rest_len = strcspn(rest, "#");
  memmove(to, rest, rest_len);
  to[rest_len] = '\0';
  return true;
}

/* Adds the page's key. False: reading is to end. */
static bool add_page(warm_reading *r, char *url) {
  const char *origin = warm_reading_options(r)->url;
  if (origin != NULL && strstr(origin, "{uri}") != NULL) {
    if (make_module_key(url)) return warm_reading_add(r, url, strlen(url));
    warm_reading_bad(r, url, "it is no URL");
    return !warm_reading_is_stopped(r);
  }
  size_t before = origin != NULL ? strcspn(origin, "{") : 0;
  if (origin != NULL && strncmp(url, origin, before) != 0) {
    warm_reading_bad(r, url, "it is no page of --origin");
    return !warm_reading_is_stopped(r);
  }
  char *key = url + before;
  bool is_raw = origin == NULL || strncmp(origin + before, "{key:raw}", 9) == 0;
  return warm_reading_add(r, key, is_raw ? strlen(key) : decode(key));
}

/* The sitemaps of an index that came from a server are on that server. */
static bool read_others(sitemap *s) {
  bool is_file = strstr(s->place, "://") == NULL, ok = true;
  for (size_t i = 0; i < s->other_count && ok && !warm_reading_is_stopped(s->reading); i++) {
    const char *url = s->others[i];
    ok = server_length(url) > 0 && (is_file || is_same_server(s->place, url));
    if (!ok)
      warm_say("warm: --sitemap: %s is refused: a URL on the server of the index is accepted", url);
    ok = ok && read_document(s, url, false);
  }
  return ok;
}

bool warm_sitemap_keys(warm_reading *r, const char *place) {
  sitemap s = {.reading = r, .place = place};
  bool ok = read_document(&s, place, true) && read_others(&s);
  if (s.count > 0) qsort(s.pages, s.count, sizeof s.pages[0], is_colder);
  for (size_t i = 0; i < s.count && ok; i++) ok = add_page(r, s.pages[i].url);
  sitemap_clear(&s);
  return ok;
}

/* The path known at build time is the second choice. */
static void *library_of(const char *name, const char *path) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  return library != NULL ? library : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

bool warm_sitemap_load(void) {
  void *expat = library_of("libexpat.so.1", CORRAL_EXPAT);
  void *zlib = expat != NULL ? library_of("libz.so.1", CORRAL_ZLIB) : NULL;
  bool ok = zlib != NULL;
#define LOAD(name, function) ok = ok && (*(void **)&xml.name = dlsym(expat, #function)) != NULL;
  FUNCTIONS(LOAD)
#undef LOAD
#define LOAD(name, function) ok = ok && (*(void **)&xml.name = dlsym(zlib, #function)) != NULL;
  ZLIB_FUNCTIONS(LOAD)
#undef LOAD
  if (!ok) cli_say("warm: --sitemap needs libexpat and zlib: %s", dlerror());
  return ok;
}

#else

bool warm_sitemap_load(void) {
  cli_say("warm: --sitemap: this corral was built without libexpat or zlib");
  return false;
}

bool warm_sitemap_keys(warm_reading *r, const char *place) {
  (void)r;
  (void)place;
  return false;
}

#endif
