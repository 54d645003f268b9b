target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/pack.cc
  ${CMAKE_CURRENT_LIST_DIR}/gemm_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/gemm_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/gemm.cc
  ${CMAKE_CURRENT_LIST_DIR}/panels_f32_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/gram_ref.cc
  ${CMAKE_CURRENT_LIST_DIR}/gram_vec.cc
  ${CMAKE_CURRENT_LIST_DIR}/gemm_f32.cc)
# The OpenMP run time of the packaged oneDNN: gemm_f32.cc tells it to stay on the calling thread.
target_link_libraries(octavo_kernels PRIVATE gomp)
