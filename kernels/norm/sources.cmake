target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/norm_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/norm_vec.cc)
