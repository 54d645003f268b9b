# Sourced by inside.sh: ./dev wheel [FOLDER]. One wheel for this Python, Debian 12's and those of OCTAVO_PYTHONS (interpreters, separated by spaces, in folders
# that OCTAVO_BIND shows), and for every Linux with glibc 2.28 or later. That of a release is also for 3.14 of Debian's testing, and for 3.10 and 3.12 of pyenv or uv.
#
# It has what the tests ran: Debian 13's compiler and libraries. They use little that older systems lack, and wheel/older.py gives them that.
# Another toolchain, or libraries built anew, would be another product.
out=$(realpath -m "${1:-dist}")
system=manylinux_2_28_x86_64
. "$platform/debian.sh"
. "$platform/venv.sh"
. "$platform/wheel/headers.sh"
debian_headers 3.11 bookworm || fail "the headers of Python 3.11 could not be fetched: check the network and the mirror, then run the same command again"
[ "$command" != release ] || debian_headers 3.14 forky || say "the headers of Python 3.14 could not be fetched: the wheel is made without it"
ensure_venv wheel --no-deps || fail "auditwheel could not be fetched from PyPI: check the network and pip's settings, then run the same command again"
pythons=$(other_pythons) || fail "an interpreter of OCTAVO_PYTHONS does not run here: name those in folders that OCTAVO_BIND shows"
raw=$builds/wheel-raw
rm -rf "$raw"
with_lock "build-$checkout"
# Through `source` and with warnings as errors, as build() does: the compiler cache then knows what it compiled for the other trees.
link_source
step "building the wheel" wheel \
  env CC=/usr/bin/cc CXX=/usr/bin/c++ CMAKE_BUILD_PARALLEL_LEVEL="$jobs" CMAKE_GENERATOR=Ninja python3 -m pip wheel --no-deps --no-build-isolation --no-cache-dir \
  -w "$raw" -C build-dir="$builds/wheel" -C cmake.source-dir="$builds/source" -C cmake.define.OCTAVO_WERROR=ON -C cmake.define.OCTAVO_SHARED=ON \
  -C cmake.define.OCTAVO_OTHER_PYTHONS="$pythons" "$OCTAVO_PROJECT" || fail "the wheel did not build"

# The libraries that a wheel carries: all but those that every system of its tag has.
python3 "$platform/wheel/pack.py" unpack "$raw"/octavo-*.whl "$raw/files"
parts=("$raw"/files/octavo/*.so "$raw"/files/octavo/libs/*.so "$raw/files/octavo/bin/octavo")
mkdir "$raw/libraries" "$raw/notices"
mapfile -t libraries < <(ldd "$builds/wheel/bin/octavo" "$builds"/wheel/python/octavo/*.so "$builds"/wheel/python/octavo/libs/*.so | awk '$2 == "=>" {print $3}' |
  grep -vE '/(libc|libm|libz|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so' | sort -u)
cp -L "${libraries[@]}" "$raw/libraries/"
release_lock
older=$raw/liboctavo_older.so
mkdir "$raw/gcc"
( cd "$raw/gcc" && ar x "$(c++ -print-file-name=libstdc++.a)" fs_dir.o fs_ops.o fs_path.o floating_from_chars.o floating_to_chars.o memory_resource.o )
python3 "$platform/wheel/older.py" map "${parts[@]}" "$raw"/libraries/* >"$raw/older.map"
c++ -std=c++23 -O2 -fPIC -ffunction-sections -shared -Wl,--gc-sections -Wl,--version-script="$raw/older.map" -Wl,-soname,liboctavo_older.so \
  -o "$older" "$platform/wheel/older.cc" "$raw"/gcc/*.o || fail "what older systems lack did not build"
strip --strip-unneeded "$older" "$raw"/libraries/liboctavo.so
for part in "${parts[@]}" "$raw"/libraries/*; do patchelf --remove-rpath --add-needed liboctavo_older.so "$part"; done
# Before glibc 2.34 they were libraries of their own; since then they are empty.
patchelf --add-needed libpthread.so.0 --add-needed libdl.so.2 "$older"
python3 "$platform/wheel/older.py" change "$older" "${parts[@]}" "$raw"/libraries/* || fail "the wheel would not run on older systems"
mv "$older" "$raw/libraries/"

# What stands in it that is not octavo's, compiled in or as a library: Debian's copyright file of each source package, and the licences that those name.
carried=(libstdc++-14-dev libhwy-dev libxxhash-dev pybind11-dev nlohmann-json3-dev libcli11-dev libonnx-dev libonnxruntime-dev)
mapfile -t libraries < <(printf '%s\n' "${libraries[@]}" | grep -v "^$builds" | xargs realpath)
mapfile -t -O "${#carried[@]}" carried < <(dpkg -S "${libraries[@]}" | cut -d: -f1 | sort -u)
for package in "${carried[@]}"; do
  source=$(dpkg-query --show --showformat='${source:Package}\n' "$package" | head -n 1)
  cp "/usr/share/doc/$package/copyright" "$raw/notices/$source.txt" || fail "the package $package has no copyright file to put into the wheel"
done
grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$raw"/notices/*.txt | xargs realpath | sort -u | xargs -I{} cp {} "$raw/notices/"

mkdir "$raw/sboms"
own=$(sed -n 's/.*define OCTAVO_VERSION "\(.*\)".*/\1/p' "$OCTAVO_PROJECT/version.h")
numpy=$(sed -n 's/^dependencies = \["\(.*\)"\]$/\1/p' "$OCTAVO_PROJECT/pyproject.toml")
python3 "$platform/wheel/sbom.py" "$own" "$(git -C "$OCTAVO_PROJECT" describe --always --dirty=+ --abbrev=10 2>/dev/null || echo unknown)" "$numpy" "${carried[@]}" \
  $(case $pythons in *pybind11*) sed -n 's/^\(pybind11\)==\(.*\)$/pypi:\1@\2/p' "$platform/requirements-wheel.txt" ;; esac) \
  >"$raw/sboms/octavo.cdx.json" || fail "what the wheel is made of could not be listed: the line above says why"

packed=$(python3 "$platform/wheel/pack.py" pack "$raw/files" "$raw/notices" "$raw/sboms" "$raw/packed") || fail "the wheel could not be put together"
# Deflate as before, by a packer that searches longer than zlib: 3 % less, for half a minute.
smaller() {
  local from=$1 to=$2
  rm -rf "$raw/small" && mkdir "$raw/small" && ( cd "$raw/small" && 7z x -bd "$from" && find . -type f -printf '%P\n' | LC_ALL=C sort >"$raw/small.list" && 7z a -bd -tzip -mm=Deflate -mx=9 "$to" "@$raw/small.list" )
}
LD_LIBRARY_PATH=$raw/libraries "$venv/bin/auditwheel" repair -z 9 --plat "$system" --only-plat -w "$raw/repaired" "$packed" || fail "the wheel needs more than $system has"
repaired=$(ls "$raw"/repaired/octavo-*.whl)
wheel=$out/$(basename "$repaired")
mkdir -p "$raw/smaller" "$out"
step "packing the wheel" wheel-pack smaller "$repaired" "$raw/smaller/wheel.whl" || fail "the wheel could not be packed"
rm -f "$out/octavo-$own"-*.whl  # of this version, for other systems
mv "$raw/smaller/wheel.whl" "$wheel"
step "trying the wheel" wheel-test python3 "$OCTAVO_PROJECT/tests/install/try_wheel.py" "$wheel" || fail "the wheel does not work where it was installed"
say "$(ls -s --block-size=kB "$wheel")"
# What people wait for.
[ "$(stat -c %s "$wheel")" -lt 20000000 ] || fail "the wheel has more than 20 MB: look what has grown (python3 -m zipfile -l)"
