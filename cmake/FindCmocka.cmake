# Header and library of cmocka, as the target Cmocka::Cmocka.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_Cmocka QUIET cmocka)
endif()
find_path(Cmocka_INCLUDE_DIR cmocka.h HINTS ${PC_Cmocka_INCLUDE_DIRS} ${PC_Cmocka_INCLUDEDIR})
find_library(Cmocka_LIBRARY cmocka HINTS ${PC_Cmocka_LIBRARY_DIRS} ${PC_Cmocka_LIBDIR})
mark_as_advanced(Cmocka_INCLUDE_DIR Cmocka_LIBRARY)
set(Cmocka_VERSION "${PC_Cmocka_VERSION}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cmocka REQUIRED_VARS Cmocka_LIBRARY Cmocka_INCLUDE_DIR VERSION_VAR Cmocka_VERSION)

if(Cmocka_FOUND AND NOT TARGET Cmocka::Cmocka)
  add_library(Cmocka::Cmocka UNKNOWN IMPORTED)
  set_target_properties(Cmocka::Cmocka PROPERTIES
    IMPORTED_LOCATION "${Cmocka_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Cmocka_INCLUDE_DIR}")
endif()
