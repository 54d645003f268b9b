target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/fp8_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/fp8_vec.cc)
