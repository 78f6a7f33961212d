# Header and library of hiredis, as the target Hiredis::Hiredis; <hiredis/hiredis.h> is included.
# The CMake config that Debian 12 and 13 ship with hiredis aborts the configure step.
include(${CMAKE_CURRENT_LIST_DIR}/corral_find.cmake)
corral_find(hiredis hiredis/hiredis.h LIBRARY hiredis)
