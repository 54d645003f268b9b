# Sourced by inside.sh: ./dev wheel [FOLDER]. A wheel for this Python and every Linux whose C library is at least as new as auditwheel says in its name.
out=$(realpath -m "${1:-dist}")
. "$platform/venv.sh"
ensure_venv wheel --no-deps || fail "auditwheel could not be fetched from PyPI: check the network and pip's settings, then run the same command again"
raw=$builds/wheel-raw
rm -rf "$raw"
with_lock "build-$checkout"
# Through `source` and with warnings as errors, as build() does: the compiler cache then knows what it compiled for the other trees.
ln -sfn "$OCTAVO_PROJECT" "$builds/source"
step "building the wheel" wheel \
  env CC=/usr/bin/cc CXX=/usr/bin/c++ CMAKE_BUILD_PARALLEL_LEVEL="$jobs" CMAKE_GENERATOR=Ninja python3 -m pip wheel --no-deps --no-build-isolation --no-cache-dir \
  -w "$raw" -C build-dir="$builds/wheel" -C cmake.source-dir="$builds/source" -C cmake.define.OCTAVO_WERROR=ON "$OCTAVO_PROJECT" || fail "the wheel did not build"
release_lock

# What stands in it that is not octavo's, compiled in or as a library that auditwheel copies: Debian's copyright file of each
# package, and the licences that those name.
notices=$raw/notices
mkdir -p "$notices"
carried=(libhwy-dev pybind11-dev nlohmann-json3-dev libcli11-dev libonnx-dev libonnxruntime-dev)
mapfile -t libraries < <(ldd "$builds/wheel/bin/octavo" "$builds"/wheel/python/octavo/*.so "$builds"/wheel/python/octavo/libs/*.so | awk '$2 == "=>" {print $3}' | sort -u | xargs realpath)
mapfile -t -O "${#carried[@]}" carried < <(dpkg -S "${libraries[@]}" | cut -d: -f1 | sort -u)
for package in "${carried[@]}"; do
  cp "/usr/share/doc/$package/copyright" "$notices/$package.txt" || fail "the package $package has no copyright file to put into the wheel"
done
grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$notices"/*.txt | sort -u | xargs -I{} cp {} "$notices/"
python3 - "$raw"/octavo-*.whl "$notices" <<'EOF'
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "a", zipfile.ZIP_DEFLATED) as wheel:
    info = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")).removesuffix("METADATA")
    for notice in sorted(pathlib.Path(sys.argv[2]).iterdir()):
        wheel.write(notice, f"{info}licenses/third_party/{notice.name}")
EOF

mkdir -p "$out"
"$venv/bin/auditwheel" repair -w "$out" "$raw"/octavo-*.whl
