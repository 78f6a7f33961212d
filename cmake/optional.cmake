# The plugins here (stores, and the http: origin) are built when their libraries are there:
# CORRAL_POSTGRESQL and so on are AUTO, ON (required) or OFF. CORRAL_OPTIONAL lists the plugins that
# are to be built; each has its CORRAL_SOURCES_name and CORRAL_LINK_name.
set(CORRAL_OPTIONAL "")

# corral_library(TARGET HEADER LIBRARY [FOLDER...]): makes an imported target of a C library that is
# there.
function(corral_library target header library)
  string(MAKE_C_IDENTIFIER ${library} name)
  find_path(CORRAL_${name}_INCLUDE_DIR ${header} PATH_SUFFIXES ${ARGN})
  find_library(CORRAL_${name}_LIBRARY ${library})
  mark_as_advanced(CORRAL_${name}_INCLUDE_DIR CORRAL_${name}_LIBRARY)
  if(CORRAL_${name}_INCLUDE_DIR AND CORRAL_${name}_LIBRARY AND NOT TARGET ${target})
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES
      IMPORTED_LOCATION "${CORRAL_${name}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${CORRAL_${name}_INCLUDE_DIR}")
  endif()
endfunction()

# corral_optional(NAME TARGET...): the plugin of plugins/NAME.c or plugins/NAME/*.c is linked with
# these targets.
macro(corral_optional name)
  string(TOUPPER ${name} upper)
  set(what "locks")
  if(name STREQUAL "http")
    set(what "origins")
  endif()
  set(CORRAL_${upper} AUTO CACHE STRING
    "The ${name}: ${what}: AUTO (when its libraries are there), ON, OFF")
  set(absent "")
  foreach(target ${ARGN})
    if(NOT TARGET ${target})
      list(APPEND absent ${target})
    endif()
  endforeach()
  if(CORRAL_${upper} STREQUAL "AUTO" AND absent)
    message(STATUS "corral: no ${name}: ${what}, for there is no ${absent}")
  elseif(CORRAL_${upper})
    if(absent)
      message(FATAL_ERROR "CORRAL_${upper} is ON, and there is no ${absent}")
    endif()
    file(GLOB CORRAL_SOURCES_${name} CONFIGURE_DEPENDS plugins/${name}.c plugins/${name}/*.c)
    set(CORRAL_LINK_${name} ${ARGN})
    list(APPEND CORRAL_OPTIONAL ${name})
  endif()
endmacro()

find_package(CURL QUIET)
corral_library(corral_pq libpq-fe.h pq postgresql)
corral_library(corral_mariadb mysql.h mariadb mariadb)
corral_library(corral_zookeeper zookeeper.h zookeeper_mt zookeeper)
corral_library(corral_cjson cJSON.h cjson cjson)
corral_library(corral_microhttpd microhttpd.h microhttpd)
foreach(row "postgresql corral_pq" "mariadb corral_mariadb" "sqlite SQLite::SQLite3"
    "zookeeper corral_zookeeper" "etcd CURL::libcurl corral_cjson" "http CURL::libcurl")
  separate_arguments(row)
  list(POP_FRONT row name)
  set(plugin ${CMAKE_CURRENT_SOURCE_DIR}/plugins/${name})
  if(EXISTS ${plugin}.c OR IS_DIRECTORY ${plugin})
    corral_optional(${name} ${row})
  endif()
endforeach()
# These plugins connect by plugins/net, beside their client libraries.
file(GLOB net_sources CONFIGURE_DEPENDS plugins/net/*.c)
foreach(name postgresql mariadb)
  if(DEFINED CORRAL_SOURCES_${name})
    list(APPEND CORRAL_SOURCES_${name} ${net_sources})
  endif()
endforeach()
if(DEFINED CORRAL_SOURCES_http)
  list(APPEND CORRAL_SOURCES_http ${CMAKE_CURRENT_SOURCE_DIR}/src/http/rules.c)
endif()
