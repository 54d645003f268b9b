# Sourced by inside.sh: ./dev fuzz [TARGET...] [--seconds N], ./dev fuzz campaign [ARGS of octavo_campaign].
# What a target finds stays in $OCTAVO_CACHE/fuzz/TARGET/found, what reaches new code in .../corpus: the next run goes on from there.
fuzz_targets=(onnx text npz calibration gguf pipeline report model)

fuzz_usage() {
  cat <<TEXT
usage: ./dev fuzz [TARGET...] [--seconds N]    TARGET: ${fuzz_targets[*]}; none: all; N: of each, 60
       ./dev fuzz campaign [--count N] [--seed S] [--jobs J] [-v] [--models PATH...]
                                               mutated models through all of octavo, by the release build
       ./dev fuzz campaign --file CASE.onnx [--shrink SMALL.onnx]
TEXT
}

# fuzz_seeds TARGET FOLDER: small files of tests/data, and those that are kept for the target alone.
fuzz_seeds() {
  local data=$OCTAVO_PROJECT/tests/data
  mkdir -p "$2"
  case $1 in
    onnx | model) find "$data" -name '*.onnx' -size -32k -exec cp -t "$2" {} + ;;
    npz) find "$data" -name '*.npz' -size -16k -exec cp -t "$2" {} + ;;
    gguf) find "$data" -name '*.gguf' -exec cp -t "$2" {} + ;;
  esac
  if [ -d "$OCTAVO_PROJECT/fuzz/seeds/$1" ]; then cp "$OCTAVO_PROJECT/fuzz/seeds/$1"/* "$2"; fi
}

# fuzz_one TARGET SECONDS: status 1 where something was found. One line on what was done.
fuzz_one() {
  local folder=$OCTAVO_CACHE/fuzz/$1 log=$OCTAVO_CACHE/logs/fuzz-$1.log rc=0 options=()
  mkdir -p "$folder/corpus" "$folder/found"
  rm -rf "$folder/seeds" && fuzz_seeds "$1" "$folder/seeds"
  [ "$1" != npz ] || options+=(-max_len=16384)
  case $1 in onnx | model) options+=(-max_len=65536) ;; gguf) options+=(-max_len=262144) ;; esac
  if [ -f "$OCTAVO_PROJECT/fuzz/$1.dict" ]; then options+=("-dict=$OCTAVO_PROJECT/fuzz/$1.dict"); fi
  # timeout: libFuzzer's clock does not stop where others have the CPU. rss and malloc: the sanitizers need as much again as octavo's 1 GB.
  ASAN_OPTIONS=allocator_may_return_null=1 ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19 UBSAN_OPTIONS=print_stacktrace=1 \
    "$builds/fuzz/fuzz/fuzz_$1" -max_total_time="$2" -timeout=300 -rss_limit_mb=3000 -print_final_stats=1 \
    -artifact_prefix="$folder/found/" "${options[@]}" "$folder/corpus" "$folder/seeds" >"$log" 2>&1 || rc=$?
  printf '%-12s %10s executions %s\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$([ "$rc" -eq 0 ] && echo 'nothing found' || echo "FOUND: $(grep -aoE 'broken law: .*|SUMMARY: .*' "$log" | head -n 1 | cut -c1-200); see $log")"
  return "$((rc != 0))"
}

# The archives of tests/data, unpacked once; prints the folder.
unpacked_models() {
  local folder=$OCTAVO_CACHE/fuzz/models archive archives name
  mapfile -t archives < <(find "$OCTAVO_PROJECT/tests/data" -name '*.tar.xz' | sort)
  if [ "$(hash_of "${archives[@]}")" != "$(cat "$folder/octavo-hash" 2>/dev/null)" ]; then
    rm -rf "$folder"
    for archive in "${archives[@]}"; do
      name=$(basename "$(dirname "$archive")")
      mkdir -p "$folder/$name" && ( cd "$folder/$name" && cmake -E tar xf "$archive" ) || return 1
    done
    hash_of "${archives[@]}" >"$folder/octavo-hash"
  fi
  printf '%s\n' "$folder"
}

run_campaign() {
  build release octavo_campaign || exit 1
  case " $* " in
    *' --models '* | *' --file '* | *' --help '*) ;;
    *) set -- "$@" --models "$OCTAVO_PROJECT/tests/data" "$(unpacked_models)" ;;
  esac
  exec "$builds/release/fuzz/octavo_campaign" "$@"
}

# run_targets SECONDS TARGET...: builds and runs them one after the other.
run_targets() {
  local seconds=$1 status=0 target
  shift
  build fuzz "${@/#/fuzz_}" || return 1
  for target in "$@"; do fuzz_one "$target" "$seconds" || status=1; done
  return "$status"
}

if [ "${command:-}" = fuzz ]; then
  seconds=60; chosen=()
  if [ "${1:-}" = campaign ]; then shift; run_campaign "$@"; fi
  while [ "$#" -gt 0 ]; do
    case $1 in
      --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
      --help | -h) fuzz_usage; exit 0 ;;
      *) [[ " ${fuzz_targets[*]} " = *" $1 "* ]] || { fuzz_usage >&2; exit 2; }
         chosen+=("$1"); shift ;;
    esac
  done
  [ "${#chosen[@]}" -gt 0 ] || chosen=("${fuzz_targets[@]}")
  run_targets "$seconds" "${chosen[@]}" || exit 1
  exit 0
fi
