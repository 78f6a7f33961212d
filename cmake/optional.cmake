# The plugins here (stores, and the http: origin) are built when their libraries are there:
# CORRAL_POSTGRESQL and so on are AUTO, ON (required) or OFF. CORRAL_OPTIONAL lists the plugins that
# are to be built; each has its CORRAL_SOURCES_name and CORRAL_LINK_name.
set(CORRAL_OPTIONAL "")

# Inside another project only what it asks for is built.
set(CORRAL_AUTO OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(CORRAL_AUTO AUTO)
endif()

# corral_left_out(PART WHY): tells of a part that is AUTO and can't be built. run.sh repeats these
# lines, so WHY names the package, as Debian does.
function(corral_left_out part why)
  message(STATUS "corral: left out: ${part}; ${why}")
endfunction()

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

# corral_optional(NAME PACKAGES TARGET...): the plugin of plugins/NAME.c or plugins/NAME/*.c is
# linked with these targets, which come with the packages.
macro(corral_optional name packages)
  string(TOUPPER ${name} upper)
  set(what "locks")
  if("${name}" STREQUAL "http")
    set(what "origins")
  endif()
  set(CORRAL_${upper} ${CORRAL_AUTO} CACHE STRING
    "The ${name}: ${what}: AUTO (when its libraries are there), ON, OFF")
  set(absent "")
  foreach(target ${ARGN})
    if(NOT TARGET ${target})
      list(APPEND absent ${target})
    endif()
  endforeach()
  if(CORRAL_${upper} STREQUAL "AUTO" AND absent)
    corral_left_out("${name}: ${what}" "it wants ${packages}")
  elseif(CORRAL_${upper})
    if(absent)
      message(FATAL_ERROR "CORRAL_${upper} is ON; it wants ${packages}")
    endif()
    file(GLOB CORRAL_SOURCES_${name} CONFIGURE_DEPENDS plugins/${name}.c plugins/${name}/*.c)
    set(CORRAL_LINK_${name} ${ARGN})
    list(APPEND CORRAL_OPTIONAL ${name})
  endif()
endmacro()

find_package(CURL QUIET)
find_package(SQLite3 QUIET)
corral_library(corral_pq libpq-fe.h pq postgresql)
corral_library(corral_mariadb mysql.h mariadb mariadb)
corral_library(corral_zookeeper zookeeper.h zookeeper_mt zookeeper)
corral_library(corral_cjson cJSON.h cjson cjson)
corral_library(corral_microhttpd microhttpd.h microhttpd)
corral_optional(postgresql "libpq-dev" corral_pq)
corral_optional(mariadb "libmariadb-dev" corral_mariadb)
corral_optional(sqlite "libsqlite3-dev" SQLite::SQLite3)
corral_optional(zookeeper "libzookeeper-mt-dev" corral_zookeeper)
corral_optional(etcd "libcurl4-openssl-dev and libcjson-dev" CURL::libcurl corral_cjson)
corral_optional(http "libcurl4-openssl-dev" CURL::libcurl)
# These plugins connect by plugins/net, beside their client libraries.
file(GLOB net_sources CONFIGURE_DEPENDS plugins/net/*.c)
foreach(name postgresql mariadb)
  if(DEFINED CORRAL_SOURCES_${name})
    list(APPEND CORRAL_SOURCES_${name} ${net_sources})
  endif()
endforeach()
if(DEFINED CORRAL_SOURCES_http)
  list(APPEND CORRAL_SOURCES_http ${CMAKE_CURRENT_SOURCE_DIR}/src/http/rules.c
    ${CMAKE_CURRENT_SOURCE_DIR}/src/http/words.c)
endif()
