#!/bin/bash -eu
# Called by OSS-Fuzz with CC, CXX, CFLAGS, CXXFLAGS, LIB_FUZZING_ENGINE, OUT and WORK set: programs, seed corpora, dictionaries and options
# go to OUT. Locally, what ./dev fuzz does: CXX=clang++-19 CC=clang-19 CXXFLAGS="-O1 -fsanitize=fuzzer-no-link,address" OUT=... WORK=...
# LIB_FUZZING_ENGINE=-fsanitize=fuzzer fuzz/oss-fuzz/build.sh
cd "$(dirname "$(readlink -f "$0")")/../.." 2>/dev/null && [ -f CMakePresets.json ] || cd "$SRC/octavo"
targets=(onnx text npz calibration gguf pipeline report model)

cmake -S . -B "$WORK/build" -G Ninja -DCMAKE_BUILD_TYPE=None -DOCTAVO_FUZZ=ON -DOCTAVO_TESTS=OFF -DOCTAVO_BENCHMARKS=OFF -DOCTAVO_PYTHON=OFF
ninja -C "$WORK/build" "${targets[@]/#/fuzz_}"

mkdir -p "$OUT/lib"
for target in "${targets[@]}"; do
  program=$WORK/build/fuzz/fuzz_$target
  cp "$program" "$OUT/"
  # Shared libraries of the system are not there when the programs run.
  ldd "$program" | grep -oE '/[^ ]+' | grep -vE '/(ld-linux|libc|libm|libpthread|libdl|librt)[-.]' | xargs -r -I{} cp -Ln {} "$OUT/lib/"
  patchelf --set-rpath '$ORIGIN/lib' "$OUT/fuzz_$target" 2>/dev/null || true
  [ ! -f "fuzz/$target.dict" ] || cp "fuzz/$target.dict" "$OUT/fuzz_$target.dict"
  printf '[libfuzzer]\ntimeout = 60\nrss_limit_mb = 3000\n' >"$OUT/fuzz_$target.options"

  seeds=$WORK/seeds-$target
  rm -rf "$seeds" && mkdir -p "$seeds"
  case $target in
    onnx | model) find tests/data -name '*.onnx' -size -32k -exec cp -t "$seeds" {} + ;;
    npz) find tests/data -name '*.npz' -size -16k -exec cp -t "$seeds" {} + ;;
    gguf) find tests/data -name '*.gguf' -exec cp -t "$seeds" {} + ;;
  esac
  [ ! -d "fuzz/seeds/$target" ] || cp "fuzz/seeds/$target"/* "$seeds"
  if [ -d tests/data/hostile ]; then find tests/data/hostile -type f ! -name '*.md' -size -32k -exec cp -t "$seeds" {} +; fi
  rm -f "$OUT/fuzz_${target}_seed_corpus.zip"
  zip -q -j "$OUT/fuzz_${target}_seed_corpus.zip" "$seeds"/*
done
