"""At least 95 % of the exporters' graphs run wholly on the execution provider: a part of the zoo here, all of it by tests/models/ep_table.py."""

import pathlib
import sys
import tarfile

import octavo
import pytest
from conftest import SOURCE

pytest.importorskip("onnxruntime", minversion="1.24", reason="no ONNX Runtime here: ./dev venv onnxruntime installs it")
sys.path.insert(0, str(SOURCE / "tests" / "models"))
import ep_table  # noqa: E402


def test_exporters_graphs_are_wholly_taken(tmp_path, capsys):
    try:
        octavo.ep_library()
    except octavo.OctavoError as error:
        pytest.skip(str(error))
    with tarfile.open(SOURCE / "tests" / "data" / "zoo" / "zoo.tar.xz") as archive:
        members = [m for m in archive if m.name.endswith(".onnx")]
        chosen = {pathlib.PurePath(m.name).stem for m in members[::15]}
        archive.extractall(tmp_path, [m for m in archive.getmembers() if pathlib.PurePath(m.name).name.split(".onnx")[0] in chosen], filter="data")
    rows, closed = ep_table.taken(tmp_path)
    with capsys.disabled():
        print("\n" + ep_table.table(rows))
    assert len(rows) + len(closed) == len(chosen) > 20 and len(closed) <= len(chosen) // 20
    exporters = [row for row in rows if ep_table.exporter_of(row[0]) != ep_table.EXPORTERS[""]]
    assert sum(n == all_ for _, n, all_, _ in exporters) >= 0.95 * len(exporters)
