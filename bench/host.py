# SPDX-License-Identifier: MIT
"""docs/host.json and its tables: the results of vm/bench --host, also with --servers."""

import glob
import os
import re
import statistics
import time

import kept
import results
from echo_host import FIGURES, HOGS, LOADS, THREADS
from render import table
from results import FREE, ONE_CPU, TITLES, TOGETHER

PLACEMENTS = {FREE: "free", TOGETHER: "together", ONE_CPU: "one CPU"}
# Lines of state.md, and what stands before each in the documents.
STATE = {"kernel": "", "CPU": "", "hypervisor": "hypervisor ", "SMT": "SMT ", "preemption": "",
         "load average before": "load average before "}
PERCENTILES = ("p50", "p99", "p99.9")
TASKS = "**tasks**, a slot for each CPU"
LOOPS = ("epoll loop", "io_uring loop", "Boost.Asio")
PLAIN, APART, MANY, BLOCK, _ = (load[0] for load in LOADS)


# ---------------------------------------------------------------- a run -> docs/host.json

def column(folder, name):
    columns, _ = results.load(sorted(glob.glob(os.path.join(folder, f"{name}-*.json"))))
    if len(columns) != 1:
        raise results.BadInput(f"{folder}: wanted {name}-*.json of one vm/bench --host, found "
                               f"{len(columns)} kernels or machines in them")
    return columns[0]


def state(folder, measured, rounds):
    with open(os.path.join(folder, "state.md"), encoding="utf-8") as file:
        lines = dict(line[2:].strip().split(": ", 1) for line in file if line.startswith("- "))
    lines["kernel"] = re.match(r"\S+ [\d.]+", lines["kernel"])[0]
    day = time.strftime("%-d %B %Y", time.localtime(os.path.getmtime(measured)))
    return ", ".join(before + lines[name] for name, before in STATE.items()) + \
        f". {day}, medians of {rounds} alternating rounds of one run"


def read(folder):
    """-> what this results folder has of docs/host.json"""
    if not os.path.exists(os.path.join(folder, "state.md")):
        raise results.BadInput(f"{folder}: wanted the results of vm/bench --host, found none")
    path = os.path.join(folder, "servers.json")
    if os.path.exists(path):
        rows = kept.read(path)["servers"]["rows"]
        spread = max(max(row[FIGURES[0]]) / min(row[FIGURES[0]]) for row in rows)
        return {"servers": {"state": state(folder, path, len(rows[0]["p50"])),
                            "spread": round(spread, 1), "rows": rows}}

    idle, hogs = column(folder, "host"), column(folder, "hogs")
    rows = []
    for key in sorted(idle.keys(), key=results.sort_key):
        cells = {"idle": idle.cell(key), "hogs": hogs.cell(key)}
        samples = {name: [round(sample, 1) for sample in cell.samples]
                   for name, cell in cells.items() if cell and cell.value is not None}
        rows += [dict(zip(("row", "backend", "placement"), key)) | samples] if samples else []
    context = {name: idle.context[name] for name in results.NEEDED}
    context["kernel"] = re.match(r"[\d.]+", context["kernel"])[0]
    path = os.path.join(folder, "percentiles.txt")
    with open(path, encoding="utf-8") as file:
        lines = re.findall(r"^backend (\S+):|^BM_Stamped(\w+)/(\w+) +(\d+) +(\d+) +(\d+)",
                           file.read(), re.M)
    percentiles, backend = [], ""
    for name, row, placement, *values in lines:
        backend = name or backend
        if row:
            percentiles.append({"row": f"BM_{row}", "backend": backend, "placement": placement} |
                               dict(zip(PERCENTILES, map(int, values))))
    return {"switches": {"state": state(folder, path, len(rows[0]["idle"])), "context": context,
                         "rows": rows},
            "percentiles": {"rows": percentiles}}


# ---------------------------------------------------------------- docs/host.json -> tables

def figure(samples):
    return f"{statistics.median(samples):,.0f}" if samples else ""


def with_range(samples):
    if not samples or len(samples) == 1:
        return figure(samples)
    return f"{figure(samples)} ({min(samples):,.0f} to {max(samples):,.0f})"


class Host:
    """What docs/host.json holds."""

    def __init__(self, data):
        self.data = data
        self.rows = {(r["row"], r["backend"], r["placement"]): r for r in data["switches"]["rows"]}
        self.runs = {(r["load"], r["server"]): r for r in data["servers"]["rows"]}

    def column(self):
        """For the chart."""
        context = self.data["switches"]["context"]
        run = results.Run(context["backend"], "", {
            key: results.Cell(row["idle"]) for key, row in self.rows.items() if "idle" in row},
            {}, {})
        return results.Column(context, [run])

    def ns(self, row, backend, placement):
        return figure(self.rows.get((row, backend, placement), {}).get("idle"))

    def median(self, load, server, name):
        values = self.runs.get((load, server), {}).get(name)
        return statistics.median(values) if values else None

    def to_threads(self, load, server):
        rate = self.median(load, server, "requests_per_s")
        return rate and f"{rate / self.median(load, THREADS, 'requests_per_s'):.2f}"

    def to_tasks(self, servers):
        """With 64 and 1,000 connections: the least and the greatest, divided by tasks' requests."""
        rate = "requests_per_s"
        ratios = [self.median(load, server, rate) / self.median(load, TASKS, rate)
                  for load in (PLAIN, MANY) for server in servers]
        return f"{min(ratios):.1f} to {max(ratios):.1f}"

    def figures(self):
        """Those that stand within a line."""
        futex, together = (statistics.median(self.rows[key]["idle"]) for key in (
            ("BM_Futex", "", FREE), ("BM_SwitchTo", "wake-wait", TOGETHER)))
        percentiles = {(row["row"], row["backend"], row["placement"]): row
                       for row in self.data["percentiles"]["rows"]}
        hand_over = percentiles["BM_SwitchTo", "wake-wait", ONE_CPU]
        return {"host-machine": self.data["switches"]["state"].split(", SMT")[0],
                "host-hand-over": f"{hand_over['p50'] / 1000:.1f}",
                "host-servers-spread": f"{self.data['servers']['spread']}",
                "host-gain": f"{futex / together:.1f}",
                "host-64": self.to_threads(PLAIN, TASKS),
                "host-loops": self.to_tasks(LOOPS),
                "host-threads": self.to_tasks([THREADS])}

    def switches(self):
        rows = []
        for (name, backend, placement), row in self.rows.items():
            cells = [TITLES[name] + (f", {backend}" if backend else ""), PLACEMENTS[placement],
                     with_range(row.get("idle")), with_range(row.get("hogs"))]
            rows.append([f"**{cell}**" if placement == TOGETHER and cell else cell
                         for cell in cells])
        return table(["switch", "placement", "idle", "beside a busy loop for each CPU"], rows,
                     (0, 1))

    def percentiles(self):
        return table(["switch, idle", *PERCENTILES], [
            [f"{TITLES[row['row']]}, {PLACEMENTS[row['placement']]}" +
             f", {row['backend']}" * (row["row"] == "BM_SwitchTo"),
             *(f"{row[name]:,}" for name in PERCENTILES)]
            for row in self.data["percentiles"]["rows"]])

    def servers(self):
        """In brackets: divided by the threads' requests."""
        rows = []
        for server in dict.fromkeys(server for load, server in self.runs if load != APART):
            cells = []
            for load in (PLAIN, MANY, BLOCK, HOGS):
                run, ratio = self.runs.get((load, server), {}), self.to_threads(load, server)
                cells += [figure(run.get("requests_per_s")) + (f" ({ratio})" if ratio else ""),
                          figure([value / 1000 for value in run.get("p99", [])])]
            rows.append([server, *cells])
        return table(["server", "64 connections", "p99", "1,000 connections", "p99",
                      "64, every 16th blocks for 1 ms", "p99",
                      "64, beside a busy loop for each CPU", "p99"], rows)

    def servers_apart(self):
        rows = []
        for load, server in self.runs:
            if load == APART:
                times = [self.median(load, server, name) for name in ("server_ns", "clients_ns")]
                rows.append([server, figure(self.runs[load, server].get("requests_per_s")) or "-",
                             *(f"{value / 1000:.1f}" for value in times)])
        return table(["server", "requests/s", "the server, us", "the clients, us"], rows)
