target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/blocked_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/blocked_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/blocked_int8_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/blocked_int8_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/pack.cc)
