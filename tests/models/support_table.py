#!/usr/bin/env python3
"""The table of docs/families.md, made from what the zoo test saw. ctest leaves that in tests/models/zoo.json of the build tree.

    python3 tests/models/support_table.py zoo.json                            prints the table
    python3 tests/models/support_table.py zoo.json docs/families.md           replaces what stands between the two marks there
    python3 tests/models/support_table.py --check zoo.json docs/families.md   fails where the page says something else (a ctest):
                                                                              counts exactly, decibels within one
"""

import json
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
                f"{f'{worst:.1f} dB' if worst is not None else '-'} |")

    lines += [line(name, families[name]) for name in sorted(families, key=lambda name: (" " in name, name))]
    lines.append(line("**all**", rows))
    return "\n".join(lines)


def split_page(text):
    """What stands before, between and behind the marks."""
    head, begin, rest = text.partition(BEGIN)
    inside, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"the page lacks the marks {BEGIN} and {END}")
    return head, inside.strip(), tail


def differences(said, seen):
    """Sentences, one for each line of the table `said` that is not true by the table `seen`."""
    said, seen = ({line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines()}
                  for text in (said, seen))
    found = [f"{name}: the page does not have it" for name in seen.keys() - said.keys()]
    found += [f"{name}: the zoo does not have it" for name in said.keys() - seen.keys()]
    for name in said.keys() & seen.keys():
        if said[name][:-1] != seen[name][:-1] or not within_one(said[name][-1], seen[name][-1]):
            found.append(f"{name}: the page says {' | '.join(said[name])}, the zoo test saw {' | '.join(seen[name])}")
    return sorted(found)


def within_one(said, seen):
    """'38.2 dB' is; what is no figure (a heading, '-') must be the same."""
    if said.endswith(" dB") and seen.endswith(" dB"):
        return round(10 * abs(float(said.removesuffix(" dB")) - float(seen.removesuffix(" dB")))) <= 10
    return said == seen


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    check = len(arguments) < len(sys.argv) - 1
    if not check <= len(arguments) - 1 <= 1:
        sys.exit(__doc__)
    made = table(json.loads(pathlib.Path(arguments[0]).read_text()))
    if len(arguments) == 1:
        print(made)
        return
    page = pathlib.Path(arguments[1])
    head, inside, tail = split_page(page.read_text())
    if not check:
        page.write_text(f"{head}{BEGIN}\n{made}\n{END}{tail}")
    elif wrong := differences(inside, made):
        sys.exit("the table of docs/families.md is not what the zoo test saw:\n  " + "\n  ".join(wrong))


if __name__ == "__main__":
    main()
