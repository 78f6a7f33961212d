# Header and library of zstd, as the target Zstd::Zstd.
include(${CMAKE_CURRENT_LIST_DIR}/corral_find.cmake)
corral_find(libzstd zstd.h LIBRARY zstd)
