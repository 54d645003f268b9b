"""What the compiler made of the kernels: no inner loop keeps a vector on the stack.

    disassembly_test.py LIBRARY            the test, run by ctest
    disassembly_test.py LIBRARY --counts [CPU]
                                           the loops that multiply, as a table: products, loads and instructions; for a
                                           CPU of llvm-mca (package llvm-19) also what that model makes of a turn

An inner loop is a natural loop without another inside and without a call. It spills where a vector goes to a fixed place
of the stack and comes back in the same turn or the next; a loop of integer or tile products may not even read a vector
from there. GCC makes spills out of source that looks right (half the speed), so the machine code is
asked, not the source. What a loop only reads is a constant for which no register was left: it costs a load, and the
counts show it.
"""

import collections
import dataclasses
import re
import shutil
import subprocess
import sys
import unittest

LINE = re.compile(r"^\s*([0-9a-f]+):\s+(?:(?:\{\w+\}|notrack)\s+)?(\S+)\s*(.*)$")
PADDING = re.compile(r"^(nop|data16|cs|xchg)")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
MEMBER = re.compile(r"^(\S+\.o):\s+file format")
TARGET = re.compile(r"::N_(\w+?)::")
TILE = re.compile(r"kernels::tile::\w+<")
# Multiply-accumulates of one instruction in an 8-bit, 16-bit, bf16 or float element, per byte of its register.
MACS_PER_BYTE = {"vpdpbusd": 1, "vpmaddubsw": 1, "vpmaddwd": 0.5, "vdpbf16ps": 0.5}
FMA = re.compile(r"^vfn?m(add|sub)\d+ps$")
TILE_DOT = re.compile(r"^tdp")
SCALAR = re.compile(r"(ss|sd|movd|movq)$|broadcast|pinsr|pextr")
VECTOR = re.compile(r"%([xyz])mm\d+")
MEMORY = re.compile(r"-?(?:0x[0-9a-f]+)?\((%\w+)(?:,(%\w+)(?:,\d)?)?\)")
WIDTH = {"x": 16, "y": 32, "z": 64}

# The loops that the shares of a peak in benchmarks/results rest on, by function, target and products of a turn: at most so many
# instructions that do not multiply, and loads. What was measured on one CPU stays true of the code for as long as this holds.
LEAN = [
    ("VnniTile<6,", "AVX3_DL", {"vpdpbusd": 24}, 23, 10),  # kernel 1; two quads a turn and the next block's weights to L2
    ("VnniQuad, 4, 4, 1>", "AVX3_DL", {"vpdpbusd": 64}, 46, 32),  # 4 rows, four quads a turn
    ("VnniQuad, 1, 4, 2>", "AVX3_DL", {"vpdpbusd": 8}, 15, 10),  # one row
    ("Tile2x2<", "AVX3_DL", {"tdpbusd": 4}, 13, 4),
    ("CodesTile<4, true, false, 1, 1>", "AVX3_DL", {"vpdpbusd": 2}, 11, 3),  # one row by weights of 4 bits, one panel
    ("CodesTile<4, true, false, 8, 2>", "AVX3_DL", {"vpdpbusd": 32}, 31, 18),  # eight rows
    ("WideTile<6>", "AVX2", {"vpmaddwd": 12}, 24, 8),  # kernel 1, weights decoded before
    ("S16Tile<6>", "AVX2", {"vpmaddwd": 12}, 24, 8),  # widened here
    ("PairTile<4, 2>", "AVX2", {"vpmaddubsw": 16, "vpmaddwd": 8}, 33, 20),
    ("VnniQuad, 6, 2, 1>", "AVX2", {"vpdpbusd": 12}, 15, 8),
    ("VnniEngine, 6ul, 4ul,", "AVX3_DL", {"vpdpbusd": 24}, 14, 10),  # attention, both products
    ("TileColumns<4>", "AVX3_DL", {"tdpbusd": 4}, 18, 10),
    ("S16PairEngine, 6ul, 2ul,", "AVX2", {"vpmaddwd": 12}, 24, 9),
    ("::PairEngine, 6ul, 2ul,", "AVX2", {"vpmaddubsw": 12}, 24, 9),
    ("VnniEngine, 6ul, 2ul,", "AVX2", {"vpdpbusd": 12}, 12, 8),
    ("Bf16Engine, 6,", "AVX3_DL", {"vdpbf16ps": 24}, 14, 10),
    ("Bf16Columns<4>", "tile", {"tdpbf16ps": 4}, 13, 5),
]


@dataclasses.dataclass
class Instruction:
    address: int
    name: str
    operands: str

    def vector(self):
        return VECTOR.search(self.operands) is not None

    def slot(self):
        """Where on the stack a whole vector register is read or written; None: it is not. A scalar is no vector."""
        at = MEMORY.search(self.operands)
        if at is None or at[1] not in ("%rsp", "%rbp") or at[2] or not self.vector() or SCALAR.search(self.name):
            return None
        return at[0]

    def loads(self):
        """From memory: the source operand comes first in this syntax."""
        at = MEMORY.search(self.operands)
        if at is None or self.name.startswith(("lea", "prefetch")):
            return False
        return self.operands.rstrip().rfind(",") > at.start() + len(at[0]) - 1

    def products(self):
        """(kind, multiply-accumulates) or None."""
        if TILE_DOT.match(self.name):
            return self.name, 16 * 16 * (64 if "b" in self.name[3:5] else 32)
        widths = VECTOR.findall(self.operands)
        if not widths:
            return None
        if self.name in MACS_PER_BYTE:
            return self.name, MACS_PER_BYTE[self.name] * WIDTH[widths[-1]]
        return ("fma", WIDTH[widths[-1]] / 4) if FMA.match(self.name) else None


@dataclasses.dataclass
class Loop:
    member: str
    function: str
    body: list

    def target(self):
        match = TARGET.search(self.function)
        return match[1] if match else "tile"

    def spills(self):
        """The slots that it must not have."""
        slots = [(i.slot(), i.loads()) for i in self.body if i.slot()]
        if any(kind != "fma" for kind in self.products()):
            return {slot for slot, _ in slots}
        return {slot for slot, read in slots if read} & {slot for slot, read in slots if not read}

    def products(self):
        return collections.Counter(p[0] for i in self.body if (p := i.products()))

    def macs(self):
        """vpmaddwd behind vpmaddubsw only adds up."""
        adds_up = "vpmaddwd" if "vpmaddubsw" in self.products() else None
        return sum(p[1] for i in self.body if (p := i.products()) and p[0] != adds_up)


def functions(library):
    text = subprocess.run(["objdump", "-d", "-C", "-w", "--no-show-raw-insn", library], check=True, capture_output=True,
                          text=True).stdout
    member, name, body = "", "", []
    for line in text.splitlines():
        if match := MEMBER.match(line):
            member = match[1]
        elif match := FUNCTION.match(line):
            if body:
                yield at, name, body
            at, name, body = member, match[1], []
        elif match := LINE.match(line):
            body.append(Instruction(int(match[1], 16), match[2], match[3]))
    if body:
        yield at, name, body


def blocks_of(body):
    """(instructions of each basic block, its successors)."""
    index = {instruction.address: i for i, instruction in enumerate(body)}
    target = {}
    for i, instruction in enumerate(body):
        if instruction.name.startswith("j") and (match := re.match(r"([0-9a-f]+) <", instruction.operands)):
            target[i] = index.get(int(match[1], 16))
    ends = {i for i, instruction in enumerate(body) if instruction.name.startswith(("j", "ret", "ud2"))}
    starts = sorted({0} | {t for t in target.values() if t is not None} | {i + 1 for i in ends if i + 1 < len(body)})
    block_at = {start: n for n, start in enumerate(starts)}
    code, after = [], []
    for n, start in enumerate(starts):
        end = starts[n + 1] if n + 1 < len(starts) else len(body)
        last = body[end - 1].name
        successors = [block_at[target[end - 1]]] if target.get(end - 1) is not None else []
        if not last.startswith(("jmp", "ret", "ud2")) and n + 1 < len(starts):
            successors.append(n + 1)
        code.append(body[start:end])
        after.append(successors)
    if any(i.name == "jmp" and "*" in i.operands for i in body):  # a table: the blocks that nothing names are its targets
        named = {s for successors in after for s in successors}
        after[0] += [n for n in range(1, len(after)) if n not in named and not PADDING.match(code[n][0].name)]
    return code, after


def natural_loops(after):
    """The blocks of each loop by its header: every way into a loop goes through the header (dominators, by bit sets)."""
    reached, todo = set(), [0]
    while todo:
        if (b := todo.pop()) not in reached:
            reached.add(b)
            todo += after[b]
    before = [[] for _ in after]
    for n in reached:  # padding behind a jump is reached by nothing, so everything would dominate it
        for s in after[n]:
            before[s].append(n)
    everything = (1 << len(after)) - 1
    dominators = [1] + [everything] * (len(after) - 1)
    changed = True
    while changed:
        changed = False
        for n in range(1, len(after)):
            new = everything
            for p in before[n]:
                new &= dominators[p]
            new |= 1 << n
            changed |= new != dominators[n]
            dominators[n] = new
    loops = {}
    for n in sorted(reached):
        for header in after[n]:
            if dominators[n] >> header & 1:
                blocks, todo = loops.setdefault(header, {header}), [n]
                while todo:
                    if (b := todo.pop()) not in blocks:
                        blocks.add(b)
                        todo += before[b]
    return loops


def inner_loops(library):
    """Of the code that is compiled once a target, and of AMX alone: the rest runs once a call."""
    for member, name, body in functions(library):
        if not TARGET.search(name) and not TILE.search(name):
            continue
        code, after = blocks_of(body)
        loops = natural_loops(after)
        for header, blocks in loops.items():
            loop = Loop(member, name, [i for b in sorted(blocks) for i in code[b]])
            if not any(other != header and other in blocks for other in loops) and \
                    not any(i.name.startswith("call") for i in loop.body):
                yield loop


def modelled_rate(loop, cpu):
    """Multiply-accumulates a cycle, as llvm-mca sees it: a model, off by -17 to +4 % on Zen 3, and without AMX."""
    lines = ["1:"]
    for i in loop.body:
        operands = re.sub(r"<.*?>|#.*", "", i.operands)
        if i.name.startswith("j"):
            lines.append("jne 1b")
        elif not PADDING.match(i.name):
            lines.append(f"{i.name} {re.sub(r'(0x[0-9a-f]+)?.%rip.', '64(%rip)', operands)}")
    turns = 200
    model = subprocess.run(["llvm-mca-19", f"-mcpu={cpu}", "-mtriple=x86_64", f"-iterations={turns}"],
                           input="\n".join(lines), capture_output=True, text=True)
    cycles = re.search(r"Total Cycles: +(\d+)", model.stdout)
    return f"{loop.macs() * turns / int(cycles[1]):.1f}" if cycles else "not on this CPU"


def counts(library, cpu=None):
    if cpu and shutil.which("llvm-mca-19") is None:
        sys.exit("disassembly_test: --counts CPU wants llvm-mca-19, which Debian's package llvm-19 has")
    print(f"{'file':22} {'target':9} {'products in a turn':28} {'loads/product':>13} {'other/product':>13} {'MAC/turn':>9}"
          + (f" {cpu + ' MAC/cycle':>24}" if cpu else ""))
    rows = set()
    for loop in inner_loops(library):
        products = loop.products()
        total = sum(products.values())
        if total < 2:
            continue
        loads = sum(i.loads() for i in loop.body)
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(products.items()))
        rows.add((loop.member.removesuffix(".cc.o"), loop.target(), kinds, f"{loads / total:.2f}",
                  f"{(len(loop.body) - total) / total:.2f}", f"{loop.macs():.0f}",
                  modelled_rate(loop, cpu) if cpu else ""))
    for row in sorted(rows):
        print(f"{row[0]:22} {row[1]:9} {row[2]:28} {row[3]:>13} {row[4]:>13} {row[5]:>9} {row[6]:>24}".rstrip())


class Disassembly(unittest.TestCase):
    library = ""

    @classmethod
    def setUpClass(cls):
        cls.loops = list(inner_loops(cls.library))

    def test_every_form_has_its_products(self):
        """A parser that finds no loop would find no spill."""
        found = collections.Counter((loop.target(), kind) for loop in self.loops for kind in loop.products())
        for target, kind in [("AVX2", "vpmaddwd"), ("AVX2", "vpdpbusd"), ("AVX2", "fma"), ("AVX3", "vpmaddwd"), ("AVX3", "fma"),
                             ("AVX3_DL", "vpdpbusd"), ("AVX3_DL", "fma"), ("AVX3_DL", "vdpbf16ps"), ("AVX3_DL", "tdpbusd"),
                             ("AVX3_DL", "tdpbssd"), ("AVX3_DL", "tdpbf16ps"), ("tile", "tdpbf16ps")]:
            self.assertGreater(found[target, kind], 0, f"no inner loop of {target} has {kind}")

    def test_loops_are_as_lean_as_counted(self):
        for name, target, products, others, loads in LEAN:
            loops = [x for x in self.loops if x.target() == target and name in x.function and x.products() == products]
            self.assertTrue(loops, f"{target} has no {name} with {products}; if it was renamed, so is its line of LEAN")
            for loop in loops:
                counted = len(loop.body) - sum(products.values()), sum(i.loads() for i in loop.body)
                self.assertTrue(counted[0] <= others and counted[1] <= loads,
                                f"{loop.function[:140]}: (others, loads) a turn {counted} where {(others, loads)} were counted")

    def test_a_spill_would_be_seen(self):
        code = [Instruction(0, "vpdpbusd", "%zmm1,%zmm2,%zmm3"), Instruction(6, "vmovdqa64", "%zmm3,0x40(%rsp)"),
                Instruction(12, "vaddps", "-0x40(%rbp),%ymm1,%ymm2"), Instruction(18, "vmovaps", "%ymm2,-0x40(%rbp)"),
                Instruction(24, "vmovss", "%xmm1,0x4c(%rsp)"), Instruction(30, "vmovaps", "%ymm2,(%rsp,%rax,4)")]
        self.assertEqual(Loop("", "", code[:2]).spills(), {"0x40(%rsp)"})
        self.assertEqual(Loop("", "", code[2:4]).spills(), {"-0x40(%rbp)"})
        self.assertEqual(Loop("", "", code[3:]).spills(), set())

    def test_padding_hides_no_loop(self):
        """A jump into the middle of a loop, behind it bytes that nothing reaches: they are no way into the loop."""
        code = [Instruction(0, "jmp", "4 <f+0x4>"), Instruction(2, "nopw", "0x0(%rax,%rax,1)"), Instruction(3, "inc", "%rax"),
                Instruction(4, "dec", "%rcx"), Instruction(5, "jne", "3 <f+0x3>"), Instruction(6, "ret", "")]
        self.assertEqual(natural_loops(blocks_of(code)[1]), {3: {2, 3}})

    def test_no_inner_loop_keeps_a_vector_on_the_stack(self):
        wrong = [f"{loop.member}, {loop.function[:140]}: a loop of {len(loop.body)} instructions from {loop.body[0].address:x} "
                 f"on has {len(loop.spills())} vectors on the stack" for loop in self.loops if loop.spills()]
        self.assertFalse(wrong, f"{len(wrong)} inner loops spill:\n  " + "\n  ".join(wrong))


if __name__ == "__main__":
    if "--counts" in sys.argv:
        counts(*(a for a in sys.argv[1:] if a != "--counts"))
    else:
        Disassembly.library = sys.argv.pop(1)
        unittest.main(verbosity=2)
