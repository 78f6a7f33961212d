/* request.c: requests, in the text protocol (protocol.txt of memcached).
 *
 * libmemcached makes neither requests nor replies, because it trusts its server with the process.
 * 1.1.4 as packaged, answered by a scripted server: add and cas end the process by an assertion at
 * OK, END, DELETED, TOUCHED, STAT, ITEM, VERSION, VALUE or a number, cas also with an id of 0; get
 * and cas crash at a VERSION without number, get at a VALUE whose key is longer than 251 bytes (the
 * size of its buffer) or whose length is near 2^64; and get takes the value of any other key for
 * the one it asked for. Its time limits hold for each read, not for the whole, and it reconnects by
 * itself, after which a cas id means nothing. It is used for the distribution of keys over servers,
 * the same as in all its other clients, and never meets a server. */
#include <stdio.h>

#include "memcached.h"

enum {
  LINE_ROOM = 8 + CRL_MEMCACHED_KEYS * (CRL_MEMCACHED_KEY + 1) + 2,
  SMALL = 16384,
  NUMBERS = 80
};

static size_t put_text(char *to, const void *text, size_t len) {
  memcpy(to, text, len);
  return len;
}

/* "gets KEY KEY\r\n" */
static size_t put_get(char *line, const crl_memcached_request *r) {
  size_t len =
      r->command == CRL_MEMCACHED_GET ? put_text(line, "get", 3) : put_text(line, "gets", 4);
  for (size_t i = 0; i < r->count; i++) {
    line[len++] = ' ';
    len += put_text(line + len, r->keys[i]->text, r->keys[i]->len);
  }
  return len + put_text(line + len, "\r\n", 2);
}

/* "cas KEY 0 EXPTIME SIZE CAS\r\n", the value to follow */
static size_t put_store(char *line, const crl_memcached_request *r) {
  int is_cas = r->command == CRL_MEMCACHED_CAS;
  size_t len = put_text(line, is_cas ? "cas " : "add ", 4);
  len += put_text(line + len, r->keys[0]->text, r->keys[0]->len);
  len += (size_t)snprintf(line + len, NUMBERS, " 0 %lld %zu", (long long)r->exptime, r->size);
  if (is_cas) len += (size_t)snprintf(line + len, NUMBERS, " %llu", (unsigned long long)r->cas);
  return len + put_text(line + len, "\r\n", 2);
}

int crl_memcached_send(crl_memcached_handle *h, const crl_memcached_request *r, int64_t deadline,
                       int *ret_sent, corral_error *error) {
  char bytes[LINE_ROOM + SMALL + 2];
  int stores = r->command == CRL_MEMCACHED_ADD || r->command == CRL_MEMCACHED_CAS;
  size_t len = stores ? put_store(bytes, r) : put_get(bytes, r);
  int status = CORRAL_OK;
  *ret_sent = 0;
  if (r->command == CRL_MEMCACHED_CAS && r->cas == 0) /* an id of 0 guards nothing */
    return h->host->fail(error, CORRAL_EINVAL, "%s: a cas without an id", h->server->name);
  if (stores && r->size <= SMALL) {
    len += put_text(bytes + len, r->value, r->size);
    len += put_text(bytes + len, "\r\n", 2);
    status = crl_memcached_wire_write(&h->wire, bytes, len, deadline, error);
  } else {
    status = crl_memcached_wire_write(&h->wire, bytes, len, deadline, error);
    if (status == CORRAL_OK && stores)
      status = crl_memcached_wire_write(&h->wire, r->value, r->size, deadline, error);
    if (status == CORRAL_OK && stores)
      status = crl_memcached_wire_write(&h->wire, "\r\n", 2, deadline, error);
  }
  *ret_sent = status == CORRAL_OK;
  return status;
}
