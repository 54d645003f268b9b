#!/usr/bin/env bash
# inside.sh COMMAND ARGS: runs on Debian 13 (in place, or in the tree that enter.sh entered). Builds what COMMAND needs, then does it.
set -euo pipefail
platform=$OCTAVO_PROJECT/platform
. "$platform/steps.sh"

# One build folder per checkout: two clones share the cache, the compiler cache and the downloads, never a build tree.
checkout=$(basename "$OCTAVO_PROJECT")-$(printf '%s' "$OCTAVO_PROJECT" | sha256sum | cut -c1-8)
builds=$OCTAVO_CACHE/build/$checkout
jobs=$(nproc)
# The compiler sees the checkout as ../source, whatever its name: ccache then knows what another clone compiled. (It takes paths
# below BASEDIR relative to the build folder, but the path of the source file itself counts.)
export CCACHE_DIR=$OCTAVO_CACHE/ccache CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-3G} CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1
if command -v ccache >/dev/null; then export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi

# The top CMakeLists.txt takes in each folder that has one of its own; ninja does not notice a new one, so the list is compared.
build_files() {
  find "$OCTAVO_PROJECT" -path "$OCTAVO_PROJECT/.git" -prune -o \( -name CMakeLists.txt -o -name '*.cmake' \) -print | sort
}

# $builds/source: the sources by a path that every tree of this clone compiles by, so that the compiler cache knows them.
link_source() {
  mkdir -p "$builds"
  ln -sfn "$OCTAVO_PROJECT" "$builds/source"
}

# build PRESET TARGET...: configures when there is no build tree, builds; silent when there is nothing to do.
build() {
  local preset=$1 tree=$builds/$1 rc=0
  shift
  link_source
  with_lock "build-$checkout"
  if [ ! -f "$tree/build.ninja" ] || [ "$(build_files)" != "$(cat "$tree/octavo-build-files" 2>/dev/null)" ]; then
    step "configuring ($preset)" "configure-$preset" \
      cmake -S "$builds/source" --preset "$preset" -B "$tree" -DOCTAVO_TEST_ROOT=. -DOCTAVO_WERROR=ON || rc=$?
    [ "$rc" -ne 0 ] || build_files >"$tree/octavo-build-files"
  fi
  if [ "$rc" -eq 0 ]; then
    step "building $* ($preset)" "build-$preset" ninja -C "$tree" -j "$jobs" "$@" || rc=$?
  fi
  release_lock
  return "$rc"
}

use_product() {  # the program and the module of one build tree, and what ./dev venv installed, by name
  export PATH=$1/bin:$OCTAVO_CACHE/venv/bin:$PATH PYTHONPATH=$1/python${PYTHONPATH:+:$PYTHONPATH}
}

run_octavo() {
  build release octavo || exit 1
  [ -x "$builds/release/bin/octavo" ] || fail "this checkout has no program octavo: cli/CMakeLists.txt is missing or does not build one"
  exec "$builds/release/bin/octavo" "$@"
}

run_shell() {
  [ -n "${OCTAVO_NO_BUILD:-}" ] || build release product || say "the product did not build; going on without it"
  use_product "$builds/release"
  export OCTAVO_BUILD=$builds
  [ "$#" -gt 0 ] || set -- bash -i
  exec "$@"
}

case $1 in
  octavo) shift; run_octavo "$@" ;;
  shell) shift; run_shell "$@" ;;
  test | bench | lint | demo | venv | wheel | release | docs | fuzz) command=$1; shift; . "$platform/$command.sh" ;;
esac
