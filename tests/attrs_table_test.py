"""ir/attrs.def says what the schemas of the installed onnx say, for every opset that octavo reads."""
import pathlib
import re
import unittest

import onnx

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = {"INT": "i", "FLOAT": "f", "STRING": "s", "INTS": "I", "FLOATS": "F", "STRINGS": "S", "TENSOR": "t", "GRAPH": "g"}


def read_table():
    table = {}
    text = (ROOT / "ir/attrs.def").read_text()
    for domain, op, attrs in re.findall(r'^OCTAVO_ATTRS\("([^"]*)", "([^"]*)",\s*((?:"[^"]*"\s*)+)\)', text, re.M):
        words = "".join(re.findall(r'"([^"]*)"', attrs)).split()
        table[domain, op] = dict(word.split(":") for word in words)
    return table


def opsets():
    text = (ROOT / "ir/onnx/opset.h").read_text()
    return [int(re.search(name + r" = (\d+);", text)[1]) for name in ("kMinOpset", "kMaxOpset")]


class AttrsTable(unittest.TestCase):

    def test_is_what_onnx_says(self):
        table, (low, high) = read_table(), opsets()
        schemas = {}
        for schema in onnx.defs.get_all_schemas_with_history():
            if schema.domain == "" and schema.since_version <= high:
                schemas.setdefault(schema.name, []).append(schema)
        wrong = []
        for name, versions in schemas.items():
            oldest = max([s.since_version for s in versions if s.since_version <= low], default=0)
            for schema in versions:
                if schema.since_version < oldest:
                    continue
                known = table.get(("", name), {})
                for attr, value in schema.attributes.items():
                    kind = KINDS.get(str(value.type).rsplit(".", 1)[-1], "p")
                    if known.get(attr) != kind:
                        wrong.append(f"{name}-{schema.since_version}: {attr} is {kind}, the table says {known.get(attr)}")
        self.assertFalse(wrong, "\n".join(wrong))
        self.assertGreater(len(table), 300)
        self.assertIn(("com.microsoft", "FusedMatMul"), table)


if __name__ == "__main__":
    unittest.main()
