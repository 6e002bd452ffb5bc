# SPDX-License-Identifier: MIT
"""Tables: in Markdown for documents and reports, in columns for a terminal."""

NO_ROWS = ["No run yet."]


def table(head, rows, left=(0,)):
    """Lines of Markdown. @left: the columns of words, which are no figures."""
    def line(cells):
        return "| " + " | ".join(cells) + " |"
    rule = "|" + "".join("---|" if i in left else "---:|" for i in range(len(head)))
    return [line(cell.replace("\n", " ") for cell in head), rule, *map(line, rows)] if rows else \
        NO_ROWS


def text(head, rows, left=(0, 1)):
    """Lines of columns; a head may have two lines."""
    heads = [[("\n" + cell).split("\n")[-2] for cell in head],
             [cell.split("\n")[-1] for cell in head]]
    widths = [max(len(row[i]) for row in heads + rows) for i in range(len(head))]

    def line(row):
        cells = [c.ljust(w) if i in left else c.rjust(w)
                 for i, (c, w) in enumerate(zip(row, widths))]
        return "  ".join(cells).rstrip()
    heads = [row for row in heads if any(row)]
    return [line(row) for row in heads + [["-" * w for w in widths]] + rows]
