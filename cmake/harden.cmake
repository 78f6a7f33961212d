# Hardening sets CORRAL_HARDEN_FLAGS for compiling and CORRAL_HARDEN_LINK for linking;
# corral_target() uses both. A flag of the same kind in the builder's own CFLAGS or LDFLAGS wins:
# then none of that kind is added. CORRAL_HARDEN_WHOLE says that no kind was left to the builder.
option(CORRAL_HARDEN
  "Stack protector, _FORTIFY_SOURCE, stack clash protection, CET, PIE, RELRO with BIND_NOW" ON)
set(CORRAL_HARDEN_FLAGS "")
set(CORRAL_HARDEN_LINK "")
set(CORRAL_HARDEN_WHOLE OFF)
if(NOT CORRAL_HARDEN)
  return()
endif()

set(CORRAL_HARDEN_WHOLE ON)
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)

# harden_given has all flags of the builder, for any configuration.
string(CONCAT harden_given "${CMAKE_C_FLAGS} ${CMAKE_EXE_LINKER_FLAGS} "
  "${CMAKE_SHARED_LINKER_FLAGS} ${CMAKE_MODULE_LINKER_FLAGS}")
set(harden_configs Debug Release RelWithDebInfo MinSizeRel
  ${CMAKE_BUILD_TYPE} ${CMAKE_CONFIGURATION_TYPES})
list(REMOVE_DUPLICATES harden_configs)
set(harden_optimised "")
foreach(config IN LISTS harden_configs)
  string(TOUPPER ${config} upper)
  string(APPEND harden_given " ${CMAKE_C_FLAGS_${upper}}")
  string(REGEX MATCHALL "-O[^ ]*" levels "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${upper}}")
  list(POP_BACK levels level)
  if(level AND NOT level STREQUAL "-O0")
    list(APPEND harden_optimised ${config})
  endif()
endforeach()

# corral_harden_compile(FLAG KIND): adds FLAG, unless the builder gave one that matches KIND.
function(corral_harden_compile flag kind)
  string(MAKE_C_IDENTIFIER "CORRAL_C${flag}" result)
  if(NOT harden_given MATCHES "${kind}")
    check_c_compiler_flag(${flag} ${result})
    if(${result})
      set(CORRAL_HARDEN_FLAGS ${CORRAL_HARDEN_FLAGS} ${flag} PARENT_SCOPE)
    endif()
  else()
    set(CORRAL_HARDEN_WHOLE OFF PARENT_SCOPE)
  endif()
endfunction()

function(corral_harden_link flag kind)
  string(MAKE_C_IDENTIFIER "CORRAL_LINK_${flag}" result)
  if(NOT harden_given MATCHES "${kind}")
    check_linker_flag(C LINKER:${flag} ${result})
    if(${result})
      set(CORRAL_HARDEN_LINK ${CORRAL_HARDEN_LINK} LINKER:${flag} PARENT_SCOPE)
    endif()
  else()
    set(CORRAL_HARDEN_WHOLE OFF PARENT_SCOPE)
  endif()
endfunction()

corral_harden_compile(-fstack-protector-strong "-f(no-)?stack-protector")
corral_harden_compile(-fstack-clash-protection "-f(no-)?stack-clash-protection")
# Compilers for other processors than x86 refuse this one.
corral_harden_compile(-fcf-protection=full "-fcf-protection")
corral_harden_link(-z,relro "-z,(no)?relro")
corral_harden_link(-z,now "-z,(now|lazy)")
corral_harden_link(-z,noexecstack "-z,(no)?execstack")

# _FORTIFY_SOURCE needs optimisation, and hides calls from sanitizers.
if(NOT harden_given MATCHES "_FORTIFY_SOURCE|-fsanitize" AND NOT CORRAL_SANITIZE
    AND harden_optimised)
  set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("
    #include <stdlib.h>
    #if __USE_FORTIFY_LEVEL < 3
    #error
    #endif
    int main(void) { return 0; }" CORRAL_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(level 2)
  if(CORRAL_FORTIFY_3)
    set(level 3)
  endif()
  list(JOIN harden_optimised "," configs)
  list(APPEND CORRAL_HARDEN_FLAGS
    "$<$<CONFIG:${configs}>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=${level}>")
endif()

# CMake compiles position-independent code (CMAKE_POSITION_INDEPENDENT_CODE); this makes it link
# position-independent executables, too.
if(NOT harden_given MATCHES "-(no-pie|nopie|fno-pie|fno-PIE|static)( |$)")
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES C)
else()
  set(CORRAL_HARDEN_WHOLE OFF)
endif()
