# SPDX-License-Identifier: MIT
"""gdb's commands "switchto threads", "switchto tasks" and "switchto slots": a program as
libswitchto sees it, and its scheduling layer.

They read the table of threads (src/core/thread.h), and what the scheduling layer knows
(src/sched/types.h), of a process or of a core file. gdb loads this file with an installed
libswitchto, which each program with the shared scheduling layer has; otherwise: source switchto.py
"""
import os
import time

import gdb

# struct thread, word: src/core/thread.h. Preprocessor macros are not in the debug information.
WORD_STATE = 0xC0000000
WORD_TID = 0x003FFFFF
UNREGISTERED, RUNNING, WAITING, RESUMED = 0x00000000, 0x40000000, 0x80000000, 0xC0000000
TID_LIMIT = 1 << 22
EARLY_NONE, EARLY_CLOSED = 0, (1 << 64) - 1

# Tasks, slots and marks: src/sched/types.h, owner.h and mark.h.
TOKEN, PARKED, FINISHED = 1, 2, 8
WAITS = 4 | 16  # WAITING, LOCKING
USER, INSIDE, OWNER_STATE = 0, 1, 3
MARKS, MARKS_READ, NOT_READY, TASK_BITS = 1024, 256, 8, 6
# The scheduling layer's own functions at the outer end of a task's stack.
RUN_TASKS = ("run_task", "switchto_worker_main")

# Their callers do not wait. Any other function of the library in a backtrace does.
DO_NOT_WAIT = ("switchto_self", "switchto_resume", "switchto_backend", "switchto_place",
               "switchto_version")
MOST_FRAMES = 32


def why_not(library, function):
    """The error if the debug information of LIBRARY, which has FUNCTION, cannot be found."""
    try:
        gdb.parse_and_eval("(long)&" + function)
    except gdb.error:
        return gdb.GdbError("switchto: wanted a program that uses %s, found none; "
                            "has it been started, and are its symbols there?" % library)
    return gdb.GdbError("switchto: wanted debug information of %s, found none; "
                        "build the library with -g, or install its -dbgsym package" % library)


def array(pointer, count):
    """The COUNT structures at POINTER, read in one go. None: POINTER is NULL."""
    if not int(pointer):
        return None
    whole = pointer.type.unqualified().target().array(count - 1)
    found = pointer.cast(whole.pointer()).dereference()
    found.fetch_lazy()
    return found


class Table:
    """The library's table of threads. gdb.GdbError if it cannot be read."""

    def __init__(self):
        table = gdb.lookup_global_symbol("switchto_threads")
        wait = gdb.lookup_global_symbol("switchto_wait")
        if table is None or wait is None:
            raise why_not("libswitchto", "switchto_wait")
        self.leaves = table.value()
        self.leaf_threads = TID_LIMIT // (self.leaves.type.range()[1] + 1)
        self.leaf = {}

    def entry(self, tid):
        """The word and the early resume of TID."""
        index, offset = divmod(tid, self.leaf_threads)
        if index not in self.leaf:
            leaf = self.leaves[index]
            self.leaf[index] = array(leaf, self.leaf_threads)
        if self.leaf[index] is None:
            return UNREGISTERED, EARLY_NONE
        thread = self.leaf[index][offset]
        return int(thread["word"]), int(thread["early"])


def selected_tid(thread):
    """The TID of THREAD, which is selected, as the thread itself knows it."""
    try:
        tid = int(gdb.parse_and_eval("switchto_this.tid"))
    except gdb.error:
        tid = 0  # no libthread_db for this program
    # In a PID namespace, gdb may know the thread by another TID.
    return tid if tid else thread.ptid[1]


class Sources:
    """Which functions are the core's, and which the scheduling layer's."""

    def __init__(self):
        core = gdb.lookup_global_symbol("switchto_wait")
        layer = gdb.lookup_global_symbol("switchto_sched_run")
        self.core = core and core.symtab.fullname()
        self.layer = layer and os.path.dirname(layer.symtab.fullname())

    def place(self):
        """Where the selected thread is: (it waits in the core, and for whom: the scheduling
        layer if true; function and line)."""
        waits, by_layer, frame = False, False, gdb.newest_frame()
        outside = frame
        for _ in range(MOST_FRAMES):
            function = frame.function()
            source = function.symtab.fullname() if function is not None else ""
            if source == self.core:
                # The outermost one decides, and its caller is where the thread is.
                waits, by_layer = function.name not in DO_NOT_WAIT, False
                outside = frame.older()
            elif os.path.dirname(source) == self.layer:
                if function.name in RUN_TASKS:
                    break
                by_layer = waits
                outside = frame.older()
            elif waits:
                break
            frame = frame.older()
            if frame is None or not frame.is_valid():
                break
        return waits, by_layer, self.where(outside)

    def where(self, frame):
        """The first function from FRAME on whose line is known, and which is not the C library's;
        else FRAME's."""
        words = (frame.name() or hex(frame.pc())) if frame is not None else ""
        for _ in range(MOST_FRAMES):
            if frame is None or not frame.is_valid():
                break
            line = frame.find_sal()
            if line.symtab is not None and not in_libc(frame):
                if os.path.dirname(line.symtab.fullname()) == self.layer:
                    break
                return at_line(frame.name(), line)
            frame = frame.older()
        return words


def in_libc(frame):
    """Is FRAME in the shared C library?"""
    return os.path.basename(gdb.solib_name(frame.pc()) or "").startswith("libc.")


def at_line(function, line):
    """As text: FUNCTION, and LINE, which has a file."""
    return "%s at %s:%d" % (function, os.path.basename(line.symtab.filename), line.line)


def state(word, early, waits):
    """In words, and the sort of it for the summary. None: not registered, nothing pending."""
    if word & WORD_STATE == UNREGISTERED:
        if early in (EARLY_NONE, EARLY_CLOSED):
            return None
        return "unregistered, resume by %d pending" % (early & WORD_TID), "unregistered"
    if word & WORD_STATE == RUNNING:
        return "running", "running"
    if word & WORD_STATE == WAITING:
        return "parked", "parked"
    if waits:
        return "resumed by %d" % (word & WORD_TID), "resumed"
    return "running, resume by %d pending" % (word & WORD_TID), "running"


class Switchto(gdb.Command):
    """Commands for programs that use libswitchto."""

    def __init__(self):
        super().__init__("switchto", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, True)


def write_counts(counts, others, none):
    """The last line of a list: how many rows there are of each sort."""
    parts = ["%d %s" % (counts[sort], sort) for sort in sorted(counts)] + others
    gdb.write("%s\n" % (", ".join(parts) or none))


class ListCommand(gdb.Command):
    """A command that selects threads on its way; afterwards, the same one is selected."""

    def invoke(self, argument, from_tty):
        arguments = gdb.string_to_argv(argument)
        try:
            wanted = {int(a) for a in arguments if a != "-bt"}
        except ValueError:
            raise gdb.GdbError("switchto: wanted [-bt] [TID]..., found: " + argument)
        selected = gdb.selected_thread()
        if selected is None:
            raise gdb.GdbError("switchto: wanted a process or a core file, found none")
        frame = gdb.selected_frame()
        try:
            self.list(wanted, "-bt" in arguments)
        finally:
            selected.switch()
            frame.select()


class SwitchtoThreads(ListCommand):
    """List the threads that are registered with libswitchto.
Usage: switchto threads [-bt] [TID]...
With TIDs, only those threads. With -bt, also the backtrace of each thread.

States: "running"; "parked", in a wait or a switch; "resumed by TID", the wait will
return; "running, resume by TID pending", the next wait will return at once."""

    def __init__(self):
        super().__init__("switchto threads", gdb.COMMAND_STATUS)

    @staticmethod
    def list(wanted, backtrace):
        table, sources = Table(), Sources()
        row = "%8s %6s  %-15s  %-18s  %s\n"
        gdb.write(row % ("TID", "Thread", "Name", "State", "In"))
        counts, others = {}, 0
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: t.num):
            thread.switch()
            tid = selected_tid(thread)
            if wanted and tid not in wanted:
                continue
            waits, _, where = sources.place()
            found = state(*table.entry(tid), waits)
            if found is None:
                others += 1
                continue
            words, sort = found
            counts[sort] = counts.get(sort, 0) + 1
            gdb.write(row % (tid, thread.num, thread.name or "", words, where))
            if backtrace:
                gdb.execute("backtrace")
        write_counts(counts, ["%d not registered" % others] if others else [], "no such thread")


class Layer:
    """What the scheduling layer knows. gdb.GdbError if it cannot be read."""

    def __init__(self):
        if gdb.lookup_global_symbol("switchto_current") is None:
            raise why_not("libswitchto-sched", "switchto_block_begin")
        self.threads = {}  # by TID: gdb's
        schedulers = {}
        readable = False
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            self.threads[selected_tid(thread)] = thread
            try:
                current = gdb.parse_and_eval("switchto_current")
                readable = True
            except gdb.error:
                continue
            if int(current):
                scheduler = current["sched"]
                schedulers[int(scheduler)] = scheduler.dereference()
        if not readable:
            raise gdb.GdbError("switchto: wanted thread-local variables, found none; gdb needs the "
                               "libthread_db that belongs to the program's C library")
        self.schedulers = [Scheduler(schedulers[at]) for at in sorted(schedulers)]

    def number(self, tid):
        """gdb's number of thread TID. 0: it is gone."""
        return self.threads[tid].num if tid in self.threads else 0

    def place(self, tid, sources):
        """Of thread TID: (does it wait for its slot? function and line)."""
        if tid not in self.threads:
            return False, ""
        self.threads[tid].switch()
        _, by_layer, where = sources.place()
        return by_layer, where


class Scheduler:
    """A scheduler, its slots and tasks."""

    def __init__(self, value):
        self.value = value
        self.slots = [value["slot"][i] for i in range(int(value["slots"]))]
        self.runs = bool(int(value["running"]))
        threads = list(chain(value["workers"], "next"))
        # It is not among those. After the run it is gone.
        if self.runs and self.slots and int(self.slots[0]["dispatcher"]):
            threads.append(self.slots[0]["dispatcher"].dereference())
        self.granted = {int(t["granted"]): t for t in threads if int(t["granted"])}
        self.owned = {(int(t["slot"]), int(t["epoch"])): t for t in threads}
        self.tasks = [t for t in chain(value["all_tasks"], "next_of_all")
                      if not int(t["state"]) & FINISHED]

    def owner(self, slot):
        """The struct worker that owns SLOT, or has been given it; or None."""
        word = int(slot["owner"])
        if not self.runs:
            return None
        return self.granted.get(int(slot.address)) or \
            self.owned.get((int(slot.address), word & ~OWNER_STATE))

    def marks(self):
        """By the address of a task that waits for a descriptor: in words, for which."""
        found = {}
        leaves = gdb.parse_and_eval("switchto_marks")
        for index in range(leaves.type.range()[1] + 1):
            # In parts, as gdb has a limit for a value.
            for first in range(0, MARKS, MARKS_READ) if int(leaves[index]) else ():
                marks = array(leaves[index] + first, MARKS_READ)
                for offset in range(MARKS_READ):
                    for direction, words in (("in", "read"), ("out", "write")):
                        word = int(marks[offset][direction]["word"])
                        if word > NOT_READY and not word & 1:
                            found[word & ~TASK_BITS] = " to %s fd %d" % (
                                words, index * MARKS + first + offset)
        return found

    def index(self, slot):
        """The number of SLOT."""
        return (int(slot.address) - int(self.slots[0].address)) // slot.type.sizeof

    def write_heading(self):
        """What the list below is of."""
        gdb.write("scheduler %#x: policy %s, %d slots, %d tasks%s\n" % (
            int(self.value.address), self.value["policy"]["name"].string(), len(self.slots),
            len(self.tasks), "" if self.runs else ", does not run"))


def chain(first, link):
    """The structures from the pointer FIRST on, by their field LINK."""
    while int(first):
        entry = first.dereference()
        yield entry
        first = entry[link]


def deadline(task):
    """In words, when a sleeping TASK's wait ends at the latest."""
    if not int(task["timer"]):
        return ""
    at = int(task["deadline"])
    connection = getattr(gdb.selected_inferior(), "connection", None)
    # The clock of another machine, or of the time when a core was written, is not known.
    if connection is None or connection.type != "native":
        return ", until %.3f s" % (at / 1e9)
    return ", %d ms left" % max(0, (at - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 1000000)


def function_of(task):
    """What TASK runs, or is to run."""
    return task["fn"] if int(task["fn"]) else task["begun"]


def task_state(task, owner, in_queue, marks):
    """In words, and the sort of it for the summary. OWNER of its slot; IN_QUEUE: its thread waits
    for its slot."""
    word = int(task["state"])
    if word & PARKED:
        return "parked" + deadline(task), "parked"
    if word & WAITS:
        return "waits" + marks.get(int(task.address), "") + deadline(task), "waiting"
    owns = owner is not None and int(owner.address) == int(task["worker"])
    if not owns and (in_queue or not int(task["worker"])):
        return "ready", "ready"
    lost = "" if owns else ", lost its slot"
    if int(task["worker"]["in_region"]):
        return "in a blocking region" + lost, "blocking"
    return "running" + lost, "running"


def function_line(pointer):
    """The function at POINTER, and its line."""
    block = gdb.block_for_pc(int(pointer))
    function = block.function if block is not None else None
    if function is None:
        return pointer.format_string(symbols=True)
    return at_line(function.name, gdb.find_pc_line(int(pointer)))


class SwitchtoTasks(ListCommand):
    """List the tasks of the scheduling layer, libswitchto-sched.
Usage: switchto tasks [-bt] [TID]...
With TIDs, only the tasks of those threads. With -bt, also the backtrace of each.

States: "running", it has its slot; "ready", it waits for its slot; "parked", in
switchto_park(); "waits", in another call, "to read fd N" or "to write fd N"; "in a blocking
region". With "lost its slot", the monitor gave the slot to others, beside which the task runs.
"N ms left": the call ends then at the latest. In a core file: "until", on CLOCK_MONOTONIC."""

    def __init__(self):
        super().__init__("switchto tasks", gdb.COMMAND_STATUS)

    @staticmethod
    def list(wanted, backtrace):
        layer, sources, counts = Layer(), Sources(), {}
        row = "%8s %6s %4s  %-35s  %s\n"
        for scheduler in layer.schedulers:
            scheduler.write_heading()
            gdb.write(row % ("TID", "Thread", "Slot", "State", "In"))
            marks = scheduler.marks()
            # A task has no thread until it begins.
            tasks = [(int(task["worker"]["tid"]) if int(task["worker"]) else 0, task)
                     for task in scheduler.tasks]
            for tid, task in sorted(tasks, key=lambda t: layer.number(t[0]) or 0):
                if wanted and tid not in wanted:
                    continue
                in_queue, where = layer.place(tid, sources) if tid else (True, "")
                if not int(task["worker"]) or where in RUN_TASKS:
                    where = function_line(function_of(task))
                slot = task["slot"].dereference()
                words, sort = task_state(task, scheduler.owner(slot), in_queue, marks)
                words += ", unpark pending" if int(task["state"]) & TOKEN else ""
                words += ", cancelled" if int(task["cancelled"]) & 1 else ""
                counts[sort] = counts.get(sort, 0) + 1
                gdb.write(row % (tid or "", layer.number(tid) or "", scheduler.index(slot), words,
                                 where))
                if backtrace and tid in layer.threads:
                    gdb.execute("backtrace")
        write_counts(counts, [], "no such task" if wanted else "no tasks")


class SwitchtoSlots(ListCommand):
    """List the slots of the scheduling layer, libswitchto-sched.
Usage: switchto slots

Owner: the TID of the thread that has the slot. Does: runs a task; polls, asleep until there is an
event; schedules, between two tasks. Inbox: tasks that other threads made ready, on their way to
the slot's queue. Deadlines: of tasks that sleep. Epoch: how often the slot changed hands."""

    def __init__(self):
        super().__init__("switchto slots", gdb.COMMAND_STATUS)

    @staticmethod
    def list(wanted, backtrace):
        if wanted or backtrace:
            raise gdb.GdbError("switchto: wanted no argument, found one")
        layer = Layer()
        row = "%4s %8s %6s  %-28s %5s %9s %10s\n"
        heads = ("Slot", "Owner", "Thread", "Does", "Inbox", "Deadlines", "Epoch")
        for scheduler in layer.schedulers:
            scheduler.write_heading()
            gdb.write(row % heads)
            for slot in scheduler.slots:
                owner = scheduler.owner(slot)
                tid = int(owner["tid"]) if owner is not None else ""
                gdb.write(row % (
                    scheduler.index(slot), tid, layer.number(tid) or "", slot_does(slot, owner),
                    len(list(chain(slot["inbox"], "next"))), int(slot["timers"]["count"]),
                    int(slot["owner"]) // (OWNER_STATE + 1)))
        if not layer.schedulers:
            gdb.write("no slots\n")


def slot_does(slot, owner):
    """In words, what OWNER does with SLOT."""
    if owner is None:
        return "nobody has it"
    if int(owner["granted"]) == int(slot.address):
        return "is on its way to the owner"
    if int(slot["asleep"]):
        return "polls"
    word = int(slot["owner"]) & OWNER_STATE
    if word == INSIDE:
        return "schedules"
    function = function_line(function_of(owner["task"])).split(" at ")[0]
    return ("runs %s" if word == USER else "runs %s, in a blocking region") % function


Switchto()
SwitchtoThreads()
SwitchtoTasks()
SwitchtoSlots()
