# Header and library of lmdb, as the target LMDB::LMDB.
include(${CMAKE_CURRENT_LIST_DIR}/corral_find.cmake)
corral_find(lmdb lmdb.h LIBRARY lmdb)
