/* node.c: names, paths and data of a queue's nodes. Pure. */
#include "zk.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_MOST = 200, HEX = 2 * CORRAL_TOKEN, TOKEN_AT = 2, NUMBER_AT = TOKEN_AT + HEX + 1 };

/* ---- names --------------------------------------------------------------------------------- */

static void put_hex(const uint8_t *bytes, size_t size, char *to) {
  for (size_t i = 0; i < size; i++) snprintf(to + 2 * i, 3, "%02x", bytes[i]);
}

static int is_plain(uint8_t byte, size_t at) {
  return byte < 128 && (isalnum(byte) || byte == '_' || byte == '-' || (byte == '.' && at > 0));
}

void crl_zk_dir(const zk_store *st, const void *key, size_t key_len, char dir[CRL_ZK_PATH]) {
  const uint8_t *bytes = key;
  char name[NAME_MOST + 8];
  uint8_t hash[16];
  size_t len = 0;
  for (size_t i = 0; i < key_len && len <= NAME_MOST; i++) {
    if (is_plain(bytes[i], i))
      name[len++] = (char)bytes[i];
    else
      len += (size_t)snprintf(name + len, 4, "%%%02X", bytes[i]);
  }
  name[len] = '\0';
  if (len > NAME_MOST) {
    st->host->digest(key, key_len, hash);
    memcpy(name, "%h", 2);
    put_hex(hash, sizeof hash, name + 2);
  }
  snprintf(dir, CRL_ZK_PATH, "%s/%s", st->root, name);
}

static int digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

const void *crl_zk_key(char *name, size_t *key_len) {
  char *to = name;
  for (const char *at = name; *at != '\0'; at++, to++) {
    *to = *at;
    if (*at != '%') continue;
    int high = digit(at[1]), low = high >= 0 ? digit(at[2]) : -1;
    if (low < 0) return NULL;
    *to = (char)(16 * high + low);
    at += 2;
  }
  *key_len = (size_t)(to - name);
  return name;
}

void crl_zk_path(const char *dir, const char *node, char path[CRL_ZK_PATH]) {
  size_t len = strlen(dir), more = strlen(node);
  path[0] = '\0';
  if (len + more + 2 > CRL_ZK_PATH) return;
  memcpy(path, dir, len);
  path[len] = '/';
  memcpy(path + len + 1, node, more + 1);
}

void crl_zk_stem(const uint8_t *token, int shared, char node[CRL_ZK_NODE]) {
  memcpy(node, shared ? "s-" : "x-", TOKEN_AT);
  put_hex(token, CORRAL_TOKEN, node + TOKEN_AT);
  memcpy(node + NUMBER_AT - 1, "-", 2);
}

int crl_zk_is_of(const zk_child *c, const uint8_t *token) {
  char stem[CRL_ZK_NODE];
  crl_zk_stem(token, 0, stem);
  return memcmp(c->name + TOKEN_AT, stem + TOKEN_AT, HEX) == 0;
}

int crl_zk_read_node(const char *name, zk_child *to) {
  size_t len = strlen(name);
  char *end;
  if (len <= NUMBER_AT || len >= CRL_ZK_NODE || (name[0] != 'x' && name[0] != 's') ||
      name[1] != '-' || name[NUMBER_AT - 1] != '-')
    return 0;
  for (size_t i = TOKEN_AT; i < TOKEN_AT + HEX; i++)
    if (!isxdigit((unsigned char)name[i])) return 0;
  to->number = (int32_t)strtol(name + NUMBER_AT, &end, 10);
  memcpy(to->name, name, len + 1);
  return *end == '\0';
}

/* The server's counter wraps from INT32_MAX to INT32_MIN. */
int crl_zk_by_number(const void *a, const void *b) {
  int32_t apart =
      (int32_t)((uint32_t)((const zk_child *)a)->number - (uint32_t)((const zk_child *)b)->number);
  return apart < 0 ? -1 : apart > 0;
}

/* ---- data ---------------------------------------------------------------------------------- */

int crl_zk_write_data(const zk_place *p, int64_t lease_ms, char data[CRL_ZK_TEXT]) {
  int len = snprintf(data, CRL_ZK_TEXT, "%c %lld %lld ", p->shared ? 's' : 'x', (long long)lease_ms,
                     (long long)p->since);
  memcpy(data + len, p->note, p->note_len);
  return len + (int)p->note_len;
}

static int64_t read_number(const char **at) {
  char *end;
  long long number = strtoll(*at, &end, 10);
  *at = end;
  return number;
}

void crl_zk_read_hold(const zk_child *c, const zk_reply *got, int64_t wall, corral_hold *hold) {
  const char *at = got->text + (got->len > 0);
  int64_t lease = read_number(&at), since = read_number(&at), written = got->stat.mtime;
  memset(hold, 0, sizeof *hold);
  for (size_t i = 0; i < CORRAL_TOKEN; i++) {
    char pair[3] = {c->name[TOKEN_AT + 2 * i], c->name[TOKEN_AT + 1 + 2 * i], '\0'};
    hold->token[i] = (uint8_t)strtoul(pair, NULL, 16);
  }
  hold->mode =
      c->name[0] == 's' || got->text[0] == 's' ? CORRAL_LOCK_SHARED : CORRAL_LOCK_EXCLUSIVE;
  hold->fence = (uint64_t)got->stat.czxid;
  hold->since = since > 0 ? since : written;
  if (lease < 1 || lease > INT32_MAX) lease = 1;
  /* the hold lasts while its node exists, whatever the two clocks say */
  hold->until = written > wall ? wall + lease : written + lease;
  if (hold->until <= wall) hold->until = wall + 1;
  if (*at == ' ') at++;
  size_t len = (size_t)(got->text + got->len - at);
  memcpy(hold->note, at, len < CORRAL_LOCK_NOTE ? len : CORRAL_LOCK_NOTE);
}
