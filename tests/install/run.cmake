# The steps of the install test, each of which must succeed; the example's output is compared as well.
set(prefix ${WORK}/prefix)
file(REMOVE_RECURSE ${prefix} ${WORK}/example)
set(flags "")
if(SANITIZE)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE})
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/example -G Ninja -DCMAKE_PREFIX_PATH=${prefix}
                        -DCMAKE_BUILD_TYPE=Release ${flags} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/example COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/example/example OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
set(expected "2 x 3 times 3 x 2: 58 64 139 154\n")
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "the example printed '${output}' instead of '${expected}'")
endif()

# What must not be installed: vector code and headers of tests.
file(GLOB_RECURSE wrong ${prefix}/include/*-inl.h ${prefix}/include/octavo/tests/*)
if(wrong)
  message(FATAL_ERROR "installed, but private: ${wrong}")
endif()
