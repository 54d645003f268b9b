#!/usr/bin/env bash
# enter.sh COMMAND ARGS: makes sure that Debian 13 and the packages are there, then runs platform/inside.sh in it.
set -euo pipefail
here=$OCTAVO_PROJECT/platform
. "$here/steps.sh"
. "$here/debian.sh"

lists=("$here/packages.txt")
[ "$1" != lint ] || lists+=("$here/packages-tools.txt")
case "$1 $* " in fuzz\ * | test\ *' --all '*) lists+=("$here/packages-fuzz.txt") ;; esac
case $1 in wheel | release) lists+=("$here/packages-wheel.txt") ;; esac
if [ "$1" = release ]; then
  . "$here/wheel/headers.sh"
  with_own_interpreters
fi
if [ "$1" = test ] && wants_emulation "$@"; then lists+=("$here/packages-emulation.txt"); fi

# wants_pages ARGS: a run with Python tests. Those of packages-pages.txt are skipped where it does not install.
wants_pages() {
  case "$1 $* " in test\ *' -R '* | test\ *' --mutants '* | test\ *' --asan '* | test\ *' --tsan '* | test\ *' --debug '*) return 1 ;; test\ *) return 0 ;; *) return 1 ;; esac
}
no_pages() { say 'no Chromium or Pillow: the tests of the report in a browser, and of pictures, are skipped'; }

if [ "$(debian_version)" -ge 13 ]; then
  for list in "${lists[@]}"; do ensure_packages_here "$list"; done
  if wants_pages "$@"; then ( ensure_packages_here "$here/packages-pages.txt" ) || no_pages; fi
  exec bash "$here/inside.sh" "$@"
fi

. "$here/make-root.sh"
. "$here/in-root.sh"
workdir=$OCTAVO_PROJECT
ensure_root "${lists[@]}"
if wants_pages "$@"; then ( ensure_root "$here/packages-pages.txt" ) || no_pages; fi
show_callers_folders "$@"
if [ "$1" = demo ] && [ -r /var/lib/dpkg/status ]; then
  # The demo searches the descriptions of the packages of this system, which has more of them than the one inside.
  mkdir -p "$OCTAVO_CACHE/demo" && cp /var/lib/dpkg/status "$OCTAVO_CACHE/demo/dpkg-status"
fi
launch=exec
[ "$1" != wheel ] || launch=
in_root bash "$here/inside.sh" "$@"

# A wheel is for older systems, too: this one's Python installs and uses it, without network where the kernel lets us take it away.
if ! python3 -c 'import ensurepip, numpy, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  say "the wheel was not tried on this system: its python3 has to be 3.10 or later, with venv and numpy"
  exit 0
fi
alone=(unshare --map-root-user --net)
"${alone[@]}" true 2>/dev/null || alone=()
step "trying the wheel on this system" wheel-here "${alone[@]}" python3 "$OCTAVO_PROJECT/tests/install/try_wheel.py" "$(ls -t "${2:-dist}"/octavo-*.whl | head -n 1)" ||
  fail "the wheel does not work on this system"
tail -n 1 "$OCTAVO_CACHE/logs/wheel-here.log"
