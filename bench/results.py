# SPDX-License-Identifier: MIT
"""The results of switchto-bench, in the form that report and gates need.

A file is one run of switchto-bench. Runs of the same kernel, instrument and
machine in the same state make one column of the table, as do the two runs of
both backends. Runs that differ from a column only in the number of parked threads
are no columns; together with the column they make a growth. Two times are compared
only if both are of one boot, by the kernel's boot id; instructions are the same
from boot to boot.
"""

import json
import statistics
from dataclasses import dataclass, field

FREE, TOGETHER, ONE_CPU, ONE_THREAD = "free", "together", "one_cpu", "1 thread"

# Rows that begin so are of the library, and say which backend they are of; the others have none.
LIBRARY_ROWS = ("BM_SwitchTo", "BM_SwitchResume", "BM_Task", "BM_Door")

# Not a time but a part of the CPU; by "pair/hogs:1" and the like, not by placement.
SHARE_ROW = "BM_Share"

# Of the library, and by its number of threads.
RING_ROW = "BM_Ring"

# One CPU, and terms of the scheduler's: "depth:4" -> the placement "one_cpu, depth 4".
VARIANTS = ("depth:", "groups:", "nice:")

# Counters of the rows that the report or the gates use.
COUNTERS = ("handoff_per_iter", "expected", "accounted", "switches", "handoff_per_switch", "calls")

# The rows in the order of the tables, and what they are called in the docs.
TITLES = {
    "BM_Futex": "futex wake + wait",
    "BM_GoogleMutex": "absl::Mutex",
    "BM_SwitchTo": "switchto_switch",
    "BM_SwitchResume": "switchto_resume + switchto_wait",
    "BM_FutexSwap": "raw FUTEX_SWAP",
    "BM_FutexSwapShared": "... on shared futexes",
    "BM_FutexSwapProcesses": "... between two processes",
    "BM_FutexSwapOneWord": "... between two processes, one word",
    "BM_PthreadCond": "pthread condition variable",
    "BM_StdSemaphore": "std::counting_semaphore",
    "BM_Eventfd": "eventfd",
    "BM_Pipe": "pipe",
    "BM_IoUringFutex": "io_uring, wake linked to wait",
    "BM_SchedYield": "sched_yield",
    "BM_FutexWakeNone": "futex wake that finds nobody",
    "BM_NullSyscall": "getppid",
    "BM_BoostContext": "fiber (Boost.Context)",
    "BM_Door": "door, call and answer: each one switch",
    "BM_ProcessFutex": "futex wake + wait, between processes",
    "BM_ProcessSemaphore": "sem_t, between processes",
    "BM_ProcessEventfd": "eventfd, between processes",
    "BM_ProcessPipe": "pipe, between processes",
    "BM_ProcessSocket": "UNIX socket, between processes",
    "BM_ProcessSpin": "spinning, between processes",
}
ORDER = list(TITLES)
PLACEMENTS = [FREE, TOGETHER, ONE_CPU, ONE_THREAD]
PARKED_ROWS = ("BM_Futex", "BM_FutexSwap", "BM_SwitchTo", "BM_SwitchResume")

STATE = ("kernel", "futex_swap", "unit", "accelerator", "cpus", "host_cpu",
         "mitigations", "hz", "preemption", "clocksource", "cgroup_depth",
         "parked_threads")
NEEDED = STATE + ("boot_id", "backend")


class BadInput(Exception):
    """One line for the user: what was wanted, what was found, what to do."""


@dataclass
class Cell:
    """All repetitions of one row. Without samples it says why."""

    samples: list = field(default_factory=list)
    refused: list = field(default_factory=list)
    counters: dict = field(default_factory=dict)    # name -> samples

    @property
    def skipped(self):
        return bool(self.refused) and all(r.startswith("skipped: ") for r in self.refused)

    @property
    def value(self):
        """The median, or None: one repetition that is invalid makes the row so."""
        return statistics.median(self.samples) if self.samples and not self.refused else None

    @property
    def reason(self):
        text = next((r for r in self.refused if not r.startswith("skipped: ")), self.refused[0])
        text = text.removeprefix("skipped: ").removeprefix("invalid: ")
        total = len(self.refused) + len(self.samples)
        return text if self.skipped or total == 1 else \
            f"{text} ({len(self.refused)} of {total} repetitions)"

    @property
    def spread(self):
        """How far the repetitions are apart, as a part of the smallest."""
        return max(self.samples) / min(self.samples) - 1

    @property
    def cpu_time(self):
        """Of all threads, as time passed for each: above the time, two CPUs were at work."""
        return self.counter("cpu_time")

    def counter(self, name):
        """The median, None if no repetition has it."""
        return statistics.median(self.counters[name]) if self.counters.get(name) else None

    def add(self, other):
        self.samples += other.samples
        self.refused += other.refused
        for name, samples in other.counters.items():
            self.counters.setdefault(name, []).extend(samples)


@dataclass
class Run:
    """One file."""

    backend: str
    boot: str
    rows: dict
    shares: dict    # Cells in percent, by what follows SHARE_ROW
    rings: dict     # by (backend, number of threads)


@dataclass
class Column:
    """Runs in the same state; their rows by (name, backend or "", placement)."""

    context: dict
    runs: list = field(default_factory=list)

    @property
    def patched(self):
        return self.context["futex_swap"] == "yes"

    @property
    def kind(self):
        return "patched" if self.patched else "stock"

    @property
    def version(self):
        """As in kernel/patches/: "7.3" of "7.3.4"."""
        return ".".join(self.context["kernel"].split(".")[:2])

    @property
    def label(self):
        """One table may show several kernels."""
        return f"{self.version} {self.kind}"

    @property
    def unit(self):
        return self.context["unit"]

    @property
    def emulated(self):
        return "tcg" in self.context["accelerator"].lower()

    @property
    def unit_label(self):
        """What a figure of this column may be called; insn is never a time."""
        return "ns under TCG" if self.unit == "ns" and self.emulated else self.unit

    @property
    def cpus(self):
        return int(self.context["cpus"])

    @property
    def parked(self):
        return int(self.context["parked_threads"])

    @property
    def backends(self):
        return sorted({run.backend for run in self.runs})

    def keys(self):
        return list(dict.fromkeys(key for run in self.runs for key in run.rows))

    def cell(self, key):
        """The row's repetitions from all the runs, None if none has it."""
        return _merge(self.runs, key)

    def share_names(self):
        return sorted({name for run in self.runs for name in run.shares})

    def share(self, name):
        cells = [run.shares[name] for run in self.runs if name in run.shares]
        return _merged(cells)

    def ring_backends(self):
        return sorted({backend for run in self.runs for backend, _ in run.rings})

    def rings(self, backend):
        """Cells by the number of threads."""
        keys = sorted({key for run in self.runs for key in run.rings if key[0] == backend})
        return {key[1]: _merged([run.rings[key] for run in self.runs if key in run.rings])
                for key in keys}

    def boots(self):
        """The same, one column for each boot."""
        by_boot = {}
        for run in self.runs:
            by_boot.setdefault(run.boot, Column(self.context)).runs.append(run)
        return list(by_boot.values())

    def ratio(self, key):
        """To BM_Futex in the same placement: of the same file if it is there, else of
        the same boot, else (instructions only) of another boot in the same state.

        Rows of one thread are compared with two threads on one CPU.
        """
        base_key = ("BM_Futex", "", FREE if key[2] in (FREE, TOGETHER) else ONE_CPU)
        mine = [run for run in self.runs if key in run.rows]
        files = [run for run in mine if base_key in run.rows]
        boots = [run for run in self.runs if run.boot in {r.boot for r in mine}]
        base = _merge(files, base_key) or _merge(boots, base_key)
        if not base and self.unit == "insn":
            base = self.cell(base_key)
        cell = self.cell(key)
        if not cell or not base or cell.value is None or base.value is None:
            return None
        return cell.value / base.value

    def describe(self):
        """One line: everything that a reader of a figure must know."""
        c = self.context
        cpus = f"{c['cpus']} CPU" + ("" if c["cpus"] == "1" else "s")
        return (f"{self.kind} kernel {c['kernel']}, accelerator {c['accelerator']}, {cpus}, "
                f"{c['mitigations']}, host CPU {c['host_cpu']}")

    def describe_more(self):
        c = self.context
        return (f"HZ {c['hz']}, {c['preemption']}, clocksource {c['clocksource']}, "
                f"cgroup depth {c['cgroup_depth']}, parked threads {c['parked_threads']}, "
                f"backend {' and '.join(self.backends)}")


@dataclass
class Growth:
    """Columns of one state but for the parked threads, by their number, fewest first."""

    columns: dict

    @property
    def base(self):
        """The column without parked threads, None if there is none."""
        return self.columns.get(0)

    @property
    def whole(self):
        """All as one column, to describe it."""
        numbers = [f"{number:,}" for number in self.columns]
        context = dict(next(iter(self.columns.values())).context,
                       parked_threads=" / ".join(numbers))
        return Column(context, [run for c in self.columns.values() for run in c.runs])

    def keys(self):
        return list(dict.fromkeys(key for c in self.columns.values() for key in c.keys()))

    def cells(self, key):
        """By the number of parked threads."""
        cells = {number: column.cell(key) for number, column in self.columns.items()}
        return {number: cell for number, cell in cells.items() if cell}


def _merge(runs, key):
    return _merged([run.rows[key] for run in runs if key in run.rows])


def _merged(cells):
    merged = Cell()
    for cell in cells:
        merged.add(cell)
    return merged if cells else None


def is_variant(placement):
    return placement.startswith(ONE_CPU + ", ")


def _row_key(name, backend):
    """BM_X/free/iterations:9/process_time/real_time -> ("BM_X", backend, "free")"""
    parts = name.split("/")
    placement = parts[1] if len(parts) > 1 and parts[1] in (FREE, TOGETHER, ONE_CPU) else ONE_THREAD
    if placement == ONE_CPU and len(parts) > 2 and parts[2].startswith(VARIANTS):
        placement += ", " + parts[2].replace(":", " ")
    return parts[0], backend if parts[0].startswith(LIBRARY_ROWS) else "", placement


def _rows(results, backend):
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    rows, shares, rings = {}, {}, {}
    for result in results:
        if result.get("run_type") != "iteration":
            continue
        parts = result["name"].split("/")
        key = _row_key(result["name"], backend)
        if parts[0] == SHARE_ROW:
            cell = shares.setdefault("/".join(parts[1:3]), Cell())
        elif parts[0] == RING_ROW:
            cell = rings.setdefault((backend, int(parts[2].removeprefix("threads:"))), Cell())
        elif is_variant(key[2]) and backend != "swap":
            continue    # nothing but a skip: there is no hand-off to be had
        else:
            cell = rows.setdefault(key, Cell())
        if result.get("error_occurred"):
            cell.refused.append(result.get("error_message") or "no reason given")
        else:
            cell.samples.append(result["share"] if parts[0] == SHARE_ROW else
                                result["real_time"] * scale[result["time_unit"]])
            # Without MeasureProcessCPUTime(), it is the main thread's alone.
            if "process_time" in parts:
                cell.counters.setdefault("cpu_time", []).append(
                    result["cpu_time"] * scale[result["time_unit"]])
            for name in COUNTERS:
                if name in result:
                    cell.counters.setdefault(name, []).append(result[name])
    return rows, shares, rings


def _load(path):
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise BadInput(f"{path}: wanted a result of switchto-bench, "
                       f"can't read it: {error.strerror}") from None
    except ValueError:
        raise BadInput(f"{path}: wanted JSON from switchto-bench --benchmark_out, found "
                       "something else or half of one; run it again") from None

    context = data.get("context") if isinstance(data, dict) else None
    results = data.get("benchmarks") if isinstance(data, dict) else None
    if not isinstance(context, dict) or not isinstance(results, list):
        raise BadInput(f"{path}: wanted google-benchmark's JSON, found another; "
                       "give the file of switchto-bench --benchmark_out")
    missing = [key for key in NEEDED if key not in context]
    if missing:
        raise BadInput(f"{path}: wanted a result of switchto-bench, found one without "
                       f"'{missing[0]}' in its context; give switchto-bench's own")

    try:
        rows, shares, rings = _rows(results, context["backend"])
        int(context["parked_threads"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: wanted google-benchmark's rows, found one that can't be read "
                       f"({error}); give the file of switchto-bench --benchmark_out") from None
    if not rows and not shares and not rings:
        raise BadInput(f"{path}: wanted rows with their repetitions, found none; run "
                       "switchto-bench without an aggregates_only option")
    # Without an id, one file is all that is known to be of one boot.
    boot = path if context["boot_id"] == "unknown" else context["boot_id"]
    return context, Run(context["backend"], boot, rows, shares, rings)


def load(paths):
    """-> (columns, growths) that the files make: ns before insn, stock before patched."""
    columns = {}
    for path in paths:
        context, run = _load(path)
        state = tuple(context[key] for key in STATE)
        columns.setdefault(state, Column(context)).runs.append(run)
    ordered = sorted(columns.values(), key=lambda c: (c.unit != "ns", c.patched, c.parked))

    growths = {}
    for column in ordered:
        state = tuple(column.context[key] for key in STATE if key != "parked_threads")
        growths.setdefault(state, Growth({})).columns[column.parked] = column
    return ([c for c in ordered if not c.parked],
            [g for g in growths.values() if any(g.columns)])


def row_title(key):
    return f"{key[0]} {key[1]}".strip()


def sort_key(key):
    name, backend, placement = key
    return (ORDER.index(name) if name in ORDER else len(ORDER), name, backend,
            PLACEMENTS.index(placement.split(",")[0]), placement)


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def describe(column):
    return f"{column.unit_label}, {column.describe()}", column.describe_more()


def parked_curves(growth):
    """-> [(row's key, Cells by number of parked threads)]"""
    keys = [key for key in growth.keys() if key[0] in PARKED_ROWS and key[2] == ONE_CPU
            and len(growth.cells(key)) > 1]
    return [(key, growth.cells(key)) for key in sorted(keys, key=sort_key)]


def ring_curves(column):
    return [((RING_ROW, backend, ONE_CPU), column.rings(backend))
            for backend in column.ring_backends()]


def end_ratio(cells):
    """The last figure : the first."""
    values = [cell.value for cell in cells.values()]
    return values[-1] / values[0] if len(values) > 1 and None not in (values[0], values[-1]) \
        else None
