# Each tests/test_*.c is one cmocka program over a static core with all plugins built in, so that
# internals are within reach. The labels are pure (no thread, clock or server: the inner loop),
# threads (also run under TSan), live (a real server or LMDB, many processes) and scripted (servers
# and commands that follow a script).
find_package(Cmocka REQUIRED)

# Tests that are not in these lists are pure.
set(CORRAL_TESTS_threads flood lock lock_async herd pool pool_breaker pool_share bodies limiter
    hostlock hostlock_files hostlock_notes memory threads alloc api bound answers answers_callers
    answers_near near near_eviction near_readers many many_callers loop watch places places_order
    lmdb_door stats results)
set(CORRAL_TESTS_live planted lmdb lmdb_grow lmdb_files lmdb_full lmdb_replaced fault lmdb_watch
    redis redis_claim redis_look redis_bodies redis_renew redis_errors redis_model redis_tls
    redis_watch redis_push memcached memcached_servers storm leader sick cost ladder semaphore away
    old_plugin sick_memcached freshness answers_live answers_callers_live answers_near_live
    many_live tags set_live good behind at_exit)
list(APPEND CORRAL_TESTS_live tags_cost tags_away lmdb_cost memcached_cost)
set(CORRAL_TESTS_scripted redis_dialogue memcached_dialogue memcached_dialogue_lost
    etcd_dialogue redis_watch_dialogue redis_begin memcached_begin spread)
list(APPEND CORRAL_TESTS_live redis_cluster redis_sentinel redis_confirm redis_alike redis_cost
    redis_rights redis_storm redis_failover redis_promoted)
list(APPEND CORRAL_TESTS_live doctor doctor_fleet postgresql_doctor mariadb_doctor sqlite_doctor)
list(APPEND CORRAL_TESTS_scripted redis_cluster_dialogue redis_sentinel_dialogue
    doctor_dialogue)
# These test locks.
list(APPEND CORRAL_TESTS_live lock_clock lock_failover lock_rows lock_rows_shared
    lock_rows_permits lock_chaos lock_stores lock_sessions lock_fair lock_desk lock_adopt lock_warn
    lock_fence lock_ties lmdb_ties redis_lock redis_lock_exec redis_lock_race redis_lock_faults
    redis_lock_fleet memcached_locks redlock redlock_away sqlite mariadb mariadb_notes
    mariadb_turns postgresql postgresql_sessions postgresql_table postgresql_turns postgresql_fair
    zookeeper zookeeper_sessions etcd etcd_time etcd_turns)
# These test event loops, the web, and warming.
list(APPEND CORRAL_TESTS_live registry streams routed)
list(APPEND CORRAL_TESTS_scripted http_streams)
list(APPEND CORRAL_TESTS_live loop_live loop_looks loop_memcached nginx_fastcgi)
list(APPEND CORRAL_TESTS_live backend backend_feed hit)
if(TARGET corral_pq)
  set(CORRAL_LINK_backend corral_pq)
  set(CORRAL_LINK_backend_feed corral_pq)
endif()
list(APPEND CORRAL_TESTS_live cgi fastcgi child)
list(APPEND CORRAL_TESTS_live nginx_http nginx_herd nginx_crowd nginx_life nginx_config nginx_stream
    nginx_stream_store nginx_stream_life nginx_memory)
list(APPEND CORRAL_TESTS_live nginx_rfc9110 nginx_rfc9111 nginx_unsafe)
list(APPEND CORRAL_TESTS_live nginx_control)
list(APPEND CORRAL_TESTS_live nginx_away nginx_purge nginx_status nginx_whole nginx_cli
    nginx_wait nginx_stale nginx_http2 nginx_cluster nginx_transparent)
list(APPEND CORRAL_TESTS_live postgresql_warm mariadb_warm postgresql_replica warm_store)
list(APPEND CORRAL_TESTS_live postgresql_transaction)
list(APPEND CORRAL_TESTS_scripted http_origin http_limits)
list(APPEND CORRAL_TESTS_live http_nginx http_live)
list(APPEND CORRAL_TESTS_threads shadow callers_wait callbacks set event_info renewer detach checks
    looks_first verify)
list(APPEND CORRAL_TESTS_threads stats_flights stats_ring log_event)
list(APPEND CORRAL_TESTS_live stats_waits)
list(APPEND CORRAL_TESTS_threads timers loop_due loop_leaving loop_swarm loop_ends wait
    pool_queue herd_wakes hot hot_near stats_hot)
list(APPEND CORRAL_TESTS_live loop_examples loop_processes redis_hot)
list(APPEND CORRAL_TESTS_live takeover stops lease history_live history_controls containers
    ramp_live)
list(APPEND CORRAL_TESTS_threads control control_wait)
list(APPEND CORRAL_TESTS_live control_fleet)
list(APPEND CORRAL_TESTS_live stats_host stats_crowd)
list(APPEND CORRAL_TESTS_live unwind) # TSan reports races, and hangs, where a thread is unwound

set(CORRAL_TESTS_LINK_memory -Wl,--wrap=malloc)
set(CORRAL_TESTS_LINK_hit -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=crl_hash
  -Wl,--wrap=clock_gettime,--wrap=sendmsg,--wrap=recv,--wrap=poll,--wrap=pthread_mutex_lock
  -Wl,--wrap=crl_env_word_wake,--wrap=crl_env_word_wake_bits,--wrap=crl_pool_look)
set(CORRAL_TESTS_LINK_lmdb_cost
  -Wl,--wrap=mdb_txn_begin,--wrap=mdb_txn_commit,--wrap=fcntl)
set(CORRAL_TESTS_LINK_lmdb_replaced -Wl,--wrap=mdb_env_open)
set(CORRAL_TESTS_LINK_memcached_cost -Wl,--wrap=send,--wrap=recv)
set(CORRAL_TESTS_LINK_stats_crowd -Wl,--wrap=openat,--wrap=fstatat)
set(CORRAL_TESTS_LINK_flood -Wl,--wrap=memcmp)
set(CORRAL_TESTS_LINK_redis_look -Wl,--wrap=sendmsg,--wrap=recv,--wrap=poll)
set(CORRAL_TESTS_LINK_loop_due
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=write,--wrap=read
  -Wl,--wrap=crl_scheduler_fly,--wrap=crl_pool_look,--wrap=crl_found_look,--wrap=crl_env_dice)
set(CORRAL_TESTS_LINK_answers_callers
  -Wl,--wrap=crl_watch_join,--wrap=crl_waiter_sleep)
set(CORRAL_TESTS_LINK_answers_callers_live
  -Wl,--wrap=crl_watch_join,--wrap=crl_waiter_sleep)
set(CORRAL_TESTS_LINK_verify -Wl,--wrap=crl_limiter_ask)
set(CORRAL_TESTS_LINK_loop_looks -Wl,--wrap=crl_scheduler_fly)
set(CORRAL_TESTS_LINK_loop_memcached -Wl,--wrap=crl_scheduler_fly)
set(CORRAL_TESTS_LINK_loop_ends -Wl,--wrap=crl_timers_set)
set(CORRAL_TESTS_LINK_callers_wait -Wl,--wrap=crl_env_word_wait_bits)
set(CORRAL_TESTS_LINK_herd_clock -Wl,--wrap=crl_env_now_ms,--wrap=crl_env_word_wait_bits)
set(CORRAL_TESTS_LINK_herd_wakes -Wl,--wrap=crl_env_processors
  -Wl,--wrap=crl_env_word_wait_bits,--wrap=crl_env_word_wake_bits)
set(CORRAL_TESTS_LINK_pool_queue
  -Wl,--wrap=crl_env_word_wait_bits,--wrap=crl_env_word_wake_bits)
set(CORRAL_TESTS_LINK_wait -Wl,--wrap=crl_env_word_wait,--wrap=crl_env_word_wake
  -Wl,--wrap=crl_env_word_wait_bits,--wrap=crl_env_word_wake_bits)
set(CORRAL_TESTS_LINK_lock -Wl,--wrap=getrandom,--wrap=crl_waiter_sleep
  -Wl,--wrap=crl_lock_table_drop)
set(CORRAL_TESTS_LINK_lock_rows_permits
    -Wl,--wrap=crl_waiter_sleep,--wrap=crl_pool_perform)
set(CORRAL_TESTS_LINK_lock_async -Wl,--wrap=crl_renewer_free,--wrap=crl_env_thread)
set(CORRAL_TESTS_LINK_redis_alike -Wl,--wrap=crl_waiter_sleep)
set(CORRAL_TESTS_LINK_lock_clock -Wl,--wrap=clock_gettime,--wrap=gettimeofday,--wrap=time)

# Stories that break invariants; some include the source of what they break.
file(GLOB CORRAL_TESTS_SOURCES_checks CONFIGURE_DEPENDS tests/checks/*.c)
if(CORRAL_CHECKS)
  set_property(SOURCE tests/test_checks.c ${CORRAL_TESTS_SOURCES_checks}
    PROPERTY COMPILE_DEFINITIONS CORRAL_CHECKS)
endif()

# What hangs is ended in the end; how long a test takes on a busy machine says nothing.
set(CORRAL_TIMEOUT_pure 600)
set(CORRAL_TIMEOUT_threads 600)
set(CORRAL_TIMEOUT_live 900)
set(CORRAL_TIMEOUT_scripted 600)
set(CORRAL_TIMEOUT_TIMES 1)
if(CMAKE_CROSSCOMPILING_EMULATOR) # some tests take 20 times as long there
  set(CORRAL_TIMEOUT_TIMES 10)
endif()

set(stores "")
foreach(name lmdb redis memcached ${CORRAL_OPTIONAL})
  string(TOUPPER ${name} upper)
  if(CORRAL_${upper})
    list(APPEND stores ${name})
  endif()
endforeach()
add_library(corral_testable STATIC)
corral_registry(corral_testable ${stores})
if(NOT http IN_LIST CORRAL_OPTIONAL)
  target_sources(corral_testable PRIVATE src/http/rules.c src/http/words.c)
endif()
corral_target(corral_testable)
# What is optimized across files can't be wrapped by the linker: a test that wraps a function of the
# library is linked without that.
set(CORRAL_TESTS_NO_LTO OFF)
if(CORRAL_LTO_WORKS AND CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(CORRAL_TESTS_NO_LTO ON)
  target_compile_options(corral_core PRIVATE -ffat-lto-objects)
  target_compile_options(corral_testable PRIVATE -ffat-lto-objects)
endif()

add_custom_target(corral_pure_tests COMMENT "Tests without threads and clocks")
add_custom_target(corral_portable COMMENT "The commands, with all plugins, and the tests above")
add_dependencies(corral_portable corral_pure_tests corral_command corral_conformance)
add_custom_target(corral_thread_tests COMMENT "Pure tests, and tests with threads")

# corral_test_program(NAME SOURCE...): makes the program test_NAME. It may call the library of the
# store that its name begins with.
function(corral_test_program name)
  add_executable(test_${name} ${ARGN})
  string(REGEX REPLACE "_.*" "" store ${name})
  target_link_libraries(test_${name} PRIVATE corral_testable
    SQLite::SQLite3 Cmocka::Cmocka Threads::Threads m ${CORRAL_LINK_${store}})
  target_include_directories(test_${name} PRIVATE src plugins tests)
  target_compile_definitions(test_${name} PRIVATE CORRAL_BUILTIN)
  foreach(other IN LISTS stores)
    target_compile_definitions(test_${name} PRIVATE CORRAL_HAVE_${other}=1)
  endforeach()
  target_link_options(test_${name} PRIVATE ${CORRAL_TESTS_LINK_${name}})
  set(lto ${CORRAL_LTO_WORKS})
  if(CORRAL_TESTS_NO_LTO AND "${CORRAL_TESTS_LINK_${name}}" MATCHES "--wrap=crl_")
    set(lto OFF)
    target_link_options(test_${name} PRIVATE -fno-lto)
  endif()
  set_target_properties(test_${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  corral_target(test_${name})
  set_target_properties(test_${name} PROPERTIES INTERPROCEDURAL_OPTIMIZATION_RELEASE ${lto})
endfunction()

# Each test runs in folders of its own.
set(CORRAL_ROOM sh ${CMAKE_SOURCE_DIR}/tests/room.sh)

# corral_test(NAME LABEL SOURCE...)
function(corral_test name label)
  corral_test_program(${name} ${ARGN})
  math(EXPR timeout "${CORRAL_TIMEOUT_TIMES} * ${CORRAL_TIMEOUT_${label}}")
  add_test(NAME ${name}
    COMMAND ${CORRAL_ROOM} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:test_${name}>
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set_tests_properties(${name} PROPERTIES
    LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
  corral_test_environment(${name} "CORRAL_COMMAND=$<TARGET_FILE:corral_command>"
    "CORRAL_SOURCE_DIR=${CMAKE_SOURCE_DIR}")
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
    corral_test_environment(${name} "CORRAL_EMULATOR=${emulator}")
  endif()
  if(label MATCHES "^(pure|threads)$")
    add_dependencies(corral_thread_tests test_${name})
  endif()
  if(label STREQUAL "pure")
    add_dependencies(corral_pure_tests test_${name})
  else()
    add_dependencies(test_${name} corral_command)
  endif()
endfunction()

# corral_script(NAME LABEL TIMEOUT COMMAND...): a test that is a command; TIMEOUT: seconds that it
# may take on an idle machine.
function(corral_script name label timeout)
  math(EXPR timeout "5 * ${CORRAL_TIMEOUT_TIMES} * ${timeout}")
  list(POP_FRONT ARGN command)
  if(TARGET ${command})
    set(command ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${command}>)
  endif()
  add_test(NAME ${name} COMMAND ${CORRAL_ROOM} ${command} ${ARGN}
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
endfunction()

# corral_skipped(NAME LABEL WHY): a test that this build lacks.
function(corral_skipped name label why)
  corral_script(${name} ${label} 10 sh -c "echo 'SKIPPED: ${why}' && exit 77")
endfunction()

# corral_test_environment(NAME VARIABLE=VALUE...)
function(corral_test_environment name)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${ARGN})
endfunction()

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
file(GLOB programs CONFIGURE_DEPENDS tests/test_*.c)
file(GLOB support CONFIGURE_DEPENDS tests/support/*.c)
list(FILTER support EXCLUDE REGEX "/lock_chaos\\.c$") # it uses SQLite, for one test
# A server's support is compiled when its store is.
foreach(name postgresql mariadb zookeeper etcd)
  if(NOT name IN_LIST CORRAL_OPTIONAL)
    list(FILTER support EXCLUDE REGEX "/${name}_")
  endif()
endforeach()
if(NOT CORRAL_REDIS)
  list(FILTER support EXCLUDE REGEX
    "/(redis_server|redis_cluster|redis_sentinels|twemproxy|nginx_kit)\\.c$")
endif()
if(NOT CORRAL_MEMCACHED)
  list(FILTER support EXCLUDE REGEX "/memcached_server\\.c$")
endif()
include(cmake/needs.cmake)
if(support)
  add_library(corral_test_support OBJECT ${support})
  target_link_libraries(corral_test_support PRIVATE SQLite::SQLite3 Cmocka::Cmocka Threads::Threads)
  target_include_directories(corral_test_support PRIVATE src plugins tests)
  target_compile_definitions(corral_test_support PRIVATE CORRAL_BUILTIN)
  foreach(name IN LISTS CORRAL_OPTIONAL) # some support asks a server by the server's own library
    target_compile_definitions(corral_test_support PRIVATE CORRAL_HAVE_${name}=1)
    target_link_libraries(corral_test_support PRIVATE ${CORRAL_LINK_${name}})
  endforeach()
  corral_target(corral_test_support)
  if(CORRAL_TESTS_NO_LTO)
    target_compile_options(corral_test_support PRIVATE -ffat-lto-objects)
  endif()
  set(support $<TARGET_OBJECTS:corral_test_support>)
endif()
list(FILTER programs EXCLUDE REGEX "test_(lock_chaos|fork|slow|instructions)")
foreach(program IN LISTS programs)
  get_filename_component(name ${program} NAME_WE)
  string(REPLACE "test_" "" name ${name})
  corral_needs(${program} absent)
  if(absent)
    list(JOIN absent ", " absent)
    corral_skipped(${name} live "built without the stores that it needs: ${absent}")
    continue()
  endif()
  if(name MATCHES "^backend"
      AND NOT (TARGET example_backend AND postgresql IN_LIST CORRAL_OPTIONAL))
    corral_skipped(${name} live
      "built without examples/backend: there is no libmicrohttpd or no libpq")
    continue()
  endif()
  # A plugin's own test is compiled when the plugin is.
  if(name MATCHES "^(postgresql|mariadb|sqlite|zookeeper|etcd|http)"
      AND NOT name STREQUAL "http_rules" AND NOT CMAKE_MATCH_1 IN_LIST CORRAL_OPTIONAL)
    corral_skipped(${name} live "built without the plugin ${CMAKE_MATCH_1}")
    continue()
  endif()
  if(name STREQUAL "nginx_http2" AND NOT "http" IN_LIST CORRAL_OPTIONAL)
    corral_skipped(${name} live "built without libcurl")
    continue()
  endif()
  string(REPLACE "nginx_" "" example ${name})
  if(example MATCHES "^(cgi|fastcgi)$" AND NOT (CORRAL_LMDB AND TARGET example_${example}))
    corral_skipped(${name} live "built without examples/${name}, or without the lmdb: store")
    continue()
  endif()
  set(label pure)
  foreach(other threads live scripted)
    if(name IN_LIST CORRAL_TESTS_${other})
      set(label ${other})
    endif()
  endforeach()
  corral_test(${name} ${label} ${program} ${CORRAL_TESTS_SOURCES_${name}} ${support})
endforeach()

# corral_plain_test(NAME SERVER...): a live test that is built without sanitizers, with these
# servers of tests/support.
function(corral_plain_test name)
  set(CORRAL_SANITIZE_FLAGS "")
  set(rows "STORE(memory)\n")
  set(sources tests/test_${name}.c tests/support/server_process.c src/store/registry.c
    ${CORRAL_CORE_SOURCES} ${CORRAL_SOURCES_memory} ${CORRAL_SOURCES_lmdb})
  foreach(server IN LISTS ARGN)
    list(APPEND sources tests/support/${server}_server.c ${CORRAL_SOURCES_${server}})
  endforeach()
  foreach(store lmdb ${ARGN})
    string(APPEND rows "STORE(${store})\n")
  endforeach()
  list(REMOVE_DUPLICATES sources)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/builtin/test_${name}/corral_builtin.h CONTENT "${rows}")
  add_executable(test_${name} ${sources})
  foreach(store lmdb ${ARGN})
    target_link_libraries(test_${name} PRIVATE ${CORRAL_LINK_${store}})
  endforeach()
  target_link_libraries(test_${name} PRIVATE XXHash::XXHash
    Zstd::Zstd Sodium::Sodium Cmocka::Cmocka Threads::Threads ${CMAKE_DL_LIBS} m)
  target_include_directories(test_${name} PRIVATE
    src plugins tests ${CMAKE_BINARY_DIR}/builtin/test_${name})
  target_compile_definitions(test_${name} PRIVATE CORRAL_BUILTIN CORRAL_PLUGIN_DIR="/nowhere")
  set_target_properties(test_${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  corral_target(test_${name})
  corral_script(${name} live 300 test_${name})
endfunction()
if(CORRAL_LMDB AND CORRAL_REDIS)
  # It forks while many threads are at work: the sanitizers' own locks don't expect that.
  corral_plain_test(fork redis)
endif()
if(CORRAL_LMDB AND CORRAL_REDIS AND CORRAL_MEMCACHED)
  # It has a thousand processes.
  corral_plain_test(slow redis memcached)
  # The crowd needs the machine for itself; the whole thousand, and the default lengths, come in
  # the campaign.
  set_tests_properties(slow PROPERTIES RUN_SERIAL ON)
  set_property(TEST slow APPEND PROPERTY ENVIRONMENT
    CORRAL_PROCESSES=300 CORRAL_WIDE=10)
endif()

if(CORRAL_LMDB AND CORRAL_REDIS AND CORRAL_LTO_WORKS)
  add_subdirectory(tests/optimized)
  corral_script(instructions live 60 test_instructions)
else()
  corral_skipped(instructions live
    "built without the lmdb: or the redis: store, or without link-time optimization")
endif()

# bench_weather at its shortest: it judges counts.
if(CORRAL_REDIS AND CORRAL_MEMCACHED)
  include(cmake/weather.cmake)
  set(CORRAL_LINK_weather ${CORRAL_WEATHER_LINK})
  corral_test_program(weather ${CORRAL_WEATHER_SOURCES} ${support})
  corral_script(weather live 120 test_weather --short --markdown)
else()
  corral_skipped(weather live "built without the redis: or the memcached: store")
endif()

get_target_property(type corral TYPE)
if(TARGET test_at_exit AND type STREQUAL "SHARED_LIBRARY")
  add_dependencies(test_at_exit corral)
  corral_test_environment(at_exit "CORRAL_LIBRARY=$<TARGET_FILE:corral>")
endif()

if(TARGET test_warm_store AND TARGET corral_plugin_http)
  add_dependencies(test_warm_store corral_plugin_http)
  corral_test_environment(warm_store "CORRAL_PLUGINS=$<TARGET_FILE_DIR:corral_plugin_http>")
endif()

if(TARGET test_nginx_cli AND TARGET corral_plugin_http)
  corral_test_environment(nginx_cli "CORRAL_PLUGINS=$<TARGET_FILE_DIR:corral_plugin_http>")
endif()

# The module's tests load it into nginx, which isn't built with sanitizers: the sanitizers' library
# comes first.
set(nginx_asan "")
if(CORRAL_SANITIZE MATCHES "address")
  set(nginx_asan libasan.so)
  if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    set(nginx_asan libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so)
  endif()
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=${nginx_asan}
    OUTPUT_VARIABLE nginx_asan OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
add_custom_target(corral_nginx_tests COMMENT "The nginx module's tests, and what they need")
add_dependencies(corral_nginx_tests corral_command)
foreach(name ${CORRAL_TESTS_live})
  if(CORRAL_NGINX_MODULE AND TARGET test_${name} AND name MATCHES "^nginx_")
    add_dependencies(test_${name} ${CORRAL_NGINX_MODULE} ${CORRAL_PLUGINS})
    add_dependencies(corral_nginx_tests test_${name})
    corral_test_environment(${name}
      "CORRAL_NGINX_MODULE=$<TARGET_FILE:${CORRAL_NGINX_MODULE}>" "CORRAL_ASAN=${nginx_asan}")
  endif()
endforeach()

foreach(name cgi fastcgi nginx_fastcgi)
  if(TARGET test_${name})
    string(REPLACE "nginx_" "" example ${name})
    add_dependencies(test_${name} example_${example})
    if(TARGET corral_plugin_lmdb)
      add_dependencies(test_${name} corral_plugin_lmdb)
    endif()
  endif()
endforeach()
if(TARGET test_postgresql AND TARGET example_fenced AND TARGET corral_plugin_postgresql)
  add_dependencies(test_postgresql example_fenced corral_plugin_postgresql)
  corral_test_environment(postgresql "CORRAL_EXAMPLE_FENCED=$<TARGET_FILE:example_fenced>"
    "CORRAL_PLUGIN_PATH=$<TARGET_FILE_DIR:corral_plugin_postgresql>")
endif()
foreach(name postgresql mariadb)
  if(TARGET test_lock_sessions AND TARGET corral_plugin_${name})
    add_dependencies(test_lock_sessions corral_plugin_${name})
  endif()
endforeach()
if(TARGET test_lock_sessions)
  corral_test_environment(lock_sessions "CORRAL_PLUGIN_PATH=${CMAKE_BINARY_DIR}/plugins")
endif()
foreach(name backend backend_feed)
  if(TARGET test_${name})
    add_dependencies(test_${name} example_backend)
    corral_test_environment(${name} "CORRAL_EXAMPLE_BACKEND=$<TARGET_FILE:example_backend>"
      "CORRAL_PLUGIN_PATH=${CMAKE_BINARY_DIR}/plugins")
  endif()
endforeach()
foreach(name poll libevent libuv)
  if(TARGET test_loop_examples AND TARGET example_loop_${name})
    string(TOUPPER ${name} upper)
    add_dependencies(test_loop_examples example_loop_${name})
    corral_test_environment(loop_examples
      "CORRAL_EXAMPLE_LOOP_${upper}=$<TARGET_FILE:example_loop_${name}>"
      "CORRAL_PLUGIN_PATH=${CMAKE_BINARY_DIR}/plugins")
    if(TARGET corral_plugin_lmdb)
      add_dependencies(test_loop_examples corral_plugin_lmdb)
    endif()
  endif()
endforeach()
# The crowd has a test for each store; these may run beside each other.
corral_needs(${CMAKE_SOURCE_DIR}/tests/test_lock_chaos.c absent)
if(absent)
  corral_skipped(lock_chaos live "built without stores that it needs")
  set(crowds "")
else()
  corral_test_program(lock_chaos tests/test_lock_chaos.c tests/support/lock_chaos.c ${support})
  set(crowds lmdb memcached redis redis_without_scripts redlock sqlite postgresql
    postgresql_advisory mariadb zookeeper etcd)
endif()
foreach(name IN LISTS crowds)
  string(REGEX REPLACE "_advisory" "" needs ${name})
  if(needs MATCHES "^(sqlite|postgresql|mariadb|zookeeper|etcd)$"
      AND NOT needs IN_LIST CORRAL_OPTIONAL)
    continue()
  endif()
  corral_script(lock_chaos_${name} live 300 test_lock_chaos)
  corral_test_environment(lock_chaos_${name} "CORRAL_CHAOS=${name}")
endforeach()

# The tests of the command use a store in a file; all but the first and the last also use Redis.
foreach(row "cli 180" "cli_run 180" "cli_bad 120" "cli_lock 300" "cli_section 300" "cli_warm 180"
    "cli_warm_pass 300" "cli_edges 120" "cli_json 120" "cli_samples 120" "cli_flights 120"
    "cli_control 180")
  separate_arguments(row)
  list(POP_FRONT row name limit)
  if(NOT CORRAL_LMDB OR (NOT name MATCHES "^(cli|cli_flights)$" AND NOT CORRAL_REDIS))
    corral_skipped(${name} live "built without the lmdb: or the redis: store")
    continue()
  endif()
  corral_script(${name} scripted ${limit} sh ${CMAKE_SOURCE_DIR}/tests/${name}_test.sh)
  corral_test_environment(${name} "CORRAL=$<TARGET_FILE:corral_command>"
    "CORRAL_TEST_PLUGINS=${CMAKE_BINARY_DIR}/tests/plugins")
endforeach()

# Stories of an operator, with services that ask their origins; and the host's own examination.
if(CORRAL_LMDB AND CORRAL_REDIS)
  add_executable(stories_service tests/stories/service.c)
  corral_target(stories_service)
  target_link_libraries(stories_service PRIVATE corral Threads::Threads)
  corral_script(cli_stories live 180 sh ${CMAKE_SOURCE_DIR}/tests/cli_stories_test.sh)
  corral_test_environment(cli_stories "CORRAL=$<TARGET_FILE:corral_command>"
    "CORRAL_SERVICE=$<TARGET_FILE:stories_service>"
    "CORRAL_PLUGIN_PATH=${CMAKE_BINARY_DIR}/plugins")
  corral_script(cli_doctor live 120 sh ${CMAKE_SOURCE_DIR}/tests/cli_doctor_test.sh)
  corral_test_environment(cli_doctor "CORRAL=$<TARGET_FILE:corral_command>"
    "CORRAL_PLUGIN_PATH=${CMAKE_BINARY_DIR}/plugins")
else()
  corral_skipped(cli_stories live "built without the lmdb: or the redis: store")
  corral_skipped(cli_doctor live "built without the lmdb: or the redis: store")
endif()

corral_script(cli_completion scripted 120 sh ${CMAKE_SOURCE_DIR}/tests/cli_completion_test.sh)
corral_test_environment(cli_completion "CORRAL=$<TARGET_FILE:corral_command>")

foreach(row "cli_storm 180" "storm_page 180" "cli_stat 120" "cli_top 120" "prometheus 120")
  separate_arguments(row)
  list(POP_FRONT row name limit)
  if(NOT CORRAL_LMDB)
    corral_skipped(${name} live "built without the lmdb: store")
    continue()
  endif()
  corral_script(${name} live ${limit} sh ${CMAKE_SOURCE_DIR}/tests/${name}_test.sh)
  corral_test_environment(${name} "CORRAL=$<TARGET_FILE:corral_command>"
    "CORRAL_PLUGIN_PATH=${CMAKE_BINARY_DIR}/plugins")
endforeach()

if(CORRAL_REDIS)
  corral_script(cli_bodies live 300 sh ${CMAKE_SOURCE_DIR}/tests/cli_bodies_test.sh)
  corral_test_environment(cli_bodies "CORRAL=$<TARGET_FILE:corral_command>"
    "CORRAL_PLUGIN_PATH=${CMAKE_BINARY_DIR}/plugins")
endif()

if(CORRAL_LMDB)
  corral_script(cli_containers live 180 sh ${CMAKE_SOURCE_DIR}/tests/cli_containers_test.sh)
  corral_test_environment(cli_containers "CORRAL=$<TARGET_FILE:corral_command>"
    "CORRAL_PLUGIN_PATH=${CMAKE_BINARY_DIR}/plugins")
endif()

# The module is built by nginx's own configure, too.
if(CORRAL_NGINX_MODULE AND TARGET test_nginx_purge)
  corral_script(nginx_addon live 300 sh ${CMAKE_SOURCE_DIR}/tests/nginx_addon_test.sh
    $<TARGET_FILE_DIR:corral> $<TARGET_FILE:test_nginx_purge> $<TARGET_FILE:test_nginx_status>)
  corral_test_environment(nginx_addon "CORRAL_ASAN=${nginx_asan}"
    "CORRAL_SOURCE_DIR=${CMAKE_SOURCE_DIR}")
endif()

# The command, and the plugin that it loads for lmdb:, are linked with few libraries.
if(CORRAL_LMDB AND NOT redis IN_LIST CORRAL_BUILTIN_PLUGINS)
  corral_script(linked live 60 sh ${CMAKE_SOURCE_DIR}/tests/linked_test.sh
    $<TARGET_FILE:corral_command> $<TARGET_FILE:corral>
    $<$<TARGET_EXISTS:corral_plugin_lmdb>:$<TARGET_FILE:corral_plugin_lmdb>>)
endif()

# The files of this build are hardened.
if(CORRAL_HARDEN_WHOLE)
  set(files $<TARGET_FILE:corral> $<TARGET_FILE:corral_command> $<TARGET_FILE:corral_conformance>)
  foreach(target IN LISTS CORRAL_PLUGINS CORRAL_NGINX_MODULE)
    list(APPEND files $<TARGET_FILE:${target}>)
  endforeach()
  list(JOIN files " " files)
  corral_script(harden live 120 sh ${CMAKE_SOURCE_DIR}/tests/harden_test.sh)
  corral_test_environment(harden "FILES=${files}" "CMAKE=${CMAKE_COMMAND}"
    "CC=${CMAKE_C_COMPILER}" "GENERATOR=${CMAKE_GENERATOR}")
else()
  corral_skipped(harden live "CORRAL_HARDEN is off, or the flags of this build overrule it")
endif()

# The tests load a plugin of an older ABI, and odd plugins.
add_subdirectory(tests/old_plugin)
add_dependencies(test_registry corral_plugin_longer)
set_tests_properties(old_plugin registry PROPERTIES
  ENVIRONMENT "CORRAL_TEST_PLUGINS=$<TARGET_FILE_DIR:corral_plugin_old>")
corral_script(old_plugin_command live 30 corral_command --store old: -v run -- echo the answer)
set_tests_properties(old_plugin_command PROPERTIES
  ENVIRONMENT "CORRAL_PLUGIN_PATH=$<TARGET_FILE_DIR:corral_plugin_old>"
  PASS_REGULAR_EXPRESSION "corral_plugin_old[.]so: a plugin of ABI 1; this corral takes ABI 2")

foreach(name streams postgresql_fair mariadb_turns etcd_turns)
  if(TARGET test_${name})
    add_dependencies(test_${name} corral_conformance)
    corral_test_environment(${name} "CORRAL_CONFORMANCE=$<TARGET_FILE:corral_conformance>")
  endif()
endforeach()

# corral_valkey(NAME): the live test NAME again, on Valkey in place of Redis.
find_program(CORRAL_VALKEY_SERVER valkey-server)
function(corral_valkey name)
  if(NOT CORRAL_VALKEY_SERVER)
    return()
  endif()
  get_test_property(${name} ENVIRONMENT environment)
  get_test_property(${name} RUN_SERIAL serial)
  corral_script(valkey_${name} live 180 ${ARGN})
  set_tests_properties(valkey_${name} PROPERTIES RUN_SERIAL ${serial})
  corral_test_environment(valkey_${name} ${environment}
    CORRAL_REDIS_SERVER=valkey-server)
endfunction()

# The conformance suite runs on each store; a store that isn't built, or has no server here, is
# skipped. The suite measures how soon operations end.
foreach(name memory lmdb redis redis_cluster redis_sentinel redlock memcached)
  list(JOIN CORRAL_PLUGINS " " plugins)
  list(JOIN CORRAL_BUILTIN_PLUGINS " " builtin)
  corral_script(conformance_${name} live 120
    sh ${CMAKE_SOURCE_DIR}/tests/conformance_test.sh ${name})
  set_tests_properties(conformance_${name} PROPERTIES RUN_SERIAL ON)
  corral_test_environment(conformance_${name}
    "CONFORMANCE=$<TARGET_FILE:corral_conformance>" "PLUGINS=${plugins} ${builtin}")
  if(name MATCHES "^(redis|redlock)")
    corral_valkey(conformance_${name} sh ${CMAKE_SOURCE_DIR}/tests/conformance_test.sh ${name})
  endif()
endforeach()

corral_script(conformance_routed live 120 sh ${CMAKE_SOURCE_DIR}/tests/routed_test.sh)
corral_test_environment(conformance_routed "CONFORMANCE=$<TARGET_FILE:corral_conformance>"
  "CORRAL_PLUGIN_PATH=$<TARGET_FILE_DIR:corral_plugin_routed>")
add_dependencies(test_routed corral_plugin_routed)
corral_test_environment(routed "CORRAL_PLUGIN_PATH=$<TARGET_FILE_DIR:corral_plugin_routed>")

# Preloaded into a server, which has no sanitizers.
if(TARGET test_redis_promoted)
  add_library(corral_odd_clock MODULE tests/odd_clock/odd_clock.c)
  target_compile_options(corral_odd_clock PRIVATE ${CORRAL_FLAGS})
  foreach(name redis_promoted lock_fence)
    if(TARGET test_${name})
      add_dependencies(test_${name} corral_odd_clock)
      corral_test_environment(${name} "CORRAL_ODD_CLOCK=$<TARGET_FILE:corral_odd_clock>")
    endif()
  endforeach()
endif()

# These measure how soon something happens.
foreach(name lock_rows lock_rows_shared redlock_away storm freshness leader sick sick_memcached
    ladder away memcached_dialogue memcached_dialogue_lost memcached_servers
    redis redis_renew redis_errors redis_tls
    redis_watch redis_watch_dialogue memcached cost semaphore old_plugin answers_live
    answers_callers_live answers_near_live many_live tags tags_cost cli linked install lmdb
    lmdb_watch redis_dialogue)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endforeach()

# The live tests of the redis: stores run on Valkey, too.
foreach(name IN LISTS CORRAL_TESTS_live)
  if(name MATCHES "^(redis|redlock)" AND TARGET test_${name})
    corral_valkey(${name} test_${name})
  endif()
endforeach()
if(CORRAL_REDIS AND NOT CORRAL_VALKEY_SERVER)
  corral_skipped(valkey live "there is no valkey-server in PATH")
endif()

# Each public header compiles alone, as C11 and as C++17.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  add_executable(test_throw tests/throw.cpp)
  target_link_libraries(test_throw PRIVATE corral_testable)
  corral_target(test_throw)
  corral_script(throw threads 60 test_throw)
  add_dependencies(corral_thread_tests test_throw)
  # The library as a C++17 program uses it, by its public headers alone.
  add_executable(test_cxx tests/cxx.cpp)
  target_link_libraries(test_cxx PRIVATE corral_testable)
  corral_target(test_cxx)
  target_compile_features(test_cxx PRIVATE cxx_std_17)
  target_compile_options(test_cxx PRIVATE -Werror)
  corral_script(cxx threads 60 test_cxx)
  add_dependencies(corral_thread_tests test_cxx)
endif()
foreach(header corral.h corral/child.h corral/cxx.h corral/event.h corral/plugin.h corral/lock.h
    corral/loop.h corral/page.h corral/stats.h corral/control.h corral/log.h)
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/include/${header})
    continue()
  endif()
  set(flags -pedantic-errors -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only
    -I${CMAKE_SOURCE_DIR}/include)
  if(CMAKE_SYSROOT)
    list(APPEND flags --sysroot=${CMAKE_SYSROOT})
  endif()
  corral_script(header_c11:${header} pure 30
    ${CMAKE_C_COMPILER} -std=c11 ${flags} -include ${header} -x c /dev/null)
  if(CMAKE_CXX_COMPILER)
    corral_script(header_c++17:${header} pure 30
      ${CMAKE_CXX_COMPILER} -std=c++17 ${flags} -include ${header} -x c++ /dev/null)
  else()
    corral_skipped(header_c++17:${header} pure "there is no C++ compiler")
  endif()
endforeach()

# The gates of the house rules look at the sources, and at the library of this build.
corral_script(room live 60 sh ${CMAKE_SOURCE_DIR}/tests/room_test.sh ${CMAKE_BINARY_DIR})
corral_script(readme pure 30 sh ${CMAKE_SOURCE_DIR}/tests/readme_test.sh ${CMAKE_SOURCE_DIR})
corral_script(record_readers pure 30
  sh ${CMAKE_SOURCE_DIR}/tests/record_readers_test.sh ${CMAKE_SOURCE_DIR})
corral_script(tidy pure 60 sh ${CMAKE_SOURCE_DIR}/tests/tidy ${CMAKE_SOURCE_DIR})
if(TARGET manual)
  set(library "")
  if(BUILD_SHARED_LIBS)
    set(library $<TARGET_FILE:corral>)
  endif()
  add_dependencies(corral_pure_tests manual corral_command)
  corral_script(manual pure 60 ${CMAKE_COMMAND} -E env CORRAL=$<TARGET_FILE:corral_command>
    MANUAL=${CMAKE_BINARY_DIR}/manual LIBRARY=${library}
    sh ${CMAKE_SOURCE_DIR}/tests/manual_test.sh)
endif()
corral_script(ci pure 30 sh ${CMAKE_SOURCE_DIR}/tests/ci_test.sh)
corral_script(run_elsewhere pure 30 sh ${CMAKE_SOURCE_DIR}/tests/run_elsewhere_test.sh)
corral_script(bench_table scripted 30 sh ${CMAKE_SOURCE_DIR}/tests/bench_table_test.sh)
corral_script(format pure 60 sh ${CMAKE_SOURCE_DIR}/tests/format_test.sh)
corral_script(clang_tidy pure 600
    sh ${CMAKE_SOURCE_DIR}/tests/clang_tidy_test.sh ${CMAKE_BINARY_DIR})
corral_script(arrows pure 60 sh ${CMAKE_SOURCE_DIR}/tests/arrows_test.sh)
corral_script(symbols live 60 sh ${CMAKE_SOURCE_DIR}/tests/tidy --symbols
  $<TARGET_FILE:corral> $<TARGET_FILE:corral_testable> ${CMAKE_SOURCE_DIR})
corral_script(api_rules live 60 sh ${CMAKE_SOURCE_DIR}/tests/api_test.sh $<TARGET_FILE:corral>)
set_tests_properties(symbols api_rules PROPERTIES ENVIRONMENT "NM=${CMAKE_NM}")

# The installed library serves a user.
if(CORRAL_LMDB)
  list(JOIN CORRAL_SANITIZE_FLAGS " " consumer_flags)
  list(JOIN CORRAL_PLUGINS " " plugins)
  corral_script(install live 180 sh ${CMAKE_SOURCE_DIR}/tests/install_test.sh)
  corral_test_environment(install "CMAKE=${CMAKE_COMMAND}" "CC=${CMAKE_C_COMPILER}"
    "BUILD=${CMAKE_BINARY_DIR}" "GENERATOR=${CMAKE_GENERATOR}"
    "CONSUMER_CFLAGS=${consumer_flags}" "PLUGINS=${plugins}")
endif()

# The library without the rest, also as a part of another project.
if(CORRAL_LMDB)
  corral_script(library_alone live 300 sh ${CMAKE_SOURCE_DIR}/tests/library_alone_test.sh)
  corral_test_environment(library_alone "CMAKE=${CMAKE_COMMAND}" "CC=${CMAKE_C_COMPILER}"
    "GENERATOR=${CMAKE_GENERATOR}")
endif()

# The examples say what they promise to.
if(TARGET example_first)
  foreach(name first background conditional shadow turns permits verify)
    corral_script(example_${name} live 30 example_${name})
  endforeach()
  set_tests_properties(example_shadow PROPERTIES PASS_REGULAR_EXPRESSION
    "40 requests for 5 pages: [0-9]+ queries today, [1-5] with corral, 0 errors")
  set_tests_properties(example_turns PROPERTIES PASS_REGULAR_EXPRESSION
    "1000 requests changed the counter, 1000 of them in order, 0 failed")
  set_tests_properties(example_verify PROPERTIES PASS_REGULAR_EXPRESSION
    "[1-9][0-9]* of [0-9]+ hits were no longer true, the oldest of them [0-9.]+ s old: [0-9.]+%")
  set_tests_properties(example_permits PROPERTIES PASS_REGULAR_EXPRESSION
    "12 jobs, at most [1-3] of them at a time, 0 failed")
  set_tests_properties(example_background PROPERTIES PASS_REGULAR_EXPRESSION
    "computed sales, edition 1\nstale    sales, edition 1")
  string(CONCAT conditional
    "fresh    prices, edition 1, version 1; the origin: wasn't asked\n"
    "computed prices, edition 1, version 1; the origin: 304 not modified\n"
    "computed prices, edition 2, version 2; the origin: 200")
  set_tests_properties(example_conditional PROPERTIES PASS_REGULAR_EXPRESSION "${conditional}")
  corral_script(example_store_tiny live 30 example_first tiny:)
  set_tests_properties(example_store_tiny PROPERTIES
    ENVIRONMENT "CORRAL_PLUGIN_PATH=$<TARGET_FILE_DIR:corral_plugin_tiny>"
    PASS_REGULAR_EXPRESSION "the row of 42 \\(computed\\)")
endif()

# Each fuzz target runs over its corpus.
add_subdirectory(fuzz)
