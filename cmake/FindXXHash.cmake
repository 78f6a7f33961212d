# The headers of xxHash, as the target XXHash::XXHash. corral inlines it (XXH_INLINE_ALL), so nothing is linked.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_XXHash QUIET libxxhash)
endif()
find_path(XXHash_INCLUDE_DIR xxhash.h HINTS ${PC_XXHash_INCLUDE_DIRS})
mark_as_advanced(XXHash_INCLUDE_DIR)

if(XXHash_INCLUDE_DIR)
  file(STRINGS ${XXHash_INCLUDE_DIR}/xxhash.h numbers REGEX "^#define XXH_VERSION_(MAJOR|MINOR|RELEASE) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]+" "" numbers "${numbers}")
  string(REPLACE ";" "." XXHash_VERSION "${numbers}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(XXHash REQUIRED_VARS XXHash_INCLUDE_DIR VERSION_VAR XXHash_VERSION)

if(XXHash_FOUND AND NOT TARGET XXHash::XXHash)
  add_library(XXHash::XXHash INTERFACE IMPORTED)
  set_target_properties(XXHash::XXHash PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${XXHash_INCLUDE_DIR}")
endif()
