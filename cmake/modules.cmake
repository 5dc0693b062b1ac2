# Several sources of a module are compiled as one (CMake's unity builds): most of the time goes to templates that all of them
# instantiate (CLI11, nlohmann::json, containers of the standard library), which are then compiled once for up to 64 sources,
# or 8 of a test program. Names of anonymous namespaces are shared within a module, so they differ. Sources under ALONE are
# compiled alone.
# -DDIAPASON_UNITY=OFF compiles each source alone, which is quicker while one source is being worked on and shows includes
# that are missing.
option(DIAPASON_UNITY "Compile several sources of a module as one" ON)
if(DIAPASON_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # takes included sources for headers
endif()
set(CMAKE_UNITY_BUILD ${DIAPASON_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
set(most_sources_together 64)

# diapason_batches(TARGET): batches of equal size, none of which has more than that many sources.
function(diapason_batches target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  math(EXPR batches "(${count} + ${most_sources_together} - 1) / ${most_sources_together}")
  math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${size})
endfunction()

# What nearly every source includes is parsed once for all modules and once for all test programs (whose code need not be
# position independent in the same way). Sources still include what they use: DIAPASON_UNITY=OFF compiles without this.
set(precompiled <algorithm> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <sstream> <string> <string_view>
    <thread> <unordered_map> <utility> <vector> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
    <absl/strings/str_join.h> <absl/types/span.h> <nlohmann/json.hpp>)
# diapason_unoptimized(TARGET): compiled with -O0 where others are with -O1.
function(diapason_unoptimized target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
endfunction()

# diapason_optimized_first(TARGET): links the libraries that compile candidates first. Where several sources define the same function, as with
# instances of templates, the linker keeps the first definition that it reads, which would otherwise be one compiled with -O0.
function(diapason_optimized_first target)
  foreach(name lower tensor values schedule codegen sketch scheduler costmodel runtime)
    target_link_options(${target} PRIVATE $<TARGET_FILE:diapason_${name}>)
    add_dependencies(${target} diapason_${name})
  endforeach()
endfunction()

# diapason_precompile(TARGET SOURCE HEADER...): SOURCE is the target that compiles the headers; the first call makes it.
function(diapason_precompile target source)
  if(NOT DIAPASON_UNITY)
    return()
  endif()
  if(NOT TARGET ${source})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${source}.cc CONTENT "int main() { return 0; }\n")
    if(source MATCHES gtest)
      add_executable(${source} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${source}.cc)
      target_link_libraries(${source} PRIVATE GTest::gtest GTest::gmock)  # for what they define
    else()
      add_library(${source} STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${source}.cc)
      if(source MATCHES unoptimized)
        diapason_unoptimized(${source})
      endif()
    endif()
    target_precompile_headers(${source} PRIVATE ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${source})
endfunction()

# diapason_alone(TARGET FILE...)
function(diapason_alone target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# A module (docs/architecture.md) is one static library. Headers are reached as "compiler/tensor/expr.h" from
# the top; only what DEPS names is linked, so a module that is not named cannot be used.
#
#   diapason_module(tensor SRCS expr.cc ... UNOPTIMIZED network.cc ... DEPS absl::status ...)
#
# UNOPTIMIZED: sources whose own work takes no time that could be noticed; they are compiled with -O0.
function(diapason_module name)
  cmake_parse_arguments(MODULE "" "" "SRCS;UNOPTIMIZED;DEPS;PRIVATE_DEPS;ALONE" ${ARGN})
  set(targets)
  if(MODULE_UNOPTIMIZED)
    add_library(diapason_${name}_unoptimized OBJECT ${MODULE_UNOPTIMIZED})
    diapason_unoptimized(diapason_${name}_unoptimized)
    diapason_precompile(diapason_${name}_unoptimized diapason_precompiled_unoptimized ${precompiled})
    list(APPEND targets diapason_${name}_unoptimized)
    list(APPEND MODULE_SRCS $<TARGET_OBJECTS:diapason_${name}_unoptimized>)
  endif()
  add_library(diapason_${name} STATIC ${MODULE_SRCS})
  set_target_properties(diapason_${name} PROPERTIES LINKER_LANGUAGE CXX)
  diapason_precompile(diapason_${name} diapason_precompiled ${precompiled})
  foreach(target diapason_${name} ${targets})
    diapason_batches(${target})
    diapason_alone(${target} ${MODULE_ALONE})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PUBLIC ${MODULE_DEPS} PRIVATE ${MODULE_PRIVATE_DEPS})
  endforeach()
endfunction()

# One test program per module: diapason_tests(tensor SRCS expr_test.cc ... DEPS diapason_tensor). `ctest -L tensor` runs its tests.
# Those that match TOGETHER run as one test, since what they share takes long to start.
function(diapason_tests name)
  cmake_parse_arguments(MODULE "" "TOGETHER" "SRCS;DEPS;ALONE" ${ARGN})
  add_executable(${name}_tests ${MODULE_SRCS})
  diapason_alone(${name}_tests ${MODULE_ALONE})
  diapason_precompile(${name}_tests diapason_precompiled_for_gtest ${precompiled} <gmock/gmock.h> <gtest/gtest.h>)
  target_link_libraries(${name}_tests PRIVATE ${MODULE_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  set(apart "")
  if(MODULE_TOGETHER)
    set(apart TEST_FILTER "-${MODULE_TOGETHER}")
    add_test(NAME ${name}.together COMMAND ${name}_tests --gtest_filter=${MODULE_TOGETHER})
    set_tests_properties(${name}.together PROPERTIES TIMEOUT 600 LABELS ${name})
  endif()
  gtest_discover_tests(${name}_tests TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 ${apart}
                       PROPERTIES TIMEOUT 600 LABELS ${name})
endfunction()
