target_sources(octavo_kernels PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/arch.cc
  ${CMAKE_CURRENT_LIST_DIR}/pairs.cc
  ${CMAKE_CURRENT_LIST_DIR}/cpus.cc
  ${CMAKE_CURRENT_LIST_DIR}/numa.cc
  ${CMAKE_CURRENT_LIST_DIR}/quota.cc)
