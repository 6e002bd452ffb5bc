#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Make tables and charts of what switchto-bench measured."""

import argparse
import os
import signal
import string
import sys

import charts
import render
import results
from results import (FREE, ONE_CPU, TITLES, describe, end_ratio, number, parked_curves,
                     ring_curves, row_title, sort_key)

# What others published: BM_ rows of SwitchTo at LPC 2013, and the demo of the
# FUTEX_SWAP series of 2020. Neither pinned its threads. Time and CPU time in ns.
PUBLISHED_2013 = {"BM_Futex": (2905, 1958), "BM_GoogleMutex": (3102, 2326),
                  "BM_SwitchTo": (179, 178), "BM_SwitchResume": (2734, 1554)}
PUBLISHED_2020 = {"BM_Futex": (4103,), "BM_FutexSwap": (620,)}

LETTERS = string.ascii_uppercase


def ratio_text(value):
    return "" if value is None else f"{value:.2f}"


class Notes:
    """Why a row has no figure, each reason once."""

    def __init__(self):
        self.reasons = []

    def mark(self, cell):
        if cell.reason not in self.reasons:
            self.reasons.append(cell.reason)
        return f"{'skipped' if cell.skipped else 'INVALID'} [{self.reasons.index(cell.reason) + 1}]"


def published(key, table):
    """-> (time, CPU time where it was published too), or nothing"""
    name, backend, placement = key
    return table.get(name, ()) if placement == FREE and backend != "wake-wait" else ()


def published_cells(key, table):
    base, found = table["BM_Futex"], published(key, table)
    ratio = [ratio_text(found[0] / base[0])] if found else [""]
    return (list(map(str, found)) or [""] * len(base)) + ratio


def cpu_cell(column, text):
    """Instructions have none: on one CPU it is the figure again."""
    return [text] if column.unit == "ns" else []


def make_table(columns):
    """-> (head, rows, reasons), all cells as text; the head's in two lines."""
    notes = Notes()
    head = ["row", "placement"]
    for letter, column in zip(LETTERS, columns):
        head += [f"{letter}: {column.label}\n{column.unit_label}", *cpu_cell(column, "CPU"), "ratio"]
    head += ["2013\nns", "CPU", "ratio", "2020\nns", "ratio"]

    rows = []
    for key in sorted({key for column in columns for key in column.keys()}, key=sort_key):
        row = [row_title(key), key[2]]
        for column in columns:
            cell = column.cell(key)
            if not cell:
                row += ["-", *cpu_cell(column, ""), ""]
            elif cell.value is None:
                row += [notes.mark(cell), *cpu_cell(column, ""), ""]
            else:
                cpu = "" if cell.cpu_time is None else number(cell.cpu_time)
                row += [number(cell.value), *cpu_cell(column, cpu), ratio_text(column.ratio(key))]
        rows.append(row + published_cells(key, PUBLISHED_2013) +
                    published_cells(key, PUBLISHED_2020))
    return head, rows, notes.reasons


def hand_offs(column):
    """What the kernel counted, of the rows that say so."""
    counted = []
    for key in sorted(column.keys(), key=sort_key):
        count = column.cell(key).counter("handoff_per_iter")
        if count is not None:
            counted.append(f"{row_title(key)} {key[2]} {count:.2f}")
    return "; ".join(counted)


SHARES_TITLE = "CPU share beside hogs, in percent of one CPU"
SHARES_BELOW = ("Threads that hand one turn on with switchto_switch(), beside threads that spin, all "
                "on one CPU. expected: what one thread of that weight gets. accounted: the CPU time "
                "of all the threads.")


def make_shares(columns):
    """-> (head, rows), none if nobody ran them."""
    notes = Notes()
    head = ["chain/hogs", "column", "share", "expected", "accounted", "switches",
            "hand-offs\nper switch"]
    rows = []
    for letter, column in zip(LETTERS, columns):
        for name in column.share_names():
            cell = column.share(name)
            if cell.value is None:
                rows.append([name, letter, notes.mark(cell)] + [""] * (len(head) - 3))
                continue
            rows.append([name, letter, f"{cell.value:.1f}"] +
                        ["" if (value := cell.counter(counter)) is None else form.format(value)
                         for counter, form in (("expected", "{:.1f}"), ("accounted", "{:.1f}"),
                                               ("switches", "{:.0f}"),
                                               ("handoff_per_switch", "{:.3f}"))])
    return head, rows, [SHARES_BELOW] + [f"[{i}] {reason}"
                                         for i, reason in enumerate(notes.reasons, 1)]


PARKED_TITLE = "Parked threads"
PARKED_BELOW = ("One switch on one CPU while that many other threads are parked in switchto_wait(). "
                "ratio: the most parked threads to the fewest.")
RING_TITLE = "A ring of threads"
RING_BELOW = ("One switch of a turn that goes round through that many threads with "
              "switchto_switch(), on one CPU. ratio: the most threads to the fewest.")


def make_curves(curves):
    """(letter, column, key, cells) each -> (head, rows, notes), a column for each number."""
    notes = Notes()
    numbers = sorted({number for *_, cells in curves for number in cells})
    head = ["row", "column"] + [f"{number:,}" for number in numbers] + ["ratio"]
    rows = []
    for letter, column, key, cells in curves:
        row = [row_title(key), f"{letter}: {column.label}, {column.unit_label}"]
        for number_of_threads in numbers:
            cell = cells.get(number_of_threads)
            row.append("-" if not cell else
                       notes.mark(cell) if cell.value is None else number(cell.value))
        rows.append(row + [ratio_text(end_ratio(cells))])
    return head, rows, [f"[{i}] {reason}" for i, reason in enumerate(notes.reasons, 1)]


def make_parked(columns, growths):
    """-> (head, rows, lines below), no rows if nobody ran them."""
    letters = dict(zip(map(id, columns), LETTERS))
    curves, others = [], []
    for growth in growths:
        letter = letters.get(id(growth.base), "-")
        if not growth.base:
            others.append("-: {}; {}".format(*describe(growth.whole)))
        curves += [(letter, growth.whole, *curve) for curve in parked_curves(growth)]
    head, rows, reasons = make_curves(curves)
    return head, rows, [PARKED_BELOW] + others + reasons


def make_rings(columns):
    head, rows, reasons = make_curves([(letter, column, *curve)
                                       for letter, column in zip(LETTERS, columns)
                                       for curve in ring_curves(column)])
    return head, rows, [RING_BELOW] + reasons


def sections(columns, growths):
    """-> [(title, head, rows, lines below)], the tables after the first that have rows."""
    made = [(SHARES_TITLE, *make_shares(columns)),
            (PARKED_TITLE, *make_parked(columns, growths)),
            (RING_TITLE, *make_rings(columns))]
    return [section for section in made if section[2]]


def explain(columns, reasons):
    """The lines under the table: what its words and marks mean."""
    lines = ["One switch, one way; the median of all repetitions. ratio: to BM_Futex in the same "
             "placement (together: free), of one boot ('1 thread': to BM_Futex one_cpu). -: not run."]
    if any(c.unit == "insn" for c in columns):
        lines.append("insn: instructions per switch (-icount, one CPU). Not a time.")
    if any(c.unit == "ns" for c in columns):
        lines.append("CPU: CPU time of all threads, the median likewise. If it exceeds the time, "
                     "two CPUs were at work.")
    if any(c.unit == "ns" and c.emulated for c in columns):
        lines.append("ns under TCG: the time of an emulated CPU. Compare within its column; "
                     "nothing on metal, nor the published figures, compares with it but by ratio.")
    lines.append("2013: SwitchTo, LPC 2013. 2020: futex_swap demo, LKML. Unpinned, on machines "
                 "of their own.")
    lines += [f"hand-offs per switch, {letter}: {text}" for letter, column in zip(LETTERS, columns)
              if (text := hand_offs(column))]
    return lines + [f"[{i}] {reason}" for i, reason in enumerate(reasons, 1)]


def as_text(columns, growths):
    text = []
    for letter, column in zip(LETTERS, columns):
        text += [f"{letter}: {{}}\n   {{}}".format(*describe(column))]
    head, rows, reasons = make_table(columns)
    if rows:
        text += [""] + render.text(head, rows) + [""] + explain(columns, reasons)
    for name, head, rows, below in sections(columns, growths):
        text += ["", name, ""] + render.text(head, rows) + [""] + below
    return "\n".join(text) + "\n"


def as_markdown(columns, growths):
    head, rows, reasons = make_table(columns)
    text = [f"- {letter}: " + "; ".join(describe(c)) for letter, c in zip(LETTERS, columns)]
    if rows:
        text += [""] + render.table(head, rows, (0, 1)) + [""]
        text += [f"{line}  " for line in explain(columns, reasons)]
    for name, head, rows, below in sections(columns, growths):
        text += ["", f"**{name}**", ""] + render.table(head, rows, (0, 1)) + [""]
        text += [f"{line}  " for line in below]
    return "\n".join(text) + "\n"


FIRST = (("BM_Futex", ""), ("BM_PthreadCond", ""), ("BM_Pipe", ""), ("BM_SwitchTo", "swap"))


def first_table(column):
    """What vm/bench shows while it measures the rest."""
    rows = []
    for row in FIRST:
        key = (*row, ONE_CPU)
        cell = column.cell(key)
        value = cell.value if cell else None
        rows.append([TITLES[row[0]], "one CPU",
                     "no figure" if value is None else number(value),
                     ratio_text(column.ratio(key))])
    state = column.describe().split(", mitigations")[0]
    return "\n".join([f"Instructions per switch (-icount), {state}", "",
                      *render.text(["one switch", "placement", column.unit_label, "ratio"], rows)])


def save(out, name, text):
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write(text)


def report(out, columns, growths):
    charts.load_matplotlib()    # or nothing is written
    text = as_text(columns, growths)
    print(text, end="")
    try:
        os.makedirs(out, exist_ok=True)
        save(out, "table.txt", text)
        save(out, "table.md", as_markdown(columns, growths))
        charts.save(out, ("svg", "png"), columns, growths)
    except OSError as error:
        raise results.BadInput(f"{out}: wanted to write the report there, can't: "
                               f"{error.strerror}; give another --out") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    option = parser.add_mutually_exclusive_group(required=True)
    option.add_argument("--out", metavar="DIR",
                        help="where table.txt, table.md and the charts' .svg and .png go")
    option.add_argument("--first", action="store_true",
                        help="write nothing; print four rows, instructions on one CPU")
    parser.add_argument("files", nargs="+", metavar="FILE.json",
                        help="results of switchto-bench (--benchmark_out)")
    args = parser.parse_args()
    try:
        columns, growths = results.load(args.files)
        if args.first:
            print("\n\n".join(first_table(c) for c in columns if c.unit == "insn"))
        else:
            report(args.out, columns, growths)
    except results.BadInput as error:
        sys.exit(f"report.py: {error}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
