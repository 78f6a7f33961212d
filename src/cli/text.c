/* text.c: the help texts of the corral command. Each fits a terminal of 80 columns and 24 lines. */
#include "cli.h"

#include <string.h>

/* Stands for the lines about the options that the library's tables give to the subcommand. */
#define ROWS "\1"
/* Stands for the lines about the subcommands. */
#define SUBCOMMANDS "\2"

enum { PAGE_ROOM = 4096 };

static const char help_main[] =
    "Usage: corral [OPTION]... SUBCOMMAND [ARGUMENT]...\n"
    "Build a thing once while everyone who asks for it waits, on one host or many.\n" SUBCOMMANDS
    "  --store URI         Where values are kept; default: lmdb: in your cache folder\n" ROWS
    "  --no-host-lock, --json, --pass-store  No host lock; JSON; give CORRAL_STORE\n"
    "  -q, -v, -h, -V      --quiet, --verbose, --help, --version; corral help run\n"
    "Exit: 1 not found, 124 deadline, 125 failed. CORRAL_STORE, ...: man corral\n";

static const char help_run[] =
    "Usage: corral run [OPTION]... [--] CMD [ARGUMENT]...\n"
    "Run CMD at most once for all who ask for it now; replay its output and status.\n"
    "  --key K             The key; default: CMD and what these options name:\n"
    "  --env N, --cwd, --modtime FILE  Variable, folder, a file's time and size\n" ROWS
    "  --cache-failures D, --force   How long a failure is kept (1s); run it again\n"
    "  --if-lost HOW, --live, --no-live   Lost lease: go-on|kill; output as it comes\n"
    "  --tag TAG, --value-version N   For invalidate --tag; never over a later one\n"
    "  --unmodified-exit N, --pass-exit N   CMD's status: no change; not for others\n"
    "D is a number of seconds, or has ms, s, m, h, d or w: 0.2, 5m, 1h30m.\n"
    "Exit: CMD's own status; 124 --wait or --compute passed, 125 corral failed, 126\n"
    "can't execute CMD, 127 CMD not found, 128+N CMD was ended by signal N.\n";

static const char help_get[] =
    "Usage: corral get [--header] [--field 'NAME: VALUE']... KEY\n"
    "       corral get [--env N]... [--cwd] [--modtime FILE]... -- CMD [ARGUMENT]...\n"
    "Print the value stored under KEY, byte for byte, or what CMD printed when corral\n"
    "run ran it with these options. It is not computed. --key K is KEY.\n"
    "\n"
    "Of a page (docs/nginx.md) the body is printed.\n"
    "  --header               its status and fields before it\n"
    "  --field 'NAME: VALUE'  a field of the request that gets it, where pages vary\n"
    "\n"
    "Exit: 0 printed, 1 nothing usable is stored, 125 corral failed.\n";

static const char help_set[] =
    "Usage: corral set [OPTION]... KEY [VALUE | -]\n"
    "Store VALUE, or all of stdin, under KEY. A compute under way is voided.\n"
    "\n" ROWS "                      and when that fails\n"
    "\n"
    "D is a number of seconds, or has ms, s, m, h, d or w: 0.2, 5m, 1h30m.\n"
    "Exit: 0 stored, 125 corral failed: nothing is known to be stored.\n";

static const char help_invalidate[] =
    "Usage: corral invalidate [--tag TAG]... [KEY]... [-- CMD [ARGUMENT]...]\n"
    "       corral --generation invalidate --all\n"
    "Never serve again what was computed until now, nor what is being computed. All\n"
    "variants of a page go with its KEY.\n"
    "\n"
    "  -- CMD     the result of corral run -- CMD; --env, --cwd, --modtime as there\n"
    "  --tag TAG  all results of runs with this --tag, however many\n"
    "  --all      all values of the --namespace, which all must use with --generation\n"
    "\n"
    "Exit: 0 done (also when nothing was stored), 125 failed for at least one.\n";

static const char help_expire[] =
    "Usage: corral expire [--tag TAG]... [KEY]... [-- CMD [ARGUMENT]...]\n"
    "       corral --generation expire --all\n"
    "End the fresh life now: the value still serves inside its grace (--stale). The\n"
    "same for all variants of a page.\n"
    "\n"
    "  -- CMD     the result of corral run -- CMD; --env, --cwd, --modtime as there\n"
    "  --tag TAG  all results of runs with this --tag, however many\n"
    "  --all      all values of the --namespace, which all must use with --generation\n"
    "\n"
    "Exit: 0 done (also when nothing was stored), 125 failed for at least one.\n";

static const char help_inspect[] =
    "Usage: corral [--json] inspect [--field 'NAME: VALUE']... KEY\n"
    "       corral inspect [--env N]... [--cwd] [--modtime FILE]... -- CMD...\n"
    "Show what the store keeps under KEY: state, age, lives, cost, size, version, who\n"
    "holds the lease and for how long, a remembered failure; of a result of corral\n"
    "run its exit status and sizes; of a page its status, the sizes of fields and\n"
    "body, and what it varies by (--field: a field of the request that gets it).\n"
    "\n"
    "Exit: 0 shown (also state \"none\"), 125 corral failed.\n";

static const char help_key[] =
    "Usage: corral [--namespace NAME] [--json] key [OPTION] NAME\n"
    "Print the key under which the store has a value, for redis-cli and the like.\n"
    "What is not printable ASCII, and \\, is written as \\xNN.\n"
    "\n"
    "  --variant V         the variant V of the value\n"
    "  --tag               NAME is a tag: the key of its version\n"
    "  --lock              NAME is a lock\n"
    "\n"
    "Exit: 0 printed, 125 corral failed.\n";

static const char help_explain[] =
    "Usage: corral [--store URI] explain [NAME=VALUE]...\n"
    "Say what a policy of the library will do, and warn of what makes no sense; with\n"
    "a store also which order of corral control is in force in the --namespace.\n"
    "\n"
    "NAME is an option of a call, such as ttl, stale or early; corral(1) has them\n"
    "all. VALUE is a number; of seconds, or with ms, s, m, h, d or w, for a time (of\n"
    "ms for a NAME_ms); a word, on or off. What is not named has its default.\n"
    "\n"
    "  corral explain ttl=5m stale=1h stale_if_error=1d\n"
    "\n"
    "Exit: 0 said, also with warnings; 125 a value is not accepted.\n";

static const char help_lock[] =
    "Usage: corral lock [OPTION]... NAME [--] CMD [ARGUMENT]...\n"
    "       corral lock --take|--check|--release|--show|--watch|--break NAME\n"
    "Run CMD while the lock NAME is held, alone on all hosts that share the store.\n"
    "CMD has CORRAL_LOCK_NAME and CORRAL_FENCE, a token that grows with each hold.\n" ROWS
    "  --grace D           CMD gets TERM so long before the end (2s), then KILL\n"
    "  -n, --no-wait, --note TEXT   As --wait 0; for --show, up to 40 bytes\n"
    "  -E, --conflict-exit N, --lost-exit N   Instead of 75 and 124; instead of 76\n"
    "  --warn D, --fence-store URI   Say when D is left; a store that counts tokens\n"
    "  --ticket, --leave   CMD has CORRAL_LOCK_TICKET; the hold outlasts CMD, for:\n"
    "  --adopt TICKET      Take over the hold of that ticket, without waiting\n"
    "  --show, --watch, --list [PREFIX], --break [--yes]   See holds; end them\n"
    "  --take, --check, --release   Hold it until this script ends; held? end it\n"
    "  --pid P, --lost-signal S, --fence   Which script; signal a loss; print token\n"
    "The hold lasts as long as CMD. When it is lost, CMD is ended.\n"
    "Exit: CMD's own status; 75 somebody else has it, with --no-wait; 76 lost, or\n"
    "--max; 124 --wait passed; 125 corral failed, 126 CMD can't be executed, 127\n"
    "CMD not found, 128+N ended by signal N. --show: 0 held, 1 nobody holds it.\n";

static const char help_warm[] =
    "Usage: corral [--json] warm [OPTION]... [FILE]... [-- CMD [ARGUMENT]...]\n"
    "Compute the values of the keys in FILEs, or stdin: one a line; -0: ended by NUL.\n"
    "  -- CMD [ARGUMENT]...  CMD's stdout; {} and $CORRAL_KEY are the key\n"
    "  --exec TEXT         The same by the shell: $1 and $CORRAL_KEY are the key\n"
    "  --as-run            Kept as corral run --key KEY keeps and answers it\n"
    "  --origin URL        An HTTP origin, {key} in it is the key\n"
    "  --sqlite FILE | --pg INFO | --mariadb INFO, --query SQL   Row 1, column 1\n"
    "  --keys SQL, --sitemap URL|FILE   Keys from there, in the statement's order\n"
    "  -j, --jobs N, --rate N   As many at once (4); computes: 10/s, 100/m, 1000/h\n"
    "  --ahead D, --spread PCT   Also what is fresh for less; shorten lives (20)\n"
    "  --watch[=D]         Until a signal; each key is looked at every D (1m)\n" ROWS
    "  --cache-failures D, --tag TAG, -c, --comments   As of run; # begins no key\n"
    "  --patience D, --progress D   Wait for a store that is away; a line so often\n"
    "What is fresh is skipped: when interrupted, run it again. Warmers share a pass.\n"
    "Exit: 0 all are warm, 1 some aren't, 125 corral failed, 128+N ended by signal N.\n";

static const char help_storm[] =
    "Usage: corral [--json] storm [OPTION]...\n"
    "A herd asks for values that cost a real SQLite query, by a schedule that is the\n"
    "same in each run and mode; shows how long requests waited, and what they cost.\n"
    "\n"
    "  --mode M         none (cache-aside), corral, or both; default both\n"
    "  --rate N         requests per second, of the whole herd; default 2000\n"
    "  --duration D     of the schedule, in each mode; default 8s\n"
    "  --processes P    default 4\n"
    "  --threads C      threads in each process; default 25\n"
    "  --keys N         default 1\n"
    "  --zipf S         skew of the choice of keys; default 1, 0 is even\n"
    "  --ttl D          fresh life; default 2s\n"
    "  --stale D        grace after it; default 0\n"
    "  --load N         rows in the query; default: so that one takes about 20 ms\n"
    "  --kill-leader    now and then SIGKILL a process that is computing\n"
    "  --kill-every D   how often; default 1s; implies --kill-leader\n"
    "  --html FILE      write the result as a page with plots, too\n"
    "\n"
    "Without --store it uses a store of its own, lmdb: in a temporary folder.\n"
    "Exit: 0; 1 when a value was wrong; 125 corral failed; 130 after Ctrl-C.\n";

static const char help_doctor[] =
    "Usage: corral [--namespace NAME] [--op D] [--json] doctor [--locks] URI\n"
    "       corral [--json] doctor\n"
    "Ask each server of the store for what matters to corral: version, role, latency,\n"
    "clock, rights of the user, how waiters are woken, memory and its policy,\n"
    "persistence, replicas. Nothing in the store is changed.\n"
    "\n"
    "  --locks                judge it as a store of locks, not of values\n"
    "\n"
    "Each server, and each request, may take --op. Reasons why the store isn't fit,\n"
    "and warnings, are a line each, with what to do; with -q they are all there is.\n"
    "\n"
    "Without a URI it examines this host: its limits, clocks and shared memory, the\n"
    "versions of the processes that use corral, and what their counts speak against:\n"
    "waiters that poll, lost leases, failing computes, a compute that hangs.\n"
    "\n"
    "Exit: 0 fit, also with warnings; 1 not fit; 125 no server was reached, or the\n"
    "URI is wrong.\n";

static const char help_stat[] =
    "Usage: corral stat [OPTION]...\n"
    "Sum what all processes of this host have counted, by cache (namespace) and\n"
    "store: calls by how they ended, computes and what was saved, waiting callers,\n"
    "times. The counts of processes that have ended are among them.\n"
    "\n"
    "  --json              As one object; with --watch, one a line\n"
    "  --watch[=D]         Rates, every D (1s), until a signal\n"
    "  --count N           Not longer than N times\n"
    "  --prometheus        Text for node_exporter's collector of text files\n"
    "  --output FILE       Into FILE, which is replaced when it is whole\n"
    "  --stats-dir DIR     That folder; default: CORRAL_STATS_DIR, else those in\n"
    "                      /dev/shm that may be read: yours, for root everybody's\n"
    "\n"
    "  corral stat --prometheus --watch=15s \\\n"
    "    --output /var/lib/prometheus/node-exporter/corral.prom\n"
    "\n"
    "Exit: 0 shown, 1 nothing has been counted yet, 125 corral failed, 128+N ended by\n"
    "signal N.\n";

static const char help_top[] =
    "Usage: corral top [OPTION]...\n"
    "Show the rates of all processes of this host, again and again: calls, hit ratio,\n"
    "computes, what was saved, who waits; caches, hottest keys, longest flights.\n"
    "\n"
    "  -d, --every D       Pause between two looks (1s)\n"
    "  --count N           Not longer than N looks\n"
    "  --stats-dir DIR     As for corral stat\n"
    "\n"
    "Keys: q quit; s sort by the next of gets, computes, saved (time of the origin),\n"
    "waiting and name; / type a part of the names of the caches to show, Enter, or\n"
    "Escape for all; p pause; 1 to 9 seconds between two looks.\n"
    "\n"
    "GETS/S: calls for one value by the second. HITS: answered at once. SAVED/S:\n"
    "answered without a compute of their own. ORIGIN: seconds of computes spared by\n"
    "the second. P99: 99 of 100 computes took at most so long.\n"
    "\n"
    "Where standard input or output is no terminal, or TERM is dumb, pages follow\n"
    "each other.\n"
    "\n"
    "Exit: 0, 125 corral failed, 128+N ended by signal N.\n";

static const char help_flights[] =
    "Usage: corral [--json] flights [--watch[=D]]\n"
    "Show what the processes of this host compute, or wait for, now: a line for each,\n"
    "with its key, state, how long it has been in it, how long such a compute usually\n"
    "takes, the calls of its process that wait for it, program, pid, host, namespace.\n"
    "The longest is first.\n"
    "\n"
    "  compute  that process computes          limited  it waits for a place to\n"
    "  wait     for a leader elsewhere         slow     for a store that is slow\n"
    "  settle   what it computed is being stored\n"
    "\n"
    "  --watch[=D]  again every D (1s), until a signal\n"
    "\n"
    "CORRAL_STATS_DIR is the folder where processes tell this; docs/stats.md.\n"
    "Exit: 0 shown, 1 there is none, 125 corral failed.\n";

static const char help_log[] =
    "Usage: corral [--json] log [OPTION]...\n"
    "Show the events of this host's processes as they happen, a line each, in the\n"
    "order of time. Those of calls that are answered at once (hit, near, stale, join,\n"
    "...) and of repeated looks (poll) are counted only: they aren't here.\n"
    "\n"
    "  --key K          of keys that begin with K; of those that match K, if it has\n"
    "                   one of * ? [\n"
    "  --event NAME,... of these names, such as compute,computed,fill\n"
    "  --min D          only what took D or longer\n"
    "  --past           also the last ones before now: 128 of each process\n"
    "  --for D          end after D; --past --for 0 shows the past only\n"
    "\n"
    "D is a number of seconds, or has ms, s, m, h, d or w. Keys are cut to 63 bytes.\n"
    "CORRAL_STATS_DIR is the folder where processes tell this; docs/stats.md.\n"
    "Exit: 0 --for is over, 125 corral failed, else by the signal that ends it.\n";
static const char help_control[] =
    "Usage: corral [--json] control NAMESPACE [ORDER] [--for D]\n"
    "Order all processes that have this namespace open on the store, with the option\n"
    "control (run and warm: --control), what to do from now on; they follow within a\n"
    "second of their next call. Without ORDER, show the one in force. The last one\n"
    "wins; it ends by itself.\n"
    "\n"
    "  freeze     compute nothing: stale values serve, and without one a call fails\n"
    "  bypass     go around the cache: each call computes for itself, nothing is kept\n"
    "  limit N    at most N computes at once in each process\n"
    "  drop-near  forget the near copies, once; an order in force stays\n"
    "  normal     ends the order\n"
    "\n"
    "  --for D    how long it lasts, 1s to 1d (10m)\n"
    "\n"
    "Exit: 0 the store has the order, 125 corral failed.\n";

static const char help_completion[] =
    "Usage: corral completion bash|zsh|fish\n"
    "Print the script by which that shell completes subcommands, options and values.\n"
    "\n"
    "  bash   . <(corral completion bash), or to a file corral in\n"
    "         ~/.local/share/bash-completion/completions\n"
    "  zsh    to a file _corral in a folder of $fpath, before compinit\n"
    "  fish   corral completion fish | source, or to a file corral.fish in\n"
    "         ~/.config/fish/completions\n"
    "An installed corral has these files in place.\n"
    "\n"
    "Exit: 0 printed, 125 no such shell.\n";

static const char *page_of(const char *subcommand) {
  static const struct {
    const char *name;
    const char *text;
  } pages[] = {
      {"run", help_run},         {"get", help_get},
      {"set", help_set},         {"invalidate", help_invalidate},
      {"expire", help_expire},   {"inspect", help_inspect},
      {"key", help_key},         {"explain", help_explain},
      {"lock", help_lock},       {"warm", help_warm},
      {"storm", help_storm},     {"doctor", help_doctor},
      {"stat", help_stat},       {"top", help_top},
      {"flights", help_flights}, {"log", help_log},
      {"control", help_control}, {"completion", help_completion},
  };
  for (size_t i = 0; i < sizeof pages / sizeof pages[0] && subcommand != NULL; i++)
    if (strcmp(pages[i].name, subcommand) == 0) return pages[i].text;
  return help_main;
}

static size_t list_subcommands(char *page, size_t used) {
  char usage[48];
  for (const cli_subcommand *s = cli_subcommands; s->name != NULL && used < PAGE_ROOM; s++) {
    if (s->usage == NULL) continue;
    (void)snprintf(usage, sizeof usage, "%s%s", s->name, s->usage);
    used += (size_t)snprintf(page + used, PAGE_ROOM - used, "  %-19s %s\n", usage, s->text);
  }
  return used < PAGE_ROOM ? used : PAGE_ROOM - 1;
}

const char *cli_help(const char *subcommand) {
  static char page[PAGE_ROOM];
  const char *text = page_of(subcommand);
  const char *rows_of = text == help_main ? NULL : subcommand;
  size_t used = 0;
  for (; *text != '\0' && used + 1 < PAGE_ROOM; text++) {
    if (*text == ROWS[0])
      used = cli_flags_help(rows_of, page, used, PAGE_ROOM);
    else if (*text == SUBCOMMANDS[0])
      used = list_subcommands(page, used);
    else
      page[used++] = *text;
  }
  page[used] = '\0';
  return page;
}
