target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/bf16.cc
  ${CMAKE_CURRENT_LIST_DIR}/weights.cc)
