# Sourced by enter.sh and wheel.sh: headers of other Pythons. Debian 13 has 3.13; a release is for 3.10 to 3.14.

# debian_headers VERSION SUITE: from the package of another Debian, unpacked in the cache folder. apt reads lists of its own, so the system's stay as they are.
debian_headers() {
  local version=$1 suite=$2 folder=$OCTAVO_CACHE/python-$1 mirror
  [ -d "$folder/usr/include/python$version" ] && return
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || { say "apt's settings name no Debian mirror"; return 1; }
  mkdir -p "$folder/lists/partial"
  printf 'deb %s %s main\n' "$mirror" "$suite" >"$folder/sources.list"
  step "headers of Python $version" "python-$version" env -C "$folder" VERSION="$version" sh -ec '
    set -- -q -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/lists" -o APT::Sandbox::User=root
    apt-get "$@" update
    apt-get "$@" download "libpython$VERSION-dev"
    dpkg-deb -x "libpython$VERSION-dev"_*.deb .
    rm -rf lists "libpython$VERSION-dev"_*.deb usr/lib usr/share'
}

# own_interpreters: of the Pythons that Debian's mirror has no headers of the newest that this user's pyenv has with headers, else that uv has.
own_interpreters() {
  local version found
  for version in 3.10 3.12; do
    found=$(for python in "$HOME"/.pyenv/versions/"$version".*/bin/python "$HOME"/.local/share/uv/python/cpython-"$version".*/bin/python; do
      [ -x "$python" ] && [ -f "${python%/bin/python}/include/python$version/Python.h" ] && printf '%s\n' "$python"
    done | sort -V | tail -n 1)
    [ -z "$found" ] || printf '%s\n' "$found"
  done
}

# with_own_interpreters: OCTAVO_PYTHONS, where nobody set it, and OCTAVO_BIND, so that the tree sees them.
with_own_interpreters() {
  [ -z "${OCTAVO_PYTHONS+set}" ] || return 0
  local python
  OCTAVO_PYTHONS=$(own_interpreters)
  for python in $OCTAVO_PYTHONS; do OCTAVO_BIND=${OCTAVO_BIND:+$OCTAVO_BIND:}${python%/bin/python}; done
  export OCTAVO_PYTHONS OCTAVO_BIND
}

# other_pythons: VERSION=FOLDERS;... as python_bindings/CMakeLists.txt takes it, of the headers in the cache folder and the interpreters of OCTAVO_PYTHONS, each
# Python once. Debian 13's pybind11 ends at Python 3.13, so newer ones get PyPI's.
other_pythons() {
  local newer folder python
  newer=$("$venv/bin/python3" -c 'import pybind11; print(pybind11.get_include())') || return
  {
    for python in ${OCTAVO_PYTHONS:-}; do
      "$python" - "$newer" <<'EOF' || return
import os, sys, sysconfig
version, own = sys.version_info[:2], sysconfig.get_path("include")
folders = [*([sys.argv[1]] if version > (3, 13) else []), own, os.path.dirname(own)]
print("%d%d=%s" % (*version, ":".join(folders)))
EOF
    done
    folder=$OCTAVO_CACHE/python-3.11/usr/include
    printf '311=%s/python3.11:%s\n' "$folder" "$folder"
    folder=$OCTAVO_CACHE/python-3.14/usr/include
    [ "$command" != release ] || [ ! -d "$folder/python3.14" ] || printf '314=%s:%s/python3.14:%s\n' "$newer" "$folder" "$folder"
  } | sort -t= -k1,1 -u | paste -sd ';'
}
