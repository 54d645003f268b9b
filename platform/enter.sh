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
if [ "$1" = test ] && wants_emulation "$@"; then lists+=("$here/packages-emulation.txt"); fi

if [ "$(debian_version)" -ge 13 ]; then
  for list in "${lists[@]}"; do ensure_packages_here "$list"; done
  exec bash "$here/inside.sh" "$@"
fi

. "$here/make-root.sh"
. "$here/in-root.sh"
workdir=$OCTAVO_PROJECT
ensure_root "${lists[@]}"
show_callers_folders "$@"
if [ "$1" = demo ] && [ -r /var/lib/dpkg/status ]; then
  # The demo searches the descriptions of the packages of this system, which has more of them than the one inside.
  mkdir -p "$OCTAVO_CACHE/demo" && cp /var/lib/dpkg/status "$OCTAVO_CACHE/demo/dpkg-status"
fi
launch=exec
in_root bash "$here/inside.sh" "$@"
