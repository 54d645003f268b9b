#!/usr/bin/env bash
# clean.sh [--all]: removes the build trees; with --all everything that ./dev put into the cache folder.
set -euo pipefail
. "$OCTAVO_PROJECT/platform/steps.sh"
. "$OCTAVO_PROJECT/platform/make-root.sh"
way=$(cat "$OCTAVO_CACHE/root.way" 2>/dev/null || echo root)
case ${1:-} in
  '') what=(build mutants logs) ;;
  --all) what=(build mutants logs ccache demo home venv root root.new root.old root.way) ;;
  *) fail "./dev clean knows only --all" ;;
esac
with_lock root
# A tree that is half removed must not look like one that is whole.
[ "${1:-}" != --all ] || [ ! -e "$root" ] || as_owner mv -T "$root" "$root.old"
for name in "${what[@]}"; do
  [ -e "$OCTAVO_CACHE/$name" ] || continue
  # Mounts live in the namespaces of running commands, so nothing is mounted here; --one-file-system is the second belt.
  case $name in
    root*) as_owner rm -rf --one-file-system "$OCTAVO_CACHE/$name" ;;
    *) rm -rf --one-file-system "${OCTAVO_CACHE:?}/$name" ;;
  esac
  say "removed $OCTAVO_CACHE/$name"
done
[ "${1:-}" != --all ] || rm -f "$OCTAVO_CACHE"/*.lock "$OCTAVO_CACHE"/in-place.*
