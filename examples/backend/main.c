/* main.c: a web backend on PostgreSQL: an expensive report behind corral, made anew when its data
 * has changed, and not before.
 *
 *   report.c   the query, and its guards
 *   listen.c   the changes, which the triggers of schema.sql leave in a table; pace.c: how often
 *   web.c      HTTP
 *   db.c       libpq with a limit to every call
 *
 *   cc -O2 *.c $(pkg-config --cflags --libs corral libpq libmicrohttpd libxxhash) -pthread \
 *     -o backend
 *   backend --database "dbname=shop" --store redis://127.0.0.1 --port 8080
 *   curl -i 'http://127.0.0.1:8080/report?region=north'
 *   psql -d shop -c "UPDATE orders SET amount = amount + 1 WHERE id = 4"     the next report has it
 *
 * Any number of requests, processes and hosts that share the store cost one query for each change
 * of a region, at most one per --pace, and one per --ttl; a start costs none. While the database is
 * away, the last reports are served for as long as --grace; while the store is away, each process
 * computes for itself. SIGTERM and SIGINT end it in good order. */
#include <corral.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "report.h"
#include "web.h"

enum { STOP_MS = 2000 };

typedef struct settings {
  const char *database, *store, *name_space;
  int64_t port, connections, ttl_ms, grace_ms, pace_ms, pause_ms;
} settings;

static const char usage[] =
    "usage: backend [OPTION...]\n"
    "  --database CONNINFO  of libpq: keywords or a URI; default: its environment (PGHOST and so "
    "on)\n"
    "  --store URI          where reports are kept; default memory:, this process alone\n"
    "  --namespace NAME     put before the store's keys; default backend\n"
    "  --port N             of 127.0.0.1; 0: any; default 8080\n"
    "  --connections N      1 to 64: to the database, and so reports computed at once; default 4\n"
    "  --ttl MS             fresh life of a report that no change ends; default 60000\n"
    "  --grace MS           after that, while it can't be computed anew; default 3600000\n"
    "  --pace MS            a report that changes all the time is made anew once in so long, or in "
    "twice\n"
    "                       the time that it takes; default 1000\n"
    "  --pause MS           each query sleeps so long besides, to be watched; 0 to 10000, default "
    "0\n";

/* ---- options ------------------------------------------------------------------------------- */

static int number(const char *name, const char *text, int64_t least, int64_t most, int64_t *ret) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || n < least || n > most) {
    fprintf(stderr, "backend: --%s %s: accepted: %lld to %lld\n", name, text, (long long)least,
            (long long)most);
    return 0;
  }
  *ret = n;
  return 1;
}

static int read_options(settings *s, int argc, char **argv) {
  enum { DATABASE = 1, STORE, NAME_SPACE, PORT, CONNECTIONS, TTL, GRACE, PACE, PAUSE, HELP };
  static const struct option known[] = {{"database", 1, NULL, DATABASE},
                                        {"store", 1, NULL, STORE},
                                        {"namespace", 1, NULL, NAME_SPACE},
                                        {"port", 1, NULL, PORT},
                                        {"connections", 1, NULL, CONNECTIONS},
                                        {"ttl", 1, NULL, TTL},
                                        {"grace", 1, NULL, GRACE},
                                        {"pace", 1, NULL, PACE},
                                        {"pause", 1, NULL, PAUSE},
                                        {"help", 0, NULL, HELP},
                                        {NULL, 0, NULL, 0}};
  int option, ok = 1;
  while (ok && (option = getopt_long(argc, argv, "", known, NULL)) != -1) switch (option) {
      case DATABASE: s->database = optarg; break;
      case STORE: s->store = optarg; break;
      case NAME_SPACE: s->name_space = optarg; break;
      case PORT: ok = number("port", optarg, 0, 65535, &s->port); break;
      case CONNECTIONS: ok = number("connections", optarg, 1, 64, &s->connections); break;
      case TTL: ok = number("ttl", optarg, 1, 86400000, &s->ttl_ms); break;
      case GRACE: ok = number("grace", optarg, 1, 86400000, &s->grace_ms); break;
      case PACE: ok = number("pace", optarg, 1, 3600000, &s->pace_ms); break;
      case PAUSE: ok = number("pause", optarg, 0, 10000, &s->pause_ms); break;
      case HELP: fputs(usage, stdout); exit(0);
      default: ok = 0; fputs(usage, stderr);
    }
  if (ok && optind < argc) {
    fprintf(stderr, "backend: %s: no arguments are accepted\n%s", argv[optind], usage);
    ok = 0;
  }
  return ok;
}

/* ---- the corral ---------------------------------------------------------------------------- */

static void log_event(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event != CORRAL_EVENT_FAILURE && info->event != CORRAL_EVENT_STORE_DOWN &&
      info->event != CORRAL_EVENT_STORE_UP)
    return;
  fprintf(stderr, "backend: %s %.*s: %s\n", corral_event_name(info->event),
          info->key == NULL ? 0 : (int)info->key_len,
          info->key == NULL ? "" : (const char *)info->key,
          info->detail == NULL ? "" : info->detail);
}

static int open_reports(corral **ret, const settings *s, report_source *source) {
  corral_error error = {0};
  /* The queries run on the library's threads, so a request waits for 10 s at most. A report whose
   * life has ended, by a change or by --ttl, is made anew before it is answered: the old one is
   * answered, with its age, when the database doesn't give a new one. One that is asked for is made
   * anew before its --ttl ends, and nobody waits. While the store is away no copies are served,
   * since nobody tells this process of changes then. */
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = s->ttl_ms, .sie_ms = s->grace_ms, .early_pct = 20, .wait_ms = 10000,
                    .compute_ms = REPORT_MS + 2000, .retry_max_ms = 2000,
                    .when_away = CORRAL_AWAY_COMPUTE);
  int status = corral_open(
      CORRAL_OPTIONS(.store = s->store, .name_space = s->name_space, .policy = policy,
                     .compute = report_compute, .compute_arg = source, .on_event = log_event,
                     .workers = s->connections, .max_computes = s->connections,
                     .near_bytes = 16 << 20, .generation = 1, .origin = "reports"),
      ret, &error);
  if (status != CORRAL_OK) fprintf(stderr, "backend: %s\n", error.text);
  return status == CORRAL_OK;
}

/* ---- run ----------------------------------------------------------------------------------- */

/* Opens its parts in this order and closes them in the opposite one: requests end first, then the
 * queries and the listener (by stop_fd), then what they use. */
static int serve(const settings *s, report_source *source, int signal_fd) {
  corral *reports;
  char text[200];
  if (!open_reports(&reports, s, source)) return 0;
  listener *hears =
      listener_start(&(listener_options){.reports = reports,
                                         .conninfo = s->database,
                                         .pace_ms = s->pace_ms,
                                         .is_private = strncmp(s->store, "memory:", 7) == 0,
                                         .stop_fd = source->stop_fd});
  web *w = hears == NULL ? NULL : web_open(reports, hears, (int)s->port, text, sizeof text);
  if (w != NULL) {
    printf("listening on http://127.0.0.1:%d\n", web_port(w));
    fflush(stdout);
    web_run(w, signal_fd, STOP_MS);
  } else {
    fprintf(stderr, "backend: %s\n", hears == NULL ? "no thread to listen by" : text);
  }
  int ok = w != NULL;
  web_close(w);
  if (eventfd_write(source->stop_fd, 1) != 0) abort();
  listener_join(hears);
  corral_close(reports);
  return ok;
}

int main(int argc, char **argv) {
  settings s = {.database = "",
                .store = "memory:",
                .name_space = "backend",
                .port = 8080,
                .connections = 4,
                .ttl_ms = 60000,
                .grace_ms = 3600000,
                .pace_ms = 1000};
  report_source source = {0};
  sigset_t signals;
  if (!read_options(&s, argc, argv)) return 2;
  /* before any thread is made, so that all have the signals blocked and only signal_fd gets them */
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  signal(SIGPIPE, SIG_IGN);
  snprintf(source.pause, sizeof source.pause, "%d.%03d", (int)(s.pause_ms / 1000),
           (int)(s.pause_ms % 1000));
  int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  source.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  source.pool = db_pool_new(s.database, (int)s.connections);
  if (signal_fd < 0 || source.stop_fd < 0 || source.pool == NULL) {
    fprintf(stderr, "backend: %s\n", strerror(errno));
    return 1;
  }
  int ok = serve(&s, &source, signal_fd);
  db_pool_free(source.pool);
  close(source.stop_fd);
  close(signal_fd);
  return ok ? 0 : 1;
}
