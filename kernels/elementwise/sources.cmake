target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/elementwise_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/elementwise_vec.cc)
