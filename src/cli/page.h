/* page.h: pages (corral/page.h) for corral get and corral inspect. */
#ifndef CORRAL_CLI_PAGE_H
#define CORRAL_CLI_PAGE_H

#include "cli.h"

#include <corral/page.h>

enum { CLI_PAGE_FIELDS = 16, CLI_PAGE_VARIANT = 2 * CORRAL_PAGE_HASH };

/* The request that a page is wanted for: the fields that --field gives. */
typedef struct cli_page_request {
  corral_page_field fields[CLI_PAGE_FIELDS];
  size_t count;
} cli_page_request;

/* Takes the text of --field, which has to stay: "Name: value". */
bool cli_page_field(cli_page_request *request, const char *name, const char *text);
/* A stored value: of a page, the one for this request; without fields, what is under the key. As
 * corral_get; *variant_len is 0 for the key itself. CORRAL_EMISS also for a page that is only kept
 * to ask its origin whether it changed. */
int cli_page_get(corral *c, const void *key, size_t key_len, const cli_page_request *request,
                 corral_error *error, char variant[CLI_PAGE_VARIANT], size_t *variant_len,
                 corral_value **ret);
/* Writes status and fields as HTTP has them, and an empty line. False with errno set. */
bool cli_page_write_header(const corral_page *page);
/* Prints what inspect says of a page: rows, or members of an object. */
void cli_page_inspect(const corral_page *page, bool json);

#endif
