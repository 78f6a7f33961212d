/* cgi_plain.c: the baseline of bench/cgi.c: examples/cgi with constants in place of the library. */
#include <corral.h>
#include <corral/child.h>
#include <string.h>

static const char PAGE[] = "the page of /page for 'a=1', made by process 2147483647 at 12345678\n";

struct corral {
  int unused;
};
struct corral_value {
  int unused;
};

int corral_open(const corral_options *options, corral **ret, corral_error *error) {
  static corral c;
  (void)options;
  (void)error;
  *ret = &c;
  return CORRAL_OK;
}

void corral_close(corral *c) { (void)c; }

int corral_get(corral *c, const void *key, size_t key_len, const corral_call *user,
               corral_value **ret) {
  static corral_value value;
  (void)c;
  (void)user;
  *ret = &value;
  return key != NULL && key_len > 0 ? CORRAL_OK : CORRAL_EINVAL;
}

int corral_get_or_compute(corral *c, const void *key, size_t key_len, const corral_call *user,
                          corral_compute *compute, void *arg, corral_value **ret) {
  (void)compute;
  (void)arg;
  return corral_get(c, key, key_len, user, ret);
}

const void *corral_value_data(const corral_value *value) { return value != NULL ? PAGE : ""; }
size_t corral_value_size(const corral_value *value) { return value != NULL ? sizeof PAGE - 1 : 0; }
corral_how corral_value_how(const corral_value *value) {
  return value != NULL ? CORRAL_FRESH : CORRAL_COMPUTED;
}
int64_t corral_value_age_ms(const corral_value *value) { return value != NULL ? 1000 : 0; }
corral_kept corral_value_kept(const corral_value *value) {
  return value != NULL ? CORRAL_KEPT : CORRAL_KEPT_NOT;
}
void corral_value_unref(corral_value *value) { (void)value; }
const char *corral_status_text(int status) { return status == CORRAL_OK ? "" : "an error"; }
int corral_fill_should_stop(const corral_fill *fill) { return fill == NULL; }
void corral_fill_negative(corral_fill *fill) { (void)fill; }

int corral_fill_bytes(corral_fill *fill, const void *data, size_t size) {
  (void)fill;
  return data != NULL || size == 0 ? CORRAL_OK : CORRAL_EINVAL;
}

void corral_fill_fail(corral_fill *fill, int32_t code, const char *text) {
  (void)fill;
  (void)code;
  (void)text;
}

int corral_child_start(char *const argv[], const corral_child_options *options, corral_child **ret,
                       corral_error *error) {
  (void)argv;
  (void)options;
  (void)ret;
  (void)error;
  return CORRAL_EUNSUPPORTED;
}

int corral_child_fd(const corral_child *child) { return child != NULL ? 0 : -1; }

int corral_child_signal(corral_child *child, int signo) {
  (void)child;
  return signo > 0 ? CORRAL_OK : CORRAL_EINVAL;
}

int corral_child_wait(corral_child *child, int *ret_status, corral_error *error) {
  (void)child;
  (void)ret_status;
  (void)error;
  return CORRAL_EUNSUPPORTED;
}

void corral_child_free(corral_child *child) { (void)child; }
