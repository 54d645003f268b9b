"""`octavo completion` and `octavo man`: what a shell and man get of the options that the program parses."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from octavo import _options


def completed(run, *words):
    """What bash offers for the last of these words."""
    return offered(run("completion", "bash").stdout, *words)


def offered(script, *words):
    line = " ".join(f"'{word}'" for word in words)
    asked = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _octavo; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-euc", asked], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_values(run):
    assert {"optimize", "bench", "man"} <= completed(run, "octavo", "") and completed(run, "octavo", "op") == {"optimize"}
    assert {option["flag"] for option in _options.OPTIONS.values()} | {"--calib", "-o"} <= completed(run, "octavo", "optimize", "-")
    assert completed(run, "octavo", "optimize", "m.onnx", "--min") == {"--min-db", "--min-cosine"}
    assert completed(run, "octavo", "optimize", "--recipe", "") == set(_options.OPTIONS["recipe"]["allowed"])
    assert completed(run, "octavo", "bench", "m.onnx", "--format", "c") == {"csv"}
    assert completed(run, "octavo", "--he") == {"--help"}
    assert completed(run, "octavo", "optimize", "mod") == set()  # a file, which bash itself finds
    assert "--typed" not in run("completion", "bash").stdout  # what is not for people


def test_other_shells(run):
    zsh = run("completion", "zsh").stdout
    assert zsh.startswith("autoload -U +X bashcompinit && bashcompinit\n") and zsh.endswith(run("completion", "bash").stdout)
    fish = run("completion", "fish").stdout.splitlines()
    (recipe,) = [line for line in fish if "'__fish_seen_subcommand_from optimize'" in line and "-l recipe" in line]
    assert f"-x -a '{' '.join(_options.OPTIONS['recipe']['allowed'])}'" in recipe
    assert all(line.startswith("complete -c octavo ") and re.sub(r"\\.", "", line).count("'") % 2 == 0 for line in fish) and len(fish) > 60
    assert run("completion", "ksh").returncode == 2


@pytest.mark.parametrize("command", ["", "optimize", "run", "bench", "compare", "calibrate", "explain", "inspect", "print", "passes", "man"])
def test_pages_for_man(run, command):
    page = run("man", *([command] if command else [])).stdout
    macros = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert macros <= {".TH", ".SH", ".TP", ".B", ".BI", ".BR", ".I", ".nf", ".fi"}, macros
    assert page.startswith(f".TH octavo{command and chr(92) + '-' + command} 1 ") and "\n.SH OPTIONS\n" in page
    if command == "optimize":
        for option in _options.OPTIONS.values():
            assert option["flag"].replace("-", "\\-") in page
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True)
        assert not done.stderr and "NAME" in done.stdout


def test_a_page_of_no_command(run):
    done = run("man", "nothing")
    assert done.returncode == 2 and "there is no command 'nothing'; there are: optimize, run, " in done.stderr


def test_the_packages_own_commands_are_completed_too(run):
    def ask(*words):
        done = subprocess.run([sys.executable, "-m", "octavo", *words], capture_output=True, text=True, check=True, env=os.environ)
        return done.stdout

    script = ask("completion", "bash")
    assert {"optimize", "tune", "generate", "perplexity"} <= offered(script, "octavo", "") and "tune" not in completed(run, "octavo", "")
    assert offered(script, "octavo", "tune", "--me") == {"--metric"} and offered(script, "octavo", "generate", "--top") == {"--top-k", "--top-p"}
    assert offered(script, "octavo", "optimize", "m.onnx", "--calib-t") == {"--calib-text", "--calib-tokens"}
    assert offered(script, "octavo", "calibrate", "--proc") == {"--processor"} and offered(script, "octavo", "bench", "--ag") == {"--against"}
    assert "--calib-text" not in run("completion", "bash").stdout
    page = ask("man", "tune")
    assert "the fastest plan that keeps a metric of yours" in page and "\\-\\-metric" in page and "may be lost, as 0.5% or 0.005 [1%]" in page
    assert "a folder of pictures" in ask("man", "optimize") and "complete -c octavo -n '__fish_seen_subcommand_from tune'" in ask("completion", "fish")
    wrong = run("completion", "bash", "--also", "{")
    assert wrong.returncode == 2 and "--also is no JSON" in wrong.stderr
