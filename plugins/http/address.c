/* address.c: which addresses an HTTP origin may connect to: judged by the address itself, after names were resolved.
 *
 * What is denied is refused; else what is allowed is taken; else link-local addresses are refused (where clouds keep what identifies a machine), and,
 * once a redirect has led to another server than the configured one, loopback and private ones. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "http.h"

static const char *const classes[][2] = {
    {"loopback", "127.0.0.0/8,0.0.0.0/8,::1,::"},
    {"private", "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,fc00::/7,fec0::/10"},
    {"link-local", "169.254.0.0/16,fe80::/10"},
};

static void map_v4(const uint8_t *v4, uint8_t *to) {
  memset(to, 0, 10);
  to[10] = to[11] = 0xff;
  memcpy(to + 12, v4, 4);
}

/* An IPv6 address that carries an IPv4 one (NAT64, RFC 6052; compatible, RFC 4291 2.5.5.1) as the mapped one. */
static void unwrap(uint8_t *address) {
  static const uint8_t nat64[12] = {0, 0x64, 0xff, 0x9b}, compatible[12] = {0};
  uint8_t v4[4];
  memcpy(v4, address + 12, 4);
  int is_v4 = v4[0] != 0; /* :: and ::1 are IPv6's own */
  if (memcmp(address, nat64, 12) == 0 || (is_v4 && memcmp(address, compatible, 12) == 0)) map_v4(v4, address);
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
  for (char *member = strtok_r(list, ",", &save); member != NULL; member = strtok_r(NULL, ",", &save)) {
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
    if (nets->count == CRL_HTTP_NETS || !read_net(member, nets->net[nets->count].address, &nets->net[nets->count].bits)) return 0;
    nets->count++;
  }
  return 1;
}

static int is_in(const crl_http_nets *nets, const uint8_t *address) {
  for (size_t i = 0; i < nets->count; i++) {
    int bits = nets->net[i].bits;
    size_t whole = (size_t)bits / 8;
    const uint8_t *net = nets->net[i].address;
    if (memcmp(net, address, whole) != 0) continue;
    if (bits % 8 == 0 || (net[whole] ^ address[whole]) >> (8 - bits % 8) == 0) return 1;
  }
  return 0;
}

static int is_of_class(const char *name, const uint8_t *address) {
  crl_http_nets nets = {.count = 0};
  char copy[24];
  const char *bad;
  snprintf(copy, sizeof copy, "%s", name);
  return crl_http_nets_read(&nets, copy, &bad) && is_in(&nets, address);
}

int crl_http_may_connect(const crl_http_origin *o, int is_foreign, const struct sockaddr *at, char *text, size_t size) {
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
    unwrap(address);
  } else {
    return 0;
  }
  if (is_in(&o->denied, address)) return 0;
  if (is_in(&o->allowed, address)) return 1;
  if (is_of_class("link-local", address)) return 0;
  return !is_foreign || !(is_of_class("loopback", address) || is_of_class("private", address));
}
