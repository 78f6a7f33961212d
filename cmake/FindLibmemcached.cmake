# Header and library of libmemcached, as the target Libmemcached::Libmemcached;
# <libmemcached/memcached.h> is included. The version is the header's: versions before 1.1.4 can
# answer with another key's value after a time limit.
include(${CMAKE_CURRENT_LIST_DIR}/corral_find.cmake)
corral_find(libmemcached libmemcached/memcached.h LIBRARY memcached
  VERSION libmemcached-1.0/configure.h "^#define LIBMEMCACHED_VERSION_STRING ")
