# `cmake --install`: the rooms as static libraries, their headers under include/octavo/, the program, and a package file, so that
# find_package(octavo) gives octavo::octavo (everything) and one target per room.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY OCTAVO_ROOMS)
add_library(octavo_octavo INTERFACE)
add_library(octavo::octavo ALIAS octavo_octavo)
set(room_targets octavo_options octavo_octavo)
list(REMOVE_ITEM rooms kernels_bench)  # the program's own
foreach(room ${rooms})
  target_link_libraries(octavo_octavo INTERFACE octavo_${room})
  list(APPEND room_targets octavo_${room})
  set_target_properties(octavo_${room} PROPERTIES EXPORT_NAME ${room})
endforeach()
set_target_properties(octavo_options PROPERTIES EXPORT_NAME options)
set_target_properties(octavo_octavo PROPERTIES EXPORT_NAME octavo)
install(TARGETS ${room_targets} EXPORT octavoTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# The public headers, octavo.h and what it includes, and so on.
set(public octavo.h)
set(seen "")
while(public)
  list(POP_FRONT public header)
  list(APPEND seen ${header})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${CMAKE_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/octavo/${folder})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${header})
  file(STRINGS ${CMAKE_SOURCE_DIR}/${header} lines REGEX "#include \"octavo/")
  foreach(line ${lines})
    string(REGEX REPLACE ".*\"octavo/([^\"]+)\".*" "\\1" next ${line})
    if(NOT next IN_LIST seen AND NOT next IN_LIST public)
      list(APPEND public ${next})
    endif()
  endforeach()
endwhile()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET octavo)
  install(TARGETS octavo RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Pages for man and completions: the program tells them.
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}\")
    file(MAKE_DIRECTORY \${share}/man/man1 \${share}/bash-completion/completions \${share}/fish/vendor_completions.d)
    function(told file)
      execute_process(COMMAND \"$<TARGET_FILE:octavo>\" \${ARGN} OUTPUT_FILE \${share}/\${file} COMMAND_ERROR_IS_FATAL ANY)
      message(STATUS \"Installing: \${share}/\${file}\")
    endfunction()
    told(man/man1/octavo.1 man)
    foreach(command optimize run bench compare calibrate explain inspect print passes)
      told(man/man1/octavo-\${command}.1 man \${command})
    endforeach()
    told(bash-completion/completions/octavo completion bash)
    told(fish/vendor_completions.d/octavo.fish completion fish)")
endif()

if(TARGET octavo_onnxruntime)
  install(TARGETS octavo_onnxruntime octavo_ep LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# pkg-config names octavo's own libraries in the order in which they need each other, and the system's by their own files.
set(octavo_libraries "")
foreach(room ${rooms})
  set(octavo_libraries "-loctavo_${room} ${octavo_libraries}")
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/octavo.pc.in ${CMAKE_BINARY_DIR}/octavo.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/octavo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/octavo)
install(EXPORT octavoTargets NAMESPACE octavo:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/octavoConfig.cmake.in ${CMAKE_BINARY_DIR}/octavoConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/octavoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/octavoConfig.cmake ${CMAKE_BINARY_DIR}/octavoConfigVersion.cmake
        DESTINATION ${package_folder})

# What `pip install .` installs (pyproject.toml): the module, beside it the library for ONNX Runtime, and the program.
if(SKBUILD)
  install(TARGETS octavo_python LIBRARY DESTINATION octavo COMPONENT python)
  if(TARGET octavo_onnxruntime)
    install(TARGETS octavo_onnxruntime octavo_ep LIBRARY DESTINATION octavo/libs COMPONENT python)
  endif()
  install(TARGETS octavo RUNTIME DESTINATION octavo/bin COMPONENT python)
endif()
