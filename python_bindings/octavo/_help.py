"""How --help of this package looks: as the program's (cli/help.cc), wrapped at words to the width of the terminal; examples can be pasted."""

import argparse
import functools
import os
import sys
import textwrap

_MOST = 140  # a longer line is hard to read, however wide the terminal is


def columns():
    """Of the terminal that stdout is, else what COLUMNS says, else 100."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 100
    except (OSError, ValueError, AttributeError):  # no terminal, or a test's own stdout
        said = os.environ.get("COLUMNS", "")
        return int(said) if said.isdecimal() and int(said) > 0 else 100


def _example(line, width):
    """A command, whose lines but the last end with a backslash."""
    return " \\\n".join(textwrap.wrap(line, width - 2, initial_indent="  ", subsequent_indent="      ", break_long_words=False, break_on_hyphens=False))


def what(action):
    """The sentence of an option, and what it is unless given."""
    default = action.default
    otherwise = "" if default is None or default is False or default == [] or "[" in (action.help or "") else f" [{default}]"
    return (action.help or "") + otherwise.replace("%", "%%")


class Formatter(argparse.HelpFormatter):
    """An epilog is "Example:" and commands, a line each."""

    def __init__(self, prog, **_):
        width = min(columns(), _MOST)
        super().__init__(prog, max_help_position=20 if width < 70 else 30, width=width)

    def _get_help_string(self, action):
        return what(action)

    def _split_lines(self, text, width):
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text, width, indent):
        if not text.startswith("Example:"):
            return super()._fill_text(text, width, indent)
        return "\n".join(["Example:", *(_example(line.strip(), width) for line in text.splitlines()[1:])])


def section(parser, title):
    """The options of a parser that stand behind what the program says."""
    formatter = Formatter(parser.prog)
    formatter.start_section(title)
    formatter.add_arguments([action for action in parser._actions if action.help])
    formatter.end_section()
    return "\n" + formatter.format_help()


def row(name, sentence):
    """A line of a list of commands."""
    formatter = Formatter("octavo")
    at = formatter._max_help_position
    return textwrap.fill(sentence, formatter._width, initial_indent=f"  {name:<{at - 2}}", subsequent_indent=" " * at) + "\n"


Parser = functools.partial(argparse.ArgumentParser, formatter_class=Formatter)
