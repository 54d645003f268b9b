# Sourced by wheel.sh: headers of other Pythons.

# Of Debian 12's, from its package, unpacked in the cache folder. apt reads lists of its own, so the system's stay as they are.
debian_12_headers() {
  local folder=$OCTAVO_CACHE/python-3.11 mirror
  [ -d "$folder/usr/include/python3.11" ] && return
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || { say "apt's settings name no Debian mirror"; return 1; }
  mkdir -p "$folder/lists/partial"
  printf 'deb %s bookworm main\n' "$mirror" >"$folder/sources.list"
  step "headers of Python 3.11" python-3.11 env -C "$folder" sh -ec '
    set -- -q -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/lists" -o APT::Sandbox::User=root
    apt-get "$@" update
    apt-get "$@" download libpython3.11-dev
    dpkg-deb -x libpython3.11-dev_*.deb .
    rm -rf lists libpython3.11-dev_*.deb usr/lib usr/share'
}

# other_pythons: VERSION=FOLDERS;... as python_bindings/CMakeLists.txt takes it, of Debian 12's Python and the interpreters of OCTAVO_PYTHONS. Debian 13's pybind11
# ends at Python 3.13, so newer ones get PyPI's.
other_pythons() {
  local folder=$OCTAVO_CACHE/python-3.11/usr/include python newer
  newer=$("$venv/bin/python3" -c 'import pybind11; print(pybind11.get_include())') || return
  printf '311=%s:%s' "$folder/python3.11" "$folder"
  for python in ${OCTAVO_PYTHONS:-}; do
    "$python" - "$newer" <<'EOF' || return
import os, sys, sysconfig
version, own = sys.version_info[:2], sysconfig.get_path("include")
folders = [*([sys.argv[1]] if version > (3, 13) else []), own, os.path.dirname(own)]
print(";%d%d=%s" % (*version, ":".join(folders)), end="")
EOF
  done
}
