# Sourced by inside.sh: ./dev docs [FOLDER]. The documents as a site in FOLDER (site), to be read from a disk or any server; a link that leads nowhere fails.
site=$(realpath -m "${1:-site}")
. "$platform/venv.sh"
venv=$OCTAVO_CACHE/venv-docs  # apart from what the tests use
ensure_venv docs || fail "MkDocs could not be fetched from PyPI: check the network and pip's settings, then run the same command again"
build release product || exit 1
PYTHONPATH=$builds/release/python python3 "$platform/docs/stage.py" "$builds/docs" python3 -m octavo
step "making the site" docs env -C "$builds/docs" "$venv/bin/mkdocs" build --strict --clean -d "$site" || fail "a page names what is not there: the warnings above say which"
say "$site/index.html"
