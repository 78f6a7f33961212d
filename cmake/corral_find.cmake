# corral_find(PACKAGE HEADER [LIBRARY library] [VERSION header regex]): the body of a find module.
#
# It finds HEADER and the library, and makes the imported target Name::Name; Name is the module's.
# PACKAGE is pkg-config's name; the folders that pkg-config tells are hints. Without LIBRARY the
# headers are enough. VERSION names a header and its lines with the numbers of the version; without
# it the version is pkg-config's.
include(FindPackageHandleStandardArgs)

# corral_find_version(FILE REGEX RET): joins the numbers in the lines that match REGEX by dots.
function(corral_find_version file regex ret)
  set(numbers "")
  if(EXISTS ${file})
    file(STRINGS ${file} lines REGEX "${regex}")
    string(REGEX MATCHALL "[0-9][0-9.]*" numbers "${lines}")
  endif()
  list(JOIN numbers "." numbers)
  set(${ret} "${numbers}" PARENT_SCOPE)
endfunction()

# corral_find_target(TARGET FOLDER [LIBRARY])
function(corral_find_target target folder)
  if(TARGET ${target})
    return()
  endif()
  if(ARGN)
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${ARGN}")
  else()
    add_library(${target} INTERFACE IMPORTED)
  endif()
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${folder}")
endfunction()

# A macro, because find_package() reads the results in the scope of the module.
macro(corral_find package header)
  cmake_parse_arguments(corral_find "" "LIBRARY" "VERSION" ${ARGN})
  set(corral_find ${CMAKE_FIND_PACKAGE_NAME})
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(PC_${corral_find} QUIET ${package})
  endif()

  find_path(${corral_find}_INCLUDE_DIR ${header}
    HINTS ${PC_${corral_find}_INCLUDE_DIRS} ${PC_${corral_find}_INCLUDEDIR})
  set(corral_find_REQUIRED ${corral_find}_INCLUDE_DIR)
  if(corral_find_LIBRARY)
    find_library(${corral_find}_LIBRARY ${corral_find_LIBRARY}
      HINTS ${PC_${corral_find}_LIBRARY_DIRS} ${PC_${corral_find}_LIBDIR})
    list(PREPEND corral_find_REQUIRED ${corral_find}_LIBRARY)
  endif()
  mark_as_advanced(${corral_find_REQUIRED})

  set(${corral_find}_VERSION "${PC_${corral_find}_VERSION}")
  if(corral_find_VERSION)
    list(POP_FRONT corral_find_VERSION corral_find_FILE)
    corral_find_version(${${corral_find}_INCLUDE_DIR}/${corral_find_FILE}
      "${corral_find_VERSION}" ${corral_find}_VERSION)
  endif()
  find_package_handle_standard_args(${corral_find}
    REQUIRED_VARS ${corral_find_REQUIRED} VERSION_VAR ${corral_find}_VERSION)
  if(${corral_find}_FOUND)
    corral_find_target(
      ${corral_find}::${corral_find} "${${corral_find}_INCLUDE_DIR}" ${${corral_find}_LIBRARY})
  endif()
endmacro()
