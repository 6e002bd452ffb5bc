#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Count by function, in QEMU's log, the instructions executed between two switches."""

import argparse
import bisect
import collections
import signal
import sys

SWITCHES = ("__switch_to_asm", "cpu_switch_to")  # of x86-64, arm64
LEAST = 0.05                # insn per switch that are worth a line
STEADY = 0.01               # how much the halves of a log may differ


class BadInput(Exception):
    """One line that says what was wanted and found."""


class Symbols:
    """The functions of a System.map."""

    def __init__(self, path):
        names, everything = {}, {}
        with open(path) as lines:
            for line in lines:
                address, kind, name = line.split()[:3]
                everything[name] = int(address, 16)
                if kind not in "tTwW":
                    continue
                # Of several names, the one with fewest leading underscores:
                # memcpy, not __memcpy.
                address = int(address, 16)
                rank = (len(name) - len(name.lstrip("_")), name)
                names[address] = min(rank, names.get(address, rank))
        switch = [everything[name] for name in SWITCHES if name in everything]
        if len(switch) != 1 or "_end" not in everything:
            raise BadInput(f"wanted _end and one of {', '.join(SWITCHES)} in {path}, found {len(switch)}; "
                           "is it the System.map of a kernel for x86-64 or arm64?")
        self.switch = switch[0]
        self.end = everything["_end"]
        self.addresses = sorted(names)
        self.names = [names[address][1] for address in self.addresses]

    def function(self, pc):
        if pc < 1 << 63:
            return "user"
        at = bisect.bisect_right(self.addresses, pc) - 1
        return self.names[at] if at >= 0 and pc < self.end else "outside of the kernel's image"


def executed(path):
    """The program counters of the log, as the log's own text."""
    previous, flags = None, set()
    with open(path, "rb") as lines:
        for line in lines:
            # Trace 0: 0x7f21c8000100 [cs_base/pc/flags/cflags] symbol
            if line.startswith(b"Trace "):
                if previous is not None:
                    yield previous
                fields = line.split(b"/", 3)
                if len(fields) < 4 or not line.endswith(b"\n"):
                    break           # the last line, cut off
                previous = fields[1]
                flags.add(fields[3][:8])
            elif line.startswith(b"Stopped execution "):
                # An interrupt came before the instruction: the block will be
                # entered again.
                previous = None
    # The lower bits of cflags are the most instructions that the block may have.
    if any(int(word, 16) & 0x1ff != 1 for word in flags):
        raise BadInput(f"wanted one instruction a block in {path}, found longer ones; "
                       "did QEMU refuse the command?")


def count(path, symbols):
    """-> (instructions by function, lengths of the intervals between switches)"""
    by_pc, lengths = collections.Counter(), []
    switch = b"%016x" % symbols.switch
    interval, begun, total = [], False, 0
    for pc in executed(path):
        total += 1
        if pc == switch:
            if begun:
                by_pc.update(interval)
                lengths.append(len(interval))
            begun, interval = True, []
        if begun:
            interval.append(pc)
    if not total:
        raise BadInput(f"wanted executed instructions in {path}, found none; "
                       "did QEMU refuse the command?")
    if not lengths:
        raise BadInput(f"wanted two switches or more, found {int(begun)} in {total} instructions; "
                       "does CMD switch between threads, and is it past its set-up (--wait)?")
    by_function = collections.Counter()
    for pc, number in by_pc.items():
        by_function[symbols.function(int(pc, 16))] += number
    return by_function, lengths


def mean(values):
    return sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--map", required=True, help="the kernel's System.map")
    parser.add_argument("--out", help="where the table goes (standard output)")
    parser.add_argument("log", help="QEMU's -d exec,nochain, one instruction a block")
    args = parser.parse_args()

    by_function, lengths = count(args.log, Symbols(args.map))
    switches = len(lengths)
    text = [f"{switches} switches, {mean(lengths):.1f} insn per switch", "    insn  function"]
    for name, number in sorted(by_function.items(), key=lambda item: (-item[1], item[0])):
        if number / switches > LEAST:
            text.append(f"{number / switches:8.1f}  {name}")
    text = "\n".join(text) + "\n"
    if args.out:
        with open(args.out, "w") as out:
            out.write(text)
    else:
        sys.stdout.write(text)

    halves = [mean(half) for half in (lengths[:switches // 2], lengths[switches // 2:]) if half]
    if max(halves) > min(halves) * (1 + STEADY):
        print(f"profile-count.py: warning: wanted a steady state, found {halves[0]:.1f} insn per "
              f"switch in the log's first half and {halves[-1]:.1f} in its second; "
              "a longer --wait or --seconds may help", file=sys.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    try:
        main()
    except (BadInput, OSError) as error:
        sys.exit(f"profile-count.py: {error}")
