target_sources(octavo_kernels PRIVATE ${CMAKE_CURRENT_LIST_DIR}/conv_f32.cc)
