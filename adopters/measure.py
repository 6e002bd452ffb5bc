#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Time the benchmarks of an adopter, in the VM or here. vm/adopt calls this.

All columns of a benchmark run in turn, @rounds times: so slow drift changes all alike.
With --warm-up each variant runs once before, so that the files that it reads are in memory.
Writes a line of JSON per run: benchmark, column, seconds, CPU seconds, and a digest of what
the program printed, without the lines that match --ignore. A column with CPU=N in its
environment runs on that CPU alone. A program that measures a part of
itself prints "measured N s, CPU N s": these are the seconds then.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import shlex
import signal
import string
import subprocess
import sys
import time

MEASURED = re.compile(r"measured ([0-9.]+) s, CPU ([0-9.]+) s")


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(folder, environment, command, ignore):
    """-> (seconds, CPU seconds, digest)"""
    alone = ["taskset", "-c", environment["CPU"]] if "CPU" in environment else []
    environment = os.environ | environment
    program, *arguments = shlex.split(string.Template(command).safe_substitute(environment))
    # As it is, a program may have faults: Ruby with RUBY_MN_THREADS=1 sometimes crashes at its end.
    for tries_left in (0,) if os.path.basename(folder) == "patched" else (2, 1, 0):
        before, start = cpu_seconds(), time.monotonic()
        done = subprocess.run([*alone, os.path.join(folder, program), *arguments], check=False,
                              cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode >= 0 or not tries_left:
            break
        print(f"measure.py: {command}: ended by signal {-done.returncode}, once more", flush=True)
    seconds, cpu = time.monotonic() - start, cpu_seconds() - before
    lines = [line for line in done.stdout.decode(errors="replace").splitlines()
             if not (ignore and re.search(ignore, line))]
    for own in filter(None, map(MEASURED.fullmatch, lines)):
        seconds, cpu = float(own[1]), float(own[2])
    lines = [line for line in lines if not MEASURED.fullmatch(line)]
    if done.returncode != 0:
        sys.exit(f"measure.py: {command}: wanted status 0, found {done.returncode}: "
                 f"{lines[-1] if lines else 'no output'}")
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return seconds, cpu, digest


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm-up", action="store_true")
    parser.add_argument("--ignore", default="")
    parser.add_argument("--builds", required=True, help="the folder of the variants' builds")
    parser.add_argument("--column", action="append", required=True,
                        help="name, variant, environment as NAME=VALUE")
    parser.add_argument("--benchmark", action="append", required=True, help="name, command")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with open(args.out, "w", encoding="utf-8") as out:
        for benchmark in args.benchmark:
            name, command = benchmark.split(maxsplit=1)
            warm = set()
            for number in range(-args.warm_up, args.rounds):
                for column in args.column:
                    title, variant, *environment = column.split()
                    if number < 0 and variant in warm:
                        continue
                    warm.add(variant)
                    values = run(os.path.join(args.builds, variant),
                                 dict(e.split("=", 1) for e in environment),
                                 command, args.ignore)
                    if number < 0:
                        continue
                    keys = ("benchmark", "column", "seconds", "cpu", "digest")
                    print(json.dumps(dict(zip(keys, (name, title, *values)))), file=out, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
