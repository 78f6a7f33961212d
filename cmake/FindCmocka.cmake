# Header and library of cmocka, as the target Cmocka::Cmocka.
include(${CMAKE_CURRENT_LIST_DIR}/corral_find.cmake)
corral_find(cmocka cmocka.h LIBRARY cmocka)
