# SPDX-License-Identifier: MIT
"""The tables of README.md and docs/, of what docs/*.json hold."""

import datetime
import textwrap

import adopters
import calls
import echo
import packets
import report
from render import table
from results import FREE, ONE_CPU, ONE_THREAD, TITLES, TOGETHER

TABLES = ("summary", "rows", "published", "shares", "parked", "ring", "groups", "memory", "context",
          "adopters", "adopters_all", "adopters_checks", "adopters_host", "servers", "servers_plain",
          "servers_block", "servers_one_cpu", "servers_delay", "servers_memory",
          "servers_state", "packets", "packets_veth",
          "packets_crypto", "packets_rate", "packets_state", "calls",
          "calls_state", "host", "host_state", "host_percentiles", "host_servers",
          "host_servers_apart", "host_servers_state")
MEMORY = {
    "kernel_stack": "kernel stack",
    "slab": "slab: task_struct, pid, what a swap keeps, the mapping of the stack",
    "user_rss": "user: one page of stack, glibc's table of thread-local variables, "
                "the library's line",
    "page_tables": "page tables",
    "percpu": "per-CPU memory",
    "sum": "**sum**",
    "total": "the same, as the decrease of free memory",
}
SUMMARY = (("BM_Futex", ""), ("BM_PthreadCond", ""), ("BM_Pipe", ""), ("BM_StdSemaphore", ""),
           ("BM_SwitchTo", "wake-wait"), ("BM_SwitchTo", "swap"))
PLACEMENTS = {FREE: "free", ONE_CPU: "one CPU", ONE_THREAD: "one thread",
              f"{ONE_CPU}, depth 4": "one CPU, 4 nested groups",
              f"{ONE_CPU}, groups 2": "one CPU, two groups",
              f"{ONE_CPU}, nice 0,5": "one CPU, nice 0 and 5"}
GROUPS = {ONE_CPU: "in the root group",
          f"{ONE_CPU}, depth 4": "in one group, the fourth of four nested groups",
          f"{ONE_CPU}, groups 2": "each in a group of its own: no hand-off"}
SHARES = {"pair/hogs:1": "2 threads, 1 hog", "pair/hogs:3": "2 threads, 3 hogs",
          "ring8/hogs:1": "8 threads in a ring, 1 hog",
          "ring8/hogs:3": "8 threads in a ring, 3 hogs",
          "pair_nice5/hogs:1": "2 threads of nice 5, 1 hog of nice 0"}
PARKED = ("BM_SwitchTo", "BM_SwitchResume", "BM_FutexSwap", "BM_Futex")


def figure(value):
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def ratio(value, base, form="{:.2f}"):
    return "" if None in (value, base) or "invalid" in (value, base) else form.format(value / base)


def title(row, backend):
    name = TITLES.get(row, row)
    return f"**{name}**" if (row, backend) == ("BM_SwitchTo", "swap") else \
        f"{name}, wake-wait" if backend == "wake-wait" else name


class Tables:
    """A method for each table, and the figures that stand within a line."""

    def __init__(self, data, programs, served, here):
        self.data = data
        self.here = here
        self.programs = programs
        self.served = served
        self.state = data["switches"]["context"]
        self.many, = data["many_threads"]["rows"]
        self.rows_by_key = {(r["row"], r["backend"], r["placement"]): r
                            for r in data["switches"]["rows"]}
        self.ns = "ns under TCG" if self.state["accelerator"] == "tcg" else "ns"
        self.figures = {
            "insn-create": figure(1e9 / self.many["created_per_s"]),
            "insn-join": figure(1e9 / self.many["exited_per_s"]),
            "thread-kib": f"{self.many['sum'] / 1024:.0f}",
            "million-gb": f"{self.many['sum'] / 1e3:.1f}",
        } | here.figures()

    def value(self, row, backend, placement, column):
        return self.rows_by_key.get((row, backend, placement), {}).get(column)

    def ratio(self, key, column):
        """To futex wake + wait in the same column and placement."""
        base = FREE if key[2] == FREE else ONE_CPU
        return ratio(self.value(*key, column), self.value("BM_Futex", "", base, column))

    def summary(self):
        """Times of docs/host.json and, of the patched kernel, instructions; a dash: not run."""
        rows = []
        for row in SUMMARY:
            one = (*row, ONE_CPU)
            free, together = (self.here.ns(*row, place) for place in (FREE, TOGETHER))
            cells = [title(*row), f"{free}; **together {together}**" if together else free,
                     self.here.ns(*one), figure(self.value(*one, "patched insn")),
                     self.ratio(one, "patched insn")]
            bold = row == ("BM_SwitchTo", "swap")
            rows.append(cells[:1] + [f"**{c}**" if bold and c else c or "-" for c in cells[1:]])
        return table(["one switch", "stock: ns, free", "stock: ns, one CPU",
                      "patched: insn, one CPU", "ratio"], rows)

    def host_state(self):
        return textwrap.wrap(f"{self.here.data['switches']['state']}.", 95)

    def host_servers_state(self):
        return textwrap.wrap(f"{self.here.data['servers']['state']}.", 95)

    def host(self):
        return self.here.switches()

    def host_percentiles(self):
        return self.here.percentiles()

    def host_servers(self):
        return self.here.servers()

    def host_servers_apart(self):
        return self.here.servers_apart()

    def rows(self):
        rows = []
        for key in self.rows_by_key:
            row = [f"{title(*key[:2])} ({key[0]})",
                   PLACEMENTS.get(key[2], key[2].replace(ONE_CPU, "one CPU"))]
            for column in ("stock ns", "patched ns", "stock insn", "patched insn"):
                row.append(figure(self.value(*key, column)))
                if column == "patched ns":
                    row.append(figure(self.value(*key, "patched CPU")))
                row.append(self.ratio(key, column))
            found = [f"{values[0]:,}" + "".join(f" ({cpu:,})" for cpu in values[1:]) + f" in {year}"
                     for year, of in ((2013, report.PUBLISHED_2013), (2020, report.PUBLISHED_2020))
                     if (values := report.published(key, of))]
            rows.append(row + ["; ".join(found)])
        return table(["switch", "placement", f"stock, {self.ns}", "ratio", f"patched, {self.ns}",
                      "CPU", "ratio", "stock, insn", "ratio", "patched, insn", "ratio",
                      "published, ns (CPU)"], rows, (0, 1))

    def published(self):
        rows = []
        futex = self.value("BM_Futex", "", FREE, "patched ns")
        for text, row, backend, of in (
                ("SwitchTo (2013); `switchto_switch`", "BM_SwitchTo", "swap",
                 report.PUBLISHED_2013),
                ("FUTEX_SWAP demo (2020); raw FUTEX_SWAP", "BM_FutexSwap", "",
                 report.PUBLISHED_2020)):
            rows.append([text, ratio(of["BM_Futex"][0], of[row][0], "{:.1f}"),
                         ratio(futex, self.value(row, backend, FREE, "patched ns"), "{:.1f}")])
        return table(["futex wake + wait : switch, free placement", "published", "here"], rows)

    def groups(self):
        values = {key: self.value("BM_SwitchTo", "swap", key, "patched insn") for key in GROUPS}
        return table(["both threads", "insn", "ratio"],
                     [[text, figure(values[key]), ratio(values[key], values[ONE_CPU])]
                      for key, text in GROUPS.items()])

    def shares(self):
        rows = {row["chain"]: row for row in self.data["shares"]["rows"]}
        return table(["chain", "CPU share, %", "expected, %"],
                     [[text, figure(rows[name]["share"]), figure(rows[name]["expected"])]
                      for name, text in SHARES.items() if name in rows])

    def parked(self):
        rows = {row["row"]: [row[n] for n in row if n != "row"]
                for row in self.data["parked"]["rows"]}
        titles = {"BM_SwitchTo": "**switchto_switch**", "BM_FutexSwap": "raw FUTEX_SWAP, no hint"}
        return self.growth("parked threads", self.data["parked"]["rows"][0],
                           [(titles.get(row, TITLES[row]), rows[row])
                            for row in PARKED if row in rows])

    def ring(self):
        ring = self.data["ring"]["rows"][0]
        return self.growth("threads in the ring", ring, [("switchto_switch", list(ring.values()))])

    def growth(self, what, row, curves):
        numbers = [f"{int(number):,}" for number in row if number != "row"]
        return table([what, *numbers, "ratio"],
                     [[name, *map(figure, values), ratio(values[-1], values[0])]
                      for name, values in curves])

    def adopters(self):
        return adopters.brief(self.programs.values())

    def adopters_all(self):
        return adopters.table(self.programs.values())

    def adopters_checks(self):
        return adopters.checks(self.programs.values())

    def adopters_host(self):
        return adopters.host_table(self.programs.values())

    def servers(self):
        return echo.insn_table(self.served)

    def servers_plain(self):
        return echo.time_table(self.served, "plain")

    def servers_block(self):
        return echo.time_table(self.served, "block")

    def servers_one_cpu(self):
        return echo.time_table(self.served, "one CPU")

    def servers_delay(self):
        return echo.delay_table(self.served)

    def servers_memory(self):
        return echo.memory_table(self.served)

    def packets(self):
        return packets.insn_table(self.served)

    def packets_veth(self):
        return packets.veth_table(self.served)

    def packets_crypto(self):
        return packets.crypto_table(self.served)

    def packets_rate(self):
        return packets.rate_table(self.served)

    def packets_state(self):
        return [line for text in packets.states(self.served) for line in textwrap.wrap(text, 95)]

    def servers_state(self):
        return [line for text in echo.state(self.served)
                for line in [*textwrap.wrap(text, 95), ""]][:-1]

    def calls(self):
        return calls.lines(self.served)

    def calls_state(self):
        return [f"Run: {self.served['calls']['state']}."]

    def memory(self):
        rows = [[text, f"{self.many[name]:,}"] for name, text in MEMORY.items() if self.many[name]]
        rows = [[text, f"**{value}**" if text.startswith("**") else value] for text, value in rows]
        return table(["bytes per thread", ""], rows)

    def context(self):
        c = self.state
        day = datetime.date.fromisoformat(c["date"])
        qemu = f"QEMU {c['qemu']}" if "qemu" in c else "QEMU"
        accel = "TCG" if c["accelerator"] == "tcg" else \
            f"{c['accelerator'].upper()} for time, TCG for instructions"
        return textwrap.wrap(
            f"Linux {c['kernel']}, stock and patched, bench.config, "
            f"{c['mitigations'].split(' (')[0]}, HZ {c['hz']}, {c['preemption']}. {qemu} with "
            f"{accel}, host CPU {c['host_cpu']}; {c['cpus']} CPUs for time, 1 for instructions. "
            f"Medians of one run of {day.day} {day:%B %Y}.", 95)
