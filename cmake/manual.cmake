# The manual pages: corral(1) and a page for each subcommand, section 3 from the public headers,
# and section 7 from docs/, where there is lowdown.

file(GLOB manual_sources CONFIGURE_DEPENDS
  cmake/manual/* docs/*.1 include/*.h include/corral/*.h)
add_custom_command(OUTPUT manual.stamp
  COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/cmake/manual/make.sh ${CMAKE_CURRENT_BINARY_DIR}/manual
  COMMAND ${CMAKE_COMMAND} -E touch manual.stamp
  DEPENDS ${manual_sources} docs/stores.md docs/options.md docs/nginx.md
  COMMENT "Making the manual pages" VERBATIM)
add_custom_target(manual ALL DEPENDS manual.stamp)
set(left_out "")
if(NOT CORRAL_COMMAND)
  set(left_out PATTERN man1 EXCLUDE)
endif()
install(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/manual/ DESTINATION ${CMAKE_INSTALL_MANDIR}
  ${left_out})
