# Several sources of a room are compiled as one (CMake's unity builds): most of the time goes to headers and to templates that
# all of them use, and the whole tree takes a third of the time. Names of anonymous namespaces are then shared within a room;
# sources under ALONE are compiled alone, because they use names that others use as well, or classes of their own in ones that headers name. -DDIAPASON_UNITY=OFF compiles each
# source alone, which is quicker while one source is being worked on and shows includes that are missing.
option(DIAPASON_UNITY "Compile several sources of a room as one" ON)
set(CMAKE_UNITY_BUILD ${DIAPASON_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)

# diapason_alone(TARGET FILE...)
function(diapason_alone target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# A room of the house (docs/architecture.md) is one static library. Headers are reached as "compiler/tensor/expr.h" from
# the top; only what DEPS names is linked, so a room that is not named cannot be used.
#
#   diapason_room(tensor SRCS expr.cc ... DEPS absl::status ...)
function(diapason_room name)
  cmake_parse_arguments(ROOM "" "" "SRCS;DEPS;PRIVATE_DEPS;ALONE" ${ARGN})
  add_library(diapason_${name} STATIC ${ROOM_SRCS})
  diapason_alone(diapason_${name} ${ROOM_ALONE})
  target_include_directories(diapason_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(diapason_${name} PUBLIC ${ROOM_DEPS} PRIVATE ${ROOM_PRIVATE_DEPS})
endfunction()

# One test program a room: diapason_tests(tensor SRCS expr_test.cc ... DEPS diapason_tensor). `ctest -L tensor` runs its tests.
# Those that match TOGETHER run as one test, since what they share takes long to start.
function(diapason_tests name)
  cmake_parse_arguments(ROOM "" "TOGETHER" "SRCS;DEPS;ALONE" ${ARGN})
  add_executable(${name}_tests ${ROOM_SRCS})
  diapason_alone(${name}_tests ${ROOM_ALONE})
  target_link_libraries(${name}_tests PRIVATE ${ROOM_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  set(apart "")
  if(ROOM_TOGETHER)
    set(apart TEST_FILTER "-${ROOM_TOGETHER}")
    add_test(NAME ${name}.together COMMAND ${name}_tests --gtest_filter=${ROOM_TOGETHER})
    set_tests_properties(${name}.together PROPERTIES TIMEOUT 300 LABELS ${name})
  endif()
  gtest_discover_tests(${name}_tests TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 ${apart}
                       PROPERTIES TIMEOUT 300 LABELS ${name})
endfunction()
