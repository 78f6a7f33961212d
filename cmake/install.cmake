# What is installed: libraries, commands, plugins, the nginx module, headers and documents; and
# corral.pc and corralConfig.cmake, by which other builds find the library.

install(TARGETS corral EXPORT corralTargets)
if(CORRAL_COMMAND)
  install(TARGETS corral_command corral_conformance)
endif()
if(CORRAL_COMMAND AND CORRAL_COMPLETIONS)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/completion/corral.bash RENAME corral
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/completion/_corral
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/completion/corral.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
if(CORRAL_NGINX_MODULE)
  install(TARGETS ${CORRAL_NGINX_MODULE} LIBRARY DESTINATION ${CORRAL_NGINX_DIR})
endif()
if(CORRAL_PLUGINS)
  install(TARGETS ${CORRAL_PLUGINS} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/corral)
endif()
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# The pages link each other as they do in the sources.
install(FILES LICENSE README.md CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
  PATTERN "CMakeLists.txt" EXCLUDE)

# A shared libcorral brings its own dependencies. A static one hands them on, and those of the
# stores that are built into it.
set(CORRAL_PC_REQUIRES "")
if(NOT BUILD_SHARED_LIBS)
  string(APPEND CORRAL_PC_REQUIRES " libzstd libsodium")
  set(packages_lmdb lmdb)
  set(packages_redis hiredis libssl libcrypto)
  set(packages_memcached libmemcached)
  foreach(name IN LISTS CORRAL_BUILTIN_PLUGINS)
    list(JOIN packages_${name} " " packages)
    string(APPEND CORRAL_PC_REQUIRES " ${packages}")
  endforeach()
endif()
# The paths are relative, so that they stay right when the prefix is moved.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(CORRAL_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(CORRAL_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
  set(CORRAL_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(CORRAL_PC_PREFIX "\${pcfiledir}/${up}")
  set(CORRAL_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(CORRAL_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
# A program that is linked by corral.pc finds the library where it was installed. Distributions,
# which install into /usr, need no such path.
set(CORRAL_PC_RPATH "")
if(BUILD_SHARED_LIBS AND NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(CORRAL_PC_RPATH " -Wl,-rpath,\${libdir}")
endif()
configure_file(cmake/corral.pc.in corral.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/corral.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(CORRAL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/corral)
configure_package_config_file(cmake/corralConfig.cmake.in corralConfig.cmake
  INSTALL_DESTINATION ${CORRAL_CMAKE_DIR})
write_basic_package_version_file(corralConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT corralTargets NAMESPACE corral:: DESTINATION ${CORRAL_CMAKE_DIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/corralConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/corralConfigVersion.cmake DESTINATION ${CORRAL_CMAKE_DIR})
if(NOT BUILD_SHARED_LIBS)
  install(FILES cmake/corral_find.cmake cmake/FindZstd.cmake cmake/FindSodium.cmake
    cmake/FindLMDB.cmake cmake/FindHiredis.cmake cmake/FindLibmemcached.cmake
    DESTINATION ${CORRAL_CMAKE_DIR})
endif()
