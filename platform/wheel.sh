# Sourced by inside.sh: ./dev wheel [FOLDER]. One wheel for each Python whose headers are here: this system's, and those that OCTAVO_PYTHONS names
# (interpreters, separated by spaces; their folders must be visible inside, see OCTAVO_BIND). For glibc 2.28 and later.
#
# Debian 13's compiler and its C++ library stay, so that a wheel has the objects that the tests ran: nothing but the bindings is compiled for it. Old
# systems are reached at the link. The C library that is linked against is a list of what 2.28 has, made from this system's, and newer.c has the
# rest; other toolchains (zig's, conda's, an old user land) would compile everything again, with another C++ library, and none is in Debian.
out=$(realpath -m "${1:-dist}")
. "$platform/venv.sh"
. "$platform/wheel-libraries.sh"
ensure_libraries || fail "the libraries of the wheel could not be made: check that the mirror has sources (deb-src), then run the same command again"
ensure_venv wheel --no-deps || fail "auditwheel could not be fetched from PyPI: check the network and pip's settings, then run the same command again"
tree=$builds/release
stage=$tree/wheel/octavo
notices=$tree/wheel/notices
pythons=
for python in python3 ${OCTAVO_PYTHONS:-}; do
  pythons+=$("$python" -c 'import sys, sysconfig as s; print("%d%d=%s" % (*sys.version_info[:2], s.get_path("include")), end=";")') ||
    fail "$python of OCTAVO_PYTHONS does not run here"
done

rm -rf "$tree/wheel"
build release octavo_cli || exit 1
with_lock "build-$checkout"
step "configuring (wheel)" configure-wheel \
  cmake -S "$builds/source" -B "$tree" -DOCTAVO_WHEEL_LIBRARIES="$libraries" -DOCTAVO_WHEEL_PYTHONS="${pythons%;}" || exit 1
step "linking the wheel" wheel ninja -C "$tree" -j "$jobs" octavo_wheel || exit 1
release_lock
# What has no version is Python's, octavo's or zlib's. Anything else is newer than glibc 2.28: platform/wheel/newer.c may bring it.
for part in "$stage"/*.so "$stage"/libs/*.so "$stage/bin/octavo_wheel_program"; do
  missing=$(nm -D --undefined-only "$part" | awk '$1 == "U" && $2 !~ /@/ && $2 !~ /^_?Py/ && $2 !~ /octavo|^deflate|^inflate/ {print $2}')
  [ -z "$missing" ] || fail "$(basename "$part") needs what glibc 2.28 lacks: $missing"
done
strip --strip-unneeded "$stage"/*.so "$stage"/libs/*.so "$stage/bin/octavo_wheel_program"

# What is compiled in and not octavo's: Debian's copyright file of each package, and the licences that those name.
mkdir -p "$notices"
for package in libhwy-dev pybind11-dev nlohmann-json3-dev libcli11-dev libonnx-dev libonnxruntime-dev libdnnl-dev libtbb-dev libprotobuf-dev libstdc++-14-dev; do
  version=$(dpkg-query -W -f '${Version}' "$package")
  cp "/usr/share/doc/$package/copyright" "$notices/$package=$version.txt" || fail "the package $package has no copyright file to put into the wheel"
done
grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$notices"/*.txt | sort -u | xargs -I{} cp {} "$notices/"

python3 "$platform/wheel/pack.py" "$stage" "$notices" manylinux_2_28_x86_64 "$out" || fail "the wheels could not be packed"
for wheel in "$out"/octavo-*-manylinux_2_28_x86_64.whl; do
  "$venv/bin/auditwheel" show "$wheel" | tr '\n' ' ' | grep -q 'tag: "manylinux_2_28_x86_64"' ||
    { "$venv/bin/auditwheel" show "$wheel"; fail "$wheel needs more than manylinux_2_28 has"; }
done
