# The steps of the install test, each of which must succeed: what a user of the installed library does, outside of the checkout. What the examples print is
# compared. Graphs come from tests/data.
set(prefix ${WORK}/prefix)
set(build ${WORK}/examples)
file(REMOVE_RECURSE ${prefix} ${build})
set(flags "")
if(SANITIZE)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE})
endif()

# octavo_step(COMMAND...): sets `output`.
function(octavo_step)
  execute_process(COMMAND ${ARGV} OUTPUT_VARIABLE printed ERROR_VARIABLE printed RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${ARGV} ended with ${failed}:\n${printed}")
  endif()
  set(output "${printed}" PARENT_SCOPE)
endfunction()
function(octavo_expect text)
  if(NOT output MATCHES "${text}")
    message(FATAL_ERROR "'${text}' is not in what was printed:\n${output}")
  endif()
endfunction()

octavo_step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
octavo_step(${CMAKE_COMMAND} -S ${SOURCE}/examples -B ${build} -G Ninja -DCMAKE_PREFIX_PATH=${prefix}
            -DCMAKE_BUILD_TYPE=Release ${flags})
octavo_step(${CMAKE_COMMAND} --build ${build})

set(bert ${SOURCE}/tests/data/float/bert.ts17.sdpa.onnx)
octavo_step(${build}/optimize_model ${bert} ${WORK}/int8.onnx ${WORK}/report.html)
octavo_expect("attention 2 of 2 fused")
octavo_step(${build}/run_model ${WORK}/int8.onnx ${SOURCE}/tests/install/bert.npz)
octavo_expect("hidden .*first ")
octavo_step(${build}/own_rule ${SOURCE}/tests/install/quick_gelu.onnx)
octavo_expect("quick_gelu at act: fused")

# The plugin: in the table of passes, in the report, in the file's metadata, in explain; a program without it says which pass it lacks.
set(octavo ${prefix}/bin/octavo)
set(plugin ${build}/libown_pass.so)
octavo_step(${octavo} passes --plugin ${plugin})
octavo_expect("drop_relu 1.0")
octavo_step(${octavo} optimize ${SOURCE}/tests/install/quick_gelu.onnx -o ${WORK}/own.onnx --recipe float --plugin ${plugin} --set drop_relu.most=1)
octavo_expect("rewrite +act +fused +quick_gelu")
octavo_expect("rewrite +relu +fused +drop_relu")
octavo_step(${octavo} inspect ${WORK}/own.onnx --json)
octavo_expect("drop_relu.*most.*1.0")
octavo_step(${octavo} explain ${SOURCE}/tests/install/quick_gelu.onnx --rule quick_gelu --plugin ${plugin})
octavo_expect("quick_gelu  fired at act")
execute_process(COMMAND ${octavo} optimize ${SOURCE}/tests/install/quick_gelu.onnx -o ${WORK}/again.onnx --pipeline ${WORK}/own.onnx
                ERROR_VARIABLE output RESULT_VARIABLE failed)
octavo_expect("the pipeline has the pass 'drop_relu', version '1.0', which is not octavo's own")

# pkg-config names what a compiler needs.
find_program(pkg_config pkg-config)
if(pkg_config)
  set(ENV{PKG_CONFIG_PATH} ${prefix}/lib/pkgconfig:${prefix}/lib/x86_64-linux-gnu/pkgconfig)
  octavo_step(${pkg_config} --cflags --libs octavo)
  octavo_expect("octavo_api")
endif()

# Pages for man and completions are what the program tells.
foreach(told man/man1/octavo.1 man/man1/octavo-optimize.1 bash-completion/completions/octavo fish/vendor_completions.d/octavo.fish)
  file(READ ${prefix}/share/${told} text)
  if(NOT text MATCHES "optimize")
    message(FATAL_ERROR "installed, but empty: ${told}")
  endif()
endforeach()
# What must not be installed: vector code, headers of tests, and whatever octavo.h does not include.
file(GLOB_RECURSE wrong ${prefix}/include/*-inl.h ${prefix}/include/octavo/tests/* ${prefix}/include/octavo/kernels/gemm/*)
if(wrong)
  message(FATAL_ERROR "installed, but private: ${wrong}")
endif()
if(NOT EXISTS ${prefix}/include/octavo/octavo.h OR NOT EXISTS ${prefix}/share/doc/octavo/LICENSE)
  message(FATAL_ERROR "octavo.h or the license is not installed")
endif()
