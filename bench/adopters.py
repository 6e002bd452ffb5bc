#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The table, the chart and the JSON of a results folder of vm/adopt.

Status 1 if a program printed something else in one column than in another, or if one of its
own tests passes unpatched and not with libswitchto.
"""

import argparse
import fileinput
import glob
import json
import os
import re
import signal
import statistics
import sys

import charts
import kept
import render

# As results name them: the kernel, the column of adopters/NAME/build.sh.
NAMES = ("unpatched", "wake-wait", "together", "swap", "user-space")
ORDER = (*(("stock", name) for name in NAMES), *(("patched", name) for name in NAMES),
         *(("host", name + where) for where in ("", "-one-cpu") for name in NAMES))
COLUMNS = ("stock unpatched", "stock wake-wait", "patched unpatched", "patched wake-wait",
           "patched swap", "patched user-space")
HOST_COLUMNS = ("host unpatched", "host wake-wait", "host together", "host unpatched-one-cpu",
                "host wake-wait-one-cpu", "host together-one-cpu", "host user-space")
# Of a bar in the chart: its words, its colour.
BARS = {"unpatched": ("as it is", "#9aa5b1"), "wake-wait": ("wake-wait", "#d1603d"),
        "swap": ("swap", "#1f6f8b"), "user-space": ("its user-space switch", "#c8d6c0")}
# Under -icount with several CPUs, elapsed time is what all CPUs do, idle ones until they sleep.
UNITS = {"time": "s, free", "insn": "million insn, one CPU",
         "free-insn": "million insn of all CPUs, free", "host": "s"}
TEST = re.compile(r" *\d+/\d+ Test +#\d+: (\S+) \.*(.*)|(ok|not ok) (\S+)$")


def read_runs(folder):
    """-> ({(benchmark, unit): {(kernel, column): [value of each round]}}, digests)"""
    samples, digests = {}, {}
    for unit in UNITS:
        for kernel in ("host",) if unit == "host" else ("stock", "patched"):
            path = os.path.join(folder, f"{unit}-{kernel}.json")
            if not os.path.exists(path):
                continue
            with open(path, encoding="utf-8") as file:
                for run in map(json.loads, file):
                    samples.setdefault((run["benchmark"], unit), {}) \
                           .setdefault((kernel, run["column"]), []) \
                           .append(run["cpu" if unit == "insn" else "seconds"])
                    digests.setdefault(run["benchmark"], {}).setdefault(run["digest"], set()) \
                           .add(f"{run['column']} on the {kernel} kernel")
    return samples, digests


def as_row(benchmark, unit, columns):
    """Medians, and the ratio of two columns in each round: load on the machine changes both
    alike."""
    row = {"benchmark": benchmark, "unit": unit}
    row |= {f"{k} {c}": round(statistics.median(columns[k, c]), 4)
            for k, c in ORDER if (k, c) in columns}
    row["rounds"] = max(map(len, columns.values()))
    pairs = {"ratios": ("patched unpatched", "patched swap")}
    if unit == "host":
        pairs = {"ratios": ("host unpatched", "host together"),
                 "ratios to one CPU": ("host unpatched-one-cpu", "host together")}
    for name, pair in pairs.items():
        row[name] = sorted(round(base / other, 2) for base, other in
                           zip(*(columns.get(tuple(column.split(" ")), ()) for column in pair)))
    return row


def read_tests(folder):
    """-> {(kernel, column): (passed, failed)} with the names of the tests, (kernel, column)s
    whose tests did not end"""
    found, cut = {}, []
    for path in sorted(glob.glob(os.path.join(folder, "tests-*.log"))):
        kernel, column = re.fullmatch(r"tests-(\w+)-(.+)\.log", os.path.basename(path)).groups()
        passed, failed = set(), set()
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
        for match in filter(None, map(TEST.match, lines)):
            good = match[3] == "ok" or match[1] and match[2].strip().startswith("Passed")
            (passed if good else failed).add(match[1] or match[4])
        found[kernel, column] = (passed, failed)
        if "tests ended\n" not in lines:
            cut.append((kernel, column))
    return found, cut


def faults(digests, tests, cut):
    for benchmark, by_digest in digests.items():
        if len(by_digest) > 1:
            yield (f"{benchmark}: wanted the same output everywhere, found {len(by_digest)}: "
                   + "; ".join(", ".join(sorted(where)) for where in by_digest.values()))
    base = tests.get(("stock", "unpatched")) or tests.get(("patched", "unpatched"))
    for (kernel, column), (passed, failed) in tests.items():
        where = f"own tests, {column} on the {kernel} kernel"
        if (kernel, column) in cut:
            yield f"{where}: wanted them to run to the end, found that they did not"
        if not passed:
            yield f"{where}: wanted some to pass, found none"
        elif base and (lost := base[0] - passed):
            yield f"{where}: pass unpatched and not here: " + " ".join(sorted(lost))
        elif base and (other := (base[0] | base[1]) ^ (passed | failed)):
            yield f"{where}: run unpatched or here, not in both: " + " ".join(sorted(other))


def changed_lines(patches):
    lines = [line for line in fileinput.input(patches, encoding="utf-8")
             if re.match(r"[-+](?!--|\+\+)", line)]
    return sum(line[0] == "+" for line in lines), sum(line[0] == "-" for line in lines)


def figure(value, unit):
    if value is None:
        return ""
    value = value if unit in ("time", "host") else value * 1000
    if unit == "host":
        return f"{value:.3f}" if value < 1 else f"{value:.2f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cells_of(row, columns):
    cells = [figure(row.get(column), row["unit"]) for column in columns]
    return [f"**{cell}**" if cell and column in ("patched swap", "host together") else cell
            for cell, column in zip(cells, columns)]


def ratio(row, name="ratios"):
    ratios = row[name]
    if not ratios:
        return ""
    median = f"{statistics.median(ratios):.1f}"
    return median if len(ratios) == 1 else f"{median} ({ratios[0]:.1f} to {ratios[-1]:.1f})"


def table(programs):
    return render.table(
        ["program", "benchmark", "stock kernel: as it is", "wake-wait", "patched kernel: as it is",
         "wake-wait", "swap", "its user-space switch", "faster by"],
        [[program["title"], f"{row['benchmark']}, {UNITS[row['unit']]}", *cells_of(row, COLUMNS),
          ratio(row)]
         for program in programs for row in program["rows"] if row["unit"] != "host"], (0, 1))


def host_table(programs):
    """Of vm/adopt --host."""
    return render.table(
        ["program", "benchmark", "as it is", "wake-wait, free", "wake-wait, together",
         "on CPU 0: as it is", "wake-wait, free", "together", "its user-space switch", "faster by",
         "... than as it is on CPU 0"],
        [[program["title"], row["benchmark"], *cells_of(row, HOST_COLUMNS), ratio(row),
          ratio(row, "ratios to one CPU")]
         for program in programs for row in program["rows"] if row["unit"] == "host"], (0, 1))


def charted(rows):
    """-> a unit, and the first rows of it that are of the patched kernel: times, or else
    instructions"""
    for unit in ("time", "insn"):
        found = [row for row in rows if row["unit"] == unit and "patched unpatched" in row]
        if found:
            return unit, found[:5]
    return None, []


def draw(path, program):
    unit, rows = charted(program["rows"])
    if not rows:
        return
    factor = 1 if unit == "time" else 1000
    charts.save_program(path, program["title"], UNITS[unit], [
        (row["benchmark"], [(*BARS[c], row[f"patched {c}"] * factor,
                             figure(row[f"patched {c}"], unit))
                            for c in BARS if f"patched {c}" in row]) for row in rows])


def brief(programs):
    """The first benchmark of each program, on the patched kernel."""
    return render.table(
        ["program", "lines changed", "benchmark", "as it is", "wake-wait", "swap",
         "its user-space switch", "faster by"],
        [[program["title"], str(program["lines added"] + program["lines removed"]),
          f"{row['benchmark']}, {UNITS[row['unit']]}", *cells_of(row, COLUMNS[2:]), ratio(row)]
         for program in programs for row in charted(program["rows"])[1][:1]], (0, 2))


def checks(programs):
    """What was changed, and how many of the program's own tests pass."""
    rows = []
    for program in programs:
        tests = [program["tests"].get(column) for column in
                 ("stock unpatched", "patched wake-wait", "patched swap")]
        rows.append([program["title"], str(program["lines added"]), str(program["lines removed"]),
                     *(f"{t[0]} of {sum(t)}" if t else "" for t in tests), program["state"]])
    return render.table(
        ["program", "lines added", "removed", "own tests passed: stock kernel, as it is",
         "patched kernel, wake-wait", "swap", "run"], rows, (0, 6))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--title", required=True)
    parser.add_argument("--patch", required=True, action="append")
    parser.add_argument("--state", default="", help="date, machine and kernel, in words")
    parser.add_argument("folder")
    args = parser.parse_args()
    rows, digests = read_runs(args.folder)
    tests, cut = read_tests(args.folder)
    added, removed = changed_lines(args.patch)
    state = "host state" if any(unit == "host" for _, unit in rows) else "state"
    data = {"title": args.title, state: args.state, "lines added": added, "lines removed": removed,
            "rows": [as_row(*key, columns) for key, columns in rows.items()],
            "tests": {f"{k} {c}": [len(tests[k, c][0]), len(tests[k, c][1])]
                      for k, c in ORDER if (k, c) in tests}}
    name = os.path.basename(os.path.normpath(args.folder))
    kept.write(os.path.join(args.folder, f"{name}.json"), {name: data})
    print(f"\n{args.title}: {added} lines added, {removed} removed")
    if rows:
        for lines in (table([data]), host_table([data])):
            if lines != render.NO_ROWS:
                print("\n" + "\n".join(lines))
        draw(os.path.join(args.folder, f"{name}.png"), data)
    for (kernel, column), (passed, failed) in tests.items():
        print(f"own tests, {kernel} kernel, {column}: {len(passed)} passed"
              + (f", {len(failed)} failed: {' '.join(sorted(failed))}" if failed else ""))
    found = list(faults(digests, tests, cut))
    for line in found:
        print(f"adopters.py: {line}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
