# Sourced by enter.sh: in_root COMMAND... runs it in the Debian 13 tree.
# Mounts live in a private mount namespace and vanish with the process: none is ever seen outside or left behind, so that
# removing the tree can never reach the project or /dev. With launch=exec it takes the place of this shell, so that signals
# sent to ./dev reach the program itself.

binds=("$OCTAVO_CACHE" "$OCTAVO_PROJECT")

# A folder that is part of the system itself cannot be shown inside without hiding the Debian 13 one.
is_system_folder() {
  case $1 in
    / | /bin* | /sbin* | /lib* | /etc* | /dev* | /proc* | /sys* | /run | /boot* | /var | /var/lib* | /var/cache*) return 0 ;;
    /usr | /usr/bin* | /usr/sbin* | /usr/lib* | /usr/share* | /usr/include*) return 0 ;;
  esac
  return 1
}

# show FOLDER: visible inside at its own path, unless a folder above it is already.
show() {
  local known
  [ -d "$1" ] && ! is_system_folder "$1" || return 0
  for known in "${binds[@]}"; do case $1/ in "$known"/*) return 0 ;; esac; done
  binds+=("$1")
}

# Folders of the caller: the current one, OCTAVO_BIND, and those of files named by arguments.
show_callers_folders() {
  local folder argument
  workdir=$(pwd -P)
  if is_system_folder "$workdir"; then
    say "the folder $workdir belongs to this system and is not visible inside; running in $OCTAVO_PROJECT"
    workdir=$OCTAVO_PROJECT
  else
    show "$workdir"
  fi
  local IFS=:
  for folder in ${OCTAVO_BIND:-}; do
    [ -d "$folder" ] || fail "OCTAVO_BIND names $folder, which is not a folder"
    is_system_folder "$folder" && fail "OCTAVO_BIND names $folder, which belongs to this system; bind a folder of your own"
    show "$(realpath -s "$folder")"
  done
  unset IFS
  for argument in "$@"; do
    argument=${argument#-*=}
    case $argument in
      */*) folder=$(realpath -ms -- "$argument" 2>/dev/null) || continue
           if [ -d "$folder" ]; then show "$folder"; else show "$(dirname -- "$folder")"; fi ;;
    esac
  done
}

host_ca_bundle() {
  local file
  for file in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}" \
              /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    if [ -n "$file" ] && [ -s "$file" ]; then printf '%s\n' "$file"; return; fi
  done
}

# pip's index as this user's settings name it: the variables win, then the files that pip reads.
pip_setting() {
  local file
  for file in "${PIP_CONFIG_FILE:-}" "${HOME:-/}/.config/pip/pip.conf" "${HOME:-/}/.pip/pip.conf" /etc/pip.conf; do
    [ -n "$file" ] && [ -r "$file" ] && sed -nE "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*(http[^[:space:]]+)[[:space:]]*$/\1/p" "$file"
  done | head -n 1
}

# The environment inside is made here by name: nothing else of the caller's gets in.
inside_environment() {
  local name value
  environment=(HOME="$OCTAVO_CACHE/home" LC_ALL=C.UTF-8 TERM="${TERM:-dumb}"
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    OCTAVO_PROJECT="$OCTAVO_PROJECT" OCTAVO_CACHE="$OCTAVO_CACHE")
  for name in $(compgen -e); do
    case $name in
      PIP_CERT | PIP_CONFIG_FILE | PIP_FIND_LINKS | PIP_REQUIRE_VIRTUALENV) continue ;;
      OCTAVO_PROJECT | OCTAVO_CACHE | OCTAVO_MIRROR) continue ;;
      PIP_* | OCTAVO_* | HWY_* | DNNL_* | OMP_* | CTEST_* | GTEST_* | NO_COLOR | COLUMNS | CI) ;;
      http_proxy | https_proxy | no_proxy | all_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY | ALL_PROXY) ;;
      *) continue ;;
    esac
    environment+=("$name=${!name}")
  done
  if [ -z "${PIP_INDEX_URL:-}" ]; then
    value=$(pip_setting index-url)
    [ -z "$value" ] || environment+=("PIP_INDEX_URL=$value")
  fi
  ca_bundle=$(host_ca_bundle)
  [ -z "$ca_bundle" ] || for name in PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE; do
    environment+=("$name=/etc/ssl/octavo-ca.crt")
  done
}

in_root() {
  local ca_bundle='' environment=()
  inside_environment
  mkdir -p "$OCTAVO_CACHE/home"
  case $way in
    proot) in_root_proot "$@" ;;
    root) in_root_namespace unshare --mount --propagation private -- "$@" ;;
    userns) in_root_namespace unshare --map-root-user --map-auto --mount --propagation private -- "$@" ;;
  esac
}

in_root_namespace() {  # PREFIX... -- COMMAND...
  local prefix=()
  while [ "$1" != -- ]; do prefix+=("$1"); shift; done
  shift
  ${launch:-} "${prefix[@]}" sh -ec '
    root=$1 workdir=$2 ca_bundle=$3 count=$4; shift 4
    while [ "$count" -gt 0 ]; do
      mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift; count=$((count - 1))
    done
    for folder in /proc /sys /dev; do mount --rbind "$folder" "$root$folder"; done
    [ ! -e /etc/resolv.conf ] || mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
    [ -z "$ca_bundle" ] || mount --bind "$ca_bundle" "$root/etc/ssl/octavo-ca.crt"
    exec chroot "$root" /usr/bin/env -i "$@"' sh \
    "$root" "$workdir" "$ca_bundle" "${#binds[@]}" "${binds[@]}" "${environment[@]}" \
    sh -c 'cd "$1" && shift && exec "$@"' sh "$workdir" "$@"
}

in_root_proot() {
  local folder options=()
  for folder in "${binds[@]}" /proc /sys /dev; do options+=(-b "$folder"); done
  [ ! -e /etc/resolv.conf ] || options+=(-b "$(readlink -f /etc/resolv.conf):/etc/resolv.conf")
  [ -z "$ca_bundle" ] || options+=(-b "$ca_bundle:/etc/ssl/octavo-ca.crt")
  ${launch:-} proot -0 -r "$root" "${options[@]}" -w "$workdir" /usr/bin/env -i "${environment[@]}" "$@"
}
