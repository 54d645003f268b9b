# Sourced by inside.sh: ./dev lint [FILES]. clang-format (shown as a difference, never applied) and clang-tidy.
# Without FILES: what differs from the last commit, or, where nothing does, what the last commit changed.
cd "$OCTAVO_PROJECT"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="$OCTAVO_PROJECT"
if [ "$#" -eq 0 ]; then
  mapfile -t changed < <(git diff --name-only --diff-filter=d HEAD; git ls-files --others --exclude-standard)
  [ "${#changed[@]}" -gt 0 ] || mapfile -t changed < <(git diff --name-only --diff-filter=d HEAD~1 HEAD)
  set -- "${changed[@]}"
fi
files=(); sources=(); status=0
for file in "$@"; do
  case $file in
    *.cc) files+=("$file"); sources+=("$file") ;;
    *.h) files+=("$file") ;;
  esac
done
[ "${#files[@]}" -gt 0 ] || fail "no C++ files to look at"
for file in "${files[@]}"; do
  diff -u --label "$file" --label "$file (formatted)" "$file" <(clang-format-19 "$file") || status=1
done
build release product || exit 1
if [ "${#sources[@]}" -gt 0 ]; then
  # The compile commands are GCC's: clang does not know every warning of it.
  clang-tidy-19 --quiet --warnings-as-errors='*' -p "$builds/release" --extra-arg=-Wno-unknown-warning-option "${sources[@]}" || status=1
fi
[ "$status" -eq 0 ] && echo "lint: ${#files[@]} files, nothing found" || echo "lint: see above"
exit "$status"
