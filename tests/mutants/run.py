"""Are the tests shown to fail? Applies one mutant after the other to a copy of the sources, builds the one test program
that must notice, and demands that it fails. `./dev test --mutants [NAME...]` calls this (platform/mutants.sh):

  run.py copy TO                  what git tracks or would track, brought up to date in TO; what follows is called there
  run.py programs [NAME...]       the test programs that the mutants need
  run.py go BUILD JOBS [NAME...]  the run, with a table; status 0: every mutant was killed
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
import time

import mutants


def copy(to):
    sys.path.insert(0, str(mutants.ROOT / "tests"))
    import layout_test  # which files belong to the project
    wanted = {layout_test.name_of(path): path for path in layout_test.FILES}
    for name, path in wanted.items():
        target = to / name
        content = path.read_bytes()
        if not target.is_file() or target.read_bytes() != content:  # an unchanged file keeps its time
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    for path in to.rglob("*"):
        if path.is_file() and path.relative_to(to).as_posix() not in wanted:
            path.unlink()


@dataclasses.dataclass
class Outcome:
    verdict: str  # passed, failed, or why it is neither
    tests: list
    seconds: float


def ask(build, killer, limit):
    """One run of a test program. Failed: an assertion failed, or the program began a test and crashed or did not end."""
    program, which = killer.split()
    found = list(build.glob(f"tests/*/{program}"))
    if not found:
        return Outcome(f"there is no program {program}", [], 0.0)
    start = time.monotonic()
    command = [found[0], f"--gtest_filter={which}", "--gtest_color=no", "--gtest_fail_fast"]
    try:
        done = subprocess.run(command, cwd=mutants.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=limit)
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as expired:
        output, status = (expired.stdout or b"").decode(errors="replace"), None
    seconds = time.monotonic() - start
    failed = list(dict.fromkeys(re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", output, re.M)))
    begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
    passed = re.findall(r"^\[       OK \] (\S+)", output, re.M)
    if status == 1 and failed:
        return Outcome("failed", failed, seconds)
    if (status is None or status < 0) and begun:
        how = "did not end" if status is None else f"signal {-status}"
        where = begun[-1] if begun[-1] not in passed else "the end of the program"
        return Outcome("failed", [f"{where} ({how})"], seconds)
    if status == 0:
        return Outcome("passed" if passed else f"no test of '{killer}' runs here", passed, seconds)
    return Outcome(f"'{killer}' ended with status {status}:\n{output[-2000:]}", [], seconds)


def build_program(build, jobs, program):
    """Empty, or what the compiler says."""
    done = subprocess.run(["ninja", "-C", build, "-j", str(jobs), program], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return "" if done.returncode == 0 else done.stdout.decode(errors="replace")[-3000:]


def try_mutant(mutant, build, jobs, limit):
    path = mutants.ROOT / mutant.file
    original = path.read_bytes()
    if original.count(mutant.before.encode()) != 1:
        return Outcome(f"{mutant.file} has not one place with what it changes", [], 0.0)
    try:
        path.write_bytes(original.replace(mutant.before.encode(), mutant.after.encode()))
        errors = build_program(build, jobs, mutant.program)
        if errors:
            return Outcome("does not compile:\n" + errors, [], 0.0)
        return ask(build, mutant.killed_by, limit)
    finally:
        path.write_bytes(original)


def baseline(chosen, build, jobs):
    """The limits in seconds of a run, by test. Without mutants all must pass."""
    for program in sorted({m.program for m in chosen}):
        errors = build_program(build, jobs, program)
        if errors:
            sys.exit(f"{program} does not build without mutants:\n{errors}")
    limits = {}
    for killer in sorted({m.killed_by for m in chosen}):
        outcome = ask(build, killer, 600)
        if outcome.verdict != "passed":
            sys.exit(f"without mutants: {killer}: {outcome.verdict} {' '.join(outcome.tests)}")
        limits[killer] = 30 + 10 * outcome.seconds
    return limits


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def go(build, jobs, names):
    if (mutants.ROOT / ".git").exists():
        sys.exit("this changes sources: it wants a copy of them, as ./dev test --mutants makes it")
    start = time.monotonic()
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    wanted = mutants.choose(names)
    chosen = [m for m in wanted if not m.cpu or m.cpu in flags]
    print(f"{len(chosen)} mutants; first the tests without them ...", flush=True)
    limits = baseline(chosen, build, jobs)
    print(f"all tests pass without mutants ({clock(time.monotonic() - start)})", flush=True)
    first, rows = time.monotonic(), []
    for i, mutant in enumerate(chosen):
        began = time.monotonic()
        print(f"[{i + 1:2}/{len(chosen)}] {mutant.name}:", end=" ", flush=True)
        outcome = try_mutant(mutant, build, jobs, limits[mutant.killed_by])
        verdict = {"failed": "killed", "passed": "SURVIVED"}.get(outcome.verdict, "BROKEN")
        now = time.monotonic()
        left = (now - first) / (i + 1) * (len(chosen) - i - 1)
        print(f"{verdict}, {now - began:.0f} s; {clock(now - start)} so far, about {clock(left)} to go", flush=True)
        if verdict == "BROKEN":
            print(outcome.verdict, flush=True)
        rows.append((mutant.name, verdict, outcome.tests[0] if verdict == "killed" else mutant.wrong, mutant.program))
    rows += [(m.name, "not here", f"this CPU has no {m.cpu}", m.program) for m in wanted if m not in chosen]
    print()
    for name, verdict, what, program in rows:
        print(f"  {name:34} {verdict:9} {program + ' ' if verdict == 'killed' else ''}{what}")
    killed = sum(row[1] == "killed" for row in rows)
    print(f"{killed} of {len(chosen)} mutants killed in {clock(time.monotonic() - start)}"
          + (f"; {len(wanted) - len(chosen)} cannot be tried on this CPU" if len(wanted) > len(chosen) else ""))
    return 0 if chosen and killed == len(chosen) else 1


def main(arguments):
    what, rest = arguments[0], arguments[1:]
    if what == "copy":
        copy(pathlib.Path(rest[0]))
    elif what == "programs":
        print(*sorted({m.program for m in mutants.choose(rest)}))
    elif what == "go":
        return go(pathlib.Path(rest[0]), int(rest[1]), rest[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
