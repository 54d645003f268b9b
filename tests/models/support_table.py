#!/usr/bin/env python3
"""README's table of model families, made from what the zoo test saw.

    OCTAVO_ZOO_JSON=zoo.json models_zoo_test --gtest_filter=Zoo.Shared
    python3 tests/models/support_table.py zoo.json [README.md]

Without README.md the table is printed; with it, it replaces what stands between the two marks there.
"""

import json
import math
import pathlib
import sys

BEGIN, END = "<!-- begin: tests/models/support_table.py -->", "<!-- end: tests/models/support_table.py -->"


# Graphs that are made to be difficult rather than models that somebody deploys, in one line each.
GROUPS = {"b_": "hand-written blocks (masks, scales, layouts, decoys)", "x_": "file forms (functions, If, external data)",
          "t_": "torch.nn modules", "torch_": "torch.nn modules", "v_": "ONNX Runtime's attention ops", "sdpa_": "torch sdpa calls",
          "four_users": "torch.nn modules", "opt_": "ONNX Runtime's optimizer output"}


def family_of(row):
    name = row["family"].removeprefix("old_")  # the same model by an older exporter
    if name == "opt":
        return name  # the model
    return next((group for prefix, group in GROUPS.items() if name.startswith(prefix)), name)


def table(rows):
    families = {}
    for row in rows:
        families.setdefault(family_of(row), []).append(row)
    lines = ["| family | graphs | run, fuse, export | attention cores fused | QKV groups | cores in int8 | int8 outputs, worst |",
             "|---|---|---|---|---|---|---|"]

    def line(name, graphs):
        counted = [g for g in graphs if not g["quantized"] and g["cores"] >= 0]
        cores, groups = (sum(max(0, g[k]) for g in counted) for k in ("cores", "groups"))
        fused = sum(min(g["cores"], g["cores_fused"]) for g in counted)
        grouped = sum(min(max(0, g["groups"]), g["groups_fused"]) for g in counted)
        int8 = [g for g in counted if g["int8_cores"] >= 0]
        int8_cores = sum(min(g["cores"], g["int8_cores"]) for g in int8)
        worst = min((g["sqnr_db"] for g in int8 if g["int8_cores"] > 0), default=None)
        good = sum(not g["failed"] for g in graphs)
        return (f"| {name} | {len(graphs)} | {good} | {f'{fused} of {cores}' if counted else '-'} | "
                f"{f'{grouped} of {groups}' if groups else '-'} | {f'{int8_cores} of {cores}' if int8 else '-'} | "
                f"{f'{math.floor(worst)} dB' if worst is not None else '-'} |")

    lines += [line(name, families[name]) for name in sorted(families, key=lambda name: (" " in name, name))]
    lines.append(line("**all**", rows))
    return "\n".join(lines)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    made = table(json.loads(pathlib.Path(sys.argv[1]).read_text()))
    if len(sys.argv) == 2:
        print(made)
        return
    readme = pathlib.Path(sys.argv[2])
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        sys.exit(f"{readme} lacks the marks {BEGIN} and {END}")
    head, rest = text.split(BEGIN, 1)
    readme.write_text(f"{head}{BEGIN}\n{made}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
