# Sourced by inside.sh: ./dev release [FOLDER]. All files of a release in FOLDER (release): the wheel, the sources, what they are made of (CycloneDX),
# notes and hashes. Each was tried: the wheel where it was installed, by this Python and those of OCTAVO_PYTHONS; the sources by a build of their own.
release=$(realpath -m "${1:-release}")
[ -z "$(git -C "$OCTAVO_PROJECT" status --porcelain)" ] || [ -n "${OCTAVO_RELEASE_ANYWAY:-}" ] ||
  fail "files differ from the last commit, and a release is of a commit: commit them, or try it out with OCTAVO_RELEASE_ANYWAY=1"
version=$(sed -n 's/.*define OCTAVO_VERSION "\(.*\)".*/\1/p' "$OCTAVO_PROJECT/version.h")
commit=$(git -C "$OCTAVO_PROJECT" rev-parse --short=10 HEAD)
# Times in archives are that of the commit.
SOURCE_DATE_EPOCH=$(git -C "$OCTAVO_PROJECT" log -1 --format=%ct)
export SOURCE_DATE_EPOCH
mkdir -p "$release"
[ -z "$(ls -A "$release")" ] || fail "the folder $release has files in it, and a release has no others: name a new one, or empty it"

. "$platform/wheel.sh" "$release"
for python in ${OCTAVO_PYTHONS:-}; do
  step "numpy for $python" pip-numpy "$python" -m pip download --disable-pip-version-check --no-deps -d "$raw/numpy" numpy || fail "numpy could not be fetched for $python: check the network"
  step "trying the wheel by $python" wheel-test env PIP_FIND_LINKS="$raw/numpy" "$python" "$OCTAVO_PROJECT/tests/install/try_wheel.py" "$wheel" ||
    fail "the wheel does not work with $python"
done
cp "$raw/sboms/octavo.cdx.json" "$release/octavo-$version.cdx.json"

# The sources as the commit has them, which tell it in the file COMMIT. They are whole: none is missing that the build files and the commit name, and a room of them
# compiles away from the clone. OCTAVO_RELEASE_SOURCES=product builds all of it, as the tests did in the clone.
sources() {
  mkdir -p "$raw/checkout" "$raw/whole/source"
  git -C "$OCTAVO_PROJECT" archive HEAD | tar -x -C "$raw/checkout"
  echo "$commit" >"$raw/checkout/COMMIT"
  (cd "$raw/checkout" && python3 -c 'import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))' "$release")
  tar -xf "$release/octavo-$version.tar.gz" -C "$raw/whole/source" --strip-components=1
  (cd "$raw/checkout" && find . -type f ! -path './tests/*' ! -path './benchmarks/*' ! -path './demo/*' ! -path './.*' | sort) >"$raw/whole/wanted"
  (cd "$raw/whole/source" && find . -type f | sort) | comm -23 "$raw/whole/wanted" - >"$raw/whole/missing"
  [ ! -s "$raw/whole/missing" ] || { cat "$raw/whole/missing"; return 1; }
  cmake -S "$raw/whole/source" -B "$raw/whole/release" -G Ninja -DCMAKE_BUILD_TYPE=Release -DOCTAVO_WERROR=ON -DOCTAVO_TESTS=OFF -DOCTAVO_BENCHMARKS=OFF
  ninja -C "$raw/whole/release" -j "$jobs" octavo_commit "${OCTAVO_RELEASE_SOURCES:-octavo_numeric}"
  grep -F "\"$commit\"" "$raw/whole/release/api/made/commit.h"
}
cd "$OCTAVO_PROJECT"
step "sources" release-sources sources || fail "the sources do not build by themselves"

cd "$release"
python3 "$platform/wheel/notes.py" "$version" "$commit" octavo-* >NOTES.md || fail "there are no notes: the line above says why"
sha256sum octavo-* NOTES.md >SHA256SUMS
say "a release of $version ($commit) is in $release:"
ls -l --block-size=1 "$release" >&2
