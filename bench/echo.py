#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tables of a results folder of vm/bench --servers, and the bounds that the project keeps."""

import argparse
import glob
import json
import os
import signal
import sys

from render import table

CONNECTIONS = (1, 64, 1000, 10000)
# In the order of the tables. As results name them: the server, of tasks the backend and engine.
TITLES = {
    "epoll": "epoll loop",
    "io_uring": "io_uring loop",
    "asio": "Boost.Asio",
    "fiber": "Boost.Fiber",
    "go": "Go",
    "threads": "thread per connection",
    "tasks swap epoll": "**tasks**",
    "tasks swap io_uring": "**tasks**, io_uring",
    "tasks wake-wait epoll": "tasks, wake-wait",
    "tasks wake-wait io_uring": "tasks, wake-wait, io_uring",
    "tasks swap epoll announced": "**tasks**, announced",
    "tasks swap io_uring announced": "**tasks**, io_uring, announced",
    "tasks wake-wait epoll announced": "tasks, wake-wait, announced",
    "tasks swap epoll parked": "**tasks**, beside 100,000 parked ones",
}
# By the options of load: whether requests block the server, where it runs, and open loop or closed.
LOADS = {(False, False, False): "plain", (True, False, False): "block",
         (True, True, False): "one CPU", (True, False, True): "delay",
         (False, False, True): "no delay"}
FIGURES = ("requests_per_s", "p50", "p99", "p99.9")

REQUESTS_PER_S = 2.5    # announced tasks, of an epoll loop's, if requests block
P50 = 0.5               # the same
DELAY_NS = 2e6          # more than without blocks: p99 of requests beside others that block
PARKED = 1.10           # instructions beside 100,000 parked tasks, of those without them


def read(folder):
    """-> the parts "insn" and "times"; what could not run is left out of "insn"."""
    insn, times, left_out = {}, [], {}
    for path in sorted(glob.glob(os.path.join(folder, "servers-*.json"))):
        name = os.path.basename(path)[len("servers-"):-len(".json")]
        with open(path, encoding="utf-8") as file:
            for run in map(json.loads, file):
                if "left_out" in run:
                    left_out[run["left_out"]] = True
                elif name == "time":
                    times.append(time_row(run))
                else:
                    kernel = "patched" if name == "parked" else name[len("insn-"):]
                    row = insn.setdefault((kernel, run["server"]),
                                          {"kernel": kernel, "server": run["server"]})
                    row[str(run["connections"])] = run["server_ns"]
                    if "idle_user" in run:
                        row[f"idle {run['connections']}"] = [run["idle_user"], run["idle_kernel"]]
    return {"insn": {"state": line(folder, "state.txt"), "left out": list(left_out),
                     "rows": list(insn.values())},
            "times": {"state": line(folder, "time-state.txt"), "rows": times}}


def time_row(run):
    load = LOADS[run["block_us"] > 0, run["apart"], run["rate"] > 0]
    found = run | run["prompt" if load == "delay" else "latency"]
    return {"load": load, "server": run["server"]} | {figure: found[figure] for figure in FIGURES}


def line(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


# ---------------------------------------------------------------- tables, in Markdown

def insn_table(data):
    rows = {(row["kernel"], row["server"]): row for row in data["insn"]["rows"]}
    made = []
    for kernel in ("patched", "stock"):
        base = rows.get((kernel, "epoll"), {})
        for server, title in TITLES.items():
            row = rows.get((kernel, server))
            if row:
                made.append([title + (", stock kernel" if kernel == "stock" else "")] +
                            [insn_cell(row, base, str(n)) for n in CONNECTIONS])
    return table(["connections", *(f"{n:,}" for n in CONNECTIONS)], made)


def insn_cell(row, base, number):
    if number not in row:
        return ""
    ratio = f" ({row[number] / base[number]:.2f})" if number in base and row is not base else ""
    return f"{row[number]:,.0f}{ratio}"


def time_table(data, load):
    rows = {row["server"]: row for row in data["times"]["rows"] if row["load"] == load}
    return table(["server", "requests/s", "p50, us", "p99, us", "p99.9, us"],
                 [[title, f"{rows[server]['requests_per_s']:,.0f}",
                   *(f"{rows[server][figure] / 1000:,.0f}" for figure in FIGURES[1:])]
                  for server, title in TITLES.items() if server in rows])


def memory_table(data):
    """Of a connection, at the largest two numbers of them: in user space, and in the kernel."""
    rows = {row["server"]: row for row in data["insn"]["rows"] if row["kernel"] == "patched"}
    made = []
    for server, title in TITLES.items():
        cells = [rows[server].get(f"idle {n}") if server in rows else None
                 for n in CONNECTIONS[2:]]
        if any(cells):
            made.append([title] + [f"{figure / 1024:.1f}" if cell else "" for cell in cells
                                   for figure in (cell or (0, 0))])
    return table(["KiB", *(f"{n:,}: {part}" for n in CONNECTIONS[2:]
                           for part in ("server", "kernel"))], made)


def delay_table(data):
    rows = {(row["load"], row["server"]): row for row in data["times"]["rows"]}
    made = []
    for server, title in TITLES.items():
        row, without = rows.get(("delay", server)), rows.get(("no delay", server))
        if row:
            made.append([title, *(f"{row[figure] / 1000:,.0f}" for figure in FIGURES[1:]),
                         f"{without['p99'] / 1000:,.0f}" if without else ""])
    return table(["server", "p50, us", "p99, us", "p99.9, us", "p99 without blocks, us"], made)


def state(data):
    made = [f"Instructions: {data['insn']['state']}."]
    if data["times"]["state"]:
        made.append(f"Times: {data['times']['state']}.")
    return made + [f"Left out: {reason}." for reason in data["insn"].get("left out", ())]


# ---------------------------------------------------------------- bounds

def gates(data):
    """-> [(passed, text)]"""
    rows = {(row["load"], row["server"]): row for row in data["times"]["rows"]}
    made = parked_gate(data)
    for engine in ("epoll", "io_uring"):
        tasks = f"tasks swap {engine}"
        if engine == "io_uring" and ("plain", tasks) not in rows:
            continue    # it was left out
        wanted = [("one CPU", f"{tasks} announced"), ("one CPU", "epoll"), ("delay", tasks),
                  ("no delay", tasks)]
        missing = [key for key in wanted if key not in rows]
        if missing:
            made.append((False, f"{tasks}: wanted a result of {missing[0][1]} with the load "
                                f"'{missing[0][0]}', found none"))
            continue
        blocks, loop, delay, without = (rows[key] for key in wanted)
        latest = without["p99"] + DELAY_NS
        rate = blocks["requests_per_s"] / loop["requests_per_s"]
        half = blocks["p50"] / loop["p50"]
        made += [
            (rate >= REQUESTS_PER_S, f"{tasks}, requests block, one CPU: {rate:.2f} x the epoll "
                                     f"loop's requests/s, wanted at least {REQUESTS_PER_S}"),
            (half <= P50, f"{tasks}, requests block, one CPU: {half:.2f} x the epoll loop's p50, "
                          f"wanted at most {P50}"),
            (delay["p99"] <= latest,
             f"{tasks}, p99 beside requests that block unannounced: {delay['p99'] / 1000:,.0f} us, "
             f"wanted at most {latest / 1000:,.0f}"),
        ]
    return made


def parked_gate(data):
    rows = {row["server"]: row for row in data["insn"]["rows"] if row["kernel"] == "patched"}
    beside, alone = (rows.get(f"tasks swap epoll{more}", {}).get("64") for more in (" parked", ""))
    if not beside or not alone:
        return []
    return [(beside / alone <= PARKED, f"tasks, beside 100,000 parked ones: {beside / alone:.2f} x "
                                       f"the instructions, wanted at most {PARKED:.2f}")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    data = read(parser.parse_args().folder)
    if not data["insn"]["rows"] and not data["times"]["rows"]:
        sys.exit("echo.py: wanted a folder with servers-*.json, found none in it")
    print("Instructions per request:", "", *insn_table(data), "", sep="\n")
    print("Memory of an idle connection:", "", *memory_table(data), "", sep="\n")
    for load, title in (("plain", "Times, 64 connections"),
                        ("block", "Every 16th request blocks the server for 1 ms"),
                        ("one CPU", "The same, the server on one CPU")):
        print(f"{title}:", "", *time_table(data, load), "", sep="\n")
    print("200 requests a second, every 16th blocks for 20 ms: the others:", "", *delay_table(data),
          "", sep="\n")
    print(*state(data), "", sep="\n")
    found = gates(data)
    for passed, text in found:
        print(f"{'PASS' if passed else 'FAIL'}  {text}")
    failed = [text for passed, text in found if not passed]
    sys.exit(f"echo.py: {'; '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
