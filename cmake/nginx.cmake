# The nginx module is built when nginx's headers (package nginx-dev) are there. CORRAL_NGINX is
# AUTO, ON (required) or OFF; CORRAL_NGINX_MODULE is the target, or "". nginx refuses a module that
# was built with other flags than itself: they come from nginx-dev's conf_flags, a bash script.
set(CORRAL_NGINX ${CORRAL_AUTO} CACHE STRING
  "The nginx module: AUTO (when nginx's headers are there), ON, OFF")
set(CORRAL_NGINX_DIR ${CMAKE_INSTALL_LIBDIR}/nginx/modules CACHE STRING
  "The folder that the nginx module is installed into")
mark_as_advanced(CORRAL_NGINX_DIR)
set(CORRAL_NGINX_MODULE "")
if(NOT CORRAL_NGINX)
  return()
endif()

find_path(CORRAL_NGINX_SOURCE src/core/nginx.h PATHS /usr/share/nginx/src NO_DEFAULT_PATH)
find_program(CORRAL_BASH bash)
mark_as_advanced(CORRAL_NGINX_SOURCE CORRAL_BASH)
set(nginx_why "")
if(NOT CORRAL_NGINX_SOURCE)
  set(nginx_why "it wants nginx-dev")
elseif(NOT EXISTS ${CORRAL_NGINX_SOURCE}/conf_flags OR NOT CORRAL_BASH)
  set(nginx_why "it wants bash, and conf_flags in ${CORRAL_NGINX_SOURCE}")
endif()

# nginx's configure makes ngx_auto_config.h and ngx_auto_headers.h, once for each version of nginx.
# It writes beside itself, so it runs in a folder of links.
if(NOT nginx_why)
  file(STRINGS ${CORRAL_NGINX_SOURCE}/src/core/nginx.h nginx_version REGEX "define NGINX_VERSION ")
  string(REGEX MATCH "[0-9.]+" nginx_version "${nginx_version}")
  set(nginx_folder ${PROJECT_BINARY_DIR}/nginx/${nginx_version})
  if(NOT EXISTS ${nginx_folder}/objs/ngx_auto_config.h)
    message(STATUS "corral: configuring nginx ${nginx_version} for its headers")
    file(MAKE_DIRECTORY ${nginx_folder})
    foreach(name auto src configure conf_flags)
      file(CREATE_LINK ${CORRAL_NGINX_SOURCE}/${name} ${nginx_folder}/${name} SYMBOLIC)
    endforeach()
    execute_process(
      COMMAND ${CORRAL_BASH} -c
        ". ./conf_flags && ./configure \"\${NGX_CONF_FLAGS[@]}\" --builddir=objs"
      WORKING_DIRECTORY ${nginx_folder} RESULT_VARIABLE nginx_result
      OUTPUT_FILE ${nginx_folder}/configure.log ERROR_FILE ${nginx_folder}/configure.log)
    if(NOT nginx_result EQUAL 0)
      file(REMOVE ${nginx_folder}/objs/ngx_auto_config.h)
      set(nginx_why "nginx's configure failed: see ${nginx_folder}/configure.log")
    endif()
  endif()
endif()

if(nginx_why)
  if(NOT CORRAL_NGINX STREQUAL "AUTO")
    message(FATAL_ERROR "CORRAL_NGINX is ${CORRAL_NGINX}; ${nginx_why}")
  endif()
  corral_left_out("the nginx module" "${nginx_why}")
  return()
endif()

file(GLOB nginx_sources CONFIGURE_DEPENDS src/nginx/*.c)
set(CORRAL_NGINX_MODULE ngx_http_corral_module)
add_library(${CORRAL_NGINX_MODULE} MODULE ${nginx_sources} src/http/rules.c
  src/http/words.c)
target_include_directories(${CORRAL_NGINX_MODULE} PRIVATE src)
foreach(name core event event/modules event/quic os/unix http http/modules http/v2 http/v3)
  if(IS_DIRECTORY ${CORRAL_NGINX_SOURCE}/src/${name})
    target_include_directories(${CORRAL_NGINX_MODULE} SYSTEM PRIVATE
      ${CORRAL_NGINX_SOURCE}/src/${name})
  endif()
endforeach()
target_include_directories(${CORRAL_NGINX_MODULE} SYSTEM PRIVATE ${nginx_folder}/objs)
target_link_libraries(${CORRAL_NGINX_MODULE} PRIVATE corral)
corral_target(${CORRAL_NGINX_MODULE})
# nginx unloads its modules when it reads its configuration anew; the libraries that stores have
# loaded must stay.
target_link_options(${CORRAL_NGINX_MODULE} PRIVATE LINKER:-z,nodelete)
set_target_properties(${CORRAL_NGINX_MODULE} PROPERTIES
  PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/nginx)
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" AND NOT IS_ABSOLUTE "${CORRAL_NGINX_DIR}")
  file(RELATIVE_PATH up /prefix/${CORRAL_NGINX_DIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${CORRAL_NGINX_MODULE} PROPERTIES INSTALL_RPATH "$ORIGIN/${up}")
endif()
