target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/softmax_vec.cc)
