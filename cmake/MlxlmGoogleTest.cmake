# GoogleTest: the system's library, or its sources (Debian's googletest package) where the target has none.
add_library(mlxlm_gtest_main INTERFACE)
if(CMAKE_CROSSCOMPILING)
  add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  target_link_libraries(mlxlm_gtest_main INTERFACE gtest_main gmock)
else()
  find_package(GTest REQUIRED)
  target_link_libraries(mlxlm_gtest_main INTERFACE GTest::gtest_main GTest::gmock)
endif()
