/* web.h: the HTTP side.
 *
 *   GET /report?region=NAME    a region's report
 *   GET /status                what has happened so far
 */
#ifndef BACKEND_WEB_H
#define BACKEND_WEB_H

#include <corral.h>

#include "listen.h"

typedef struct web web;

/* Listens on a port of 127.0.0.1; 0: any. `reports` and `hears` must outlive it. NULL: `text` says why. */
web *web_start(corral *reports, const listener *hears, int port, char *text, size_t size);
int web_port(const web *w);
/* Takes no more connections, lets requests end for `grace_ms`, answers those that wait still with 503, and ends. */
void web_stop(web *w, int grace_ms);

#endif
