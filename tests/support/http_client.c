/* http_client.c: a blocking HTTP/1.1 client for tests. */
#include "http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000, HEAD_MOST = 1 << 16 };

struct http_client {
  struct sockaddr_storage at;
  socklen_t at_size;
  int fd, uses; /* uses: requests sent over this connection */
  int is_head;  /* the current request is a HEAD */
  int64_t sent_us;
  char error[100];
  char *bytes; /* received and not read yet */
  size_t begin, end, room;
};

static int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

http_client *http_client_new(const char *address) {
  http_client *client = calloc(1, sizeof *client);
  struct sockaddr_un path = {.sun_family = AF_UNIX};
  struct sockaddr_in net = {.sin_family = AF_INET};
  if (client == NULL) abort();
  client->fd = -1;
  if (strncmp(address, "unix:", 5) == 0) {
    snprintf(path.sun_path, sizeof path.sun_path, "%s", address + 5);
    memcpy(&client->at, &path, client->at_size = sizeof path);
    return client;
  }
  char host[32];
  const char *colon = strchr(address, ':');
  snprintf(host, sizeof host, "%.*s", colon != NULL ? (int)(colon - address) : 0, address);
  if (inet_pton(AF_INET, host, &net.sin_addr) != 1) {
    fprintf(stderr, "http_client: '%s' is neither IPV4:PORT nor unix:PATH\n", address);
    abort();
  }
  net.sin_port = htons((uint16_t)strtol(colon + 1, NULL, 10));
  memcpy(&client->at, &net, client->at_size = sizeof net);
  return client;
}

void http_client_hang_up(http_client *client) {
  if (client->fd >= 0) close(client->fd);
  client->fd = -1;
  client->uses = 0;
  client->begin = client->end = 0;
}

void http_client_free(http_client *client) {
  if (client == NULL) return;
  http_client_hang_up(client);
  free(client->bytes);
  free(client);
}

static int fails(http_client *client, const char *what) {
  snprintf(client->error, sizeof client->error, "%s: %s", what,
           errno != 0 ? strerror(errno) : "the server hung up");
  return -1;
}

int http_client_connect(http_client *client) {
  int one = 1;
  if (client->fd >= 0) return 0;
  client->fd = socket(client->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (client->fd < 0) return fails(client, "socket");
  if (connect(client->fd, (struct sockaddr *)&client->at, client->at_size) != 0) {
    fails(client, "connect");
    http_client_hang_up(client);
    return -1;
  }
  if (client->at.ss_family == AF_INET)
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return 0;
}

static int send_all(http_client *client, const char *bytes, size_t size) {
  while (size > 0) {
    ssize_t n = send(client->fd, bytes, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fails(client, "send");
    bytes += n;
    size -= (size_t)n;
  }
  return 0;
}

int http_client_send(http_client *client, const http_request *request) {
  const char *method = request->method != NULL ? request->method : "GET",
             *path = request->path != NULL ? request->path : "/";
  char *text = NULL, length[48] = "";
  client->error[0] = '\0';
  if (request->body != NULL)
    snprintf(length, sizeof length, "Content-Length: %zu\r\n", request->size);
  int size = asprintf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s%s\r\n", method, path,
                      length, request->closes ? "Connection: close\r\n" : "",
                      request->headers != NULL ? request->headers : "");
  if (size < 0) abort();
  client->is_head = strcmp(method, "HEAD") == 0;
  client->sent_us = now_us();
  int status = http_client_connect(client);
  if (status == 0) status = send_all(client, text, (size_t)size);
  if (status == 0 && request->body != NULL) status = send_all(client, request->body, request->size);
  free(text);
  client->uses++;
  return status;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Appends received bytes to the buffer. Returns their number; 0: the server closed; -1: error. */
static ssize_t more(http_client *client) {
  if (client->fd < 0) return -1;
  if (client->begin > 0 && client->begin == client->end) client->begin = client->end = 0;
  if (client->end == client->room) {
    client->room = client->room * 2 + 16384;
    client->bytes = realloc(client->bytes, client->room);
    if (client->bytes == NULL) abort();
  }
  int64_t left = PATIENCE_MS - (now_us() - client->sent_us) / 1000;
  struct pollfd ready = {.fd = client->fd, .events = POLLIN};
  errno = ETIMEDOUT;
  if (left <= 0 || poll(&ready, 1, (int)left) <= 0) return fails(client, "waiting for the answer");
  errno = 0;
  ssize_t n = recv(client->fd, client->bytes + client->end, client->room - client->end, 0);
  if (n > 0)
    client->end += (size_t)n;
  else
    fails(client, "recv");
  return n;
}

/* Returns the offset behind the next `mark`, from client->begin; 0 when it doesn't come. */
static size_t until(http_client *client, const char *mark) {
  for (;;) {
    size_t have = client->end - client->begin, len = strlen(mark);
    char *found = have >= len ? memmem(client->bytes + client->begin, have, mark, len) : NULL;
    if (found != NULL) return (size_t)(found - client->bytes) + len;
    if (have > HEAD_MOST || more(client) <= 0) return 0;
  }
}

static void take(http_client *client, http_reply *reply, size_t size) {
  reply->body = realloc(reply->body, reply->size + size + 1);
  if (reply->body == NULL) abort();
  if (size > 0) memcpy(reply->body + reply->size, client->bytes + client->begin, size);
  reply->size += size;
  reply->body[reply->size] = '\0';
  client->begin += size;
}

/* Reads `size` bytes of body. Returns -1 when some are missing; the received bytes are kept. */
static int take_sized(http_client *client, http_reply *reply, uint64_t size) {
  while (size > 0) {
    size_t have = client->end - client->begin;
    if (have == 0 && more(client) <= 0) return -1;
    have = client->end - client->begin;
    if (have > size) have = (size_t)size;
    take(client, reply, have);
    size -= have;
  }
  return 0;
}

static int take_chunks(http_client *client, http_reply *reply) {
  for (;;) {
    size_t end = until(client, "\r\n");
    if (end == 0) return -1;
    uint64_t size = strtoull(client->bytes + client->begin, NULL, 16);
    client->begin = end;
    if (size == 0) { /* trailers, to an empty line */
      for (;;) {
        end = until(client, "\r\n");
        if (end == 0) return -1;
        size_t line = end - client->begin;
        client->begin = end;
        if (line == 2) return 0;
      }
    }
    if (take_sized(client, reply, size) != 0 || (end = until(client, "\r\n")) == 0) return -1;
    client->begin = end;
  }
}

static void split_head(http_reply *reply) {
  char *save = NULL, *line = strtok_r(reply->head, "\r\n", &save);
  reply->cut_status = line != NULL && strncmp(line, "HTTP/1.", 7) == 0 && strlen(line) > 9
                          ? (int)strtol(line + 9, NULL, 10)
                          : 0;
  while ((line = strtok_r(NULL, "\r\n", &save)) != NULL && reply->header_count < HTTP_HEADERS) {
    char *colon = strchr(line, ':');
    if (colon == NULL) continue;
    *colon = '\0';
    reply->headers[reply->header_count].name = line;
    reply->headers[reply->header_count++].value = colon + 1 + strspn(colon + 1, " \t");
  }
}

/* Reads one head with its headers. Returns 0 or -1. */
static int take_head(http_client *client, http_reply *reply) {
  size_t end = until(client, "\r\n\r\n");
  if (end == 0) return -1;
  free(reply->head);
  reply->header_count = 0;
  /* not strndup: received bytes may lack a '\0' */
  reply->head = malloc(end - client->begin + 1);
  if (reply->head == NULL) abort();
  memcpy(reply->head, client->bytes + client->begin, end - client->begin);
  reply->head[end - client->begin] = '\0';
  client->begin = end;
  split_head(reply);
  errno = EPROTO;
  return reply->cut_status >= 100 && reply->cut_status < 600 ? 0 : fails(client, "the status line");
}

static int take_body(http_client *client, http_reply *reply) {
  const char *length = http_reply_header(reply, "content-length"),
             *coding = http_reply_header(reply, "transfer-encoding");
  take(client, reply, 0);
  if (client->is_head || reply->cut_status == 204 || reply->cut_status == 304) return 0;
  if (coding != NULL && strcasecmp(coding, "chunked") == 0) return take_chunks(client, reply);
  if (length != NULL) return take_sized(client, reply, strtoull(length, NULL, 10));
  ssize_t n;
  do {
    take(client, reply, client->end - client->begin);
    n = more(client);
  } while (n > 0);
  http_client_hang_up(client);
  return n == 0 ? 0 : -1;
}

http_reply http_client_receive(http_client *client) {
  http_reply reply;
  memset(&reply, 0, sizeof reply);
  reply.is_reused = client->uses > 1;
  int status = client->begin < client->end || more(client) > 0 ? 0 : -1;
  reply.first_us = now_us() - client->sent_us;
  do {
    if (status == 0) status = take_head(client, &reply);
  } while (status == 0 && reply.cut_status < 200);
  if (status == 0) status = take_body(client, &reply);
  reply.took_us = now_us() - client->sent_us;
  const char *connection = http_reply_header(&reply, "connection");
  if (status == 0)
    reply.status = reply.cut_status;
  else
    snprintf(reply.error, sizeof reply.error, "%s", client->error);
  if (status != 0 || (connection != NULL && strcasecmp(connection, "close") == 0))
    http_client_hang_up(client);
  return reply;
}

http_reply http_client_ask(http_client *client, const http_request *request) {
  int was_used = client->uses > 0;
  int status = http_client_send(client, request);
  http_reply reply = http_client_receive(client);
  if (status != 0) snprintf(reply.error, sizeof reply.error, "%s", client->error);
  if (!was_used || reply.cut_status != 0 || reply.took_us > (int64_t)PATIENCE_MS * 1000)
    return reply;
  http_reply_free(&reply);
  http_client_hang_up(client);
  (void)http_client_send(client, request);
  reply = http_client_receive(client);
  reply.is_repeated = 1;
  return reply;
}

long http_client_abort(http_client *client, const http_request *request, size_t after_bytes) {
  if (http_client_send(client, request) != 0) return -1;
  while (client->end - client->begin < after_bytes && more(client) > 0) continue;
  long had = (long)(client->end - client->begin);
  http_client_hang_up(client);
  return had;
}

const char *http_reply_header(const http_reply *reply, const char *name) {
  for (int i = 0; i < reply->header_count; i++)
    if (strcasecmp(reply->headers[i].name, name) == 0) return reply->headers[i].value;
  return NULL;
}

void http_reply_free(http_reply *reply) {
  free(reply->head);
  free(reply->body);
  memset(reply, 0, sizeof *reply);
}
