target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/sdpa.cc
  ${CMAKE_CURRENT_LIST_DIR}/sdpa_decode_f32_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/sdpa_decode_int8_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/sdpa_flash_int8_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/sdpa_flash_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/sdpa_fp8_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/sdpa_fp8_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/sdpa_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/sdpa_vec.cc)
