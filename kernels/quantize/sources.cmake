target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/quantize_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/quantize_vec.cc)
