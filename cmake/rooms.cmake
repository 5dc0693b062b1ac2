# A room of the house (docs/architecture.md) is one static library. Headers are reached as "compiler/tensor/expr.h" from
# the top; only what DEPS names is linked, so a room that is not named cannot be used.
#
#   diapason_room(tensor SRCS expr.cc ... DEPS absl::status ...)
function(diapason_room name)
  cmake_parse_arguments(ROOM "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(diapason_${name} STATIC ${ROOM_SRCS})
  target_include_directories(diapason_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(diapason_${name} PUBLIC ${ROOM_DEPS} PRIVATE ${ROOM_PRIVATE_DEPS})
endfunction()

# One test program a room: diapason_tests(tensor SRCS expr_test.cc ... DEPS diapason_tensor). `ctest -L tensor` runs its tests.
function(diapason_tests name)
  cmake_parse_arguments(ROOM "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name}_tests ${ROOM_SRCS})
  target_link_libraries(${name}_tests PRIVATE ${ROOM_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${name}_tests TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 300 LABELS ${name})
endfunction()
