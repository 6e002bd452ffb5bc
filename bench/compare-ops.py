#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Compare two outputs of futex-ops: what the patches add to existing futex operations."""

import argparse
import re
import signal
import sys

import render

# Operations on two futexes differ so much between boots of one kernel: the order of
# their buckets depends on where the mm lies.
TWO_BUCKETS = 4.5
# A fork and its end also clear and test a pointer more: the changelog of "futex: Let
# FUTEX_SWAP find its target by TID".
FORK = 0.01
# A timer and a sleep take tens of thousands of them.
LONG = 0.0005


def figures(path):
    """Operation: instructions."""
    result = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                found = re.fullmatch(r"(\S.*?)  +([0-9.]+)\n", line)
                if found:
                    result[found[1]] = float(found[2])
    except OSError as error:
        sys.exit(f"compare-ops.py: wanted to read {path}, got {error.strerror}")
    if not result:
        sys.exit(f"compare-ops.py: {path}: wanted the output of futex-ops, found none")
    return result


def allowed(name, before):
    """How many more instructions are normal even without the patches."""
    if name.startswith("(fork"):
        return before * FORK
    if name == "WAKE_OP" or ("REQUEUE" in name and "WAIT" not in name):
        return TWO_BUCKETS
    return max(0.5, before * LONG)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stock", help="of the stock kernel")
    parser.add_argument("patched", help="of the patched one")
    arguments = parser.parse_args()
    stock, patched = figures(arguments.stock), figures(arguments.patched)
    if stock.keys() != patched.keys():
        sys.exit("compare-ops.py: wanted the same operations of both kernels, found "
                 f"{', '.join(stock.keys() ^ patched.keys())} of one")
    dearer = []
    rows = []
    for name, before in stock.items():
        more = patched[name] - before
        rows.append([name, f"{before:.1f}", f"{patched[name]:.1f}", f"{more:+.1f}"])
        if more > allowed(name, before):
            dearer.append(f"{name} {more:+.1f}")
    print(*render.text(["insn per call", "stock", "patched", "more"], rows, (0,)), sep="\n")
    print("FAIL  existing operations cost more: " + ", ".join(dearer) if dearer else
          "PASS  no existing operation costs more")
    return bool(dearer)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    sys.exit(main())
