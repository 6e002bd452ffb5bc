#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that docs/edge-cases.md, and SECURITY.md if there is one, name tests that exist.

usage: edge_cases.py [DOCUMENT ...]

The tables name a test in backquotes: `FILE: NAME`. Further tests of that file, until
a semicolon, are `NAME` alone. A * or ... in a name stands for anything. FILE is the
path of a source file or a script in tests/, NAME a function there that is run; or
FILE is in kernel/selftests/, NAME a TEST, FIXTURE.TEST or FIXTURE.VARIANT.TEST; or
FILE is vm/test, NAME one of its tests. In edge-cases.md, the rows K1 to K27 and L1 to L12
must all be there, and each line of the tables must have a test.

Exit status: 0 if all is well, 1 if not, 2 for a wrong command line.
"""

import argparse
import fnmatch
import pathlib
import re
import signal
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
ROWS = [f"K{n}" for n in range(1, 28)] + [f"L{n}" for n in range(1, 13)]
NAMED = re.compile(r"`([\w./-]+): ([\w.*-]+)`")


def read(path):
    """The text of a file; ends the program if it can't be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        sys.exit(f"edge_cases.py: wanted to read {path}, got {error.strerror}; "
                 "is this a whole checkout?")


def selftest_names(text):
    """The tests of a kernel selftest that uses the harness."""
    names, variants, fixtures = set(), {}, []
    for macro, arguments in re.findall(
            r"^(TEST|TEST_SIGNAL|TEST_F|TEST_F_SIGNAL|TEST_F_TIMEOUT|FIXTURE_VARIANT_ADD)"
            r"\(([^)]*)\)", text, re.M):
        words = [word.strip() for word in arguments.split(",")]
        if macro == "FIXTURE_VARIANT_ADD":
            variants.setdefault(words[0], []).append(words[1])
        elif macro.startswith("TEST_F"):
            fixtures.append((words[0], words[1]))
        else:
            names.add(words[0])
    for fixture, test in fixtures:
        names.add(f"{fixture}.{test}")
        names.update(f"{fixture}.{variant}.{test}" for variant in variants.get(fixture, ()))
    return names


def program_names(text):
    """The functions of a C program that are run as tests, or as parts of one."""
    # Names in comments don't count.
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    functions = set(re.findall(r"^(?:static )?[\w *]*?\b(\w+)\([^)]*\)\n{", text, re.M))
    tests = set(re.findall(r"^TEST\w*\((?:\w+, )?(\w+)\)$", text, re.M))
    listed = re.findall(r"(?:cmocka_unit_test\(|\bCASE\(\"\w+\", )(\w+)\)", text)
    if tests or listed:
        return tests | functions & set(listed)
    # A program of one test: whatever it calls.
    return {name for name in functions if len(re.findall(rf"\b{name}\b", text)) > 1}


class Sources:
    """All that a name may lead to."""

    def __init__(self):
        self.built = "".join(map(read, (TOP / "tests").rglob("CMakeLists.txt")))
        self.known = {}

    def names(self, file):
        """The tests in a file, or what is wrong with the file."""
        if file == "vm/test":
            found = set()
            for tier in ("--full", "--long"):
                listing = subprocess.run([TOP / "vm" / "test", "-N", tier],
                                         capture_output=True, text=True, check=False)
                if listing.returncode:
                    return f"wanted the tests, vm/test -N says: {listing.stderr.strip()}"
                found.update(re.findall(r"Test +#\d+: (\S+)", listing.stdout))
            return found
        path = TOP / "tests" / file
        if path.is_file():
            if not re.search(rf"\b{re.escape(path.name)}\b", self.built):
                return "no CMakeLists.txt in tests/ builds or runs that file"
            text = read(path)
            if path.suffix in (".c", ".cpp"):
                return program_names(text)
            if path.suffix == ".py":
                return set(re.findall(r"^def (test_\w+)\(\)", text, re.M))
            return set(re.findall(r"^(\w+)\(\)", text, re.M))
        path = TOP / "kernel" / "selftests" / file
        if path.is_file():
            return selftest_names(read(path))
        return "no such file in tests/ nor in kernel/selftests/"

    def wrong(self, file, name):
        """What is wrong with a test of that name, or None."""
        if file not in self.known:
            self.known[file] = self.names(file)
        known = self.known[file]
        if isinstance(known, str):
            return known
        if fnmatch.filter(known, name.replace("...", "*")):
            return None
        return "no such test, or one that is in no list of cases"


def named_tests(text):
    """(line number, file, name) of each test that is named in a table."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            continue
        for part in re.split(r"[|;]", line):
            file = None
            for quoted in re.findall(r"`([^`]*)`", part):
                named = NAMED.fullmatch(f"`{quoted}`")
                if named:
                    file = named[1]
                if named or (file and re.fullmatch(r"[\w.*-]+", quoted)):
                    yield number, file, named[2] if named else quoted


def table_lines(text):
    """(line number, row, cells) of each line of the tables that name tests."""
    row = None
    wanted = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            wanted = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[-1] == "tests":
            wanted = True
        elif wanted and not set(cells[0]) - set("-: ") and cells[0]:
            continue
        elif wanted:
            row = cells[0] or row
            yield number, row, bool(cells[0]), cells


def wrong_rows(text):
    """What is wrong with the rows of edge-cases.md."""
    seen = []
    for number, row, first, cells in table_lines(text):
        if first:
            seen.append(row)
        if len(cells) != 4:
            yield f"{number}: row {row}: wanted 4 columns, found {len(cells)}"
        elif not NAMED.search(cells[3]):
            yield f"{number}: row {row}: {cells[1]}: no test"
    for row in ROWS:
        if seen.count(row) != 1:
            yield f"1: wanted row {row} once, found it {seen.count(row)} times"
    for row in sorted(set(seen) - set(ROWS)):
        yield f"1: row {row}: wanted K1 to K27 and L1 to L12"


def main():
    parser = argparse.ArgumentParser(add_help=False, usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("document", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    if options.help:
        print(__doc__)
        return 0

    documents = options.document
    if not documents:
        documents = [TOP / "docs" / "edge-cases.md"]
        if (TOP / "SECURITY.md").exists():
            documents.append(TOP / "SECURITY.md")
    sources = Sources()

    complaints, tests = [], set()
    for document in documents:
        text = read(document)
        found = list(named_tests(text))
        tests.update((file, name) for _, file, name in found)
        for number, file, name in found:
            wrong = sources.wrong(file, name)
            if wrong:
                complaints.append(f"{document.name}:{number}: {file}: {name}: {wrong}")
        if document.name == "edge-cases.md":
            complaints += [f"{document.name}:{line}" for line in wrong_rows(text)]

    for complaint in complaints:
        print(complaint)
    if complaints:
        print(f"edge_cases.py: {len(complaints)} things wrong, see above: wanted every test that "
              "is named to exist and be run, and one in each line of the tables")
        return 1
    print(f"{len(tests)} tests named, all of them there")
    return 0 if tests else 1


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    sys.exit(main())
