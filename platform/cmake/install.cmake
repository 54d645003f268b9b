# `cmake --install`: the rooms as static libraries, their headers under include/octavo/, the program, and a package file, so that
# find_package(octavo) gives octavo::octavo (everything) and one target per room.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY OCTAVO_ROOMS)
add_library(octavo_octavo INTERFACE)
add_library(octavo::octavo ALIAS octavo_octavo)
set(room_targets octavo_options octavo_octavo)
foreach(room ${rooms})
  target_link_libraries(octavo_octavo INTERFACE octavo_${room})
  list(APPEND room_targets octavo_${room})
  set_target_properties(octavo_${room} PROPERTIES EXPORT_NAME ${room})
endforeach()
set_target_properties(octavo_options PROPERTIES EXPORT_NAME options)
set_target_properties(octavo_octavo PROPERTIES EXPORT_NAME octavo)
install(TARGETS ${room_targets} EXPORT octavoTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# The folders that hold headers of the library. Vector code (*-inl.h) and internal/ stay at home.
foreach(folder ir quant kernels passes runtime api)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/octavo
          FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "*-inl.h" EXCLUDE PATTERN "internal" EXCLUDE)
endforeach()
if(TARGET octavo)
  install(TARGETS octavo RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(TARGET octavo_onnxruntime)
  install(TARGETS octavo_onnxruntime LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/octavo)
install(EXPORT octavoTargets NAMESPACE octavo:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/octavoConfig.cmake.in ${CMAKE_BINARY_DIR}/octavoConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/octavoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/octavoConfig.cmake ${CMAKE_BINARY_DIR}/octavoConfigVersion.cmake
        DESTINATION ${package_folder})

# What a wheel has (pyproject.toml): the module, beside it the library for ONNX Runtime, and the program where a wheel has its scripts.
if(SKBUILD)
  foreach(part octavo_python octavo_onnxruntime)
    if(TARGET ${part})
      install(TARGETS ${part} LIBRARY DESTINATION octavo COMPONENT python)
    endif()
  endforeach()
  install(TARGETS octavo RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
endif()
