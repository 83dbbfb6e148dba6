# mlxlm_layer(NAME [JSON [QUICK]] SOURCES … [DEPENDS …]): one static library per src folder, called mlxlm_NAME. JSON: many of
# its files read JSON. QUICK: it does so little work that it need not be optimised where it is instrumented.
# mlxlm_precompile(TARGET OWNER): the headers that take longest to read are compiled once for all targets of an owner.
# mlxlm_test_program(NAME SOURCES … [DEPENDS …]): a program of the tests: quick to compile rather than to run.
# mlxlm_test(NAME SOURCES … [DEPENDS …] [LABELS …]): one GoogleTest program, registered with ctest.
# mlxlm_fuzzer(NAME SOURCES … [DEPENDS …] [CORPUS FOLDER]): one libFuzzer program, run for a while by ctest.

set(MLXLM_FUZZ_SECONDS 10 CACHE STRING "How long ctest lets each fuzz target run")

add_library(mlxlm_options INTERFACE)
target_compile_features(mlxlm_options INTERFACE cxx_std_20)
target_include_directories(
  mlxlm_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
# gcc 12 takes a text that is appended to a std::string for a write past its end (its bug 105651), and an operator new that
# counts for malloc.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(mlxlm_no_false_warnings -Wno-array-bounds -Wno-mismatched-new-delete -Wno-restrict -Wno-stringop-overflow)
endif()
target_compile_options(
  mlxlm_options
  INTERFACE -ffp-contract=off # the same bits everywhere: only explicit fma
            -fno-fast-math
            -Wall
            -Wextra
            -Wshadow
            -Wconversion
            -Wno-sign-conversion
            -Wnon-virtual-dtor
            -Wold-style-cast
            ${mlxlm_no_false_warnings}
            $<$<BOOL:${MLXLM_WERROR}>:-Werror>)

# The targets of one owner have the same compiler options; the first to come is the owner itself. These headers are read
# before any other, so they hide that a file forgets to include them: `make lint` compiles without.
function(mlxlm_precompile target owner)
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# quick: whether the target does so little work that it need not be optimised where it is instrumented.
function(mlxlm_precompile_json target quick)
  set(owner mlxlm_io)
  if(quick)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
    set(owner mlxlm_text)
  endif()
  mlxlm_precompile(${target} ${owner} <algorithm> <filesystem> <functional> <map> <memory> <span> <string> <vector>
                   <nlohmann/json.hpp>)
endfunction()

# Tells the fuzzer which of the target's code an input reached.
function(mlxlm_watch_coverage target)
  if(MLXLM_FUZZERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

function(mlxlm_layer name)
  cmake_parse_arguments(ARG "JSON;QUICK" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(mlxlm_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(mlxlm_${name} PUBLIC mlxlm_options ${ARG_DEPENDS})
  mlxlm_watch_coverage(mlxlm_${name})
  if(ARG_JSON)
    mlxlm_precompile_json(mlxlm_${name} ${ARG_QUICK})
  endif()
  set_property(GLOBAL APPEND PROPERTY MLXLM_LAYERS mlxlm_${name}) # the shared library is made of all of them
endfunction()

function(mlxlm_test_program name)
  if(NOT MLXLM_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE mlxlm_options ${ARG_DEPENDS} mlxlm_gtest)
  # Quick to compile. Where the code is instrumented, that takes three times as long with optimisation, and what is tested
  # is watched for undefined behaviour, not the tests.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1> $<$<CONFIG:RelWithDebInfo>:-O0>)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*undefined")
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  mlxlm_precompile(${name} base_test <gtest/gtest.h> <gmock/gmock.h> <nlohmann/json.hpp>)
endfunction()

function(mlxlm_test name)
  if(NOT MLXLM_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  mlxlm_test_program(${name} SOURCES ${ARG_SOURCES} DEPENDS ${ARG_DEPENDS} mlxlm_gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "unit;${ARG_LABELS}")
endfunction()

function(mlxlm_fuzzer name)
  if(NOT MLXLM_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPENDS" ${ARGN})
  mlxlm_test_program(${name} SOURCES ${ARG_SOURCES} DEPENDS ${ARG_DEPENDS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  # New inputs go to the first folder, inside the build; the seeds stand in the tree.
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${name}.found)
  file(MAKE_DIRECTORY ${found})
  add_test(NAME ${name} COMMAND ${name} -seed=1 -max_total_time=${MLXLM_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048
                                -malloc_limit_mb=256
                                -print_final_stats=1 ${found} ${ARG_CORPUS})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS fuzz)
endfunction()
