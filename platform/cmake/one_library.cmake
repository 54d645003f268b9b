# In a wheel (OCTAVO_SHARED) program, modules and the libraries for ONNX Runtime share one library, which exports what their objects call and nothing else:
# a library for each room, with all of octavo's names, took 0.9 MB more (docs/lab/build.md).
get_property(faces GLOBAL PROPERTY OCTAVO_FACES)
get_property(called GLOBAL PROPERTY OCTAVO_CALLED)
list(REMOVE_DUPLICATES called)
set(objects "")
foreach(face ${faces})
  list(APPEND objects $<TARGET_OBJECTS:${face}>)
endforeach()
set(exports ${CMAKE_BINARY_DIR}/octavo_exports.ld)
add_custom_command(OUTPUT ${exports} DEPENDS ${objects} ${CMAKE_CURRENT_LIST_DIR}/exports.cmake COMMAND_EXPAND_LISTS VERBATIM
  COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DEXPORTS=${exports} -P ${CMAKE_CURRENT_LIST_DIR}/exports.cmake -- ${objects})
# A script for the linker stands among the objects: it takes from the rooms' archives what these names need.
set_source_files_properties(${exports} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(octavo_one SHARED ${exports})
set_target_properties(octavo_one PROPERTIES OUTPUT_NAME octavo LINKER_LANGUAGE CXX)
target_link_libraries(octavo_one PRIVATE ${called})
