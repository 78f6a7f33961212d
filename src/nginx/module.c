/* module.c: the tables of the nginx module: its directives, its configurations, and the symbols of
 * a dynamic module. */
#include "module.h"

static ngx_conf_bitmask_t ignored[] = {{ngx_string("X-Accel-Expires"), CRL_NGX_IGNORE_ACCEL},
                                       {ngx_string("Expires"), CRL_NGX_IGNORE_EXPIRES},
                                       {ngx_string("Cache-Control"), CRL_NGX_IGNORE_CONTROL},
                                       {ngx_string("Set-Cookie"), CRL_NGX_IGNORE_COOKIE},
                                       {ngx_string("Vary"), CRL_NGX_IGNORE_VARY},
                                       {ngx_string("CDN-Cache-Control"), CRL_NGX_IGNORE_CDN},
                                       {ngx_null_string, 0}};

static ngx_conf_bitmask_t methods[] = {
    /* the origin gets a GET for both */
    {ngx_string("GET"), NGX_HTTP_GET},
    {ngx_string("HEAD"), NGX_HTTP_HEAD},
    {ngx_null_string, 0}};

static ngx_conf_enum_t purge_from[] = {{ngx_string("local"), CRL_NGX_FROM_LOCAL},
                                       {ngx_string("any"), CRL_NGX_FROM_ANY},
                                       {ngx_null_string, 0}};

static ngx_conf_num_bounds_t min_uses = {ngx_conf_check_num_bounds, 1, 1000000};
static ngx_conf_num_bounds_t deadline_max = {ngx_conf_check_num_bounds, 1, 1000000};
static ngx_conf_num_bounds_t path_tags = {ngx_conf_check_num_bounds, 0, 8};

enum { ANYWHERE = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF };

#define DIRECTIVE(name, where, arguments, set, offset, post)                                       \
  { ngx_string(name), (where) | (arguments), set, NGX_HTTP_LOC_CONF_OFFSET, offset, post }
#define AT(field) offsetof(crl_ngx_conf, field)

static char *set_revalidate(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  const ngx_str_t *given = (ngx_str_t *)cf->args->elts + 1;
  if (to->revalidate != NGX_CONF_UNSET_MSEC || given->len != 3 ||
      ngx_strncmp(given->data, "off", 3) != 0)
    return ngx_conf_set_msec_slot(cf, cmd, conf);
  to->revalidate = 0;
  return NGX_CONF_OK;
}

/* The directives that the table of options makes. */
#define OPTION_NONE(field, name)
#define OPTION_ZONE(field, name)
#define OPTION_LOCATION(field, name)                                                               \
  DIRECTIVE("corral_" name, ANYWHERE, NGX_CONF_TAKE1, crl_ngx_set_option, AT(policy.field), name),
#define OPTION(field, name, group, unit, def, least, most, command, nginx, text)                   \
  OPTION_##nginx(field, name)

static ngx_command_t commands[] = {
    {ngx_string("corral_zone"), NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE, crl_ngx_set_zone,
     NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    DIRECTIVE("corral", ANYWHERE, NGX_CONF_TAKE1, crl_ngx_set_corral, AT(zone_name), NULL),
    DIRECTIVE("corral_key", ANYWHERE, NGX_CONF_TAKE1, ngx_http_set_complex_value_slot, AT(key),
              NULL),
    DIRECTIVE("corral_valid", ANYWHERE, NGX_CONF_1MORE, ngx_http_file_cache_valid_set_slot,
              AT(valid), NULL),
    DIRECTIVE("corral_ignore_headers", ANYWHERE, NGX_CONF_1MORE, ngx_conf_set_bitmask_slot,
              AT(ignore), &ignored),
    DIRECTIVE("corral_methods", ANYWHERE, NGX_CONF_1MORE, ngx_conf_set_bitmask_slot, AT(methods),
              &methods),
    DIRECTIVE("corral_bypass", ANYWHERE, NGX_CONF_1MORE, ngx_http_set_predicate_slot, AT(bypass),
              NULL),
    DIRECTIVE("corral_no_store", ANYWHERE, NGX_CONF_1MORE, ngx_http_set_predicate_slot,
              AT(no_store), NULL),
    DIRECTIVE("corral_max_size", ANYWHERE, NGX_CONF_TAKE1, ngx_conf_set_size_slot, AT(max_size),
              NULL),
    DIRECTIVE("corral_revalidate", ANYWHERE, NGX_CONF_TAKE1, set_revalidate, AT(revalidate), NULL),
    DIRECTIVE("corral_heuristic", ANYWHERE, NGX_CONF_TAKE1, crl_ngx_set_heuristic, 0, NULL),
    DIRECTIVE("corral_pass", NGX_HTTP_LOC_CONF, NGX_CONF_TAKE1, crl_ngx_set_pass, 0, NULL),
    DIRECTIVE("corral_refresh", ANYWHERE, NGX_CONF_1MORE, ngx_http_set_predicate_slot, AT(refresh),
              NULL),
    DIRECTIVE("corral_min_uses", ANYWHERE, NGX_CONF_TAKE1, ngx_conf_set_num_slot, AT(min_uses),
              &min_uses),
    DIRECTIVE("corral_deadline_max", ANYWHERE, NGX_CONF_TAKE1, ngx_conf_set_num_slot,
              AT(deadline_max), &deadline_max),
    DIRECTIVE("corral_tag", ANYWHERE, NGX_CONF_1MORE, crl_ngx_set_tag, 0, NULL),
    DIRECTIVE("corral_path_tags", ANYWHERE, NGX_CONF_TAKE1, ngx_conf_set_num_slot, AT(path_tags),
              &path_tags),
    DIRECTIVE("corral_cache_status", ANYWHERE, NGX_CONF_TAKE1, crl_ngx_set_cache_status, 0, NULL),
    DIRECTIVE("corral_purge", NGX_HTTP_LOC_CONF,
              NGX_CONF_TAKE1 | NGX_CONF_TAKE2 | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, crl_ngx_set_purge,
              0, NULL),
    DIRECTIVE("corral_purge_method", ANYWHERE, NGX_CONF_FLAG, ngx_conf_set_flag_slot,
              AT(with_purge), NULL),
    DIRECTIVE("corral_purge_from", ANYWHERE, NGX_CONF_TAKE1, ngx_conf_set_enum_slot, AT(purge_from),
              &purge_from),
    DIRECTIVE("corral_status", NGX_HTTP_LOC_CONF, NGX_CONF_NOARGS, crl_ngx_set_status, 0, NULL),
    CORRAL_POLICY_MAP(OPTION) ngx_null_command};

crl_ngx_conf *crl_ngx_conf_of(ngx_http_request_t *r) {
  return ngx_http_get_module_loc_conf(r, ngx_http_corral_module);
}

static void *create_main(ngx_conf_t *cf) {
  crl_ngx_main_conf *conf = ngx_pcalloc(cf->pool, sizeof *conf);
  if (conf == NULL || ngx_array_init(&conf->zones, cf->pool, 4, sizeof(crl_ngx_zone *)) != NGX_OK)
    return NULL;
  return conf;
}

static void *create_location(ngx_conf_t *cf) {
  crl_ngx_conf *conf = ngx_pcalloc(cf->pool, sizeof *conf);
  if (conf == NULL) return NULL;
  conf->valid = NGX_CONF_UNSET_PTR;
  conf->bypass = NGX_CONF_UNSET_PTR;
  conf->no_store = NGX_CONF_UNSET_PTR;
  conf->refresh = NGX_CONF_UNSET_PTR;
  conf->min_uses = NGX_CONF_UNSET;
  conf->heuristic = NGX_CONF_UNSET_UINT;
  conf->path_tags = NGX_CONF_UNSET;
  conf->deadline_max = NGX_CONF_UNSET;
  conf->with_purge = NGX_CONF_UNSET;
  conf->policy.size = sizeof conf->policy;
  conf->purge_from = NGX_CONF_UNSET_UINT;
  conf->max_size = NGX_CONF_UNSET_SIZE;
  conf->revalidate = NGX_CONF_UNSET_MSEC;
  return conf;
}

/* Finds the zone of a directive. The configuration is complete here, so a zone may stand below the
 * locations that use it. */
static char *find_zone(ngx_conf_t *cf, const char *directive, const ngx_str_t *name,
                       crl_ngx_zone **ret) {
  crl_ngx_main_conf *main_conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_corral_module);
  *ret = crl_ngx_zone_find(main_conf, name);
  if (*ret != NULL) return NGX_CONF_OK;
  ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                     "%s: there is no zone \"%V\"; corral_zone in http{} makes one", directive,
                     name);
  return NGX_CONF_ERROR;
}

enum { REVALIDATE_MS = 600000 };     /* the default of corral_revalidate */
enum { STALE_IF_ERROR_MS = 600000 }; /* the default of corral_stale_if_error */

static void merge_policy(corral_policy *policy, const corral_policy *above) {
#define MERGE(field, name, group, unit, def, least, most, command, nginx, text)                    \
  if (policy->field == 0) policy->field = above->field;
  CORRAL_POLICY_MAP(MERGE)
#undef MERGE
}

static char *merge_location(ngx_conf_t *cf, void *parent, void *child) {
  crl_ngx_conf *above = parent, *conf = child;
  conf->is_off = conf->zone_name.data != NULL ? conf->zone_name.len == 0 : above->is_off;
  ngx_conf_merge_str_value(conf->zone_name, above->zone_name, "");
  if (conf->key == NULL) conf->key = above->key;
  ngx_conf_merge_ptr_value(conf->valid, above->valid, NULL);
  ngx_conf_merge_bitmask_value(conf->ignore, above->ignore, NGX_CONF_BITMASK_SET);
  merge_policy(&conf->policy, &above->policy);
  if (conf->policy.at_deadline == 0) conf->policy.at_deadline = CORRAL_DEADLINE_COMPUTE;
  conf->wait_ms = crl_ngx_patience(cf, &conf->policy);
  conf->has_gzip_static = crl_ngx_has_gzip_static(cf);
  ngx_conf_merge_value(conf->deadline_max, above->deadline_max, 2);
  if (conf->policy.sie_ms == 0) conf->policy.sie_ms = STALE_IF_ERROR_MS;
  if (conf->policy.at_failure == 0) conf->policy.at_failure = CORRAL_FAILURE_WAIT;
  ngx_conf_merge_uint_value(conf->purge_from, above->purge_from, CRL_NGX_FROM_LOCAL);
  ngx_conf_merge_bitmask_value(conf->methods, above->methods,
                               NGX_CONF_BITMASK_SET | NGX_HTTP_GET | NGX_HTTP_HEAD);
  ngx_conf_merge_ptr_value(conf->bypass, above->bypass, NULL);
  ngx_conf_merge_ptr_value(conf->no_store, above->no_store, NULL);
  ngx_conf_merge_size_value(conf->max_size, above->max_size, 1024 * 1024);
  ngx_conf_merge_msec_value(conf->revalidate, above->revalidate, REVALIDATE_MS);
  ngx_conf_merge_ptr_value(conf->refresh, above->refresh, NULL);
  ngx_conf_merge_value(conf->min_uses, above->min_uses, 1);
  ngx_conf_merge_uint_value(conf->heuristic, above->heuristic, 0);
  ngx_conf_merge_value(conf->path_tags, above->path_tags, 0);
  ngx_conf_merge_value(conf->with_purge, above->with_purge, 0);
  if (conf->tags == NULL) conf->tags = above->tags;
  ngx_conf_merge_str_value(conf->cache_status, above->cache_status, "on");
  if (conf->purge_zone.len > 0 &&
      find_zone(cf, "corral_purge", &conf->purge_zone, &conf->purge) != NGX_CONF_OK)
    return NGX_CONF_ERROR;
  if (conf->is_handler) conf->zone_name.len = 0;
  if (conf->zone_name.len == 0) {
    if (conf->pass == NULL) return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "corral_pass: needs \"corral ZONE\" in its location, or above");
    return NGX_CONF_ERROR;
  }
  return find_zone(cf, "corral", &conf->zone_name, &conf->zone);
}

static ngx_int_t after_configuration(ngx_conf_t *cf) {
  ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
  ngx_http_handler_pt *handler = ngx_array_push(&core->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
  if (handler == NULL) return NGX_ERROR;
  *handler = crl_ngx_handler;
  crl_ngx_lend_init(cf);
  if (crl_ngx_redirect_init(core) != NGX_OK) return NGX_ERROR;
  return crl_ngx_unsafe_init(cf) == NGX_OK ? crl_ngx_capture_init(cf) : NGX_ERROR;
}

static ngx_http_module_t context = {.preconfiguration = crl_ngx_variables_add,
                                    .postconfiguration = after_configuration,
                                    .create_main_conf = create_main,
                                    .create_loc_conf = create_location,
                                    .merge_loc_conf = merge_location};

#define VISIBLE __attribute__((visibility("default")))

VISIBLE ngx_module_t ngx_http_corral_module = {NGX_MODULE_V1,
                                               &context,
                                               commands,
                                               NGX_HTTP_MODULE,
                                               NULL,
                                               NULL,
                                               crl_ngx_zone_init_process,
                                               NULL,
                                               NULL,
                                               crl_ngx_zone_exit_process,
                                               NULL,
                                               NGX_MODULE_V1_PADDING};

/* The symbols that nginx looks up in a module that it loads. The order is that of an
 * HTTP_AUX_FILTER: a captured answer has been through the filters of content, but neither through
 * gzip's, nor through those that write to the client. */
#ifndef CRL_NGX_ADDON /* nginx's own build has them */
extern ngx_module_t *ngx_modules[];
extern char *ngx_module_names[];
extern char *ngx_module_order[];
VISIBLE ngx_module_t *ngx_modules[] = {&ngx_http_corral_module, NULL};
VISIBLE char *ngx_module_names[] = {"ngx_http_corral_module", NULL};
VISIBLE char *ngx_module_order[] = {"ngx_http_corral_module", "ngx_http_copy_filter_module", NULL};
#endif
