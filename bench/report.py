#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Make a table and two charts of what switchto-bench measured."""

import argparse
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

    return [line(row) for row in heads + [["-" * w for w in widths]] + rows]


def as_text(columns):
    head, rows, reasons = make_table(columns)
    machines = []
    for letter, column in zip(LETTERS, columns):
        machines += [f"{letter}: {{}}\n   {{}}".format(*describe(column))]
    text = machines + [""] + text_table(head, rows) + [""] + explain(columns, reasons)
    head, rows, below = make_shares(columns)
    if rows:
        text += ["", SHARES_TITLE, ""] + text_table(head, rows) + [""] + below
    return "\n".join(text) + "\n"


def markdown_table(head, rows):
    def line(row):
        return "| " + " | ".join(row) + " |"

    rule = line(["---", "---"] + ["---:"] * (len(head) - 2))
    return [line([cell.replace("\n", " ") for cell in head]), rule] + [line(row) for row in rows]


def as_markdown(columns):
    head, rows, reasons = make_table(columns)
    text = [f"- {letter}: " + "; ".join(describe(c)) for letter, c in zip(LETTERS, columns)]
    text += [""] + markdown_table(head, rows) + [""]
    text += [f"{line}  " for line in explain(columns, reasons)]
    head, rows, below = make_shares(columns)
    if rows:
        text += ["", f"**{SHARES_TITLE}**", ""] + markdown_table(head, rows) + [""]
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


def insn_chart(plt, columns):
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


def ns_chart(plt, columns):
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


def load_matplotlib():
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise results.BadInput("wanted matplotlib for the charts, found none for this Python; "
                               "install python3-matplotlib") from None
    return plt


def save(out, name, text):
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write(text)


def report(out, columns):
    plt = load_matplotlib()
    text = as_text(columns)
    print(text, end="")
    try:
        os.makedirs(out, exist_ok=True)
        save(out, "table.txt", text)
        save(out, "table.md", as_markdown(columns))
        for name, draw in (("insn", insn_chart), ("ns", ns_chart)):
            figure = draw(plt, columns)
            if not figure:
                print(f"no chart {name}: no figures in {name}")
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
                        help="where table.txt, table.md, insn and ns .svg and .png go")
    parser.add_argument("files", nargs="+", metavar="FILE.json",
                        help="results of switchto-bench (--benchmark_out)")
    args = parser.parse_args()
    try:
        report(args.out, results.load(args.files))
    except results.BadInput as error:
        sys.exit(f"report.py: {error}")


if __name__ == "__main__":
    main()
