/* cluster_slots.c: the map of a cluster, by CLUSTER SLOTS: asking for it, and reading it.
 *
 * The reply is a list of ranges: first slot, last slot, the primary, its replicas. A node is its
 * endpoint, port, id, and from Redis 7 on a list of names and values. Everything is foreign: a map
 * that isn't whole and sound is refused, and so are an empty one, and one in which no node is known
 * from the last map: another cluster has taken over an address. */
#include <stdlib.h>

#include "cluster.h"

enum { MAP_BYTES = 16 << 20, NODES_MOST = 1000, IDS_MOST = 16 * NODES_MOST, KNOWN_ASKED = 3 };

/* A map under construction: the ranges and nodes read so far. */
typedef struct slot_map {
  crl_redis_cluster *cluster;
  const crl_redis_node *asked;
  uint16_t owner[CRL_REDIS_SLOTS]; /* index of a place, plus 1 */
  crl_redis_place *places;
  size_t count, room;
  char (*ids)[CRL_REDIS_ID + 1];
  size_t id_count, id_room;
  int no_memory;
} slot_map;

/* ---- tokens -------------------------------------------------------------------------------- */

static int number_of(crl_redis_message *m, int64_t least, int64_t most, int64_t *ret) {
  crl_redis_token t;
  if (!crl_redis_message_next(m, &t) || t.type != ':' || t.number < least || t.number > most)
    return 0;
  *ret = t.number;
  return 1;
}

static int count_of(crl_redis_message *m, int64_t *ret) {
  crl_redis_token t;
  if (!crl_redis_message_next(m, &t) || t.type != '*') return 0;
  *ret = t.number;
  return 1;
}

/* Skips the next value, with all that is in it. */
static int skip(crl_redis_message *m) {
  crl_redis_token t;
  for (int64_t left = 1; left > 0; left--) {
    if (!crl_redis_message_next(m, &t)) return 0;
    if (t.type == '*' || t.type == '~') left += t.number;
    if (t.type == '%') left += 2 * t.number;
  }
  return 1;
}

int crl_redis_token_copy(const crl_redis_token *t, char *ret, size_t size) {
  if ((t->type != '$' && t->type != '+') || t->len >= size) return 0;
  for (size_t i = 0; i < t->len; i++)
    if (t->text[i] <= ' ' || t->text[i] > '~') return 0;
  memcpy(ret, t->text, t->len);
  ret[t->len] = '\0';
  return 1;
}

static int is_text(const crl_redis_token *t, const char *text) {
  return (t->type == '$' || t->type == '+') && t->len == strlen(text) &&
         memcmp(t->text, text, t->len) == 0;
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* The list of names and values of a node. `ip`: what stands there, if its host isn't known. */
static int read_names(crl_redis_message *m, crl_redis_place *place, char ip[CRL_REDIS_HOST]) {
  crl_redis_token list;
  if (!crl_redis_message_next(m, &list) || (list.type != '*' && list.type != '%')) return 0;
  int64_t pairs = list.type == '%' ? list.number : list.number / 2;
  if (list.type == '*' && list.number % 2 != 0) return 0;
  for (int64_t i = 0; i < pairs; i++) {
    crl_redis_token name, value;
    if (!crl_redis_message_next(m, &name) || !crl_redis_message_next(m, &value)) return 0;
    if (is_text(&name, "hostname") &&
        !crl_redis_token_copy(&value, place->tls_name, CRL_REDIS_HOST))
      return 0;
    if (is_text(&name, "ip") && !crl_redis_token_copy(&value, ip, CRL_REDIS_HOST)) return 0;
  }
  return 1;
}

/* Reads a node. Without an endpoint it is where the others name it, or else where the map came
 * from. */
static int read_node(const slot_map *map, crl_redis_message *m, crl_redis_place *place) {
  char ip[CRL_REDIS_HOST] = "";
  int64_t parts, port;
  crl_redis_token host, id = {.type = '_'};
  memset(place, 0, sizeof *place);
  if (!count_of(m, &parts) || parts < 2 || !crl_redis_message_next(m, &host) ||
      !number_of(m, 0, 65535, &port))
    return 0;
  if (parts > 2 && (!crl_redis_message_next(m, &id) || id.len != CRL_REDIS_ID ||
                    !crl_redis_token_copy(&id, place->id, sizeof place->id)))
    return 0;
  if (parts > 3 && !read_names(m, place, ip)) return 0;
  for (int64_t i = 4; i < parts; i++)
    if (!skip(m)) return 0;
  place->port = (int)port;
  int is_unknown = host.type == '_' || host.len == 0 || is_text(&host, "?");
  if (!is_unknown) return crl_redis_token_copy(&host, place->host, sizeof place->host);
  memcpy(place->host, ip, sizeof ip);
  if (ip[0] == '\0') memcpy(place->host, map->asked->host, sizeof place->host);
  return 1;
}

/* The index of a place, which is appended if it is new; -1: no memory, or too many. */
static int index_of(slot_map *map, const crl_redis_place *place) {
  for (size_t i = map->count; i > 0; i--)
    if (map->places[i - 1].port == place->port && strcmp(map->places[i - 1].host, place->host) == 0)
      return (int)(i - 1);
  if (map->count == NODES_MOST) return -1;
  if (map->count == map->room) {
    size_t room = 2 * map->room + 8;
    crl_redis_place *places = realloc(map->places, room * sizeof *places);
    if (places == NULL) {
      map->no_memory = 1;
      return -1;
    }
    map->places = places;
    map->room = room;
  }
  map->places[map->count] = *place;
  return (int)map->count++;
}

static int note_id(slot_map *map, const char *id) {
  if (id[0] == '\0' || map->id_count == IDS_MOST) return 1;
  if (map->id_count == map->id_room) {
    size_t room = 2 * map->id_room + 16;
    char(*ids)[CRL_REDIS_ID + 1] = realloc(map->ids, room * sizeof *ids);
    if (ids == NULL) {
      map->no_memory = 1;
      return 0;
    }
    map->ids = ids;
    map->id_room = room;
  }
  memcpy(map->ids[map->id_count++], id, CRL_REDIS_ID + 1);
  return 1;
}

/* ---- ranges -------------------------------------------------------------------------------- */

static int read_range(slot_map *map, crl_redis_message *m) {
  int64_t parts, first, last;
  crl_redis_place place;
  if (!count_of(m, &parts) || parts < 3 || !number_of(m, 0, CRL_REDIS_SLOTS - 1, &first) ||
      !number_of(m, first, CRL_REDIS_SLOTS - 1, &last) || !read_node(map, m, &place))
    return 0;
  size_t before = map->count;
  int owner = place.port == 0 ? -2 : index_of(map, &place);
  if (owner == -1 || (map->count > before && !note_id(map, place.id))) return 0;
  for (int64_t slot = first; slot <= last && owner >= 0; slot++)
    map->owner[slot] = (uint16_t)(owner + 1);
  for (int64_t i = 3; i < parts; i++) {
    if (!read_node(map, m, &place)) return 0;
    if (map->count > before && !note_id(map, place.id)) return 0;
  }
  return 1;
}

static int is_shared(const slot_map *map) {
  const crl_redis_cluster *c = map->cluster;
  if (c->id_count == 0 || map->id_count == 0) return 1;
  for (size_t i = 0; i < map->id_count; i++)
    for (size_t j = 0; j < c->id_count; j++)
      if (strcmp(map->ids[i], c->ids[j]) == 0) return 1;
  return 0;
}

/* Takes the map over. The number of slots that have moved; -1: there are too many nodes, or there
 * is no memory. */
static int take_over(slot_map *map) {
  crl_redis_cluster *c = map->cluster;
  size_t numbers[NODES_MOST + 1] = {CRL_REDIS_FRONT_DOOR};
  int moved = 0;
  for (size_t i = 0; i < map->count; i++)
    if ((numbers[i + 1] = crl_redis_node_meet_locked(c, &map->places[i])) == 0) return -1;
  for (size_t i = 1; i < CRL_REDIS_NODES; i++) {
    crl_redis_node *n = atomic_load(&c->nodes[i]);
    if (n != NULL) n->has_slots = 0;
  }
  for (size_t i = 1; i <= map->count; i++) atomic_load(&c->nodes[numbers[i]])->has_slots = 1;
  for (unsigned slot = 0; slot < CRL_REDIS_SLOTS; slot++)
    moved += crl_redis_slot_give(c, slot, numbers[map->owner[slot]]);
  free(c->ids);
  c->ids = map->ids;
  c->id_count = map->id_count;
  map->ids = NULL;
  atomic_store(&c->has_map, 1);
  return moved;
}

static int judge(slot_map *map, int *changed, corral_error *error) {
  crl_redis_cluster *c = map->cluster;
  const char *name = map->asked->store.name;
  if (map->count == 0)
    return c->base.host->fail(error, CORRAL_EUNAVAILABLE,
                              "%.80s: no node of this cluster has slots", name);
  pthread_mutex_lock(&c->mutex);
  int shared = is_shared(map), moved = shared ? take_over(map) : 0;
  pthread_mutex_unlock(&c->mutex);
  if (!shared)
    return c->base.host->fail(error, CORRAL_EUNAVAILABLE,
                              "%.80s: belongs to another cluster than before", name);
  if (moved < 0)
    return c->base.host->fail(error, CORRAL_ENOMEM, "%.80s: no room for all nodes of the cluster",
                              name);
  *changed = moved > 0;
  if (moved > 0) crl_redis_slots_moved(c);
  return CORRAL_OK;
}

int crl_redis_slots_read(crl_redis_cluster *c, const crl_redis_node *asked,
                         crl_redis_message message, int *changed, corral_error *error) {
  int64_t ranges;
  int status = CORRAL_EPROTOCOL;
  *changed = 0;
  slot_map *map = calloc(1, sizeof *map);
  if (map == NULL) return c->base.host->fail(error, CORRAL_ENOMEM, "no memory for a map");
  map->cluster = c;
  map->asked = asked;
  if (count_of(&message, &ranges) && ranges <= CRL_REDIS_SLOTS) {
    int64_t read = 0;
    while (read < ranges && read_range(map, &message)) read++;
    if (read == ranges) status = judge(map, changed, error);
  }
  if (status == CORRAL_EPROTOCOL)
    status =
        c->base.host->fail(error, map->no_memory ? CORRAL_ENOMEM : CORRAL_EPROTOCOL,
                           "%.80s: a map of the cluster that can't be read", asked->store.name);
  free(map->places);
  free(map->ids);
  free(map);
  return status;
}

/* ---- asking -------------------------------------------------------------------------------- */

int crl_redis_message_refused(const crl_redis_handle *h, crl_redis_message m, corral_error *error) {
  char text[200];
  crl_redis_token t;
  (void)crl_redis_message_next(&m, &t);
  size_t len = t.len < sizeof text - 1 ? t.len : sizeof text - 1;
  memcpy(text, t.text, len);
  text[len] = '\0';
  redisReply reply = {.type = REDIS_REPLY_ERROR, .str = text, .len = len};
  return crl_redis_reply_error(h->store, &reply, CORRAL_EUNSUPPORTED, error);
}

int crl_redis_message_hear(crl_redis_handle *h, crl_redis_resp *in, int64_t deadline,
                           crl_redis_message *m, corral_error *error) {
  for (;;) {
    size_t size, got;
    int whole = crl_redis_resp_next(in, m);
    if (whole > 0) return CORRAL_OK;
    if (whole < 0)
      return h->store->host->fail(error, CORRAL_EPROTOCOL,
                                  "%.80s: the reply is not one of a Redis server", h->store->name);
    char *room = crl_redis_resp_room(in, &size);
    if (room == NULL)
      return h->store->host->fail(error, CORRAL_ENOMEM, "%.80s: no memory for a map",
                                  h->store->name);
    int status = crl_redis_wire_read(&h->wire, room, size, deadline, &got, error);
    if (status != CORRAL_OK) return status;
    crl_redis_resp_feed(in, got);
  }
}

/* Keeps a map that was taken over. Without memory there is none to be shared. */
static void keep(crl_redis_cluster *c, const crl_redis_node *asked, crl_redis_message m) {
  size_t host = strlen(asked->host) + 1;
  char *told = malloc(host + m.size);
  if (told != NULL) memcpy(told, asked->host, host);
  if (told != NULL) memcpy(told + host, m.at, m.size);
  pthread_mutex_lock(&c->mutex);
  char *former = c->told;
  c->told = told;
  c->told_len = told != NULL ? host + m.size : 0;
  pthread_mutex_unlock(&c->mutex);
  free(former);
}

size_t crl_redis_slots_show(void *store, void *room, size_t size) {
  crl_redis_cluster *c = store;
  pthread_mutex_lock(&c->mutex);
  size_t len = c->told_len <= size ? c->told_len : 0;
  if (len > 0) memcpy(room, c->told, len);
  pthread_mutex_unlock(&c->mutex);
  return len;
}

/* Reads a map that came from a host, as any other. */
static int read_shared(crl_redis_cluster *c, const crl_redis_place *from, const char *reply,
                       size_t len, int *changed, corral_error *error) {
  crl_redis_resp in = {.most = MAP_BYTES};
  crl_redis_message m;
  size_t size = 0;
  int whole = 0, status = CORRAL_ENOMEM;
  crl_redis_node *node = crl_redis_node_new(&c->base, from, CRL_REDIS_FRONT_DOOR);
  while (node != NULL && len > 0) {
    char *room = crl_redis_resp_room(&in, &size);
    if (room == NULL) break;
    if (size > len) size = len;
    memcpy(room, reply, size);
    crl_redis_resp_feed(&in, size);
    reply += size;
    len -= size;
  }
  if (node != NULL && len == 0) {
    whole = crl_redis_resp_next(&in, &m);
    status = CORRAL_EPROTOCOL;
  }
  if (whole > 0) status = crl_redis_slots_read(c, node, m, changed, error);
  if (node != NULL) crl_redis_node_let_go(&node->store);
  crl_redis_resp_free(&in);
  return status;
}

int crl_redis_slots_take(void *store, const void *map, size_t len, corral_error *error) {
  crl_redis_cluster *c = store;
  crl_redis_place from = {.port = 1};
  const char *end = memchr(map, '\0', len < sizeof from.host ? len : sizeof from.host);
  int changed = 0;
  if (end == NULL)
    return c->base.host->fail(error, CORRAL_EPROTOCOL, "%s: a map of no host", c->base.name);
  size_t host = (size_t)(end - (const char *)map) + 1;
  memcpy(from.host, map, host);
  int status = read_shared(c, &from, end + 1, len - host, &changed, error);
  if (status != CORRAL_OK) return status;
  return c->base.host->fail(error, CORRAL_OK, "%s", changed ? "slots have moved" : "");
}

int crl_redis_slots_ask(crl_redis_cluster *c, crl_redis_handle *h, int64_t deadline, int *changed,
                        corral_error *error) {
  const crl_redis_node *asked = (const crl_redis_node *)(const void *)h->store;
  crl_redis_resp in = {.most = MAP_BYTES};
  crl_redis_message m;
  size_t sent;
  crl_redis_out_reset(&h->out);
  crl_redis_out_command(&h->out, 2);
  crl_redis_out_text(&h->out, "CLUSTER");
  crl_redis_out_text(&h->out, "SLOTS");
  if (h->out.failed) return c->base.host->fail(error, CORRAL_ENOMEM, "no memory to ask for a map");
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  if (status == CORRAL_OK) status = crl_redis_message_hear(h, &in, deadline, &m, error);
  if (status == CORRAL_OK && *m.at == '-')
    status = crl_redis_message_refused(h, m, error);
  else if (status == CORRAL_OK)
    status = crl_redis_slots_read(c, asked, m, changed, error);
  if (status == CORRAL_OK) keep(c, asked, m);
  crl_redis_resp_free(&in);
  return status;
}

/* ---- entering ------------------------------------------------------------------------------- */

/* Connects to any host of the URI, and asks it for the map if there is none. */
static int enter(crl_redis_cluster *c, int64_t deadline, void **ret_handle, corral_error *error) {
  const corral_host *host = c->base.host;
  int status = CORRAL_EUNAVAILABLE, changed;
  for (size_t i = 0; i < c->seed_count && status != CORRAL_OK; i++) {
    int64_t now = host->now_ms(), left = deadline - now;
    int64_t until = left <= 0 ? deadline : now + 1 + left / (int64_t)(c->seed_count - i);
    if (until > deadline) until = deadline;
    atomic_fetch_add(&c->seeds[i]->holders, 1);
    status = crl_redis_connect(&c->seeds[i]->store, until, ret_handle, error);
    if (status != CORRAL_OK || atomic_load(&c->has_map)) continue;
    status = crl_redis_slots_ask(c, *ret_handle, until, &changed, error);
    if (status != CORRAL_OK) crl_redis_disconnect(*ret_handle);
  }
  return status;
}

/* ---- the refresh --------------------------------------------------------------------------- */

/* Asks a node over a connection of its own. It is held, and let go here. */
static int ask_node(crl_redis_cluster *c, crl_redis_node *node, int64_t deadline, int *changed,
                    corral_error *error) {
  void *handle;
  int status = crl_redis_connect(&node->store, deadline, &handle, error);
  if (status != CORRAL_OK) return status;
  status = crl_redis_slots_ask(c, handle, deadline, changed, error);
  crl_redis_disconnect(handle);
  return status;
}

/* A known node: first the one that was named last, then one at random. NULL: none was found. */
static crl_redis_node *pick(crl_redis_cluster *c, int turn) {
  uint32_t dice;
  size_t number = turn == 0 ? atomic_load(&c->hint) : 0;
  if (number == 0 && c->base.host->random(&dice, sizeof dice) == CORRAL_OK)
    number = crl_redis_slot_number(crl_redis_slot_entry(c, dice % CRL_REDIS_SLOTS));
  return number != 0 ? crl_redis_node_hold(c, number) : NULL;
}

static int ask_anybody(crl_redis_cluster *c, int64_t deadline, int *changed, corral_error *error) {
  const corral_host *host = c->base.host;
  int64_t share = (deadline - host->now_ms()) / (KNOWN_ASKED + 1);
  int status = CORRAL_EUNAVAILABLE;
  for (int i = 0; i < KNOWN_ASKED && status != CORRAL_OK; i++) {
    crl_redis_node *node = pick(c, i);
    if (node != NULL) status = ask_node(c, node, host->now_ms() + share, changed, error);
  }
  for (size_t i = 0; i < c->seed_count && status != CORRAL_OK; i++) {
    int64_t left = deadline - host->now_ms();
    if (left <= 0) break;
    atomic_fetch_add(&c->seeds[i]->holders, 1);
    status = ask_node(c, c->seeds[i], deadline - left + 1 + left / (int64_t)(c->seed_count - i),
                      changed, error);
  }
  return status;
}

static int learn(crl_redis_cluster *c, int64_t deadline, int *changed, corral_error *error) {
  *changed = 0;
  if (atomic_exchange(&c->refreshing, 1)) return CORRAL_OK;
  int status = ask_anybody(c, deadline, changed, error);
  atomic_store(&c->refreshing, 0);
  return status;
}

const crl_redis_ways crl_redis_cluster_ways = {
    .slot_of = crl_redis_slot_of, .enter = enter, .learn = learn};
