#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The table of what the scheduling layer's calls cost, of a results folder of vm/bench --servers."""

import argparse
import glob
import json
import os
import signal
import sys

import results
from render import table
from results import ONE_CPU

# As the rows' names end, and as the table calls them.
CALLS = {
    "Yield": "yield to the other one",
    "Park": "unpark the other one, park",
    "Mutex": "mutex: lock and unlock, uncontended",
    "HandOver": "mutex: from one to another that waits for it",
    "Channel0": "channel without a buffer: send and receive",
    "Channel64": "channel with a buffer of 64 items: send and receive",
    "Spawn": "spawn, run and join",
}
# The kernel, how the rows' names begin, the library's backend.
COLUMNS = {
    "tasks": ("patched", "BM_Task", "swap"),
    "tasks, stock kernel": ("stock", "BM_Task", "wake-wait"),
    "Boost.Fiber": ("patched", "BM_Fiber", ""),
}
# What a task's calls may take: so many times the library's switch, and so many instructions more. The
# kernel takes 41 for the place that is passed on with the CPU.
BOUNDS = {"Yield": (1.05, 101), "HandOver": (1, 291), "Spawn": (0, 3000)}
NO_CALL = "Mutex"           # and must not make a system call
SWITCH = ("BM_SwitchTo", "swap", ONE_CPU)

BOUND, GO, LOCKED = "at most", "goroutines", "goroutines, each locked to a thread"


def read(folder):
    """-> the part "calls" of the results"""
    paths = sorted(glob.glob(os.path.join(folder, "calls-*.json")))
    if not paths:
        raise results.BadInput(f"{folder}: wanted a folder with calls-*.json, found none in it")
    loaded = {column.kind: column for column in results.load(paths)[0]}
    rows = {name: {"call": name} for name in CALLS}
    for title, (kind, prefix, backend) in COLUMNS.items():
        for name, row in rows.items():
            cell = kind in loaded and loaded[kind].cell((prefix + name, backend, ONE_CPU))
            if cell:
                row[title] = cell.reason if cell.value is None else round(cell.value, 1)
    rows[NO_CALL][BOUND] = "no system call"
    switch = "patched" in loaded and loaded["patched"].cell(SWITCH)
    if switch and switch.value is not None:
        for name, (times, more) in BOUNDS.items():
            rows[name][BOUND] = round(times * switch.value + more, 1)
    return {"calls": {"state": state(loaded) + read_go(folder, rows), "rows": list(rows.values())}}


def read_go(folder, rows):
    """Into @rows. -> Go's version"""
    version, path = "", os.path.join(folder, "goroutines.json")
    if not os.path.exists(path):
        for name in rows.keys() - {"Park"}:
            rows[name][GO] = "no Go"
        return ""
    with open(path, encoding="utf-8") as file:
        for run in map(json.loads, file):
            rows[run["row"]][LOCKED if run["locked"] else GO] = round(run["ns"], 1)
            version = ", " + run["go"].replace("go", "Go ")
    return version


def state(loaded):
    context = next(c.context for c in reversed(loaded.values()))
    counted = "-icount" if context["unit"] == "insn" else "ns"
    boost = context.get("boost", "").replace("_", ".")
    return (f"{context['date'][:10]}, Linux {context['kernel']}, {counted}, {context['cpus']} CPU"
            + (f", Boost {boost}" if boost else ""))


def lines(data):
    """Markdown."""
    first, *others = COLUMNS
    titles = [title for title in (BOUND, *others, GO, LOCKED)
              if any(title in row for row in data["calls"]["rows"])]
    made = []
    for row in data["calls"]["rows"]:
        cells = [row.get(title, "") for title in (first, *titles)]
        cells = [cell if isinstance(cell, str) else f"{cell:,.0f}" for cell in cells]
        made.append([CALLS[row["call"]], f"**{cells[0]}**", *cells[1:]])
    return table(["call", f"**{first}**", *titles], made)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    try:
        print("\n".join(lines(read(parser.parse_args().folder))))
    except results.BadInput as error:
        sys.exit(f"calls.py: {error}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
