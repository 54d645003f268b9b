"""The list of mutants, tests/mutants/*.toml: changes of one place in the sources that a test must notice."""

import dataclasses
import fnmatch
import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KEYS = {"name", "wrong", "file", "before", "after", "killed_by"}


@dataclasses.dataclass
class Mutant:
    name: str
    wrong: str  # one sentence: what no longer holds
    file: str
    before: str  # stands in the file once
    after: str
    killed_by: str  # "PROGRAM FILTER", as GoogleTest takes it
    cpu: str = ""  # a flag of /proc/cpuinfo without which the changed code does not run

    @property
    def program(self):
        return self.killed_by.split()[0]

    @property
    def filter(self):
        return self.killed_by.split()[1]


def load():
    mutants = []
    for path in sorted(pathlib.Path(__file__).parent.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            wrong = KEYS - entry.keys() or entry.keys() - KEYS - {"cpu"}
            if wrong:
                sys.exit(f"{path.name}: {entry.get('name', entry)}: missing or unknown: {', '.join(sorted(wrong))}")
            mutants.append(Mutant(**entry))
    return mutants


def choose(names):
    """Those that match one of the names or patterns; all without any."""
    mutants = load()
    for name in names:
        if not any(fnmatch.fnmatch(m.name, name) for m in mutants):
            sys.exit(f"there is no mutant '{name}'; there are: {' '.join(m.name for m in mutants)}")
    return [m for m in mutants if not names or any(fnmatch.fnmatch(m.name, name) for name in names)]
