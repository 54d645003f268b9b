# Sourced by enter.sh: the Debian 13 root file system in the cache folder.
# It is made as root.new and gets its name when the base system is whole. Two stamps inside the tree tell how far it got:
# etc/octavo-base (the format) and etc/octavo-packages (hash of the package list that is installed). An installation that was
# interrupted has no stamp and is repaired by the next run.

root_format=1   # raise it when trees made before must be thrown away
root=$OCTAVO_CACHE/root

root_stamp() { printf '%s/etc/octavo-%s' "$root" "$(basename "$1" .txt)"; }
root_ready() {
  [ "$(cat "$root/etc/octavo-base" 2>/dev/null)" = "$root_format" ] &&
    [ "$(cat "$(root_stamp "$1")" 2>/dev/null)" = "$(hash_of "$1")" ]
}

# How this user may enter another root: as root with a private mount namespace, in a user namespace, or by proot.
# A tree belongs to the way it was made (owners differ), so the choice is kept beside it.
choose_way() {
  if [ -s "$OCTAVO_CACHE/root.way" ] && [ -d "$root" ]; then way=$(cat "$OCTAVO_CACHE/root.way"); return; fi
  if [ -n "${OCTAVO_WAY:-}" ]; then way=$OCTAVO_WAY
  elif [ "$(id -u)" = 0 ] && unshare --mount --propagation private true 2>/dev/null; then way=root
  elif unshare --map-root-user --map-auto --mount --propagation private true 2>/dev/null; then way=userns
  elif command -v proot >/dev/null && proot -0 true 2>/dev/null; then way=proot
  elif [ "$(id -u)" = 0 ]; then
    fail "this container forbids mount namespaces (unshare --mount fails), so Debian 13 cannot be entered: start it with CAP_SYS_ADMIN, install proot, or use a Debian 13 image, where ./dev works in place"
  else
    fail "neither root nor unprivileged user namespaces (unshare --map-root-user --map-auto, package uidmap) nor proot serve here, so Debian 13 cannot be entered: run ./dev as root, have one of them installed, or use Debian 13, where ./dev works in place"
  fi
  printf '%s\n' "$way" >"$OCTAVO_CACHE/root.way"
}

# as_owner COMMAND...: with the right to write and delete in the tree.
as_owner() {
  if [ "$way" = userns ]; then unshare --map-root-user --map-auto "$@"; else "$@"; fi
}

need_program() {  # need_program PROGRAM PACKAGES: installed with apt where root may
  command -v "$1" >/dev/null && return
  command -v apt-get >/dev/null || fail "the program $1 is missing and there is no apt-get to install it: install $1, or use Debian 13"
  [ "$(id -u)" = 0 ] || fail "the program $1 is missing and only root can install it: sudo apt-get install $2"
  # shellcheck disable=SC2086
  step "installing $2" host-packages sh -c "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $2"
}

make_base() {
  local new=$root.new options=() line
  while read -r line; do options+=("--aptopt=$line"); done < <(apt_settings)
  [ ! -e "$root" ] || as_owner mv -T "$root" "$root.old"
  as_owner rm -rf --one-file-system "$new" "$root.old"
  case $way in
    root) make_base_mmdebstrap env ;;
    userns) make_base_mmdebstrap unshare --map-root-user --map-auto --mount --propagation private ;;
    proot) make_base_proot ;;
  esac || return
  as_owner sh -ec '
    printf "force-unsafe-io\n" >"$1/etc/dpkg/dpkg.cfg.d/octavo"   # the tree can be made again: no fsync per file
    mkdir -p "$1/etc/ssl"; : >"$1/etc/ssl/octavo-ca.crt"; [ -e "$1/etc/resolv.conf" ] || : >"$1/etc/resolv.conf"
    printf "%s\n" "$2" >"$1/etc/octavo-base"' sh "$new" "$root_format" || return
  as_owner mv -T "$new" "$root"
}

make_base_mmdebstrap() {  # "$@": the prefix that gives the rights
  "$@" mmdebstrap --variant=minbase --mode=root --aptopt='APT::Install-Recommends "false"' "${options[@]}" \
    trixie "$new" "$mirror"
}

# Without any rights: proot pretends to be root. debootstrap unpacks the tree here and configures it inside itself. Devices cannot
# be made, so files stand in for them (proot shows the real /dev), and the link that debootstrap leaves as /proc points to itself inside.
make_base_proot() {
  local device line
  mkdir -p "$new/dev"
  for device in null zero full random urandom tty console ptmx; do : >"$new/dev/$device"; done
  proot -0 debootstrap --foreign --variant=minbase trixie "$new" "$mirror" || return
  rm -f "$new/proc" && mkdir -p "$new/proc"
  proot -0 -r "$new" -b /proc -b /sys -b /dev -w / /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    DEBOOTSTRAP_DIR=/debootstrap /debootstrap/debootstrap --second-stage || return
  for line in 'APT::Install-Recommends "false";' "${options[@]#--aptopt=}"; do printf '%s\n' "$line"; done \
    >"$new/etc/apt/apt.conf.d/99octavo"
}

install_in_root() {
  # shellcheck disable=SC2046
  in_root sh -ec '
    export DEBIAN_FRONTEND=noninteractive
    dpkg --configure -a; apt-get -q update; apt-get -q -y --fix-broken install
    apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends "$@"; apt-get clean' sh $(packages "$1") || return
  as_owner sh -c 'hash=$1; printf "%s\n" "$hash" >"$2"' sh "$(hash_of "$1")" "$(root_stamp "$1")"
}

ensure_root() {  # ensure_root LIST...
  local list mirror
  choose_way
  for list in "$@"; do
    root_ready "$list" && continue
    with_lock root
    if [ "$(cat "$root/etc/octavo-base" 2>/dev/null)" != "$root_format" ]; then
      # Only trees that carry our stamp are thrown away. A tree gets its name last, so one without it is not of our making;
      # one that holds no file at all (mount points that an interrupted removal left) has nothing to lose.
      [ ! -e "$root" ] || [ -s "$root/etc/octavo-base" ] || [ -z "$(as_owner find "$root" -xdev ! -type d -print -quit)" ] ||
        fail "$root was not made by ./dev and stays as it is: move it away or name another OCTAVO_CACHE"
      mirror=$(debian_mirror)
      [ -n "$mirror" ] || fail "this system's apt settings name no Debian mirror: name one in OCTAVO_MIRROR (an address that ends in /debian)"
      need_program unshare util-linux
      if [ "$way" = proot ]; then need_program debootstrap debootstrap; else need_program mmdebstrap mmdebstrap; fi
      say "first run: making a Debian 13 system in $root (once; about two minutes and 1.3 GB)"
      step "Debian 13 base system" root-base make_base || fail "no Debian 13 base system: check the network and the mirror, then run the same command again"
    fi
    root_ready "$list" || step "Debian 13 packages ($(basename "$list"))" root-packages install_in_root "$list" ||
      fail "the packages did not install: check the network, then run the same command again (it goes on where this one stopped)"
    release_lock
  done
}
