/* config.c: setters of the module's directives, where nginx has none. An error names the wrong
 * argument and the accepted ones. */
#include "module.h"

static char *wrong(ngx_conf_t *cf, const char *directive, const ngx_str_t *given,
                   const char *accepted) {
  ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s: \"%V\" isn't valid; accepted: %s", directive, given,
                     accepted);
  return NGX_CONF_ERROR;
}

static ngx_str_t *argument(ngx_conf_t *cf, ngx_uint_t i) { return (ngx_str_t *)cf->args->elts + i; }

static ngx_uint_t is(const ngx_str_t *s, const char *text) {
  return s->len == ngx_strlen(text) && ngx_strncmp(s->data, text, s->len) == 0;
}

/* ---- corral_zone --------------------------------------------------------------------------- */

/* Both names that the library knows an option by, name and field. */
#define NAME_NONE(field, name)
#define NAME_LOCATION(field, name)
#define NAME_ZONE(field, name) name, #field,
#define TEXT_NAME(field, name, group, command, nginx, text) NAME_##nginx(field, name)
#define ROW_NAME(field, name, group, unit, def, least, most, command, nginx, text)                 \
  NAME_##nginx(field, name)
static const char *const zone_names[] = {CORRAL_TEXT_MAP(TEXT_NAME) CORRAL_OPTION_MAP(ROW_NAME)
                                             CORRAL_POLICY_MAP(ROW_NAME)};
enum { ZONE_NAMES = sizeof zone_names / sizeof zone_names[0] };

static char *unknown_parameter(ngx_conf_t *cf, const ngx_str_t *given) {
  u_char names[1024], *at = names, *end = names + sizeof names;
  for (ngx_uint_t i = 0; i < ZONE_NAMES; i += 2)
    at = ngx_snprintf(at, (size_t)(end - at), "%s%s", i > 0 ? ", " : "", zone_names[i]);
  ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                     "corral_zone: \"%V\" isn't valid; accepted: NAME=VALUE, with one of %*s",
                     given, (size_t)(at - names), names);
  return NGX_CONF_ERROR;
}

/* The texts are terminated, as nginx's words are. */
static char *zone_parameter(ngx_conf_t *cf, crl_ngx_zone *zone, ngx_str_t *given) {
  corral_error error;
  for (ngx_uint_t i = 0; i < ZONE_NAMES; i++) {
    size_t len = ngx_strlen(zone_names[i]);
    if (given->len <= len + 1 || given->data[len] != '=' ||
        ngx_strncmp(given->data, zone_names[i], len) != 0)
      continue;
    ngx_memzero(&error, sizeof error);
    if (corral_options_set(&zone->options, zone_names[i], crl_ngx_text(given) + len + 1, &error) ==
        CORRAL_OK)
      return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "corral_zone: %s", error.text);
    return NGX_CONF_ERROR;
  }
  return unknown_parameter(cf, given);
}

/* Opening does no I/O: it checks the options, and loads the store's plugin, which workers
 * inherit. */
static char *zone_check(ngx_conf_t *cf, crl_ngx_zone *zone) {
  corral *c;
  corral_error error;
  ngx_memzero(&error, sizeof error);
  if (corral_open(&zone->options, &c, &error) != CORRAL_OK) {
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "corral_zone \"%V\": %s", &zone->name, error.text);
    return NGX_CONF_ERROR;
  }
  corral_close(c);
  return NGX_CONF_OK;
}

char *crl_ngx_set_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_main_conf *main_conf = conf;
  crl_ngx_zone *zone = ngx_pcalloc(cf->pool, sizeof *zone), **slot;
  corral_policy *policy = ngx_pcalloc(cf->pool, sizeof *policy);
  (void)cmd;
  if (zone == NULL || policy == NULL) return NGX_CONF_ERROR;
  zone->name = *argument(cf, 1);
  if (zone->name.len == 0 || zone->name.len > 100 || is(&zone->name, "off"))
    return wrong(cf, "corral_zone", &zone->name, "a name of 1 to 100 bytes other than \"off\"");
  if (crl_ngx_zone_find(main_conf, &zone->name) != NULL) {
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "corral_zone: there is a zone \"%V\" already",
                       &zone->name);
    return NGX_CONF_ERROR;
  }
  policy->size = sizeof *policy;
  zone->options.size = sizeof zone->options;
  zone->options.policy = policy;
  for (ngx_uint_t i = 2; i < cf->args->nelts; i++)
    if (zone_parameter(cf, zone, argument(cf, i)) != NGX_CONF_OK) return NGX_CONF_ERROR;
  if (policy->compute_ms == 0) policy->compute_ms = CRL_NGX_COMPUTE_MS;
  if (policy->when_away == 0) policy->when_away = CORRAL_AWAY_STALE;
  if (zone->options.store == NULL) {
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "corral_zone \"%V\": store=URI is missing",
                       &zone->name);
    return NGX_CONF_ERROR;
  }
  slot = ngx_array_push(&main_conf->zones);
  if (slot == NULL || zone_check(cf, zone) != NGX_CONF_OK) return NGX_CONF_ERROR;
  *slot = zone;
  return crl_ngx_zone_declare(cf, zone);
}

/* ---- directives of a location -------------------------------------------------------------- */

char *crl_ngx_set_corral(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  (void)cmd;
  if (to->zone_name.data != NULL) return "is duplicate";
  to->zone_name = *argument(cf, 1);
  if (is(&to->zone_name, "off")) {
    ngx_str_set(&to->zone_name, "");
  }
  return NGX_CONF_OK;
}

char *crl_ngx_set_option(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  corral_error error;
  const int64_t *field = (const int64_t *)(const void *)((const char *)conf + cmd->offset);
  if (*field != 0) return "is duplicate";
  ngx_memzero(&error, sizeof error);
  if (corral_policy_set(&to->policy, cmd->post, crl_ngx_text(argument(cf, 1)), &error) == CORRAL_OK)
    return NGX_CONF_OK;
  ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "corral_%s", error.text);
  return NGX_CONF_ERROR;
}

char *crl_ngx_set_heuristic(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  const ngx_str_t *text = argument(cf, 1);
  size_t len = text->len;
  ngx_uint_t is_off = is(text, "off");
  (void)cmd;
  if (to->heuristic != NGX_CONF_UNSET_UINT) return "is duplicate";
  if (len > 1 && text->data[len - 1] == '%') len--;
  ngx_int_t percent = is_off ? 0 : ngx_atoi(text->data, len);
  if (!is_off && (percent < 1 || percent > 100)) return "accepts off, or 1% to 100%";
  to->heuristic = (ngx_uint_t)percent;
  return NGX_CONF_OK;
}

static ngx_http_complex_value_t *complex(ngx_conf_t *cf, ngx_str_t *text) {
  ngx_http_compile_complex_value_t compile;
  ngx_http_complex_value_t *value = ngx_palloc(cf->pool, sizeof *value);
  if (value == NULL) return NULL;
  ngx_memzero(&compile, sizeof compile);
  compile.cf = cf;
  compile.value = text;
  compile.complex_value = value;
  return ngx_http_compile_complex_value(&compile) == NGX_OK ? value : NULL;
}

char *crl_ngx_set_pass(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  ngx_str_t *given = argument(cf, 1);
  (void)cmd;
  if (to->pass != NULL) return "is duplicate";
  if (given->len < 2 || (given->data[0] != '@' && given->data[0] != '/'))
    return wrong(cf, "corral_pass", given,
                 "a named location (@name) or a URI that begins with \"/\"");
  to->pass = complex(cf, given);
  return to->pass != NULL ? NGX_CONF_OK : NGX_CONF_ERROR;
}

char *crl_ngx_set_cache_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  ngx_str_t *name = argument(cf, 1);
  (void)cmd;
  if (to->cache_status.data != NULL) return "is duplicate";
  for (size_t i = 0; i < name->len; i++)
    if (name->data[i] < ' ' || name->data[i] > '~' || name->data[i] == '"' || name->data[i] == '\\')
      return wrong(cf, "corral_cache_status", name,
                   "on, off, or a name of printable ASCII without quotes and backslashes");
  if (name->len == 0) return wrong(cf, "corral_cache_status", name, "on, off, or a name");
  to->cache_status = *name;
  if (is(name, "off")) {
    ngx_str_set(&to->cache_status, "");
  }
  return NGX_CONF_OK;
}

static char *set_handler(ngx_conf_t *cf, crl_ngx_conf *to, ngx_http_handler_pt handler) {
  to->is_handler = 1;
  ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
  core->handler = handler;
  return NGX_CONF_OK;
}

/* Words behind the key: 0, or -1. */
static int purge_word(crl_ngx_conf *to, const ngx_str_t *word) {
  if (is(word, "soft") && !to->purge_soft) return to->purge_soft = 1, 0;
  if (to->purge_kind != CRL_NGX_PURGE_KEY) return -1;
  if (is(word, "tag")) return to->purge_kind = CRL_NGX_PURGE_TAG, 0;
  if (is(word, "prefix")) return to->purge_kind = CRL_NGX_PURGE_PREFIX, 0;
  return -1;
}

char *crl_ngx_set_purge(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  ngx_uint_t words = 2;
  (void)cmd;
  if (to->purge_zone.len > 0) return "is duplicate";
  to->purge_zone = *argument(cf, 1);
  ngx_str_t *what = cf->args->nelts > 2 ? argument(cf, 2) : NULL;
  if (what != NULL && is(what, "all")) {
    to->purge_kind = CRL_NGX_PURGE_ALL;
    words = 3;
  } else if (what != NULL && !is(what, "soft")) {
    to->purge_kind = CRL_NGX_PURGE_KEY;
    to->purge_key = complex(cf, what);
    if (to->purge_key == NULL) return NGX_CONF_ERROR;
    words = 3;
  }
  for (; words < cf->args->nelts; words++)
    if (purge_word(to, argument(cf, words)) != 0)
      return wrong(cf, "corral_purge", argument(cf, words), "tag or prefix behind a key; soft");
  return set_handler(cf, to, crl_ngx_purge_handler);
}

char *crl_ngx_set_tag(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  ngx_uint_t count = cf->args->nelts - 1;
  (void)cmd;
  if (to->tags != NULL) return "is duplicate";
  to->tags = ngx_array_create(cf->pool, count, sizeof(ngx_str_t));
  if (to->tags == NULL) return NGX_CONF_ERROR;
  if (count == 1 && is(argument(cf, 1), "off")) return NGX_CONF_OK;
  for (ngx_uint_t i = 1; i <= count; i++) *(ngx_str_t *)ngx_array_push(to->tags) = *argument(cf, i);
  return NGX_CONF_OK;
}

char *crl_ngx_set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  (void)cmd;
  return set_handler(cf, conf, crl_ngx_status_handler);
}
