#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Echo servers on this machine's own kernel, one after the other, in rounds; and their table."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys

# Title, program and arguments, environment. All with the engine epoll, as the other tables.
SERVERS = (
    ("epoll loop", ["epoll"], {}),
    ("io_uring loop", ["io_uring"], {}),
    ("Boost.Asio", ["asio"], {}),
    ("Go", ["go"], {}),
    ("thread per connection", ["threads"], {}),
    ("tasks on one slot, free", ["tasks"], {"SWITCHTO_PLACE": "free"}),
    ("tasks on one slot", ["tasks"], {}),
    ("**tasks**, a slot for each CPU", ["tasks", "slots"], {}),
)
ANNOUNCED = (("tasks on one slot, announced, free", ["tasks", "announced"], {"SWITCHTO_PLACE": "free"}),
             ("tasks on one slot, announced", ["tasks", "announced"], {}),
             ("**tasks**, announced, a slot for each CPU", ["tasks", "announced", "slots"], {}))
# Title, connections, requests, options of load
LOADS = (
    ("64 connections", 64, 60000, []),
    ("64 connections, the server on one CPU, the load on the other", 64, 60000, ["--apart"]),
    ("1,000 connections", 1000, 60000, []),
    ("64 connections, every 16th request blocks for 1 ms", 64, 30000, ["--block", "1000"]),
)


def measure(programs, out, rounds):
    found = {}
    for number in range(rounds):
        for load, connections, requests, options in LOADS:
            for title, command, env in SERVERS + (ANNOUNCED if "--block" in options else ()):
                path = os.path.join(programs, command[0])
                if not os.path.exists(path):
                    continue
                print(f"round {number + 1} of {rounds}: {load}: {title}", flush=True)
                text = subprocess.run(
                    [os.path.join(programs, "load"), *options, str(connections), str(requests),
                     path, *command[1:]], env={**os.environ, "SWITCHTO_ENGINE": "epoll", **env},
                    stdout=subprocess.PIPE, timeout=300, check=True).stdout
                run = json.loads(text)
                found.setdefault(load, {}).setdefault(title, []).append(
                    [run["requests_per_s"], run["server_ns"], run["clients_ns"],
                     run["latency"]["p50"], run["latency"]["p99"]])
    with open(out, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)


def table(path):
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    for load, rows in found.items():
        base = statistics.median(run[0] for run in rows["thread per connection"])
        print(f"**{load}** (medians of {len(rows['thread per connection'])} alternating rounds)\n")
        print("| server | requests/s | lowest to highest | of threads' | CPU of the server, "
              "of the clients, us per request | p50, us | p99, us |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for title, runs in rows.items():
            rate, server, clients, p50, p99 = (statistics.median(column)
                                               for column in zip(*runs))
            rates = [run[0] for run in runs]
            print(f"| {title} | {rate:,.0f} | {min(rates):,.0f} to {max(rates):,.0f} | "
                  f"{rate / base:.2f} | {server / 1000:.1f}, {clients / 1000:.1f} | "
                  f"{p50 / 1000:,.0f} | {p99 / 1000:,.0f} |")
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", metavar="FILE", help="print the tables of a run")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("programs", nargs="?", help="the folder where they were built")
    parser.add_argument("out", nargs="?", help="the file to write")
    args = parser.parse_args()
    if args.table:
        table(args.table)
    elif args.out:
        measure(args.programs, args.out, args.rounds)
    else:
        sys.exit("host.py: wanted PROGRAMS and OUT, or --table FILE; found neither")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
