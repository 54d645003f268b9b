"""What `octavo completion` and `octavo man` are told of this package's own commands and options, which the program does not parse."""

import argparse
import json
import os
import subprocess
import sys

from . import _against, _calib_made, _commands, _help


def _options(parser):
    """Of an argparse parser, as the program's hidden option --also takes them; one without help is the program's own."""
    for action in parser._actions:
        if not action.option_strings or isinstance(action, argparse._HelpAction) or action.help in (None, argparse.SUPPRESS):
            continue
        flag = action.nargs == 0
        value = "" if flag else action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else "VALUE")
        yield {"flags": ",".join(action.option_strings), "value": value, "what": _help.what(action).replace("%%", "%")}


def help_of(program):
    """Prints the program's help, with this package's commands among the others."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True, env={**os.environ, "COLUMNS": str(_help.columns())})
    head, mark, tail = done.stdout.partition("\nExample:")
    commands = json.loads(also())
    own = "".join(_help.row(name, commands[name]["what"]) for name in commands if "what" in commands[name])
    sys.stdout.write(head + own + mark + tail)
    sys.stderr.write(done.stderr)
    return done.returncode


def also():
    """The JSON of all of them."""
    commands = {}
    (subparsers,) = (action for action in _commands._parser()._actions if isinstance(action, argparse._SubParsersAction))
    helps = {choice.dest: choice.help for choice in subparsers._choices_actions}
    for name, parser in subparsers.choices.items():
        commands[name] = {"what": helps[name], "options": list(_options(parser))}
    for name in ("optimize", "calibrate"):
        commands[name] = {"options": list(_options(_calib_made._parser(name)))}
    commands["bench"] = {"options": list(_options(_against._parser()))}
    return json.dumps(commands)
