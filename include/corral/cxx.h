/* cxx.h: the macros of corral.h for C++ (11 and later), which has no compound literals. Each member
 * of a struct is set by a function of its name:
 *
 *   C    CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 60000, .swr_ms = 600000), .error = &error)
 *   C++  CORRAL_CALL(.policy(CORRAL_POLICY(.ttl_ms(60000).swr_ms(600000))).error(&error))
 *
 * The result converts to a pointer to the struct. It lives until the end of the full expression, so
 * it may be an argument of a call, and may not be kept; for that, copy the builder:
 *
 *   corral_policy_builder policy = CORRAL_POLICY(.ttl_ms(60000));
 *
 * corral.h, corral/child.h, corral/lock.h and corral/loop.h include this file or use its macros by
 * themselves. */
#ifndef CORRAL_CXX_H
#define CORRAL_CXX_H

#include <corral.h>

#ifdef __cplusplus

#define CORRAL_BUILDER_BEGIN(type)                                                                 \
  class type##_builder {                                                                           \
    type made;                                                                                     \
                                                                                                   \
  public:                                                                                          \
    type##_builder() : made() { made.size = sizeof made; }                                         \
    operator const type *() const { return &made; }
#define CORRAL_BUILDER_FIELD(type, field)                                                          \
  type##_builder &field(decltype(type::field) value) {                                             \
    made.field = value;                                                                            \
    return *this;                                                                                  \
  }
#define CORRAL_BUILDER_END(type)                                                                   \
  }                                                                                                \
  ;

#define CORRAL_BUILDER_ROW(name, ...) CORRAL_BUILDER_FIELD(corral_policy, name)
CORRAL_BUILDER_BEGIN(corral_policy)
CORRAL_POLICY_MAP(CORRAL_BUILDER_ROW)
CORRAL_BUILDER_END(corral_policy)
#undef CORRAL_BUILDER_ROW
#define CORRAL_POLICY(...) (corral_policy_builder() __VA_ARGS__)

CORRAL_BUILDER_BEGIN(corral_call)
CORRAL_BUILDER_FIELD(corral_call, policy)
CORRAL_BUILDER_FIELD(corral_call, error)
CORRAL_BUILDER_FIELD(corral_call, cancel_token)
CORRAL_BUILDER_FIELD(corral_call, variant)
CORRAL_BUILDER_FIELD(corral_call, variant_len)
CORRAL_BUILDER_FIELD(corral_call, tags)
CORRAL_BUILDER_FIELD(corral_call, tag_count)
CORRAL_BUILDER_FIELD(corral_call, version)
CORRAL_BUILDER_FIELD(corral_call, validator)
CORRAL_BUILDER_FIELD(corral_call, validator_len)
CORRAL_BUILDER_END(corral_call)
#define CORRAL_CALL(...) (corral_call_builder() __VA_ARGS__)

#define CORRAL_BUILDER_ROW(name, ...) CORRAL_BUILDER_FIELD(corral_options, name)
CORRAL_BUILDER_BEGIN(corral_options)
CORRAL_BUILDER_FIELD(corral_options, store)
CORRAL_BUILDER_FIELD(corral_options, name_space)
CORRAL_BUILDER_FIELD(corral_options, policy)
CORRAL_BUILDER_FIELD(corral_options, compute)
CORRAL_BUILDER_FIELD(corral_options, compute_arg)
CORRAL_BUILDER_FIELD(corral_options, on_event)
CORRAL_BUILDER_FIELD(corral_options, event_arg)
CORRAL_BUILDER_FIELD(corral_options, host_dir)
CORRAL_BUILDER_FIELD(corral_options, origin)
CORRAL_BUILDER_FIELD(corral_options, stats_dir)
CORRAL_OPTION_MAP(CORRAL_BUILDER_ROW)
CORRAL_BUILDER_END(corral_options)
#undef CORRAL_BUILDER_ROW
#define CORRAL_OPTIONS(...) (corral_options_builder() __VA_ARGS__)

#endif
#endif
