target_sources(octavo_passes PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/canonical.cc
  ${CMAKE_CURRENT_LIST_DIR}/cse.cc
  ${CMAKE_CURRENT_LIST_DIR}/dce.cc
  ${CMAKE_CURRENT_LIST_DIR}/fold.cc
  ${CMAKE_CURRENT_LIST_DIR}/fold_if.cc
  ${CMAKE_CURRENT_LIST_DIR}/fold_noop.cc
  ${CMAKE_CURRENT_LIST_DIR}/fold_shapes.cc
  ${CMAKE_CURRENT_LIST_DIR}/linear.cc
  ${CMAKE_CURRENT_LIST_DIR}/mask_indices.cc
  ${CMAKE_CURRENT_LIST_DIR}/masks.cc
  ${CMAKE_CURRENT_LIST_DIR}/qdq.cc
  ${CMAKE_CURRENT_LIST_DIR}/scale.cc
  ${CMAKE_CURRENT_LIST_DIR}/sink.cc
  ${CMAKE_CURRENT_LIST_DIR}/util.cc
  ${CMAKE_CURRENT_LIST_DIR}/views.cc)
