#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What of the library the tests reached, for vm/coverage.

usage: coverage-report.py SOURCE-FOLDER EXEMPT [COVERAGE.json]
The files in COVERAGE.json, and FILE below, are relative to SOURCE-FOLDER.

Prints for each file how many lines and branches were reached, and each line
that was not. Exit status 1 if such a line has no argument in the file EXEMPT,
or if an argument's line no longer exists. Without COVERAGE.json, only the latter.

EXEMPT: first the argument, in lines that begin with #, then the lines it is for,

	FILE: FUNCTION: TEXT

TEXT is the whole line without the white space around it, so that it is found
wherever it moves in its function. " #2" is added for the second such line
there, and so on. * is the whole function.
An exempt line that is reached is no fault: some are reached only in a race.
"""
import json
import os
import re
import signal
import sys


def die(text):
    sys.exit(f"vm/coverage: {text}")


def functions(lines):
    """For each line the function it is in, or ''. In the kernel's style."""
    inside, head, name = [], [], ""
    for number, line in enumerate(lines):
        inside.append(name)
        if name:
            if line.startswith("}"):
                name = ""
        elif line.startswith("{"):
            # Past attributes, which look like calls.
            text = re.sub(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)", "", " ".join(lines[n] for n in head))
            found = re.search(r"(\w+)\(", text)
            name = found[1] if found else ""
            for n in head + [number]:
                inside[n] = name
        elif not line.strip() or line.startswith(("#", "/", " ", "}")):
            head = []
        else:
            head.append(number)
    return inside


def names(lines, where):
    """For each line its name in its function: its text, with a number if it repeats."""
    seen, named = {}, []
    for text, function in zip((line.strip() for line in lines), where):
        seen[function, text] = seen.get((function, text), 0) + 1
        named.append(text if seen[function, text] == 1 else f"{text} #{seen[function, text]}")
    return named


def read_exempt(path):
    argued, reason = {}, ""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if line.startswith("#"):
                reason = line
            elif not line:
                reason = ""
            else:
                parts = line.split(": ", 2)
                if len(parts) != 3:
                    die(f"{path}:{number}: wanted FILE: FUNCTION: TEXT, found '{line}'")
                if not reason:
                    die(f"{path}:{number}: wanted an argument in a line with # above, found none")
                argued[tuple(parts)] = number
    return argued


def read_source(folder, name):
    """For each line its name in its function, and the function. Empty without the file."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            source = file.read().splitlines()
    except FileNotFoundError:
        return [], []
    where = functions(source)
    return names(source, where), where


def stale(folder, exempt, argued):
    """How many arguments are about lines that are not there; prints them."""
    known = set()
    for name in {key[0] for key in argued}:
        for text, function in zip(*read_source(folder, name)):
            known |= {(name, function, text), (name, function, "*")}
    found = [key for key in argued if key not in known]
    for key in found:
        print(f"{exempt}:{argued[key]}: {': '.join(key)}: no such line any more")
    return len(found)


def report(folder, exempt, argued, coverage):
    with open(coverage, encoding="utf-8") as file:
        files = json.load(file)["files"]

    missed = []
    print(f"{'file':20} {'lines':>16} {'branches':>16}")
    for entry in sorted(files, key=lambda f: f["file"]):
        name = entry["file"]
        named, where = read_source(folder, name)

        # By number: a line of an inline function comes once for each copy.
        lines, branches = {}, {}
        for line in entry["lines"]:
            if line.get("gcovr/noncode") or line.get("gcovr/excluded"):
                continue
            number = line["line_number"]
            lines[number] = lines.get(number, 0) + line["count"]
            counts = [b["count"] for b in line.get("branches", [])]
            before = branches.get(number, [0] * len(counts))
            if len(before) == len(counts):
                branches[number] = [a + b for a, b in zip(before, counts)]
        taken = [count > 0 for counts in branches.values() for count in counts]
        reached = sum(count > 0 for count in lines.values())
        columns = [f"{a}/{b} {100 * a / b:5.1f} %" if b else "-"
                   for a, b in ((reached, len(lines)), (sum(taken), len(taken)))]
        print(f"{name:20} {columns[0]:>16} {columns[1]:>16}")
        missed += [(name, n, where[n - 1], named[n - 1]) for n, c in sorted(lines.items()) if not c]
    if not files:
        die(f"wanted counts of files in {folder}, found none in {coverage}")

    faults = 0
    for name, number, function, text in missed:
        has = (name, function, text) in argued or (name, function, "*") in argued
        faults += not has
        print(f"{name}:{number}: {function}: {text}  [{'argued' if has else 'NOT ARGUED'}]")
    if faults:
        die(f"{faults} of {len(missed)} lines not reached are not argued; test them, or argue them in {exempt}")


def main():
    if len(sys.argv) not in (3, 4):
        die("coverage-report.py: wanted SOURCE-FOLDER EXEMPT [COVERAGE.json]")
    folder, exempt = sys.argv[1:3]
    argued = read_exempt(exempt)
    count = stale(folder, exempt, argued)
    if len(sys.argv) == 4:
        report(folder, exempt, argued, sys.argv[3])
    if count:
        die(f"wanted arguments about lines that are there, found {count} others; correct {exempt}")


signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
main()
