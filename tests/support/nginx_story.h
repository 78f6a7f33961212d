/* nginx_story.h: tests of HTTP rules as tables: the origin's answers, the requests, what each
 * client sees, and what the origin was asked.
 *
 *   static const nginx_story stories[] = {
 *     {"4.2", "/fresh", {{.answer = HTTP_ANSWER(.headers = KEPT, .body = "a"), .seen = 1},
 *                        {.page = "a", .seen = 1}}}};
 *   nginx_story_run(stories, sizeof stories / sizeof *stories);
 *
 * LOCATIONS, defined before the inclusion, are those of `server`, which the group's `start` begins
 * and its `stop` ends. All stories go step by step together, so that those that wait for an expiry
 * wait once. */
#ifndef TESTS_NGINX_STORY_H
#define TESTS_NGINX_STORY_H

#include <strings.h>
#include <time.h>

#include "support/nginx_kit.h"

enum { NGINX_STEPS = 6 };

#define KEPT "Cache-Control: max-age=60\r\n"
#define MODIFIED "Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT\r\n"
#define ANSWER(...) HTTP_ANSWER(.numbered = 1, .body = "page", __VA_ARGS__)

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){.locations = LOCATIONS});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

typedef struct nginx_step {
  const http_answer *answer; /* the origin's, from now on; NULL: as before */
  const char *method;        /* NULL: GET */
  const char *headers, *body;
  const char *path;  /* NULL: the story's */
  int status;        /* of the reply; 0: 200 */
  const char *page;  /* the reply's body; NULL: any */
  const char *has;   /* "Name: value" of the reply, or the beginning of that */
  const char *lacks; /* a name that the reply doesn't have */
  const char *asked; /* "Name: value" of the origin's last request for the story's path */
  const char *unasked;
  int seen;    /* requests of the origin for the story's path; -1: any; 0 ends the story */
  int expires; /* 1: what lives for two seconds is stale after this step */
  int anew;    /* 1: asks again until the origin was: the answer before may not have ended yet, and
                  its failure answers who waits for its end */
} nginx_step;

typedef struct nginx_story {
  const char *section, *path;
  nginx_step steps[NGINX_STEPS];
} nginx_story;

enum { NGINX_STORY_SLOW_S = 50 }; /* so much may a busy machine add to an Age */

static inline int nginx_story_is_age(const char *value, const char *found) {
  long late = strtol(found, NULL, 10) - strtol(value, NULL, 10);
  return late >= 0 && late < NGINX_STORY_SLOW_S;
}

/* Fails unless `found` begins with the value of "Name: value"; an Age may be larger. */
static inline void nginx_story_field(const nginx_story *story, int at, const char *text,
                                     const char *found) {
  const char *value = text + strcspn(text, ":") + 2;
  int is_age = strncmp(text, "Age:", 4) == 0;
  if (found == NULL ||
      (is_age ? !nginx_story_is_age(value, found) : strncmp(found, value, strlen(value)) != 0))
    fail_msg("%s %s, step %d: \"%s\" is \"%s\"", story->section, story->path, at + 1, text,
             found != NULL ? found : "missing");
}

static inline const char *nginx_story_name(const char *text, char *room) {
  snprintf(room, 64, "%.*s", (int)strcspn(text, ":"), text);
  return room;
}

static inline void nginx_story_origin(const nginx_story *story, int at) {
  const nginx_step *step = &story->steps[at];
  char name[64];
  int seen = http_origin_seen(nginx_kit_origin, story->path);
  if (step->seen >= 0 && seen != step->seen)
    fail_msg("%s %s, step %d: the origin saw %d requests, not %d", story->section, story->path,
             at + 1, seen, step->seen);
  if (step->asked != NULL)
    nginx_story_field(
        story, at, step->asked,
        http_origin_header(nginx_kit_origin, story->path,
                           *step->asked == ':' ? ":method" : nginx_story_name(step->asked, name)));
  if (step->unasked != NULL &&
      http_origin_header(nginx_kit_origin, story->path, step->unasked) != NULL)
    fail_msg("%s %s, step %d: the origin got %s", story->section, story->path, at + 1,
             step->unasked);
}

static inline http_reply nginx_story_ask(const nginx_story *story, const nginx_step *step) {
  http_client *client = http_client_new(nginx_server_address(server));
  http_reply reply =
      http_client_ask(client, &(http_request){.method = step->method,
                                              .path = step->path != NULL ? step->path : story->path,
                                              .headers = step->headers,
                                              .body = step->body,
                                              .size = step->body != NULL ? strlen(step->body) : 0,
                                              .closes = 1});
  http_client_free(client);
  return reply;
}

static inline void nginx_story_step(const nginx_story *story, int at) {
  const nginx_step *step = &story->steps[at];
  char name[64];
  if (step->answer != NULL) http_origin_answer(nginx_kit_origin, story->path, step->answer);
  http_reply reply = nginx_story_ask(story, step);
  for (int i = 0; step->anew && i < NGINX_STORY_SLOW_S; i++) {
    if (http_origin_seen(nginx_kit_origin, story->path) >= step->seen) break;
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    http_reply_free(&reply);
    reply = nginx_story_ask(story, step);
  }
  if (reply.status != (step->status != 0 ? step->status : 200))
    fail_msg("%s %s, step %d: status %d (%s)", story->section, story->path, at + 1, reply.status,
             reply.error);
  if (step->page != NULL && strcmp(reply.body, step->page) != 0)
    fail_msg("%s %s, step %d: \"%s\", not \"%s\"", story->section, story->path, at + 1, reply.body,
             step->page);
  if (step->has != NULL)
    nginx_story_field(story, at, step->has,
                      http_reply_header(&reply, nginx_story_name(step->has, name)));
  if (step->lacks != NULL && http_reply_header(&reply, step->lacks) != NULL)
    fail_msg("%s %s, step %d: the reply has %s", story->section, story->path, at + 1, step->lacks);
  http_reply_free(&reply);
  nginx_story_origin(story, at);
}

static inline void nginx_story_run(const nginx_story *stories, size_t count) {
  for (int at = 0; at < NGINX_STEPS; at++) {
    int expires = 0;
    for (size_t i = 0; i < count; i++) {
      if (stories[i].steps[at].seen == 0) continue;
      nginx_story_step(&stories[i], at);
      expires |= stories[i].steps[at].expires;
    }
    if (expires) nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 100000000}, NULL);
  }
}
#define NGINX_STORIES(stories) nginx_story_run(stories, sizeof stories / sizeof *stories)

#endif
