# Sourced by test.sh: ./dev test --mutants [NAME...]. tests/mutants/run.py works in a copy of the sources with a build tree of its
# own, most of which comes from the compiler cache.
copy=$OCTAVO_CACHE/mutants/$checkout  # not beside the build folder: the compiler cache would call it by its own name there
checkout+=-mutants builds+=-mutants
mkdir -p "$copy"
with_lock "$checkout" && lock_fd=  # held to the end
python3 "$OCTAVO_PROJECT/tests/mutants/run.py" copy "$copy"
run=(python3 "$copy/tests/mutants/run.py")  # so that whoever goes on editing changes nothing here
programs=$("${run[@]}" programs "$@")
( OCTAVO_PROJECT=$copy && build release $programs ) || exit 1
rc=0
"${run[@]}" go "$builds/release" "$jobs" "$@" || rc=$?
exit "$rc"
