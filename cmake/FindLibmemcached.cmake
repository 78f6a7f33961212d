# Header and library of libmemcached, as the target Libmemcached::Libmemcached. Included as <libmemcached/memcached.h>.
# The version is the header's: versions before 1.1.4 can answer with another key's value after a time limit.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_Libmemcached QUIET libmemcached)
endif()
find_path(Libmemcached_INCLUDE_DIR libmemcached/memcached.h
  HINTS ${PC_Libmemcached_INCLUDE_DIRS} ${PC_Libmemcached_INCLUDEDIR})
find_library(Libmemcached_LIBRARY memcached HINTS ${PC_Libmemcached_LIBRARY_DIRS} ${PC_Libmemcached_LIBDIR})
mark_as_advanced(Libmemcached_INCLUDE_DIR Libmemcached_LIBRARY)
if(Libmemcached_INCLUDE_DIR AND EXISTS ${Libmemcached_INCLUDE_DIR}/libmemcached-1.0/configure.h)
  file(STRINGS ${Libmemcached_INCLUDE_DIR}/libmemcached-1.0/configure.h Libmemcached_VERSION
    REGEX "^#define LIBMEMCACHED_VERSION_STRING ")
  string(REGEX REPLACE "^.*\"([0-9.]+).*$" "\\1" Libmemcached_VERSION "${Libmemcached_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libmemcached
  REQUIRED_VARS Libmemcached_LIBRARY Libmemcached_INCLUDE_DIR VERSION_VAR Libmemcached_VERSION)

if(Libmemcached_FOUND AND NOT TARGET Libmemcached::Libmemcached)
  add_library(Libmemcached::Libmemcached UNKNOWN IMPORTED)
  set_target_properties(Libmemcached::Libmemcached PROPERTIES
    IMPORTED_LOCATION "${Libmemcached_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Libmemcached_INCLUDE_DIR}")
endif()
