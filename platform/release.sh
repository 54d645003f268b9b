#!/usr/bin/env bash
# ./dev release [FOLDER]: what people install, made and tried out. Runs on the caller's system, since that is where people install.
# 1. a wheel for each Python of this system (python3.10 to python3.14 on PATH, and what OCTAVO_PYTHONS names) and for Debian 13's  2. a source archive
# 3. each wheel installed without network into a fresh environment of its Python, and used  4. hashes and notes. FOLDER: dist
set -euo pipefail
platform=$OCTAVO_PROJECT/platform
. "$platform/steps.sh"
out=$(realpath -m "${1:-dist}")
cd "$OCTAVO_PROJECT"
[ -z "$(git status --porcelain)" ] || fail "files differ from the last commit: a release is made of a commit, so commit or stash them first"
version=$(sed -n 's/.*OCTAVO_VERSION "\(.*\)"/\1/p' version.h)
commit=$(git rev-parse --short=10 HEAD)

# Interpreters in folders of their own are seen inside of Debian 13 as they are; those of the system are not, and its python3 serves for its version.
pythons=(); outside=(); binds=${OCTAVO_BIND:-}
for candidate in python3.10 python3.11 python3.12 python3.13 python3.14 ${OCTAVO_PYTHONS:-}; do
  found=$("$candidate" -c 'import sys; print(sys.base_prefix, sys.executable)' 2>/dev/null) || continue
  prefix=${found%% *}
  pythons+=("${found#* }")
  case $prefix in /usr) ;; *) outside+=("${found#* }"); binds+=${binds:+:}$prefix ;; esac
done
[ "${#pythons[@]}" -gt 0 ] || fail "none of python3.10 to python3.14 is on PATH, so no wheel could be tried out: install one, or name interpreters in OCTAVO_PYTHONS"
rm -rf "$out"; mkdir -p "$out"
OCTAVO_BIND=$binds OCTAVO_PYTHONS="${outside[*]:-}" "$OCTAVO_PROJECT/dev" wheel "$out"

name=octavo-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive --prefix="$name/" HEAD | tar -x -C "$work"
printf '%s\n' "$commit" >"$work/$name/COMMIT"
printf 'Metadata-Version: 2.4\nName: octavo\nVersion: %s\nRequires-Python: >=3.10\nRequires-Dist: numpy>=1.26\n' "$version" >"$work/$name/PKG-INFO"
tar -C "$work" --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --exclude="$name/tests" --exclude="$name/demo" -czf "$out/$name.tar.gz" "$name"

# Without network: numpy is fetched before, and the installation sees nothing but files.
alone=(); if unshare --net true 2>/dev/null; then alone=(unshare --net); fi
numpys=$OCTAVO_CACHE/wheelhouse
tested=()
for python in "${pythons[@]}"; do
  tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  wheel=$(compgen -G "$out/octavo-*-$tag-*.whl") || { say "no wheel for $python: its headers are not visible inside"; continue; }
  "$python" -m venv "$work/$tag"
  step "fetching numpy ($tag)" "numpy-$tag" "$work/$tag/bin/pip" download --disable-pip-version-check --only-binary :all: -d "$numpys" 'numpy>=1.26'
  step "installing $(basename "$wheel")" "install-$tag" \
    "${alone[@]}" "$work/$tag/bin/pip" install --disable-pip-version-check --no-index --find-links "$numpys" "$wheel"
  ( cd "$work" && env -i PATH=/usr/bin:/bin HOME="$work" "${alone[@]}" "$work/$tag/bin/python" "$platform/wheel/use_installed.py" "$OCTAVO_PROJECT/tests/data" ) ||
    fail "the wheel $(basename "$wheel") does not work in a fresh environment of $python"
  tested+=("$tag")
done
[ "${#tested[@]}" -gt 0 ] || fail "no wheel was tried out"

( cd "$out" && sha256sum ./*.whl ./*.tar.gz | sed 's|\./||' >SHA256SUMS )
{ echo "# octavo $version ($commit)"; echo
  echo "Wheels for Linux on x86-64 with glibc 2.28 or later (manylinux_2_28). Tried out in fresh environments: ${tested[*]}."; echo
  awk -v version="$version" '/^## / { if (on) exit; on = index($0, "[" version "]") || index($0, "[Unreleased]"); next } on' CHANGELOG.md
} >"$out/NOTES.md"
say "$out: $(ls "$out" | tr '\n' ' ')"
