# CORRAL_WEATHER_SOURCES, CORRAL_WEATHER_LINK: the sources of bench_weather, which is also a test.
file(GLOB CORRAL_WEATHER_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/weather/*.c
  ${PROJECT_SOURCE_DIR}/bench/svg.c)
if(CORRAL_LMDB)
  list(FILTER CORRAL_WEATHER_SOURCES EXCLUDE REGEX "/plain_no_lmdb\\.c$")
  set(CORRAL_WEATHER_LINK LMDB::LMDB Threads::Threads m)
else()
  list(FILTER CORRAL_WEATHER_SOURCES EXCLUDE REGEX "/plain_lmdb\\.c$")
  set(CORRAL_WEATHER_LINK Threads::Threads m)
endif()
