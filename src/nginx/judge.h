/* judge.h: the judgement of an answer by its header: kept or not, and for how long. */
#ifndef CRL_NGX_JUDGE_H
#define CRL_NGX_JUDGE_H

#include "module.h"

#include "body.h"

typedef struct crl_ngx_verdict {
  corral_page record; /* without fields and body */
  crl_http_verdict lives;
  int64_t swr_ms, kept_ms;            /* the fill's: served while rebuilt; kept beyond its life */
  ngx_uint_t is_large;                /* by its length alone it cannot be kept */
  unsigned char names[CRL_HTTP_VARY]; /* record.vary points here */
} crl_ngx_verdict;

/* Judges the answer of `sr` once its header is known. NULL: it can be kept, unless it is_large, for
 * the lives in *verdict, and the fill has its tags; else the reason, static. Takes fields that are
 * never stored out of the response. */
const char *crl_ngx_judge(crl_ngx_ctx *ctx, ngx_http_request_t *sr, crl_ngx_response *response,
                          corral_fill *fill, crl_ngx_verdict *verdict);
/* Fills with the judged answer and ends the fill: 0. -1: the record can't be made; the fill is as
 * it was. */
int crl_ngx_store(corral_fill *fill, crl_ngx_verdict *verdict, const crl_ngx_response *response,
                  const crl_ngx_body *body);

/* Ends the fill with the old page, which this 304 renews: 0. -1: it can't be used; the fill is as
 * it was. */
int crl_ngx_store_renewed(crl_ngx_ctx *ctx, corral_fill *fill, ngx_http_request_t *sr,
                          crl_ngx_response *response);

#endif
