#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The table of a results folder of vm/bench --servers."""

import argparse
import glob
import json
import os
import sys

# As results name them: the kernel, the kind of server, the library's backend.
EPOLL, THREADS = ("patched", "epoll", ""), ("patched", "threads", "")
SWAP, WAKE_WAIT = ("patched", "tasks", "swap"), ("stock", "tasks", "wake-wait")
STOCK_THREADS = ("stock", "threads", "")
HEAD = ("connections", "epoll loop", "thread per connection", "**tasks**", ": epoll", ": threads",
        "tasks, stock kernel", ": threads")


def read(folder):
    """-> {"state": ..., "rows": [{"connections": n, "patched epoll": instructions, ...}]}"""
    rows, state = {}, ""
    for path in sorted(glob.glob(os.path.join(folder, "servers-*.json"))):
        kernel = os.path.basename(path)[len("servers-"):-len(".json")]
        with open(path, encoding="utf-8") as file:
            for run in map(json.loads, file):
                row = rows.setdefault(run["connections"], {"connections": run["connections"]})
                row[" ".join(filter(None, (kernel, run["kind"], run["backend"])))] = run["server_ns"]
    path = os.path.join(folder, "state.txt")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            state = file.read().strip()
    return {"state": state, "rows": [rows[n] for n in sorted(rows)]}


def lines(data):
    """Markdown."""
    made = ["| " + " | ".join(HEAD) + " |", "|" + "---:|" * len(HEAD)]
    for row in data["rows"]:
        def of(key, row=row):
            return row.get(" ".join(filter(None, key)))

        def number(key):
            return "" if of(key) is None else f"{of(key):,.0f}"

        def ratio(key, base):
            return "" if None in (of(key), of(base)) else f"{of(key) / of(base):.2f}"

        made.append("| " + " | ".join((
            f"{row['connections']:,}", number(EPOLL), number(THREADS), f"**{number(SWAP)}**",
            ratio(SWAP, EPOLL), ratio(SWAP, THREADS), number(WAKE_WAIT),
            ratio(WAKE_WAIT, STOCK_THREADS))) + " |")
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    data = read(parser.parse_args().folder)
    if not data["rows"]:
        sys.exit("table.py: wanted a folder with servers-*.json, found none in it")
    print("\n".join(lines(data)))


if __name__ == "__main__":
    main()
