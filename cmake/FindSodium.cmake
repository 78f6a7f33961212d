# Header and library of sodium, as the target Sodium::Sodium.
include(${CMAKE_CURRENT_LIST_DIR}/corral_find.cmake)
corral_find(libsodium sodium.h LIBRARY sodium)
