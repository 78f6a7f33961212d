# The commands: corral, and corral-conformance, the suite that each store must pass.

file(GLOB CORRAL_CLI_SOURCES CONFIGURE_DEPENDS src/cli/*.c)
add_executable(corral_command ${CORRAL_CLI_SOURCES})
target_link_libraries(corral_command PRIVATE
  corral Sodium::Sodium Threads::Threads ${CMAKE_DL_LIBS} m)
# The command has the headers of SQLite, libpq, libmariadb, libexpat and zlib alone: the subcommands
# that use these libraries load them, so that the others don't pay for them.
list(GET SQLite3_LIBRARIES 0 sqlite_library)
target_include_directories(corral_command PRIVATE ${SQLite3_INCLUDE_DIRS})
set_source_files_properties(src/cli/sqlite.c PROPERTIES
  COMPILE_DEFINITIONS CORRAL_SQLITE="${sqlite_library}")
if(TARGET corral_pq)
  set_source_files_properties(src/cli/warm_pg.c PROPERTIES
    COMPILE_DEFINITIONS CORRAL_PQ="${CORRAL_pq_LIBRARY}"
    INCLUDE_DIRECTORIES "${CORRAL_pq_INCLUDE_DIR}")
else()
  corral_left_out("corral warm --pg" "it wants libpq-dev")
endif()
if(TARGET corral_mariadb)
  set_source_files_properties(src/cli/warm_mariadb.c PROPERTIES
    COMPILE_DEFINITIONS CORRAL_MARIADB="${CORRAL_mariadb_LIBRARY}"
    INCLUDE_DIRECTORIES "${CORRAL_mariadb_INCLUDE_DIR}")
else()
  corral_left_out("corral warm --mariadb" "it wants libmariadb-dev")
endif()
find_package(EXPAT QUIET)
find_package(ZLIB QUIET)
if(EXPAT_FOUND AND ZLIB_FOUND)
  list(GET EXPAT_LIBRARIES 0 expat_library)
  list(GET ZLIB_LIBRARIES 0 zlib_library)
  set_source_files_properties(src/cli/warm_sitemap.c PROPERTIES
    COMPILE_DEFINITIONS "CORRAL_EXPAT=\"${expat_library}\";CORRAL_ZLIB=\"${zlib_library}\""
    INCLUDE_DIRECTORIES "${EXPAT_INCLUDE_DIRS};${ZLIB_INCLUDE_DIRS}")
else()
  corral_left_out("corral warm --sitemap" "it wants libexpat1-dev and zlib1g-dev")
endif()
set_target_properties(corral_command PROPERTIES OUTPUT_NAME corral)
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(corral_command PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()
corral_target(corral_command)
if(CORRAL_PLUGINS)
  add_dependencies(corral_command ${CORRAL_PLUGINS})
endif()

# The command prints its completion for shells. A cross-built one needs an emulator for that.
set(CORRAL_COMPLETIONS "")
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
  foreach(row "bash corral.bash" "zsh _corral" "fish corral.fish")
    separate_arguments(row)
    list(POP_FRONT row shell name)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/completion/${name})
    add_custom_command(OUTPUT ${file} DEPENDS corral_command VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/completion
      COMMAND corral_command completion ${shell} > ${file})
    list(APPEND CORRAL_COMPLETIONS ${file})
  endforeach()
  add_custom_target(corral_completions ALL DEPENDS ${CORRAL_COMPLETIONS})
else()
  corral_left_out("completion for shells" "this build can't run the command")
endif()

# The suite calls a plugin's table; it finds and loads the plugin as the library does.
file(GLOB CORRAL_CONFORMANCE_SOURCES CONFIGURE_DEPENDS src/conformance/*.c)
add_executable(corral_conformance ${CORRAL_CONFORMANCE_SOURCES})
corral_registry(corral_conformance ${CORRAL_BUILTIN_PLUGINS})
set_target_properties(corral_conformance PROPERTIES OUTPUT_NAME corral-conformance)
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" AND NOT IS_ABSOLUTE "${CMAKE_INSTALL_BINDIR}")
  file(RELATIVE_PATH near /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR}/corral)
  target_compile_definitions(corral_conformance PRIVATE CORRAL_PLUGINS_NEAR="${near}")
endif()
corral_target(corral_conformance)
if(CORRAL_PLUGINS)
  add_dependencies(corral_conformance ${CORRAL_PLUGINS})
endif()
