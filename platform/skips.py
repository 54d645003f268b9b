#!/usr/bin/env python3
"""Which tests were skipped, and whether they may be.

    platform/skips.py LIST REPORT...

REPORT: an XML file of GoogleTest, ctest or pytest, or a folder of them. Prints how many tests were skipped, and on stderr their
names by reason. LIST has a line for each skip that is expected somewhere: a pattern of names, two spaces, words of the reason
that the test itself gives. Where the variable CI is set, any other skip is status 1: there a test that is not run failed.
"""

import collections
import fnmatch
import os
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def read_list(text):
    """[(pattern, reason)]"""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            pattern, _, reason = (part.strip() for part in line.partition("  "))
            if not reason:
                raise ValueError(f"line {number}: '{line}' has no reason; write PATTERN, two spaces, words of the reason")
            entries.append((pattern, reason))
    return entries


def skipped(report):
    """(name, reason) of each test in a report that did not run, or not to its end."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        mark = case.find("skipped")
        if mark is not None:
            reason = mark.get("message") or mark.text or ""
            if reason == "collection skipped":  # pytest, a whole file: the text is a tuple of place and reason
                reason = re.sub(r"^\(.*, ['\"](Skipped: )?|['\"]\)$", "", (mark.text or reason).strip())
            # GoogleTest begins with the place in the source.
            yield name, re.sub(r"^\S+:\d+\n", "", reason).strip() or "no reason given"
        elif case.get("status") in ("notrun", "disabled"):
            yield name, "disabled"


def reports(paths):
    found = [file for path in map(pathlib.Path, paths) for file in (sorted(path.glob("*.xml")) if path.is_dir() else [path])]
    if not found:
        raise ValueError("no report is there")
    return found


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    try:
        expected = read_list(pathlib.Path(arguments[0]).read_text())
        skips = [skip for report in reports(arguments[1:]) for skip in skipped(report)]
    except (OSError, ValueError, ElementTree.ParseError) as error:
        sys.exit(f"octavo: skips of {' '.join(arguments)}: {error}")
    by_reason = collections.defaultdict(list)
    for name, reason in skips:
        by_reason[reason].append(name)
    for reason, names in sorted(by_reason.items()):
        print(f"skipped {len(names)}: {reason.splitlines()[0]} ({', '.join(names[:3])}{', ...' if names[3:] else ''})", file=sys.stderr)
    print(len(skips))
    unexpected = [(name, reason) for name, reason in skips
                  if not any(fnmatch.fnmatchcase(name, pattern) and words in reason for pattern, words in expected)]
    if unexpected and os.environ.get("CI"):
        for name, reason in unexpected:
            print(f"octavo: {name} was skipped and is not in {arguments[0]}: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
