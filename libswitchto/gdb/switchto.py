# SPDX-License-Identifier: MIT
"""gdb's command "switchto threads": the threads of a program as libswitchto sees them.

It reads the table of threads (src/thread.h), of a process or of a core file. gdb loads
this file with an installed library; otherwise: source switchto.py
"""
import gdb

# struct thread, word: src/thread.h. Preprocessor macros are not in the debug information.
WORD_STATE = 0xC0000000
WORD_TID = 0x003FFFFF
UNKNOWN, RUNNING, WAITING, RESUMED = 0x00000000, 0x40000000, 0x80000000, 0xC0000000
TID_LIMIT = 1 << 22
EARLY_NONE, EARLY_CLOSED = 0, (1 << 64) - 1

# Their callers do not wait. Any other function of the library in a backtrace does.
DO_NOT_WAIT = ("switchto_self", "switchto_resume", "switchto_backend", "switchto_version")
MOST_FRAMES = 32


class Table:
    """The library's table of threads. gdb.GdbError if it cannot be read."""

    def __init__(self):
        table = gdb.lookup_global_symbol("switchto_threads")
        wait = gdb.lookup_global_symbol("switchto_wait")
        if table is None or wait is None:
            raise gdb.GdbError(self.why_not())
        self.leaves = table.value()
        self.leaf_threads = TID_LIMIT // (self.leaves.type.range()[1] + 1)
        self.leaf = {}
        self.source = wait.symtab.fullname()

    @staticmethod
    def why_not():
        try:
            gdb.parse_and_eval("(long)&switchto_wait")
        except gdb.error:
            return ("switchto: wanted a program that uses libswitchto, found none; "
                    "has it been started, and are its symbols there?")
        return ("switchto: wanted debug information of libswitchto, found none; "
                "build the library with -g, or install its -dbgsym package")

    def entry(self, tid):
        """The word and the early resume of TID."""
        index, offset = divmod(tid, self.leaf_threads)
        if index not in self.leaf:
            leaf = self.leaves[index]
            self.leaf[index] = None
            if int(leaf):
                whole = leaf.type.unqualified().target().array(self.leaf_threads - 1)
                self.leaf[index] = leaf.cast(whole.pointer()).dereference()
                self.leaf[index].fetch_lazy()
        if self.leaf[index] is None:
            return UNKNOWN, EARLY_NONE
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


def place(source):
    """Where the selected thread is: (it waits in the library, function and line)."""
    waits, frame = False, gdb.newest_frame()
    newest = frame
    for _ in range(MOST_FRAMES):
        function = frame.function()
        if function is not None and function.symtab.fullname() == source:
            # The outermost one decides, and its caller is where the thread is.
            waits = function.name not in DO_NOT_WAIT
            newest = frame.older()
        elif waits:
            break
        frame = frame.older()
        if frame is None or not frame.is_valid():
            break
    if newest is None:
        return waits, ""
    line = newest.find_sal()
    where = newest.name() or hex(newest.pc())
    if line.symtab is not None:
        where += " at %s:%d" % (line.symtab.filename.rsplit("/", 1)[-1], line.line)
    return waits, where


def state(word, early, waits):
    """In words, and the sort of it for the summary. None: not registered, nothing pending."""
    if word & WORD_STATE == UNKNOWN:
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


class SwitchtoThreads(gdb.Command):
    """List the threads that are registered with libswitchto.
Usage: switchto threads [-bt] [TID]...
With TIDs, only those threads. With -bt, also the backtrace of each thread.

States: "running"; "parked", in a wait or a switch; "resumed by TID", the wait will
return; "running, resume by TID pending", the next wait will return at once."""

    def __init__(self):
        super().__init__("switchto threads", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        arguments = gdb.string_to_argv(argument)
        backtrace = "-bt" in arguments
        try:
            wanted = {int(a) for a in arguments if a != "-bt"}
        except ValueError:
            raise gdb.GdbError("switchto: wanted [-bt] [TID]..., found: " + argument)
        selected = gdb.selected_thread()
        if selected is None:
            raise gdb.GdbError("switchto: wanted a process or a core file, found none")
        table = Table()
        frame = gdb.selected_frame()
        try:
            self.list(table, wanted, backtrace)
        finally:
            selected.switch()
            frame.select()

    @staticmethod
    def list(table, wanted, backtrace):
        row = "%8s %6s  %-15s  %-18s  %s\n"
        gdb.write(row % ("TID", "Thread", "Name", "State", "In"))
        counts, others = {}, 0
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: t.num):
            thread.switch()
            tid = selected_tid(thread)
            if wanted and tid not in wanted:
                continue
            waits, where = place(table.source)
            found = state(*table.entry(tid), waits)
            if found is None:
                others += 1
                continue
            words, sort = found
            counts[sort] = counts.get(sort, 0) + 1
            gdb.write(row % (tid, thread.num, thread.name or "", words, where))
            if backtrace:
                gdb.execute("backtrace")
        parts = ["%d %s" % (counts[sort], sort) for sort in sorted(counts)]
        if others:
            parts.append("%d not registered" % others)
        gdb.write("%s\n" % (", ".join(parts) or "no such thread"))


Switchto()
SwitchtoThreads()
