"""Writes ONNX's own node tests, as the installed onnx generates them, into an archive; data that Debian's libonnx-testdata has under the
same name are left out. Run by hand (README.md): make.py ARCHIVE [FOLDER OF DEBIAN'S NODE TESTS]."""
import io
import lzma
import pathlib
import sys
import tarfile

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_node_model_tests
from onnx.helper import tensor_dtype_to_string

DEBIAN = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "/usr/share/libonnx-testdata/data/node")
LEFT_OUT = {"test_lppool_3d_default"}  # 350 KB of random numbers


def data_of(value, info):
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name).SerializeToString()
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name).SerializeToString()
    if isinstance(value, TensorProto):
        return value.SerializeToString()
    return numpy_helper.from_array(np.asarray(value), info.name).SerializeToString()


def type_of(graph):
    kind = graph.input[0].type if graph.input else graph.output[0].type
    if not kind.HasField("tensor_type"):
        return kind.WhichOneof("value")
    return tensor_dtype_to_string(kind.tensor_type.elem_type).removeprefix("TensorProto.")


def main():
    models, data, ops = {}, {}, {}
    cases = {c.name: c for c in load_node_model_tests() if c.name not in LEFT_OUT}
    for name, case in cases.items():
        models[f"{name}/model.onnx"] = case.model.SerializeToString()
        of = name.split("_expanded")[0]  # a twin of several ops stands for the op that it was made of
        ops[name] = (cases[of] if of in cases else case).model.graph.node[0].op_type, type_of(case.model.graph)
        for i, (inputs, outputs) in enumerate(case.data_sets):
            for kind, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
                for j, value in enumerate(values):
                    path = f"{name}/test_data_set_{i}/{kind}_{j}.pb"
                    bytes_ = data_of(value, infos[j])
                    known = DEBIAN / path
                    if not known.exists() or known.read_bytes() != bytes_:
                        data[path] = bytes_
    files = {"cases.txt": "".join(f"{n} {op} {t}\n" for n, (op, t) in sorted(ops.items())).encode()}
    files |= dict(sorted(models.items())) | dict(sorted(data.items(), key=lambda e: (e[0].rsplit("/")[-1], e[0])))
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 3, "pb": 0}]
    pathlib.Path(sys.argv[1]).write_bytes(lzma.compress(tar.getvalue(), filters=filters))


if __name__ == "__main__":
    main()
