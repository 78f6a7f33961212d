/* record.h: a page (corral/page.h) by the module's names. */
#ifndef CRL_NGX_RECORD_H
#define CRL_NGX_RECORD_H

#include <corral/page.h>

#define crl_ngx_record corral_page
#define crl_ngx_field corral_page_field
#define crl_ngx_record_read corral_page_read
#define crl_ngx_record_write corral_page_write
#define crl_ngx_record_next corral_page_next
#define crl_ngx_record_room corral_page_size
#define crl_ngx_record_leaves_out corral_page_leaves_out
#define crl_ngx_record_same_head corral_page_same_head
#define CRL_NGX_RECORD_HASH CORRAL_PAGE_HASH
#define CRL_NGX_RECORD_FIELDS CORRAL_PAGE_FIELDS
#define CRL_NGX_RECORD_VARY CORRAL_PAGE_VARY
#define CRL_NGX_LONGEST_MS CORRAL_PAGE_LONGEST_MS
#define CRL_NGX_BAD_RECORD CORRAL_ECORRUPT

#endif
