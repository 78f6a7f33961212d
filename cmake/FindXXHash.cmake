# The headers of xxHash, as the target XXHash::XXHash. corral inlines it (XXH_INLINE_ALL), so no
# library is linked.
include(${CMAKE_CURRENT_LIST_DIR}/corral_find.cmake)
corral_find(libxxhash xxhash.h
  VERSION xxhash.h "^#define XXH_VERSION_(MAJOR|MINOR|RELEASE) +[0-9]+")
