# Sourced by inside.sh: ./dev bench [PROGRAM] [OPTIONS]. Every benchmark program, or those whose name contains PROGRAM.
word=''
case ${1:-} in '' | -*) ;; *) word=$1; shift ;; esac
build release all || exit 1
use_product "$builds/release"
cd "$OCTAVO_PROJECT"
found=0
for program in "$builds"/release/benchmarks/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  case $(basename "$program") in *"$word"*) ;; *) continue ;; esac
  found=1
  echo "== $(basename "$program")"
  "$program" "$@"
done
[ "$found" = 1 ] || fail "no benchmark${word:+ is called $word}; benchmarks/ lists them"
