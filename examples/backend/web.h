/* web.h: the HTTP side: one thread for all connections.
 *
 *   GET /report?region=NAME    a region's report
 *   GET /status                events counted so far */
#ifndef BACKEND_WEB_H
#define BACKEND_WEB_H

#include <corral.h>

#include "listen.h"

typedef struct web web;

/* Listens on a port of 127.0.0.1; 0: any. `reports` and `hears` must outlive the result. NULL:
 * `text` says why. */
web *web_open(corral *reports, const listener *hears, int port, char *text, size_t size);
int web_port(const web *w);
/* Answers requests until `stop_fd` is readable. Then it takes no more connections, lets requests
 * end for `grace_ms`, and answers those still waiting with 503. */
void web_run(web *w, int stop_fd, int grace_ms);
/* To be called on the thread that opened and ran it. NULL is allowed. */
void web_close(web *w);

#endif
