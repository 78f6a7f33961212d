# Header and library of hiredis, as the target Hiredis::Hiredis. Included as <hiredis/hiredis.h>.
# An own module: the CMake config that Debian 12 and 13 ship with hiredis aborts the configure step.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_Hiredis QUIET hiredis)
endif()
find_path(Hiredis_INCLUDE_DIR hiredis/hiredis.h HINTS ${PC_Hiredis_INCLUDE_DIRS} ${PC_Hiredis_INCLUDEDIR})
find_library(Hiredis_LIBRARY hiredis HINTS ${PC_Hiredis_LIBRARY_DIRS} ${PC_Hiredis_LIBDIR})
mark_as_advanced(Hiredis_INCLUDE_DIR Hiredis_LIBRARY)
set(Hiredis_VERSION "${PC_Hiredis_VERSION}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Hiredis REQUIRED_VARS Hiredis_LIBRARY Hiredis_INCLUDE_DIR VERSION_VAR Hiredis_VERSION)

if(Hiredis_FOUND AND NOT TARGET Hiredis::Hiredis)
  add_library(Hiredis::Hiredis UNKNOWN IMPORTED)
  set_target_properties(Hiredis::Hiredis PROPERTIES
    IMPORTED_LOCATION "${Hiredis_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Hiredis_INCLUDE_DIR}")
endif()
