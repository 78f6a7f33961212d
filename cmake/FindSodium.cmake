# Header and library of sodium, as the target Sodium::Sodium.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_Sodium QUIET libsodium)
endif()
find_path(Sodium_INCLUDE_DIR sodium.h HINTS ${PC_Sodium_INCLUDE_DIRS} ${PC_Sodium_INCLUDEDIR})
find_library(Sodium_LIBRARY sodium HINTS ${PC_Sodium_LIBRARY_DIRS} ${PC_Sodium_LIBDIR})
mark_as_advanced(Sodium_INCLUDE_DIR Sodium_LIBRARY)
set(Sodium_VERSION "${PC_Sodium_VERSION}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Sodium REQUIRED_VARS Sodium_LIBRARY Sodium_INCLUDE_DIR VERSION_VAR Sodium_VERSION)

if(Sodium_FOUND AND NOT TARGET Sodium::Sodium)
  add_library(Sodium::Sodium UNKNOWN IMPORTED)
  set_target_properties(Sodium::Sodium PROPERTIES
    IMPORTED_LOCATION "${Sodium_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Sodium_INCLUDE_DIR}")
endif()
