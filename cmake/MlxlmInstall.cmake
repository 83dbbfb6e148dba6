# The installed package: headers, one shared library with every layer and the Rust archive inside, the command, and what
# find_package(mlxlm) reads. Uses the targets mlxlm_layer() recorded; include it after all folders.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY MLXLM_LAYERS)
list(REMOVE_ITEM layers mlxlm_cli)
list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE layer_objects)

# Objects, not archives: nothing inside refers to the public functions, so an archive's members would be left out.
add_library(mlxlm_shared SHARED ${layer_objects})
target_compile_features(mlxlm_shared PUBLIC cxx_std_20)
target_include_directories(mlxlm_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(mlxlm_shared PRIVATE mlxlm_rust Threads::Threads)
target_link_options(mlxlm_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
# Sanitized objects refer to the sanitizer's runtime, which only the program links.
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  target_link_options(mlxlm_shared PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(
  mlxlm_shared
  PROPERTIES OUTPUT_NAME mlxlm
             EXPORT_NAME mlxlm
             LINKER_LANGUAGE CXX
             LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map
             LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
             VERSION ${PROJECT_VERSION}
             # While the major version is 0, a minor release may change the interface.
             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mlxlm)
install(TARGETS mlxlm_shared EXPORT mlxlmTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS mlxlm_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mlxlm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(
  EXPORT mlxlmTargets
  NAMESPACE mlxlm::
  DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/mlxlmConfig.cmake.in ${PROJECT_BINARY_DIR}/mlxlmConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mlxlmConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mlxlmConfig.cmake ${PROJECT_BINARY_DIR}/mlxlmConfigVersion.cmake
        DESTINATION ${package_dir})
