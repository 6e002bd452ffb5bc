# SPDX-License-Identifier: MIT
"""Charts of what switchto-bench measured."""

import io
import math
import os
import textwrap

import results
from results import (FREE, ONE_CPU, ONE_THREAD, TOGETHER, describe, end_ratio, number, parked_curves,
                     ring_curves, row_title, sort_key)

INK, FAINT = "#222222", "#8a8a8a"
COLOURS = {"stock": "#9aa5b1", "patched": "#1f6f8b"}
FREE_COLOUR, TOGETHER_COLOUR, ONE_CPU_COLOUR = "#d1603d", "#6f9a3e", "#1f6f8b"


def footer_lines(columns, width):
    """The machine, shown below the plots: a copied figure keeps it."""
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
        if title.startswith(("BM_Switch", "BM_Door")) or title == "BM_FutexSwap":
            label.set_fontweight("bold")


def insn_chart(plt, columns, growths):
    """Bars, cheapest first: one_cpu and what runs in one thread."""
    columns = [c for c in columns if c.unit == "insn"]
    keys = {key for c in columns for key in c.keys()
            if key[2] != FREE and not c.cell(key).skipped}

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
                axes.text(longest * 0.008, at, f"{column.label}: {state}, {cell.reason}",
                          va="center", fontsize=8, color=FAINT, style="italic")
                continue
            axes.barh(at, cell.value, bar * 0.92, color=COLOURS[column.kind],
                      alpha=1 if column.version == columns[-1].version else 0.6,
                      label=f"{column.label} kernel")
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


SUMMARY = (("BM_SwitchTo", "swap"), ("BM_Futex", ""), ("BM_PthreadCond", ""), ("BM_Pipe", ""))


def summary_panel(axes, column, placement):
    """A bar per row, its median, and a line over all its repetitions."""
    cells = [column.cell((*row, placement)) for row in SUMMARY]
    highest = max((max(c.samples) for c in cells if c and c.value is not None), default=1)
    for y, (row, cell) in enumerate(zip(SUMMARY, cells)):
        if not cell or cell.value is None:
            axes.text(0, y, "  not run" if not cell else "  skipped" if cell.skipped else
                      "  INVALID", va="center", fontsize=9.5, color=FAINT, style="italic")
            continue
        ratio = column.ratio((*row, placement))
        axes.barh(y, cell.value, 0.62, color=COLOURS["patched" if not y else "stock"])
        axes.plot([min(cell.samples), max(cell.samples)], [y, y], color=INK, linewidth=1.2)
        axes.text(max(cell.samples) + highest * 0.025, y, f"{cell.value:,.0f}" +
                  (f"\n{ratio:.2f}" if ratio else ""), va="center", fontsize=9.5, color=INK,
                  fontweight="normal" if y else "bold", linespacing=1.15)
    axes.set_yticks(range(len(SUMMARY)), [results.TITLES[name].replace(" condition", "\ncondition")
                                          for name, _ in SUMMARY], fontsize=10.5)
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_ylim(len(SUMMARY) - 0.5, -0.5)
    axes.set_xlim(0, highest * 1.3)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:,.0f}")
    axes.tick_params(axis="x", labelsize=9)
    bare(axes)


def summary_chart(plt, columns, growths):
    """The patched kernel in one look: time in free placement, instructions on one CPU."""
    patched = {column.unit: column for column in columns if column.patched}
    if sorted(patched) != ["insn", "ns"]:
        return None
    time, insn = patched["ns"], patched["insn"]

    width, top, head, body, axis = 8, 0.85, 0.6, 2.3, 0.45
    bottom = 0.5
    height = top + head + body + axis + bottom
    figure = plt.figure(figsize=(width, height))
    emulated = ", an emulated CPU" if time.emulated else ""
    for column, placement, left, main, below in (
            (time, FREE, 0.215, "Time, free placement", f"{time.unit_label}{emulated}"),
            (insn, ONE_CPU, 0.63, "Instructions, one CPU", "user space and kernel, -icount")):
        axes = figure.add_axes([left, (axis + bottom) / height, 0.36, body / height])
        summary_panel(axes, column, placement)
        for text, up, size, colour, weight in ((main, 0.4, 11.5, INK, "bold"),
                                               (below, 0.17, 9, FAINT, "normal")):
            figure.text(left, (bottom + axis + body + up) / height, text, fontsize=size,
                        color=colour, fontweight=weight, va="center")
    axes.set_yticklabels([])
    title(figure, "What one switch costs",
          "bar, upper figure: median; lower figure: ratio to futex wake + wait; "
          "line: all repetitions")
    machines = [f"{word}: accelerator {column.context['accelerator']}{how}, {column.cpus} "
                f"CPU{'s' * (column.cpus > 1)}"
                for word, how, column in (("time", "", time), ("instructions", " -icount", insn))]
    state = time.context
    figure.text(0.15 / width, (bottom - 0.05) / height,
                f"patched Linux {state['kernel']}, {state['mitigations'].split(' (')[0]}, "
                f"HZ {state['hz']}, {state['preemption']}, host CPU {state['host_cpu']}\n"
                f"{'; '.join(machines)}",
                fontsize=8, color=FAINT, va="top", linespacing=1.35)
    return figure


def wake_wait_to(column, name, backend):
    """"free 6.4, one CPU 0.97": how many times wake + wait is dearer."""
    parts = []
    for placement, word in ((FREE, "free"), (TOGETHER, "together"), (ONE_CPU, "one CPU")):
        ratio = column.ratio((name, backend, placement))
        if ratio:
            parts.append(f"{word} {1 / ratio:.2f}")
    return ", ".join(parts)


def ns_panel(axes, column, rows, limits):
    """A dot per row and placement, and the range of the repetitions."""
    right = axes.get_yaxis_transform()
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}" if value < 1e4
                                   else f"{value:,.0f}".replace(",", " "))
    placements = [(FREE, "free", FREE_COLOUR), (TOGETHER, "together", TOGETHER_COLOUR),
                  (ONE_CPU, "one CPU", ONE_CPU_COLOUR)]
    if not any(key[2] == TOGETHER for key in column.keys()):
        del placements[1]
    places = [1.10 + 0.14 * i for i in range(len(placements))]
    last = places[-1] + 0.18
    for x, (_, word, colour) in zip((*places, last), (*placements, ("", "free /\none CPU", INK))):
        axes.text(x, -0.75, word, transform=right, ha="center", va="bottom", fontsize=9,
                  color=colour, fontweight="bold")

    for y, row in enumerate(rows):
        values, reasons = {}, {}
        for i, (x, (placement, _, colour)) in enumerate(zip(places, placements)):
            off = 0.28 * (i / (len(placements) - 1) - 0.5)
            cell = column.cell((*row, placement))
            if not cell:
                text = "" if placement == TOGETHER else "-"
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
        if FREE in values and ONE_CPU in values:
            axes.text(last, y, f"{values[FREE] / values[ONE_CPU]:.2f}", transform=right,
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
        keys = [key for key in column.keys() if key[2] in (FREE, TOGETHER, ONE_CPU)]
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
        machine = (f"{column.label} kernel, {column.context['accelerator']}, "
                   f"{column.context['cpus']} CPUs")
        figure.text(0.15 / width, (base - 0.2) / height, machine, fontsize=11, fontweight="bold",
                    color=INK, va="center")
        ratios = [f"{name}  {text}" for name, text in (
            ("wake + wait : swap", wake_wait_to(column, "BM_FutexSwap", "")),
            ("wake + wait : switch", wake_wait_to(column, "BM_SwitchTo", "swap")),
            ("wake + wait : switch, wake-wait",
             wake_wait_to(column, "BM_SwitchTo", "wake-wait"))) if text]
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
        figure.text(0.15 / width, (base - 0.1) / height, f"{column.label} kernel", fontsize=11,
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


CHARTS = (("summary", summary_chart, "not both ns and insn of the patched kernel"),
          ("insn", insn_chart, "no figures in insn"), ("ns", ns_chart, "no figures in ns"),
          ("parked", parked_chart, "no figures in insn with parked threads"),
          ("ring", ring_chart, "no rings in insn"))


def save(out, kinds, columns, growths, names=None):
    """@names: only these charts, and under which names."""
    plt = load_matplotlib()
    for name, draw, needed in CHARTS:
        if names and name not in names:
            continue
        figure = draw(plt, columns, growths)
        if not figure:
            print(f"no chart {name}: {needed}")
            continue
        name = names[name] if names else name
        for kind in kinds:
            write(figure, os.path.join(out, f"{name}.{kind}"), 150)
        plt.close(figure)


def write(figure, path, dpi):
    """A palette of few colours makes a PNG a quarter as large."""
    if not path.endswith(".png"):
        figure.savefig(path)
        return
    from PIL import Image   # matplotlib needs it, too
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=dpi)
    picture = Image.open(picture).convert("RGB").quantize(32, Image.Quantize.FASTOCTREE)
    picture.putpalette(255 if part == 254 else part for part in picture.getpalette())   # white
    picture.save(path, optimize=True)


def save_program(path, program, unit, panels):
    """@panels: a benchmark, and its bars as (words, colour, value, text)."""
    plt = load_matplotlib()
    figure, axes = plt.subplots(len(panels), 1, figsize=(7.5, 0.6 + 1.5 * len(panels)),
                                squeeze=False, layout="constrained")
    for axis, (benchmark, bars) in zip(axes[:, 0], panels):
        words, colours, values, texts = zip(*bars)
        axis.bar_label(axis.barh(words, values, color=colours), texts, padding=3)
        axis.invert_yaxis()
        axis.set_title(f"{program}: {benchmark}", loc="left")
        axis.set_xlabel(f"{unit}; patched kernel" if axis is axes[-1, 0] else "")
        axis.margins(x=0.1)
        axis.spines[["top", "right"]].set_visible(False)
    write(figure, path, 110)
