# Sourced by inside.sh: ./dev wheel [FOLDER]. A wheel for this Python and every Linux whose C library is at least as new as auditwheel says in its name.
out=$(realpath -m "${1:-dist}")
. "$platform/venv.sh"
ensure_venv wheel --no-deps || fail "auditwheel could not be fetched from PyPI: check the network and pip's settings, then run the same command again"
raw=$builds/wheel-raw
rm -rf "$raw"
with_lock "build-$checkout"
# Through `source`, as build() does: the compiler cache then knows what it compiled for the other trees.
ln -sfn "$OCTAVO_PROJECT" "$builds/source"
step "building the wheel" wheel \
  env CC=/usr/bin/cc CXX=/usr/bin/c++ CMAKE_BUILD_PARALLEL_LEVEL="$jobs" CMAKE_GENERATOR=Ninja python3 -m pip wheel --no-deps --no-build-isolation --no-cache-dir \
  -w "$raw" -C build-dir="$builds/wheel" -C cmake.source-dir="$builds/source" "$OCTAVO_PROJECT" || fail "the wheel did not build"
release_lock
mkdir -p "$out"
"$venv/bin/auditwheel" repair -w "$out" "$raw"/octavo-*.whl
