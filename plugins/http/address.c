/* address.c: the addresses that an HTTP origin may connect to: judged by the address itself, after
 * names were resolved, and by the IPv4 addresses that it carries.
 *
 * Denied networks are refused; else allowed ones are accepted; else link-local addresses are
 * refused (clouds serve a machine's credentials there), and, once a redirect has led to another
 * server than the configured one, loopback and private ones too. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "http.h"

static const char *const classes[][2] = {
    {"loopback", "127.0.0.0/8,0.0.0.0/8,::1,::"},
    {"private",
     "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,fc00::/7,fec0::/10,64:ff9b:1::/48"},
    {"link-local", "169.254.0.0/16,fe80::/10"},
};

static void map_v4(const uint8_t *v4, uint8_t *to) {
  memset(to, 0, 10);
  to[10] = to[11] = 0xff;
  memcpy(to + 12, v4, 4);
}

/* Places of IPv4 addresses within IPv6 addresses of these networks: translators and tunnels may
 * pass packets on to them. */
static const struct {
  uint8_t net[16];
  int bits;
  uint8_t at[4]; /* offsets of the four bytes */
  uint8_t mask;  /* xor of each byte */
} carriers[] = {
    {{0}, 96, {12, 13, 14, 15}, 0},                   /* compatible, RFC 4291 2.5.5.1 */
    {{[8] = 0xff, 0xff}, 96, {12, 13, 14, 15}, 0},    /* translated, RFC 2765 */
    {{0, 0x64, 0xff, 0x9b}, 96, {12, 13, 14, 15}, 0}, /* NAT64, RFC 6052 */
    {{0, 0x64, 0xff, 0x9b, 0, 1},
     48,
     {6, 7, 9, 10},
     0}, /* NAT64 of a site, RFC 8215: prefix of 48 bits, */
    {{0, 0x64, 0xff, 0x9b, 0, 1}, 48, {7, 9, 10, 11}, 0},   /* 56, */
    {{0, 0x64, 0xff, 0x9b, 0, 1}, 48, {9, 10, 11, 12}, 0},  /* 64, */
    {{0, 0x64, 0xff, 0x9b, 0, 1}, 48, {12, 13, 14, 15}, 0}, /* 96 bits */
    {{0x20, 0x02}, 16, {2, 3, 4, 5}, 0},                    /* 6to4, RFC 3056 */
    {{0x20, 0x01}, 32, {4, 5, 6, 7}, 0},                    /* Teredo, RFC 4380: its server */
    {{0x20, 0x01}, 32, {12, 13, 14, 15}, 0xff},             /* and its client */
};

enum { CARRIERS = sizeof carriers / sizeof *carriers, SPELLINGS = CARRIERS + 2 };

static int is_inside(const uint8_t *address, const uint8_t *net, int bits) {
  size_t whole = (size_t)bits / 8;
  return memcmp(net, address, whole) == 0 &&
         (bits % 8 == 0 || (net[whole] ^ address[whole]) >> (8 - bits % 8) == 0);
}

/* Writes the address itself and the IPv4 addresses that it carries; returns their number. ISATAP
 * addresses (RFC 5214) are recognized by their second half alone. */
static size_t spell(const uint8_t *address, uint8_t spellings[SPELLINGS][16]) {
  static const uint8_t isatap[3] = {0, 0x5e, 0xfe};
  size_t count = 1;
  memcpy(spellings[0], address, 16);
  for (size_t i = 0; i < CARRIERS; i++) {
    uint8_t v4[4];
    if (!is_inside(address, carriers[i].net, carriers[i].bits)) continue;
    for (size_t j = 0; j < 4; j++) v4[j] = address[carriers[i].at[j]] ^ carriers[i].mask;
    map_v4(v4, spellings[count++]);
  }
  if ((address[8] & 0xfd) == 0 && memcmp(address + 9, isatap, sizeof isatap) == 0)
    map_v4(address + 12, spellings[count++]);
  return count;
}

static int read_net(const char *text, uint8_t *address, int *bits) {
  char host[64];
  const char *slash = strchr(text, '/');
  size_t len = slash != NULL ? (size_t)(slash - text) : strlen(text);
  uint8_t v4[4];
  if (len == 0 || len >= sizeof host) return 0;
  memcpy(host, text, len);
  host[len] = '\0';
  int is_v4 = inet_pton(AF_INET, host, v4) == 1;
  if (!is_v4 && inet_pton(AF_INET6, host, address) != 1) return 0;
  if (is_v4) map_v4(v4, address);
  int most = is_v4 ? 32 : 128;
  long given = most;
  if (slash != NULL) {
    char *end;
    given = strtol(slash + 1, &end, 10);
    if (slash[1] < '0' || slash[1] > '9' || *end != '\0' || given > most) return 0;
  }
  *bits = (int)given + (is_v4 ? 96 : 0);
  return 1;
}

int crl_http_nets_read(crl_http_nets *nets, char *list, const char **bad) {
  char *save = NULL;
  for (char *member = strtok_r(list, ",", &save); member != NULL;
       member = strtok_r(NULL, ",", &save)) {
    const char *class_nets = NULL;
    char copy[128];
    *bad = member;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
      if (strcmp(classes[i][0], member) == 0) class_nets = classes[i][1];
    if (class_nets != NULL) {
      snprintf(copy, sizeof copy, "%s", class_nets);
      if (!crl_http_nets_read(nets, copy, bad)) return 0;
      continue;
    }
    if (nets->count == CRL_HTTP_NETS ||
        !read_net(member, nets->net[nets->count].address, &nets->net[nets->count].bits))
      return 0;
    nets->count++;
  }
  return 1;
}

static int is_in(const crl_http_nets *nets, const uint8_t *address) {
  for (size_t i = 0; i < nets->count; i++)
    if (is_inside(address, nets->net[i].address, nets->net[i].bits)) return 1;
  return 0;
}

static int is_of_class(const char *name, const uint8_t *address) {
  crl_http_nets nets = {.count = 0};
  char copy[24];
  const char *bad;
  snprintf(copy, sizeof copy, "%s", name);
  return crl_http_nets_read(&nets, copy, &bad) && is_in(&nets, address);
}

/* 1: the address may be connected to. Any spelling can be refused; `allowed` must have the address
 * itself, or all that it carries. */
static int may(const crl_http_origin *o, int is_foreign, const uint8_t *address) {
  uint8_t spellings[SPELLINGS][16];
  size_t count = spell(address, spellings), allowed = 0;
  int is_bad = 0;
  for (size_t i = 0; i < count; i++) {
    const uint8_t *spelling = spellings[i];
    if (is_in(&o->denied, spelling)) return 0;
    allowed += i > 0 && is_in(&o->allowed, spelling);
    is_bad |=
        is_of_class("link-local", spelling) ||
        (is_foreign && (is_of_class("loopback", spelling) || is_of_class("private", spelling)));
  }
  return is_in(&o->allowed, address) || (count > 1 && allowed == count - 1) || !is_bad;
}

int crl_http_may_connect(const crl_http_origin *o, int is_foreign, const struct sockaddr *at,
                         char *text, size_t size) {
  uint8_t address[16];
  if (at->sa_family == AF_INET) {
    struct sockaddr_in v4;
    memcpy(&v4, at, sizeof v4);
    map_v4((const uint8_t *)&v4.sin_addr, address);
    inet_ntop(AF_INET, &v4.sin_addr, text, (socklen_t)size);
  } else if (at->sa_family == AF_INET6) {
    struct sockaddr_in6 v6;
    memcpy(&v6, at, sizeof v6);
    memcpy(address, &v6.sin6_addr, sizeof address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, (socklen_t)size);
  } else {
    return 0;
  }
  return may(o, is_foreign, address);
}
