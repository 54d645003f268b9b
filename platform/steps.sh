# Sourced by the scripts of this folder: messages, and steps with time and log. Everything goes to stderr, since stdout
# belongs to the program that runs (octavo --json).

lock_fd=
say() { printf 'octavo: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# step TITLE LOGNAME COMMAND...: a line when it begins and one with the time when it is done; the end of its log only when it
# fails. A step of less than a second says nothing, so that ./dev octavo is silent when nothing has changed.
# It runs as a process group of its own, so that a signal to ./dev ends all of it. The last "[done/total]" of a ninja log
# is repeated every half minute: a slow build is not a silent one.
step() {
  local title=$1 log=$OCTAVO_CACHE/logs/$2.log start=$SECONDS rc=0 beat child
  shift 2
  mkdir -p "$OCTAVO_CACHE/logs"
  heartbeat "$title" "$log" & beat=$!
  set -m
  ( "$@" ) >"$log" 2>&1 </dev/null & child=$!
  set +m
  trap 'kill -TERM -- -"$child"; kill "$beat"; say "stopped by a signal; the same command goes on from here"; exit 130' INT TERM HUP
  wait "$child" || rc=$?
  trap - INT TERM HUP
  kill "$beat" 2>/dev/null || true
  wait "$beat" 2>/dev/null || true
  if [ "$rc" -ne 0 ]; then
    { grep -nE -A 8 '^(FAILED|CMake Error|E:|error:)|: (fatal )?error:' "$log" | head -n 40 || true
      printf -- '---- last lines of %s\n' "$log"; tail -n 20 "$log"; } | sed -E -e "s|(\.\./)+source/||g; s|$OCTAVO_CACHE/build/[^/]*/source/||g" >&2
    say "$title: failed after $((SECONDS - start)) s (status $rc); the whole log is $log"
    return "$rc"
  fi
  [ "$((SECONDS - start))" -lt 2 ] || say "$title: done in $((SECONDS - start)) s"
}

heartbeat() {
  local last start=$SECONDS pause=1
  exec >&2
  [ -z "$lock_fd" ] || exec {lock_fd}>&-
  while sleep "$pause" >/dev/null 2>&1; do  # an orphaned sleep must not hold the pipe that a reader waits for
    if [ "$pause" = 1 ]; then say "$1 ..."; pause=29; continue; fi
    pause=30
    last=$(tail -c 4000 "$2" 2>/dev/null | tr '\r' '\n' | grep -aoE '^\[[0-9]+/[0-9]+\]' | tail -n 1 || true)
    say "  ${last:-...} $((SECONDS - start)) s"
  done
}

# with_lock NAME: waits for another run that holds the lock; held until this process and its children end.
with_lock() {
  local file=$OCTAVO_CACHE/$1.lock
  exec {lock_fd}>"$file"
  flock --nonblock "$lock_fd" && return 0
  say "waiting for another run ($1)"
  flock "$lock_fd"
}
release_lock() { exec {lock_fd}>&-; lock_fd=; }

# packages FILE: the names in a package list, comments stripped.
packages() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$1" | tr -s '[:space:]' '\n'; }
hash_of() { cat "$@" | sha256sum | cut -c1-16; }

# wants_emulation ARGS of ./dev test: whole runs on a CPU without AVX-512 VNNI, and --all.
wants_emulation() {
  case " $* " in
    *' --all '*) return 0 ;;
    *' -R '* | *' -k '* | *' --mutants '*) return 1 ;;
  esac
  ! grep -qm1 avx512_vnni /proc/cpuinfo
}
