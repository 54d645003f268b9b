# Sourced: which Debian this is, its mirror, and packages installed in place.

# Major version of this Debian, 0 elsewhere. Testing and unstable have no VERSION_ID: their code name comes after trixie.
debian_version() {
  ( ID='' VERSION_ID='' VERSION_CODENAME=''
    . /etc/os-release 2>/dev/null || true
    [ "$ID" = debian ] || { echo 0; exit; }
    case ${VERSION_ID:-$VERSION_CODENAME} in
      [0-9]*) echo "${VERSION_ID%%.*}" ;;
      *) echo 14 ;;
    esac )
}

# The Debian mirror of this system. Both source formats are read by apt itself; other archives (security, Ubuntu) do not match.
debian_mirror() {
  if [ -n "${OCTAVO_MIRROR:-}" ]; then printf '%s\n' "$OCTAVO_MIRROR"; return; fi
  command -v apt-get >/dev/null || return 0
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep '/debian/*$' | head -n 1 || true
}

# apt settings of this system that reaching the mirror depends on, one "Name "value";" a line.
apt_settings() {
  command -v apt-config >/dev/null || return 0
  apt-config dump --format '%F "%v";%n' 2>/dev/null |
    grep -E '^Acquire::(http::Proxy|https::Proxy|https::CAInfo|Check-Valid-Until|Check-Date|Retries) "[^"]+";$' || true
}

install_here() {
  export DEBIAN_FRONTEND=noninteractive
  "$@" dpkg --configure -a && "$@" apt-get -q update && "$@" apt-get -q -y --fix-broken install || return
  # shellcheck disable=SC2046
  "$@" apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends $(packages "$package_list")
}

# In place, on Debian 13 or later. $1: package list.
ensure_packages_here() {
  package_list=$1
  local stamp=$OCTAVO_CACHE/in-place.$(basename "$1" .txt) missing
  [ "$(cat "$stamp" 2>/dev/null)" = "$(hash_of "$1")" ] && return
  # shellcheck disable=SC2046
  missing=$(comm -23 <(packages "$1" | sort -u) \
                     <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(packages "$1") 2>/dev/null |
                       sed -n 's/^installed //p' | sort -u) | tr '\n' ' ')
  if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then step "installing packages" packages install_here
    elif sudo -n true 2>/dev/null; then step "installing packages (sudo)" packages install_here sudo
    else fail "these packages are missing and only root can install them: sudo apt-get install --no-install-recommends $missing"
    fi
  fi
  hash_of "$1" >"$stamp"
}
