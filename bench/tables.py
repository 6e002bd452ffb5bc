#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Keep the figures in README.md and docs/ those of docs/*.json.

Without an option, rewrite what is between the markers. In a file, each marker of a table has a
line of its own:

    <!-- table: summary -->
    <!-- end of table -->

A figure within a line: <!--=insn-create-->40,253<!--/-->
"""

import argparse
import difflib
import glob
import itertools
import os
import re
import signal
import sys

import adopters
import calls
import charts
import echo
import host
import kept
import packets
import results
from figures import MEMORY, TABLES, Tables

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCS = os.path.join(TOP, "docs")
RESULTS = os.path.join(DOCS, "results.json")
ADOPTERS = os.path.join(DOCS, "adopters.json")
SERVERS = os.path.join(DOCS, "servers.json")
HOST = os.path.join(DOCS, "host.json")

# ---------------------------------------------------------------- a run -> results.json

CONTEXT = ("kernel", "mitigations", "hz", "preemption", "accelerator", "host_cpu", "cpus")
MANY_THREADS = (*MEMORY, "created_per_s", "exited_per_s")


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise results.BadInput(f"{path}: can't read it: {error.strerror}") from None


def rounded(value):
    """Finely, as the tables round once more."""
    return "invalid" if value is None else round(value, 4)


def rows_of(columns):
    rows = []
    for key in sorted({key for c in columns.values() for key in c.keys()}, key=results.sort_key):
        row = dict(zip(("row", "backend", "placement"), key))
        for (kind, unit), column in columns.items():
            cell = column.cell(key)
            if cell and not cell.skipped:
                row[f"{kind} {unit}"] = rounded(cell.value)
                if (kind, unit) == ("patched", "ns") and cell.value is not None:
                    row["patched CPU"] = rounded(cell.cpu_time)
        rows += [row] if len(row) > 3 else []
    return rows


def collect(folder):
    """-> (results, columns, growths) of a results folder of vm/bench."""
    loaded, growths = results.load(sorted(glob.glob(os.path.join(folder, "*.json"))))
    columns = {(c.kind, c.unit): c for c in loaded}
    kinds = [(kind, unit) for unit in ("ns", "insn") for kind in ("stock", "patched")]
    grown = [(g.whole.kind, g.whole.unit) for g in growths]
    if [(c.kind, c.unit) for c in loaded] != kinds or grown != kinds[3:] or \
            not results.ring_curves(loaded[-1]):
        raise results.BadInput(f"{folder}: wanted the results of one vm/bench: stock and patched, "
                               "time and instructions, parked threads, and rings")
    time, insn = columns["patched", "ns"], columns["patched", "insn"]
    many = re.findall(r"^(\w+) +(-?\d+)\b", read(os.path.join(folder, "many-threads.txt")), re.M)
    many = {name: int(value) for name, value in many if name in MANY_THREADS}
    if missing := [name for name in MANY_THREADS if name not in many]:
        raise results.BadInput(f"{folder}/many-threads.txt: wanted '{missing[0]}', found none")

    context = {"date": time.context["date"][:10]} | {key: time.context[key] for key in CONTEXT}
    qemu = os.path.join(folder, "qemu.txt")
    if os.path.exists(qemu):
        context["qemu"] = re.search(r"[\d.]+", read(qemu)).group()
    rows = {
        "shares": [{"chain": name, "share": rounded(cell.value),
                    "expected": rounded(cell.counter("expected"))}
                   for name in insn.share_names() for cell in [insn.share(name)]],
        "parked": [{"row": key[0], **{str(n): rounded(cell.value) for n, cell in cells.items()}}
                   for key, cells in results.parked_curves(growths[0])],
        "ring": [{str(n): rounded(cell.value) for n, cell in cells.items()}
                 for _, cells in results.ring_curves(insn)],
        "many_threads": [many],
    }
    return {"switches": {"context": context, "rows": rows_of(columns)}} | {
        name: {"rows": of} for name, of in rows.items()}, loaded, growths


def collect_adopters(folder):
    """Of a results folder of vm/adopt; what was not run keeps the figures that it had."""
    programs = kept.read(ADOPTERS)
    paths = sorted(glob.glob(os.path.join(folder, "*", "*.json")))
    paths = [path for path in paths
             if os.path.basename(path) == os.path.basename(os.path.dirname(path)) + ".json"]
    if not paths:
        raise results.BadInput(f"{folder}: wanted the results of vm/adopt, found none")
    for path in paths:
        name = os.path.basename(path)[:-5]
        found = kept.read(path)[name]
        had = programs.get(name, found)
        if had["title"] != found["title"]:  # of another version
            had = found
        run = {row["unit"] for row in found["rows"]}
        others = [row for row in had["rows"] if row["unit"] not in run]
        if "state" not in found:
            found["state"] = had.get("state", "")
        elif any(row["unit"] == "time" for row in others):
            before = had["state"].split("; again")[0]
            found["state"] = f"{before}; again, without time: {found['state']}"
        found["rows"] = sorted(found["rows"] + others,
                               key=lambda row: list(adopters.UNITS).index(row["unit"]))
        if "host" not in run and "host state" in had:
            found["host state"] = had["host state"]
        found["tests"] = found["tests"] or had["tests"]
        programs[name] = found
        adopters.draw(os.path.join(DOCS, f"adopter-{name}.png"), found)
    return dict(sorted(programs.items()))


def collect_servers(folder):
    """Of a results folder of vm/bench --servers; what was not run keeps the figures that it had."""
    found = echo.read(folder)
    found = found | calls.read(folder) if found["insn"]["rows"] else {}
    found |= packets.read(folder)
    if not found:
        raise results.BadInput(f"{folder}: wanted the results of vm/bench --servers, found none")
    return kept.read(SERVERS) | found


def collect_host(folders):
    """Of results folders of vm/bench --host; what was not run keeps the figures that it had."""
    parts = kept.read(HOST)
    for folder in folders:
        parts |= host.read(folder)
    return parts


# ---------------------------------------------------------------- tables -> README.md, docs/*.md

BEGIN, END = re.compile(r"<!-- table: (\S+) -->"), "<!-- end of table -->"
INLINE = re.compile(r"<!--=(\S+?)-->(.*?)<!--/-->")


def wanted(lines, tables, complain):
    """@lines as they should be. complain(number of the line, what) of markers that are faulty."""
    made, inside = [], None
    for number, line in enumerate(lines, 1):
        begin = BEGIN.fullmatch(line)
        if begin and inside or line == END and not inside:
            complain(number, f"unbalanced marker {line}")
        elif begin:
            inside = number
            made.append(line)
            if begin[1] in TABLES:
                made += getattr(tables, begin[1])()
            else:
                complain(number, f"unknown table '{begin[1]}', wanted one of {', '.join(TABLES)}")
        elif line == END:
            inside = None
            made.append(line)
        elif re.search("<!-- *(table|end of)", line):
            complain(number, f"wanted a marker alone in its line, found {line}")
        elif not inside:
            made.append(INLINE.sub(
                lambda m: f"<!--={m[1]}-->{tables.figures.get(m[1], m[2])}<!--/-->", line))
            for name, _ in INLINE.findall(line):
                if name not in tables.figures:
                    complain(number, f"unknown figure '{name}', wanted one of "
                                     f"{', '.join(tables.figures)}")
            if re.search("<!--[=/]", INLINE.sub("", line)):
                complain(number, "unbalanced marker of a figure")
    if inside:
        complain(inside, f"unbalanced marker {lines[inside - 1]}")
    return made


def compare(tables):
    """-> ({path: its text as it should be}, faults of markers, differences)"""
    texts, faults, differences = {}, [], []
    for path in [os.path.join(TOP, "README.md"), *sorted(glob.glob(os.path.join(DOCS, "*.md")))]:
        name = os.path.relpath(path, TOP)
        lines, before = read(path).split("\n"), len(faults)
        made = wanted(lines, tables, lambda number, what: faults.append(f"{name}:{number}: {what}"))
        texts[path] = "\n".join(made)
        if len(faults) > before:
            continue
        # A table may have another number of rows, so the lines after it need not be in place.
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, lines, made, False).get_opcodes():
            if tag != "equal":
                for k, (old, new) in enumerate(itertools.zip_longest(lines[i1:i2], made[j1:j2])):
                    differences.append(f"{name}:{min(i1 + k, i2) + 1}: found "
                                       f"{old or 'nothing'}, wanted {new or 'nothing'}")
    return texts, faults, differences


def run(args):
    data, loaded = None, ()
    if args.folder:
        data, *loaded = collect(args.folder)
    try:
        programs = collect_adopters(args.adopters) if args.adopters else kept.read(ADOPTERS)
        served = collect_servers(args.servers) if args.servers else kept.read(SERVERS)
        here = host.Host(collect_host(args.host) if args.host else kept.read(HOST))
        tables = Tables(data or kept.read(RESULTS), programs, served, here)
    except (LookupError, TypeError, ValueError) as error:
        raise results.BadInput(f"docs/*.json: wanted what --from, --adopters, --servers and "
                               f"--host write, found something else ({error!r}); "
                               "run bench/tables.py with that option and a folder") from None
    texts, faults, differences = compare(tables)
    if args.check or faults:
        for line in faults + differences * args.check:
            print(line)
        return 1 if faults or differences else 0
    if data:
        charts.save(DOCS, ("png",), *loaded)
        keep(RESULTS, data)
    if args.host:
        charts.save(DOCS, ("png",), [here.column()], [], {"ns": "host"})
        keep(HOST, here.data)
    if args.adopters:
        keep(ADOPTERS, programs)
    if args.servers:
        keep(SERVERS, served)
    for path, text in texts.items():
        if text != read(path):
            write(path, text)
    return 0


def keep(path, parts):
    kept.write(path, parts)
    print(f"wrote {os.path.relpath(path, TOP)}")


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {os.path.relpath(path, TOP)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_mutually_exclusive_group()
    option.add_argument("--from", dest="folder", metavar="DIR",
                        help="first make docs/results.json and the charts docs/*.png of DIR, a "
                             "results folder of vm/bench")
    option.add_argument("--adopters", metavar="DIR",
                        help="first put the programs of DIR, a results folder of vm/adopt, into "
                             "docs/adopters.json, with their charts")
    option.add_argument("--servers", metavar="DIR",
                        help="first make docs/servers.json of DIR, a results folder of "
                             "vm/bench --servers")
    option.add_argument("--host", metavar="DIR", nargs="+",
                        help="first make docs/host.json and docs/host.png of each DIR, a results "
                             "folder of vm/bench --host, with or without --servers")
    option.add_argument("--check", action="store_true",
                        help="change nothing; status 1 if a table or a marker is not right")
    try:
        sys.exit(run(parser.parse_args()))
    except results.BadInput as error:
        sys.exit(f"tables.py: {error}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
