#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Read a table of broken variants: kernel/variants or library/variants, beside this file.

usage: variants.py [--kernel VERSION] TABLE COMMAND
  names [PATTERN ...]        all names, or those that contain one of the PATTERNs
  list [PATTERN ...]         also what is owed, and what breaks
  field FIELD NAME ...       the FIELD of each, a line each
  check TREE [PATTERN ...]   does each apply to the source in TREE? A line for each fault
  diff TREE NAME             what it changes in TREE: a diff for patch -p1

An entry of a table:

    [name]
    Owed: what must hold
    Broken: what the change breaks
    Caught by: the tests that must notice
    @ kernel/futex/swap.c futex_swap
     	a line that stays
    -	a line that goes
    +	a line that comes

After "@", the file and the function. The lines that stay or go must stand together, exactly
once in the function; or once in the file, if no function is named. Their common indentation
does not matter. Write as few lines as tell the place. An entry has one change or more. A
field that goes on in the next line is indented there. A line that begins with # is a comment.

The table of the kernel may have a second entry, "[name] 7.3": what differs from that version
on. Its fields replace those of the first entry, and its changes all changes of the same
function. A field without text and an "@" without lines only remove. "Until: 6.12" is in a
variant that no later version has. "[name] 7.3" alone is one that no earlier version has.

Further fields: Config, QEMU, Features, Seconds (see vm/broken); Tries (library/run).
Exit status: 0 if all is well, 1 for a fault in the table or in TREE, 2 for a wrong command
line.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys

FIELDS = {"Owed": ".+", "Broken": ".+", "Caught by": r"\w[\w ]*", "Config": r"\w+", "QEMU": "-.+",
          "Features": "[A-Z_ ]+", "Seconds": r"\d+", "Tries": r"\d+",
          "Until": r"\d+\.\d+"}
NEEDED = ["Owed", "Broken", "Caught by"]


class Fault(Exception):
    """One line: what was wanted, what was found, what to do."""


class Change:
    """Lines that stand together, and what becomes of them."""

    def __init__(self, where, file, function):
        self.where, self.file, self.function = where, file, function
        self.lines = []

    def finish(self):
        """All lines have been read. Empty ones at the end only part this change from the next."""
        while self.lines and self.lines[-1] == " ":
            self.lines.pop()
        base = len(os.path.commonprefix([re.match(r"\s*", line[1:])[0]
                                         for line in self.lines if line[1:]]))
        self.old = [line[1 + base:] for line in self.lines if line[0] != "+"]
        self.new = [line[1 + base:] for line in self.lines if line[0] != "-"]
        if self.lines and (self.old == self.new or not self.old or not self.old[0]):
            raise Fault(f"{self.where}: wanted lines that change (- or +), and text that tells the "
                        "place (- or ' '); found only one of them; add the other")

    def apply(self, lines):
        """The lines of the file after the change."""
        parts = list(functions(lines, self.function)) if self.function else [(0, len(lines))]
        if not parts:
            raise Fault(f"wanted a function {self.function} in {self.file}, found none; "
                        "correct the name after @")
        found = []
        for begin, end in parts:
            for at in range(begin, end - len(self.old) + 1):
                indent = lines[at].removesuffix(self.old[0])
                there = lines[at:at + len(self.old)]
                if not indent.strip() and there == indented(self.old, indent):
                    found.append((at, indent))
        if len(found) != 1:
            place = f"{self.function}() of {self.file}" if self.function else self.file
            raise Fault(f"wanted the old lines once in {place}, found them "
                        + (f"{len(found)} times; add a line that stands beside them" if found else
                           "nowhere; write what is there now"))
        at, indent = found[0]
        return lines[:at] + indented(self.new, indent) + lines[at + len(self.old):]


def indented(lines, indent):
    return [indent + line if line else "" for line in lines]


def functions(lines, name):
    """(first line, line after the last) of each function of that name, in the kernel's style."""
    wanted = re.compile(rf"\b{name}\(|DEFINE\d\({name},")
    for brace, line in enumerate(lines):
        begin = brace
        while line == "{" and begin and not re.search(r"^($|[}#])|(;|\*/)$", lines[begin - 1]):
            begin -= 1
        if wanted.search(" ".join(lines[begin:brace])):
            yield begin, next(n for n in range(brace, len(lines)) if lines[n][:1] == "}")


class Variant:
    """An entry of a table, or what several entries say together."""

    def __init__(self, where, name, version):
        self.where, self.name, self.version = where, name, version
        self.fields, self.changes = {}, []

    def override(self, later):
        self.version = later.version
        self.fields.update(later.fields)
        places = {(change.file, change.function) for change in later.changes}
        self.changes = [change for change in self.changes
                        if (change.file, change.function) not in places]
        self.changes += [change for change in later.changes if change.lines]

    def apply(self, tree):
        """The new text of each file that changes, and the faults."""
        texts, faults = {}, []
        for change in self.changes:
            try:
                path = tree / change.file
                if not path.is_file():
                    raise Fault(f"wanted {change.file} in {tree}, found none; "
                                "correct the path after @")
                text = texts.get(change.file) or path.read_text(errors="surrogateescape")
                texts[change.file] = "\n".join(change.apply(text.split("\n")))
            except Fault as fault:
                faults.append(f"{change.where}: {self.name}: {fault}")
        return texts, faults


def read_entries(path):
    """The entries of a table as they stand there. An added last one ends the one before."""
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError as error:
        raise Fault(f"{path}: wanted a table, found none ({error.strerror}); "
                    "correct the path") from None
    entry = change = field = None
    for number, line in enumerate(lines + ["[end]"], 1):
        where = f"{path}:{number}"
        head = re.fullmatch(r"\[([a-z0-9-]+)\](?: (\d+\.\d+))?", line)
        place = re.fullmatch(r"@ (\S+)(?: (\w+))?", line)
        if change and (head or place):
            change.finish()
        if head:
            if entry:
                yield entry
            entry, change, field = Variant(where, *head.groups()), None, None
        elif entry and place:
            change = Change(where, *place.groups())
            entry.changes.append(change)
        elif change and (not line or line[0] in " +-"):
            change.lines.append(line or " ")
        elif field and not change and line[:1].isspace():
            entry.fields[field] += " " + line.strip()
        elif entry and not change and re.match(r"[A-Z][\w ]*:", line):
            field, text = line.split(":", 1)
            if field not in FIELDS or field in entry.fields:
                raise Fault(f"{where}: wanted one of {', '.join(FIELDS)}, each once; "
                            f"found '{field}'; correct the name")
            entry.fields[field] = text.strip()
        elif line and line[0] != "#":
            raise Fault(f"{where}: wanted [NAME], FIELD: TEXT, @ FILE FUNCTION, or a line of a "
                        f"change; found '{line}'; see variants.py --help")


def order(version):
    return [int(number) for number in version.split(".")] if version else []


def read_table(path, kernel):
    """The variants for that kernel, by name."""
    variants = {}
    for entry in read_entries(path):
        first = variants.get(entry.name)
        if first and order(entry.version) <= order(first.version):
            raise Fault(f"{entry.where}: wanted each name once for a version, older versions "
                        f"first; found [{entry.name}] after {first.where}; choose another name")
        for field, text in entry.fields.items():
            if text and not re.fullmatch(FIELDS[field], text):
                raise Fault(f"{entry.where}: wanted '{field}' to match {FIELDS[field]}, "
                            f"found '{text}'; correct it")
        if order(entry.version) > order(kernel):
            continue
        if first:
            first.override(entry)
        else:
            variants[entry.name] = entry
    for name, variant in list(variants.items()):
        missing = [field for field in NEEDED if not variant.fields.get(field)]
        missing += [] if variant.changes else ["@"]
        if missing:
            raise Fault(f"{variant.where}: wanted {', '.join(NEEDED)} and a change (@) in [{name}], "
                        f"found no {', no '.join(missing)}; add it")
        if order(kernel) > order(variant.fields.get("Until") or kernel):
            del variants[name]
    return variants


def usage(text):
    print(f"variants.py: {text}; see variants.py --help", file=sys.stderr)
    return 2


def run(kernel, table, command, argument, names):
    variants = read_table(table, kernel)
    if command in ("field", "diff"):
        chosen = [variants.get(name) for name in names]
    else:
        chosen = [variant for name, variant in variants.items()
                  if not names or any(part in name for part in names)]
    if not chosen or None in chosen:
        return usage(f"wanted names or parts of names of {table}, found '{' '.join(names)}'")

    status = 0
    for variant in chosen:
        if command == "names":
            print(variant.name)
        elif command == "list":
            print(f"{variant.name}\n    owed: {variant.fields['Owed']}\n"
                  f"    broken: {variant.fields['Broken']}")
        elif command == "field":
            print(variant.fields.get(argument, ""))
        else:
            tree = pathlib.Path(argument)
            texts, faults = variant.apply(tree)
            for fault in faults:
                print(fault, file=sys.stderr)
                status = 1
            for file, text in texts.items() if command == "diff" and not faults else ():
                labels = ["--label", f"a/{file}", "--label", f"b/{file}"]
                subprocess.run(["diff", "-u", *labels, tree / file, "-"], input=text, text=True,
                               errors="surrogateescape", check=False)
    return status


def main(words):
    kernel = argument = None
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if words[:1] == ["--kernel"] and re.fullmatch(r"\d+\.\d+", "".join(words[1:2])):
        kernel, words = words[1], words[2:]
    table, command, *names = words if len(words) > 1 else ("", "")
    if command in ("field", "check", "diff") and names:
        argument = names.pop(0)
    elif command not in ("names", "list"):
        return usage(f"wanted [--kernel VERSION] TABLE COMMAND, found '{' '.join(words)}'")
    if command == "field" and argument not in FIELDS:
        return usage(f"field: wanted one of {', '.join(FIELDS)}; found '{argument}'")
    try:
        return run(kernel, table, command, argument, names)
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    sys.exit(main(sys.argv[1:]))
