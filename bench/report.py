#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Make tables and charts of what switchto-bench measured."""

import argparse
import math
import os
import string
import sys
import textwrap

import results
from results import FREE, ONE_CPU, ONE_THREAD

# What others published: BM_ rows of SwitchTo at LPC 2013, and the demo of the
# FUTEX_SWAP series of 2020. Neither pinned its threads.
PUBLISHED_2013 = {"BM_Futex": 2905, "BM_GoogleMutex": 3102, "BM_SwitchTo": 179,
                  "BM_SwitchResume": 2734}
PUBLISHED_2020 = {"BM_Futex": 4103, "BM_FutexSwap": 620}

ORDER = ["BM_Futex", "BM_GoogleMutex", "BM_SwitchTo", "BM_SwitchResume", "BM_FutexSwap",
         "BM_PthreadCond", "BM_StdSemaphore", "BM_Eventfd", "BM_Pipe", "BM_IoUringFutex",
         "BM_SchedYield", "BM_FutexWakeNone", "BM_NullSyscall", "BM_BoostContext"]
LETTERS = string.ascii_uppercase
PLACEMENTS = [FREE, ONE_CPU, ONE_THREAD]


def row_title(key):
    return f"{key[0]} {key[1]}".strip()


def sort_key(key):
    name, backend, placement = key
    return (ORDER.index(name) if name in ORDER else len(ORDER), name, backend,
            PLACEMENTS.index(placement.split(",")[0]), placement)


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


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
    name, backend, placement = key
    if placement != FREE or name not in table or backend == "wake-wait":
        return ["", ""]
    return [str(table[name]), ratio_text(table[name] / table["BM_Futex"])]


def make_table(columns):
    """-> (head, rows, reasons), all cells as text; the head's in two lines."""
    notes = Notes()
    head = ["row", "placement"]
    for letter, column in zip(LETTERS, columns):
        head += [f"{letter}: {column.kind}\n{column.unit_label}", "ratio"]
    head += ["2013\nns", "ratio", "2020\nns", "ratio"]

    rows = []
    for key in sorted({key for column in columns for key in column.keys()}, key=sort_key):
        row = [row_title(key), key[2]]
        for column in columns:
            cell = column.cell(key)
            if not cell:
                row += ["-", ""]
            elif cell.value is None:
                row += [notes.mark(cell), ""]
            else:
                row += [number(cell.value), ratio_text(column.ratio(key))]
        rows.append(row + published(key, PUBLISHED_2013) + published(key, PUBLISHED_2020))
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
PARKED_ROWS = ("BM_Futex", "BM_FutexSwap", "BM_SwitchTo", "BM_SwitchResume")
PARKED_BELOW = ("One switch on one CPU while that many other threads are parked in switchto_wait(). "
                "ratio: the most parked threads to the fewest.")
RING_TITLE = "A ring of threads"
RING_BELOW = ("One switch of a turn that goes round through that many threads with "
              "switchto_switch(), on one CPU. ratio: the most threads to the fewest.")


def parked_curves(growth):
    """-> [(row's key, Cells by number of parked threads)]"""
    keys = [key for key in growth.keys() if key[0] in PARKED_ROWS and key[2] == ONE_CPU
            and len(growth.cells(key)) > 1]
    return [(key, growth.cells(key)) for key in sorted(keys, key=sort_key)]


def ring_curves(column):
    return [((results.RING_ROW, backend, ONE_CPU), column.rings(backend))
            for backend in column.ring_backends()]


def end_ratio(cells):
    """Of the last figure to the first."""
    values = [cell.value for cell in cells.values()]
    return values[-1] / values[0] if len(values) > 1 and None not in (values[0], values[-1]) \
        else None


def make_curves(curves):
    """(letter, column, key, cells) each -> (head, rows, notes), a column for each number."""
    notes = Notes()
    numbers = sorted({number for *_, cells in curves for number in cells})
    head = ["row", "column"] + [f"{number:,}" for number in numbers] + ["ratio"]
    rows = []
    for letter, column, key, cells in curves:
        row = [row_title(key), f"{letter}: {column.kind}, {column.unit_label}"]
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
             "placement, of one boot ('1 thread': to BM_Futex one_cpu). -: not run."]
    if any(c.unit == "insn" for c in columns):
        lines.append("insn: instructions per switch (-icount, one CPU). Not a time.")
    if any(c.unit == "ns" and c.emulated for c in columns):
        lines.append("ns under TCG: the time of an emulated CPU. Compare within its column; "
                     "nothing on metal, nor the published figures, compares with it but by ratio.")
    lines.append("2013: SwitchTo, LPC 2013. 2020: futex_swap demo, LKML. Unpinned, on machines "
                 "of their own.")
    lines += [f"hand-offs per switch, {letter}: {text}" for letter, column in zip(LETTERS, columns)
              if (text := hand_offs(column))]
    return lines + [f"[{i}] {reason}" for i, reason in enumerate(reasons, 1)]


def describe(column):
    return f"{column.unit_label}, {column.describe()}", column.describe_more()


def text_table(head, rows):
    heads = [[("\n" + cell).split("\n")[-2] for cell in head],
             [cell.split("\n")[-1] for cell in head]]
    widths = [max(len(row[i]) for row in heads + rows) for i in range(len(head))]

    def line(row):
        cells = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        return "  ".join(cells).rstrip()

    heads = [row for row in heads if any(row)]
    return [line(row) for row in heads + [["-" * w for w in widths]] + rows]


def as_text(columns, growths):
    text = []
    for letter, column in zip(LETTERS, columns):
        text += [f"{letter}: {{}}\n   {{}}".format(*describe(column))]
    head, rows, reasons = make_table(columns)
    if rows:
        text += [""] + text_table(head, rows) + [""] + explain(columns, reasons)
    for name, head, rows, below in sections(columns, growths):
        text += ["", name, ""] + text_table(head, rows) + [""] + below
    return "\n".join(text) + "\n"


def markdown_table(head, rows):
    def line(row):
        return "| " + " | ".join(row) + " |"

    rule = line(["---", "---"] + ["---:"] * (len(head) - 2))
    return [line([cell.replace("\n", " ") for cell in head]), rule] + [line(row) for row in rows]


def as_markdown(columns, growths):
    head, rows, reasons = make_table(columns)
    text = [f"- {letter}: " + "; ".join(describe(c)) for letter, c in zip(LETTERS, columns)]
    if rows:
        text += [""] + markdown_table(head, rows) + [""]
        text += [f"{line}  " for line in explain(columns, reasons)]
    for name, head, rows, below in sections(columns, growths):
        text += ["", f"**{name}**", ""] + markdown_table(head, rows) + [""]
        text += [f"{line}  " for line in below]
    return "\n".join(text) + "\n"


# ---------------------------------------------------------------- the charts

INK, FAINT = "#222222", "#8a8a8a"
COLOURS = {"stock": "#9aa5b1", "patched": "#1f6f8b"}
FREE_COLOUR, ONE_CPU_COLOUR = "#d1603d", "#1f6f8b"


def footer_lines(columns, width):
    """The machine, to go below the plots: a figure that is passed on keeps it."""
    lines = []
    for column in columns:
        lines += textwrap.wrap("; ".join(describe(column)), int(width * 15.5),
                               subsequent_indent="    ")
    return lines


def footer_height(columns, width):
    return 0.16 * len(footer_lines(columns, width)) + 0.15


def footer(figure, columns, inches):
    width, height = figure.get_size_inches()
    figure.text(0.15 / width, inches / height, "\n".join(footer_lines(columns, width)),
                fontsize=7.5, color=FAINT, va="top", linespacing=1.35)


def title(figure, main, below):
    width, height = figure.get_size_inches()
    figure.text(0.15 / width, 1 - 0.3 / height, main, fontsize=14, fontweight="bold", color=INK,
                va="center")
    figure.text(0.15 / width, 1 - 0.6 / height, below, fontsize=9.5, color=FAINT, va="center")


def bare(axes):
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(colors=INK)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#e4e4e4")


def emphasise(axes, titles):
    for label, title in zip(axes.get_yticklabels(), titles):
        if title.startswith("BM_Switch") or title == "BM_FutexSwap":
            label.set_fontweight("bold")


def insn_chart(plt, columns, growths):
    """Bars, cheapest first: one_cpu and what runs in one thread."""
    columns = [c for c in columns if c.unit == "insn"]
    keys = {key for c in columns for key in c.keys() if key[2] != FREE}

    def best(key):
        values = [c.cell(key).value for c in columns if c.cell(key)]
        return min((v for v in values if v is not None), default=float("inf"))

    keys = sorted(keys, key=lambda k: (best(k), sort_key(k)))
    if not keys:
        return None

    bar = 0.8 / len(columns)
    body = 0.2 + len(keys) * (0.17 + 0.21 * len(columns))
    width, top = 10, 0.95
    bottom = footer_height(columns, width) + 0.6
    height = top + body + bottom
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes([0.25, bottom / height, 0.715, body / height])

    longest = max((c.cell(k).value or 0) for c in columns for k in keys if c.cell(k))
    for i, column in enumerate(columns):
        for y, key in enumerate(keys):
            cell = column.cell(key)
            at = y + (i - (len(columns) - 1) / 2) * bar
            if not cell:
                continue
            if cell.value is None:
                state = "skipped" if cell.skipped else "INVALID"
                axes.text(longest * 0.008, at, f"{column.kind}: {state}, {cell.reason}",
                          va="center", fontsize=8, color=FAINT, style="italic")
                continue
            axes.barh(at, cell.value, bar * 0.92, color=COLOURS[column.kind],
                      label=f"{column.kind} kernel")
            axes.text(cell.value + longest * 0.008, at, number(cell.value), va="center",
                      fontsize=8.5, color=INK)

    titles = [row_title(k) + k[2].removeprefix(ONE_CPU) if results.is_variant(k[2]) else
              row_title(k) + (" *" if k[2] == ONE_THREAD else "") for k in keys]
    axes.set_yticks(range(len(keys)), titles, fontsize=9.5)
    emphasise(axes, titles)
    axes.set_ylim(len(keys) - 0.45, -0.55)
    axes.set_xlim(0, longest * 1.08)
    axes.set_xlabel("instructions, not a time      * in one thread: a system call, or a switch "
                    "in user space", fontsize=9, color=INK)
    bare(axes)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
    axes.legend(handles.values(), handles.keys(), loc="upper right", frameon=False, fontsize=9.5)
    title(figure, "Instructions per switch, both threads on one CPU",
          "median of the repetitions, user space and kernel together, -icount")
    footer(figure, columns, bottom - 0.6)
    return figure


def wake_wait_to(column, name, backend):
    """"free 6.4, one CPU 0.97": how many times wake + wait is dearer."""
    parts = []
    for placement, word in ((FREE, "free"), (ONE_CPU, "one CPU")):
        ratio = column.ratio((name, backend, placement))
        if ratio:
            parts.append(f"{word} {1 / ratio:.2f}")
    return ", ".join(parts)


def ns_panel(axes, column, rows, limits):
    """Two dots per row, free and one CPU, and the range of the repetitions."""
    right = axes.get_yaxis_transform()
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}" if value < 1e4
                                   else f"{value:,.0f}".replace(",", " "))
    for x, word, colour in ((1.10, "free", FREE_COLOUR), (1.24, "one CPU", ONE_CPU_COLOUR),
                            (1.42, "free /\none CPU", INK)):
        axes.text(x, -0.75, word, transform=right, ha="center", va="bottom", fontsize=9,
                  color=colour, fontweight="bold")

    for y, row in enumerate(rows):
        values, reasons = {}, {}
        for placement, x, colour, off in ((FREE, 1.10, FREE_COLOUR, -0.14),
                                          (ONE_CPU, 1.24, ONE_CPU_COLOUR, 0.14)):
            cell = column.cell((*row, placement))
            if not cell:
                text = "-"
            elif cell.value is None:
                text = "skipped" if cell.skipped else "INVALID"
                reasons.setdefault(cell.reason, y + off * 2.2)
            else:
                values[placement] = cell.value
                text = number(cell.value)
                axes.plot([min(cell.samples), max(cell.samples)], [y + off] * 2, color=colour,
                          linewidth=3, alpha=0.28, solid_capstyle="round")
                axes.plot(cell.value, y + off, "o", color=colour, markersize=6)
            axes.text(x, y, text, transform=right, ha="center", va="center", fontsize=9, color=INK)
        for reason, at in reasons.items():
            axes.text(0.5, at if values or len(reasons) > 1 else y,
                      textwrap.shorten(reason, 75, placeholder="..."), transform=right,
                      ha="center", va="center", fontsize=7.5, color=FAINT, style="italic")
        if len(values) == 2:
            axes.text(1.42, y, f"{values[FREE] / values[ONE_CPU]:.2f}", transform=right,
                      ha="center", va="center", fontsize=9, color=INK)

    titles = [row_title((*row, "")) for row in rows]
    axes.set_yticks(range(len(rows)), titles, fontsize=9.5)
    emphasise(axes, titles)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(f"{column.unit_label} per switch, log scale; dot: median, bar: all repetitions",
                    fontsize=8.5, color=INK)
    bare(axes)


def ns_chart(plt, columns, growths):
    """A panel for each column, all on the same scale."""
    panels, samples = [], []
    for column in columns:
        keys = [key for key in column.keys() if key[2] in (FREE, ONE_CPU)]
        figures = [s for key in keys if column.cell(key).value is not None
                   for s in column.cell(key).samples]
        if column.unit == "ns" and figures:
            samples += figures
            panels.append((column, sorted({key[:2] for key in keys},
                                          key=lambda row: sort_key((*row, FREE)))))
    if not panels:
        return None

    width, top, head, axis = 11, 0.85, 1.0, 0.75
    columns = [column for column, _ in panels]
    bottom = footer_height(columns, width)
    bodies = [0.3 + 0.33 * len(rows) for _, rows in panels]
    height = top + sum(bodies) + len(panels) * (head + axis) + bottom
    figure = plt.figure(figsize=(width, height))

    base = height - top
    for (column, rows), body in zip(panels, bodies):
        machine = (f"{column.kind} kernel, {column.context['accelerator']}, "
                   f"{column.context['cpus']} CPUs")
        figure.text(0.15 / width, (base - 0.2) / height, machine, fontsize=11, fontweight="bold",
                    color=INK, va="center")
        ratios = [f"{name}  {text}" for name, text in (
            ("wake + wait : swap", wake_wait_to(column, "BM_FutexSwap", "")),
            ("wake + wait : switch", wake_wait_to(column, "BM_SwitchTo", "swap"))) if text]
        figure.text(0.15 / width, (base - 0.45) / height, ";    ".join(ratios), fontsize=9.5,
                    color=INK, va="center")
        base -= head + body
        ns_panel(figure.add_axes([0.225, base / height, 0.445, body / height]), column, rows,
                 (min(samples) / 1.25, max(samples) * 1.25))
        base -= axis

    title(figure, "A switch on any CPU, and with both threads on one",
          "published, unpinned, on metal: SwitchTo 2013, 2905 : 179 ns = 16.2;  FUTEX_SWAP 2020, "
          "4103 : 620 ns = 6.6")
    footer(figure, columns, bottom)
    return figure


CURVE_COLOURS = {"BM_Futex": "#6b7684", "BM_FutexSwap": "#d99a2b", "BM_SwitchTo": ONE_CPU_COLOUR,
                 "BM_SwitchResume": FREE_COLOUR, results.RING_ROW: ONE_CPU_COLOUR}


def apart(wanted, gap):
    """@wanted, lowest first, moved as little as keeps them @gap apart."""
    groups = []     # [values that touch]; each is centred on what its members want
    for value in wanted:
        groups.append([value])
        while len(groups) > 1:
            below, above = groups[-2:]
            if centre(above) - centre(below) >= gap * (len(above) + len(below)) / 2:
                break
            groups[-2:] = [below + above]
    return [centre(group) + gap * (i - (len(group) - 1) / 2)
            for group in groups for i in range(len(group))]


def centre(group):
    return sum(group) / len(group)


def spaced(value):
    return f"{value:,.0f}".replace(",", " ")


def curve_panel(axes, curves, numbers, highest, height, xlabel):
    """A line per row over the logarithm of @numbers, its name where it ends."""
    logs = {number: math.log10(number) for number in numbers if number}
    if 0 in numbers:
        logs[0] = min(logs.values()) - 1    # left of the break
    left, right = min(logs.values()), max(logs.values())
    width = max(right - left, 1)

    axes.set_xlim(left - 0.03 * width, right + 0.03 * width)
    axes.set_ylim(0, highest * 1.06)
    for key, cells in curves:
        points = [(logs[number], cell.value) for number, cell in cells.items()
                  if cell.value is not None]
        axes.plot(*zip(*points), marker="o", color=CURVE_COLOURS[key[0]], markersize=4.5,
                  linewidth=2, linestyle=(0, (4, 1.5)) if key[1] == "wake-wait" else "-")

    ends = sorted(((max((number, cell.value) for number, cell in cells.items()
                        if cell.value is not None), key, cells) for key, cells in curves),
                  key=lambda end: (end[0][1], sort_key(end[1])))
    gap = highest * 1.06 / height * 0.21    # a line of text
    places = apart([value for (_, value), *_ in ends], gap)
    lift = max(0, gap / 2 - places[0])
    for ((number_of_threads, value), key, cells), at in zip(ends, places):
        colour, end = CURVE_COLOURS[key[0]], right + 0.1 * width
        axes.plot([logs[number_of_threads] + 0.015 * width, end - 0.01 * width],
                  [value, at + lift], color=colour, linewidth=0.8, alpha=0.6, clip_on=False)
        ratio = end_ratio(cells)
        if number_of_threads != numbers[-1]:
            more = f"  (at {spaced(number_of_threads)})"
        else:
            more = f"  ({ratio:.2f} x)" if ratio else ""
        axes.text(end, at + lift, f"{row_title(key)}  {number(value)}{more}", color=colour,
                  fontsize=10, va="center", fontweight="bold"
                  if key[0] in ("BM_SwitchTo", results.RING_ROW) else "normal")

    axes.set_xticks([logs[number] for number in numbers],
                    [spaced(number) for number in numbers], fontsize=10)
    axes.yaxis.set_major_formatter(lambda value, position: spaced(value))
    axes.tick_params(axis="y", labelsize=10)
    axes.set_xlabel(xlabel, fontsize=10, color=INK)
    bare(axes)
    axes.grid(axis="x", visible=False)
    axes.grid(axis="y", color="#e4e4e4")
    if 0 in logs and len(logs) > 1:
        at = (logs[0] + min(value for number, value in logs.items() if number)) / 2
        axes.text(at, 0, "//", transform=axes.get_xaxis_transform(), ha="center", va="center",
                  fontsize=10, color=INK, backgroundcolor="white")


def curve_chart(plt, panels, main, below, xlabel):
    """A panel for each (column, curves), all on the same scale."""
    drawn = []
    for column, curves in panels:
        curves = [(key, cells) for key, cells in curves
                  if any(cell.value is not None for cell in cells.values())]
        if column.unit == "insn" and curves:
            drawn.append((column, curves))
    if not drawn:
        return None

    columns = [column for column, _ in drawn]
    width, top, head, body, axis = 9.5, 0.8, 0.35, 3.4, 0.75
    bottom = footer_height(columns, width)
    height = top + len(drawn) * (head + body + axis) + bottom
    highest = max(cell.value or 0 for _, curves in drawn for _, cells in curves
                  for cell in cells.values())
    numbers = sorted({number for _, curves in drawn for _, cells in curves for number in cells})
    figure = plt.figure(figsize=(width, height))

    base = height - top
    for column, curves in drawn:
        figure.text(0.15 / width, (base - 0.1) / height, f"{column.kind} kernel", fontsize=11,
                    fontweight="bold", color=INK, va="center")
        base -= head + body
        curve_panel(figure.add_axes([0.075, base / height, 0.5, body / height]), curves, numbers,
                    highest, body, xlabel)
        base -= axis

    title(figure, main, below)
    footer(figure, columns, bottom)
    return figure


def parked_chart(plt, columns, growths):
    return curve_chart(plt, [(growth.whole, parked_curves(growth)) for growth in growths],
                       "Instructions per switch beside parked threads",
                       "two threads on one CPU, all others in switchto_wait(); median, -icount",
                       "parked threads, log scale")


def ring_chart(plt, columns, growths):
    return curve_chart(plt, [(column, ring_curves(column)) for column in columns],
                       "Instructions per switch in a ring of threads",
                       "each thread hands one turn on with switchto_switch(), all on one CPU; "
                       "median, -icount", "threads in the ring, log scale")


def load_matplotlib():
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise results.BadInput("wanted matplotlib for the charts, found none for this Python; "
                               "install python3-matplotlib") from None
    return plt


CHARTS = (("insn", insn_chart, "no figures in insn"), ("ns", ns_chart, "no figures in ns"),
          ("parked", parked_chart, "no figures in insn with parked threads"),
          ("ring", ring_chart, "no rings in insn"))


def save(out, name, text):
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write(text)


def report(out, columns, growths):
    plt = load_matplotlib()
    text = as_text(columns, growths)
    print(text, end="")
    try:
        os.makedirs(out, exist_ok=True)
        save(out, "table.txt", text)
        save(out, "table.md", as_markdown(columns, growths))
        for name, draw, needed in CHARTS:
            figure = draw(plt, columns, growths)
            if not figure:
                print(f"no chart {name}: {needed}")
                continue
            for kind in ("svg", "png"):
                figure.savefig(os.path.join(out, f"{name}.{kind}"), dpi=150)
            plt.close(figure)
    except OSError as error:
        raise results.BadInput(f"{out}: wanted to write the report there, can't: "
                               f"{error.strerror}; give another --out") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="where table.txt, table.md and the charts' .svg and .png go")
    parser.add_argument("files", nargs="+", metavar="FILE.json",
                        help="results of switchto-bench (--benchmark_out)")
    args = parser.parse_args()
    try:
        report(args.out, *results.load(args.files))
    except results.BadInput as error:
        sys.exit(f"report.py: {error}")


if __name__ == "__main__":
    main()
