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

/* The rest of "name=rest"; data NULL: another name. */
static ngx_str_t value_of(const ngx_str_t *s, const char *name) {
  size_t len = ngx_strlen(name);
  ngx_str_t rest = ngx_null_string;
  if (s->len > len && ngx_strncmp(s->data, name, len) == 0 && s->data[len] == '=') {
    rest.data = s->data + len + 1;
    rest.len = s->len - len - 1;
  }
  return rest;
}

/* ---- corral_zone --------------------------------------------------------------------------- */

static int set_bytes(ngx_str_t *value, int64_t *ret) {
  if (is(value, "off")) return *ret = CORRAL_OFF, 0;
  off_t bytes = ngx_parse_offset(value);
  if (bytes <= 0) return -1;
  *ret = bytes;
  return 0;
}

static int set_ms(ngx_str_t *value, int64_t *ret) {
  ngx_int_t ms = ngx_parse_time(value, 0);
  if (ms == NGX_ERROR || ms == 0) return -1;
  *ret = ms;
  return 0;
}

static int set_count(ngx_str_t *value, int64_t *ret) {
  ngx_int_t count = ngx_atoi(value->data, value->len);
  if (count == NGX_ERROR || count == 0) return -1;
  *ret = count;
  return 0;
}

static int set_flag(ngx_str_t *value, int64_t *ret) {
  if (!is(value, "on") && !is(value, "off")) return -1;
  *ret = is(value, "on") ? 1 : CORRAL_OFF;
  return 0;
}

/* Sets a parameter of corral_zone that is a number. 1: done; 0: it is no such parameter; -1: its
 * value isn't valid, *accepted says which are. */
static int set_number(crl_ngx_zone *zone, corral_policy *policy, ngx_str_t *given,
                      const char **accepted) {
  const struct {
    const char *name;
    int (*set)(ngx_str_t *value, int64_t *ret);
    int64_t *ret;
    const char *accepted;
  } rows[] = {{"near", set_bytes, &zone->options.near_bytes, "near=SIZE, as near=64m, or near=off"},
              {"near_time", set_ms, &policy->near_ms, "near_time=TIME, as near_time=1s"},
              {"compute", set_ms, &policy->compute_ms, "compute=TIME, as compute=30s"},
              {"handles", set_count, &zone->options.handles, "handles=COUNT, 1 to 64"},
              {"op", set_ms, &zone->options.op_ms, "op=TIME, as op=250ms"},
              {"computes", set_count, &zone->options.max_computes, "computes=COUNT, at least 1"},
              {"fleet_computes", set_count, &zone->options.fleet_max_computes,
               "fleet_computes=COUNT, 1 to 256"},
              {"host_lock", set_flag, &zone->options.host_lock, "host_lock=on or host_lock=off"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ngx_str_t value = value_of(given, rows[i].name);
    if (value.data == NULL) continue;
    if (rows[i].set(&value, rows[i].ret) == 0) return 1;
    *accepted = rows[i].accepted;
    return -1;
  }
  return 0;
}

static const char zone_parameters[] =
    "store=URI near=SIZE|off near_time=TIME compute=TIME namespace=NAME handles=COUNT op=TIME "
    "computes=COUNT fleet_computes=COUNT host_lock=on|off jitter=PERCENT";

/* The texts are terminated, as nginx's words are. */
static char *zone_parameter(ngx_conf_t *cf, crl_ngx_zone *zone, corral_policy *policy,
                            ngx_str_t *given) {
  const char *accepted = zone_parameters;
  ngx_str_t value = value_of(given, "store");
  if (value.len > 0) return zone->options.store = crl_ngx_text(&value), NGX_CONF_OK;
  value = value_of(given, "namespace");
  if (value.len > 0) return zone->options.name_space = crl_ngx_text(&value), NGX_CONF_OK;
  value = value_of(given, "jitter");
  if (value.len > 0) {
    ngx_int_t percent = ngx_atoi(value.data, value.len);
    if (percent == NGX_ERROR || percent > 90)
      return wrong(cf, "corral_zone", given, "jitter=PERCENT, 0 to 90");
    zone->jitter = percent == 0 ? CORRAL_OFF : percent;
    return NGX_CONF_OK;
  }
  return set_number(zone, policy, given, &accepted) == 1
             ? NGX_CONF_OK
             : wrong(cf, "corral_zone", given, accepted);
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
  zone->options = *CORRAL_OPTIONS(.near_bytes = 0);
  *policy = *CORRAL_POLICY(.near_ms = 0);
  for (ngx_uint_t i = 2; i < cf->args->nelts; i++)
    if (zone_parameter(cf, zone, policy, argument(cf, i)) != NGX_CONF_OK) return NGX_CONF_ERROR;
  if (zone->options.store == NULL) {
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "corral_zone \"%V\": store=URI is missing",
                       &zone->name);
    return NGX_CONF_ERROR;
  }
  zone->options.policy = policy;
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

char *crl_ngx_set_stale(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  static const char accepted[] = "off, or pairs of \"updating TIME\" and \"error TIME\"";
  crl_ngx_conf *to = conf;
  ngx_uint_t count = cf->args->nelts;
  (void)cmd;
  if (to->updating != NGX_CONF_UNSET_MSEC || to->error != NGX_CONF_UNSET_MSEC)
    return "is duplicate";
  if (count == 2) {
    if (!is(argument(cf, 1), "off")) return wrong(cf, "corral_stale", argument(cf, 1), accepted);
    to->updating = to->error = 0;
    return NGX_CONF_OK;
  }
  to->updating = to->error = 0;
  for (ngx_uint_t i = 1; i < count; i += 2) {
    ngx_str_t *word = argument(cf, i);
    ngx_int_t ms = i + 1 < count ? ngx_parse_time(argument(cf, i + 1), 0) : NGX_ERROR;
    if (ms == NGX_ERROR)
      return wrong(cf, "corral_stale", i + 1 < count ? argument(cf, i + 1) : word, accepted);
    if (is(word, "updating"))
      to->updating = (ngx_msec_t)ms;
    else if (is(word, "error"))
      to->error = (ngx_msec_t)ms;
    else
      return wrong(cf, "corral_stale", word, accepted);
  }
  return NGX_CONF_OK;
}

char *crl_ngx_set_lock_timeout(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  ngx_int_t ms = ngx_parse_time(argument(cf, 1), 0);
  (void)cmd;
  if (to->lock_timeout != NGX_CONF_UNSET_MSEC) return "is duplicate";
  if (ms == NGX_ERROR || ms == 0 || ms > 86400000)
    return wrong(cf, "corral_lock_timeout", argument(cf, 1), "a time, 1ms to 1d");
  to->lock_timeout = (ngx_msec_t)ms;
  to->lock_pass = 0;
  if (cf->args->nelts == 2 || is(argument(cf, 2), "error")) return NGX_CONF_OK;
  if (!is(argument(cf, 2), "pass"))
    return wrong(cf, "corral_lock_timeout", argument(cf, 2), "error, pass");
  to->lock_pass = 1;
  return NGX_CONF_OK;
}

char *crl_ngx_set_early(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  ngx_str_t number = *argument(cf, 1);
  (void)cmd;
  if (to->early != NGX_CONF_UNSET) return "is duplicate";
  if (number.len > 1 && number.data[number.len - 1] == '%') number.len--;
  to->early = is(&number, "off") ? 0 : ngx_atoi(number.data, number.len);
  if (to->early == NGX_ERROR || to->early > 90)
    return wrong(cf, "corral_early", argument(cf, 1), "off, or a percentage, 1 to 90");
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

char *crl_ngx_set_purge(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  crl_ngx_conf *to = conf;
  (void)cmd;
  if (to->purge_key != NULL) return "is duplicate";
  if (cf->args->nelts == 4 && !is(argument(cf, 3), "tag"))
    return wrong(cf, "corral_purge", argument(cf, 3), "tag");
  to->purge_zone = *argument(cf, 1);
  to->purge_tag = cf->args->nelts == 4;
  to->purge_key = complex(cf, argument(cf, 2));
  return to->purge_key != NULL ? set_handler(cf, to, crl_ngx_purge_handler) : NGX_CONF_ERROR;
}

char *crl_ngx_set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
  (void)cmd;
  return set_handler(cf, conf, crl_ngx_status_handler);
}
