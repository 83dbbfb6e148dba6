# mlxlm_layer(NAME SOURCES … [DEPENDS …]): one static library per src folder, called mlxlm_NAME.
# mlxlm_test(NAME SOURCES … [DEPENDS …] [LABELS …]): one GoogleTest program, registered with ctest.

add_library(mlxlm_options INTERFACE)
target_compile_features(mlxlm_options INTERFACE cxx_std_20)
target_include_directories(
  mlxlm_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
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
            $<$<BOOL:${MLXLM_WERROR}>:-Werror>)

function(mlxlm_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(mlxlm_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(mlxlm_${name} PUBLIC mlxlm_options ${ARG_DEPENDS})
endfunction()

function(mlxlm_test name)
  if(NOT MLXLM_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE mlxlm_options ${ARG_DEPENDS} mlxlm_gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "unit;${ARG_LABELS}")
endfunction()
