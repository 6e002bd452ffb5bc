#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Echo servers on this machine's own kernel, one after the other, in rounds; and their table."""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys

import kept
from render import table

THREADS = "thread per connection"
# Title, program and arguments, environment. All with the engine epoll, as the other tables.
SERVERS = (
    ("epoll loop", ["epoll"], {}),
    ("io_uring loop", ["io_uring"], {}),
    ("Boost.Asio", ["asio"], {}),
    ("Go", ["go"], {}),
    (THREADS, ["threads"], {}),
    ("tasks on one slot, free", ["tasks"], {"SWITCHTO_PLACE": "free"}),
    ("tasks on one slot", ["tasks"], {}),
    ("**tasks**, a slot for each CPU", ["tasks", "slots"], {}),
)
ANNOUNCED = (("tasks on one slot, announced, free", ["tasks", "announced"], {"SWITCHTO_PLACE": "free"}),
             ("tasks on one slot, announced", ["tasks", "announced"], {}),
             ("**tasks**, announced, a slot for each CPU", ["tasks", "announced", "slots"], {}))
HOGS = "64 connections, beside a busy loop for each CPU"
# Title, connections, requests, options of load
LOADS = (
    ("64 connections", 64, 60000, []),
    ("64 connections, the server on one CPU, the load on the other", 64, 60000, ["--apart"]),
    ("1,000 connections", 1000, 60000, []),
    ("64 connections, every 16th request blocks for 1 ms", 64, 30000, ["--block", "1000"]),
    (HOGS, 64, 30000, []),
)
FIGURES = ("requests_per_s", "server_ns", "clients_ns", "p50", "p99")


@contextlib.contextmanager
def busy_loops(count):
    """Each in a session, and so in a scheduling group, of its own."""
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True)
            for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def measure(programs, out, rounds):
    found = {}
    for number in range(rounds):
        for load, connections, requests, options in LOADS:
            for title, command, env in SERVERS + (ANNOUNCED if "--block" in options else ()):
                path = os.path.join(programs, command[0])
                if not os.path.exists(path):
                    continue
                print(f"round {number + 1} of {rounds}: {load}: {title}", flush=True)
                with busy_loops(os.cpu_count() if load == HOGS else 0):
                    text = subprocess.run(
                        [os.path.join(programs, "load"), *options, str(connections),
                         str(requests), path, *command[1:]],
                        env={**os.environ, "SWITCHTO_ENGINE": "epoll", **env},
                        stdout=subprocess.PIPE, timeout=300, check=True).stdout
                run = json.loads(text)
                row = found.setdefault((load, title), {"load": load, "server": title})
                for name in FIGURES:
                    row.setdefault(name, []).append((run | run["latency"])[name])
    kept.write(out, {"servers": {"rows": list(found.values())}})


def tables(path):
    rows = kept.read(path)["servers"]["rows"]
    for load in dict.fromkeys(row["load"] for row in rows):
        runs = {row["server"]: row for row in rows if row["load"] == load}
        base = statistics.median(runs[THREADS]["requests_per_s"])
        made = []
        for title, run in runs.items():
            rate, server, clients, p50, p99 = (statistics.median(run[name]) for name in FIGURES)
            rates = run["requests_per_s"]
            made.append([title, f"{rate:,.0f}", f"{min(rates):,.0f} to {max(rates):,.0f}",
                         f"{rate / base:.2f}", f"{server / 1000:.1f}, {clients / 1000:.1f}",
                         f"{p50 / 1000:,.0f}", f"{p99 / 1000:,.0f}"])
        rounds = len(runs[THREADS]["requests_per_s"])
        print(f"**{load}** (medians of {rounds} alternating rounds)\n",
              *table(["server", "requests/s", "lowest to highest", "of threads'",
                      "CPU of the server, of the clients, us per request", "p50, us", "p99, us"],
                     made), "", sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", metavar="FILE", help="print the tables of a run")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("programs", nargs="?", help="the folder where they were built")
    parser.add_argument("out", nargs="?", help="the file to write")
    args = parser.parse_args()
    if args.table:
        try:
            tables(args.table)
        except (kept.BadInput, KeyError) as error:
            sys.exit(f"echo_host.py: {args.table}: wanted results of servers, found {error}")
    elif args.out:
        measure(args.programs, args.out, args.rounds)
    else:
        sys.exit("echo_host.py: wanted PROGRAMS and OUT, or --table FILE; found neither")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
