#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of tools/switchto-find.

    find.py analysis FINDER            what it makes of events, also of recorded ones
    find.py live FINDER KNOWN [TEST]   on programs (known.c) whose hand-overs are known; needs root
    find.py record FINDER KNOWN FILE   record the events for the first anew
"""

import base64
import bisect
import contextlib
import glob
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
RECORDED = os.path.join(HERE, "recorded.json")
CALLS = {"condvar": "futex", "pipe": "pipe", "eventfd": "eventfd", "socketpair": "unix socket",
         "tcp": "tcp"}

sys.dont_write_bytecode = True
FINDER = os.path.abspath(sys.argv[2])
loader = importlib.machinery.SourceFileLoader("finder", FINDER)
finder = importlib.util.module_from_spec(importlib.util.spec_from_loader("finder", loader))
loader.exec_module(finder)

A, B, C, OTHER, IDLE = 11, 12, 13, 99, 0
S, R = 1, 0                                     # prev_state: asleep, preempted


def waking(at, cpu, tid, woken, flags=0, call="futex"):
    return [at, cpu, "waking", tid, woken, flags, call]


def switch(at, cpu, tid, state, following, call="futex"):
    return [at, cpu, "switch", tid, state, following, call]


def found(events, members=(A, B, C), end=1000_000, within=20_000):
    analysis = finder.Analysis(events, set(members), 0, end, within)
    head = {"program": "p", "seconds": end / 1e9, "lost": 0, "events": len(events)}
    return finder.summarise(head, analysis, {A: "a", B: "b", C: "c"})


def edges(summary):
    return {(p["from"]["tid"], p["to"]["tid"]): p["hand_overs"] for p in summary["pairs"]}


class Analysis(unittest.TestCase):
    def test_woken_thread_has_not_slept_yet(self):
        """A later preemption is no delay of the wakeup."""
        summary = found([switch(5_000, 1, IDLE, R, B), waking(10_000, 0, A, B),
                         switch(13_000, 0, A, S, IDLE), switch(100_000, 1, B, R, OTHER),
                         switch(400_000, 1, OTHER, S, B)])
        self.assertEqual((summary["hand_overs"], summary["time_share"]), (1, 0))
        self.assertIsNone(summary["pairs"][0]["to_run_us"])

    def test_hand_over_to_another_cpu(self):
        summary = found([waking(10_000, 0, A, B), switch(13_000, 0, A, S, IDLE),
                         switch(30_000, 1, IDLE, R, B)])
        pair, = summary["pairs"]
        self.assertEqual((pair["hand_overs"], pair["to_sleep_us"], pair["to_run_us"]), (1, 3, 20))
        self.assertEqual((pair["cpus"], pair["elsewhere"]), ([0, 1], 1))
        self.assertAlmostEqual(summary["time_share"], 0.02)
        # A ran for 13 us, and B to the end.
        self.assertAlmostEqual(summary["cpu_share"], 3 / (13 + 970))

    def test_on_one_cpu(self):
        pair, = found([waking(10_000, 0, A, B), switch(13_000, 0, A, S, B)])["pairs"]
        self.assertEqual((pair["cpus"], pair["elsewhere"], pair["to_run_us"]), ([0], 0, 3))

    def test_preempted_before_it_sleeps(self):
        """Only the CPU time of the waking thread counts."""
        self.assertEqual(edges(found([waking(10_000, 0, A, B), switch(12_000, 0, A, R, B),
                                      switch(90_000, 0, B, S, A), switch(93_000, 0, A, S, IDLE)])),
                         {(A, B): 1})

    def test_preempted_by_the_woken_thread(self):
        """B preempts A, does its part and sleeps. A need not sleep, and wakes B again."""
        summary = found([waking(10_000, 0, A, B), switch(12_000, 0, A, R, B),
                         switch(20_000, 0, B, S, A), waking(23_000, 0, A, B)])
        self.assertEqual(edges(summary), {(A, B): 1, (B, A): 1})
        self.assertEqual(summary["wakeups"], 2)
        self.assertEqual({p["wakeups"] for p in summary["pairs"]}, {2, 0})
        # A computes for long before it wakes B again: it does not wait for B.
        self.assertEqual(edges(found([waking(10_000, 0, A, B), switch(12_000, 0, A, R, B),
                                      switch(20_000, 0, B, S, A), waking(90_000, 0, A, B)])),
                         {(A, B): 0})

    def test_start_that_is_not_traced(self):
        """What B does first says that it runs."""
        summary = found([waking(10_000, 0, A, B), switch(13_000, 0, A, S, IDLE),
                         waking(30_000, 1, B, A), switch(32_000, 1, B, S, IDLE)])
        self.assertEqual(edges(summary), {(A, B): 1, (B, A): 1})
        self.assertEqual(summary["starts_not_traced"], 1)

    def test_computes_before_it_sleeps(self):
        self.assertEqual(edges(found([waking(10_000, 0, A, B), switch(90_000, 0, A, S, B)])),
                         {(A, B): 0})

    def test_wakes_and_goes_on(self):
        self.assertEqual(edges(found([waking(10_000, 0, A, B), switch(12_000, 1, IDLE, R, B)])),
                         {(A, B): 0})

    def test_ends_after_a_wakeup(self):
        self.assertEqual(edges(found([waking(10_000, 0, A, B), switch(12_000, 0, A, 0x10, B)])),
                         {(A, B): 0})

    def test_last_of_several_wakeups(self):
        self.assertEqual(edges(found([waking(10_000, 0, A, B), waking(11_000, 0, A, C),
                                      switch(12_000, 0, A, S, C)])), {(A, B): 0, (A, C): 1})

    def test_interrupt(self):
        """A runs, and an interrupt wakes B: that is not A."""
        events = [waking(10_000, 0, A, B, finder.HARDIRQ), switch(11_000, 0, A, S, B)]
        self.assertEqual(edges(found(events)), {(finder.INTERRUPT, B): 0})
        events[0] = waking(10_000, 0, A, B, finder.SOFTIRQ, "?")
        self.assertEqual(edges(found(events)), {(finder.INTERRUPT, B): 0})
        events[0] = waking(10_000, 0, A, B, finder.SOFTIRQ, "tcp")
        self.assertEqual(edges(found(events)), {(A, B): 1})

    def test_outsiders(self):
        """They are shown when they wake a member. If they sleep is not known."""
        events = [waking(10_000, 0, OTHER, B), switch(11_000, 0, OTHER, S, B),
                  waking(12_000, 0, B, OTHER), switch(13_000, 0, B, S, OTHER)]
        self.assertEqual(edges(found(events)), {(OTHER, B): 0})

    def test_new_threads(self):
        events = [[1000, 0, "fork", A, B, 0, ""], [2000, 0, "fork", B, C, 0, ""],
                  waking(10_000, 0, C, A), switch(11_000, 0, C, S, A)]
        self.assertEqual(edges(found(events, members=[A])), {(C, A): 1})

    def test_end_of_the_figures(self):
        """What comes after the first lost event does not count."""
        events = [waking(10_000, 0, A, B), switch(11_000, 0, A, S, B),
                  waking(30_000, 0, B, A), switch(31_000, 0, B, S, A)]
        self.assertEqual(edges(found(events, end=20_000)), {(A, B): 1})

    def test_nothing(self):
        summary = found([])
        self.assertIn("no hand-overs", finder.report(summary))
        xml.dom.minidom.parseString(finder.graph(summary))

    def test_calls(self):
        names = ["__x64_sys_write", "ksys_write", "eventfd_write", "ep_poll_callback", "futex_wake",
                 "__x64_sys_epoll_wait", "ep_poll", "schedule"]
        call = finder.Symbols((i * 16, name) for i, name in enumerate(names)).call
        for stack, wanted in (("ep_poll_callback eventfd_write __x64_sys_write", "eventfd"),
                              ("schedule ep_poll __x64_sys_epoll_wait", "epoll_wait"),
                              ("schedule", "?")):
            addresses = (16 * names.index(name) + 5 for name in stack.split())
            self.assertEqual(call(b"".join(a.to_bytes(8, "little") for a in addresses)), wanted)

    def test_document(self):
        """The functions that it names are in the example, which is built and run."""
        with open(os.path.join(TOP, "docs", "adopters.md")) as page, \
                open(os.path.join(TOP, "examples", "shapes.c")) as example:
            part = page.read().split("\n## Is your program one of these?\n")[1].split("\n## ")[0]
            names, code = re.findall(r"`(?!switchto_)(\w+)\(\)`", part), example.read()
        self.assertGreaterEqual(len(names), 9)
        for name in names:
            self.assertIn(f"static void {name}(", code)
        for name, call in (("wake", "switchto_resume("), ("wait_for_turn", "switchto_wait(NULL)"),
                           ("hand_over", "switchto_switch(")):
            self.assertIn(call, code.split(f"static void {name}(")[1].split("\n}\n")[0])

    def test_names(self):
        self.assertEqual(finder.printable(b"a\n\x1b[1m\xff<\0rest"), "a\\n\\x1b[1m\\xff<")
        summary = found([waking(10_000, 0, A, B), switch(13_000, 0, A, S, B)])
        summary["pairs"][0]["from"]["name"] = "<&>"
        xml.dom.minidom.parseString(finder.graph(summary))

    def test_many_pairs(self):
        events = []
        for i in range(100, 200):
            events += [waking(i * 1000, 0, i, i + 1), switch(i * 1000 + 500, 0, i, S, i + 1)]
        summary = found(events, members=range(100, 201))
        self.assertEqual(len(summary["pairs"]), 100)
        self.assertIn("and 80 more pairs", finder.report(summary))
        self.assertIn("more threads", finder.graph(summary))

    def test_recorded(self):
        with open(RECORDED) as text:
            recorded = json.load(text)
        pages = {int(cpu): [zlib.decompress(base64.b64decode("".join(page))) for page in of_cpu]
                 for cpu, of_cpu in recorded["pages"].items()}
        events, names = finder.decode(pages, finder.Layout(recorded["layout"]),
                                      finder.Symbols(map(tuple, recorded["symbols"])))
        analysis = finder.Analysis(events, set(recorded["members"]), recorded["began"],
                                   recorded["ended"], 20_000)
        head = {"program": "known", "lost": 0, "events": len(events),
                "seconds": (recorded["ended"] - recorded["began"]) / 1e9}
        check_ring(self, finder.summarise(head, analysis, names), "condvar", 2)
        self.assertEqual(len(events), recorded["events"])


# --- live ---------------------------------------------------------------------

def check_ring(test, summary, kind, members):
    """The members hand over in a ring, and do little else."""
    ring = {(f"member-{i}", f"member-{(i + 1) % members}") for i in range(members)}
    pairs = [p for p in summary["pairs"] if (p["from"]["name"], p["to"]["name"]) in ring]
    for ends in ring:
        rate = sum(p["hand_overs"] for p in pairs if (p["from"]["name"], p["to"]["name"]) == ends)
        test.assertAlmostEqual(rate / summary["hand_overs"], 1 / members, delta=0.1, msg=summary)
    test.assertEqual({p["call"] for p in pairs if p["hand_overs"]}, {CALLS[kind]}, summary)
    test.assertGreater(summary["wakeups_that_hand_over"], 0.6)
    test.assertGreater(summary["hand_overs_per_second"], 50)
    test.assertEqual(summary["lost"], 0)
    test.assertTrue(0 < summary["cpu_share"] < 1 and 0 < summary["time_share"] <= 1, summary)
    for p in pairs:
        test.assertLessEqual(set(p["cpus"]), set(range(os.cpu_count())))


def find(*arguments, status=0):
    """-> (standard output, standard error)"""
    got = subprocess.run([FINDER, *arguments], capture_output=True, text=True)
    if got.returncode != status:
        raise AssertionError(f"wanted status {status} of {arguments}, "
                             f"found {got.returncode}: {got.stderr}")
    return got.stdout, got.stderr


LONG = 10000 + os.getpid()          # seconds, so that only this test sleeps for so long


def is_running(command):
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(path, "rb") as text:
            if text.read() == command.replace(" ", "\0").encode() + b"\0":
                return True
    return False


def instances():
    return [name for name in os.listdir(finder.tracefs() + "/instances") if "switchto-find" in name]


def left_behind():
    """Others may use the tool, too."""
    return [name for name in instances() if not os.path.exists("/proc/" + name.rsplit("-", 1)[1])]


# An emulated CPU is slow: of the time between a wakeup and the sleep, this is not the test.
SHORT = ("--seconds", "0.4", "--within", "20000")
ATTEMPTS = 5


def patient(check):
    """On a busy machine a program may get too little of the time."""
    def again(*arguments):
        for left in reversed(range(ATTEMPTS)):
            try:
                return check(*arguments)
            except (AssertionError, ZeroDivisionError):
                if not left:
                    raise
    return again


class Live(unittest.TestCase):
    def test_rings(self):
        for case in ("condvar 2 threads", "condvar 3 threads", "condvar 2 processes",
                     "pipe 2 threads", "pipe 3 processes", "eventfd 2 threads",
                     "socketpair 2 threads", "tcp 2 processes"):
            with self.subTest(case):
                self.check_case(*case.split())

    @patient
    def check_case(self, kind, members, of):
        out, _ = find("--json", *SHORT, "--", KNOWN, kind, members, of)
        check_ring(self, json.loads(out), kind, int(members))

    def test_never_hands_over(self):
        for case in ("compute 2 threads", "compute 2 processes", "wakes 3 threads"):
            with self.subTest(case):
                out, _ = find("--json", "--seconds", "0.4", "--", KNOWN, *case.split())
                summary = json.loads(out)
                self.assertLessEqual(summary["hand_overs"], 0.01 * summary["wakeups"])
                if "wakes" in case:
                    self.assertGreater(summary["wakeups"], 10)

    @patient
    def test_running_processes(self):
        with subprocess.Popen([KNOWN, "pipe", "2", "threads"]) as one, \
                subprocess.Popen([KNOWN, "eventfd", "2", "threads"]) as other:
            try:
                with tempfile.TemporaryDirectory() as work:
                    out, _ = find(*SHORT, "--plot", f"{work}/a.svg", "-p", str(one.pid))
                    self.assertRegex(out, rf"member-0 {one.pid} +member-1 \d+ +pipe")
                    self.assertIn("member-1", xml.dom.minidom.parse(f"{work}/a.svg").toxml())
                out, _ = find(*SHORT, "-p", str(one.pid), str(other.pid))
                self.assertRegex(out, r"(?s)member-0 .* pipe.* eventfd|member-0 .* eventfd.* pipe")
            finally:
                one.kill()
                other.kill()

    def test_lost_events(self):
        text = io.StringIO()
        before, sys.argv = sys.argv, ["", "--json", "--", KNOWN, "condvar", "2", "threads"]
        room, finder.MEMORY = finder.MEMORY, 0
        try:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                finder.main()
        finally:
            sys.argv, finder.MEMORY = before, room
        self.assertRegex(text.getvalue(), r"found [0-9,]+ lost after 0\.[0-9]+ s")

    def one_line(self, status, wanted, *arguments):
        out, err = find(*arguments, status=status)
        self.assertRegex(err, wanted)
        self.assertEqual(err.count("\n"), 1, err)

    def test_bad_input(self):
        self.one_line(2, "found neither")
        self.one_line(2, "wanted a PID after -p, found none", "-p")
        self.one_line(2, "put -- before CMD", "sh", "-c", "true")
        self.one_line(2, "found both", "-p", "1", "--", "true")
        for pid in ("0", "-3", "x", "1,", "1\n2"):
            self.one_line(2, "PID", f"-p{pid}")
        self.one_line(1, "found none with PID 4194304", "-p", "4194304")
        self.one_line(1, "found none with PID 9{30}", "-p", "9" * 30)
        self.one_line(2, "wanted 0.01 to 600", "--seconds", "nan", "--", "true")
        self.one_line(2, "wanted 0.01 to 600", "--seconds", "1e9", "--", "true")
        self.one_line(1, "no such program", "--", "/no/such\nprogram")
        self.one_line(1, "can't: No such file", "--plot", "/no/such/file", "--", "true")
        self.one_line(1, r"wanted sh to succeed, found status 3", "--", "sh", "-c", "exit 3")
        self.one_line(1, r"wanted sh to succeed, found signal 9", "--", "sh", "-c", "kill -9 $$")
        self.one_line(1, r"--wait", "--wait", "5", "--", "true")
        self.assertEqual(left_behind(), [])

    def test_no_privilege(self):
        with open(FINDER) as script:
            got = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", "python3", "-",
                                  "--", "true"], stdin=script, capture_output=True, text=True)
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stderr, r"^switchto-find: wanted root[^\n]*\n$")

    def test_impatient(self):
        with subprocess.Popen([FINDER, "--seconds", "60", "--", "sh", "-c",
                               f"trap '' INT TERM HUP; sleep {LONG}"],
                              stderr=subprocess.DEVNULL) as one:
            until = time.monotonic() + 60
            while f"switchto-find-{one.pid}" not in instances() and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(0.5)
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                one.send_signal(number)
                time.sleep(0.2)
        self.assertEqual(one.returncode, 128 + signal.SIGHUP)
        self.assertEqual(left_behind(), [])
        self.assertFalse(is_running(f"sleep {LONG}"))

    def test_names(self):
        with tempfile.TemporaryDirectory() as work:
            path = f"{work}/a\n\x1b[1m"
            with open(path, "w") as script:
                script.write("#!/bin/sh\nsleep 0.1 | cat\nexec sleep 0.05\n")
            os.chmod(path, 0o755)
            out, _ = find("--", path)
            self.assertIn("a\\n\\x1b[1m", out)
            self.assertNotIn("\x1b", out)

    def test_ends_what_it_started(self):
        find("--seconds", "0.1", "--", "sh", "-c", f"trap '' TERM; sleep {LONG} & sleep {LONG}")
        self.assertFalse(is_running(f"sleep {LONG}"))


def skip(why):
    print(f"find.py: {why}, skipped")
    sys.exit(77)


def want_tracing():
    """Mount tracefs for this test alone, if it is not there."""
    if os.geteuid():
        skip("wanted root, found another user")
    if "FIND_UNSHARED" not in os.environ:
        os.environ["FIND_UNSHARED"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    try:
        finder.tracefs()
    except finder.Failure:
        if subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"]).returncode:
            skip("wanted a kernel with tracefs, found none")
    if not os.path.exists(finder.tracefs() + "/events/sched/sched_waking"):
        skip("wanted a kernel with the scheduler's events, found none")


def record(path):
    """A recording with no more than the test needs."""
    kept = {}
    decode, analyse, layout_of, stacks = finder.decode, finder.Analysis, finder.Layout, {}

    class Layout(layout_of):
        def __init__(self, texts):
            kept["layout"] = {n: t for n, t in texts.items()}
            super().__init__(texts)

    def keep(pages, layout, symbols):
        first = {cpu: of_cpu[:2] for cpu, of_cpu in pages.items() if of_cpu}
        last = min(max(stamp for page in of_cpu for stamp, *_ in finder.records(page, layout))
                   for of_cpu in first.values())
        call = symbols.call

        def note(stack):
            for at in range(0, len(stack), 8):
                address = int.from_bytes(stack[at:at + 8], "little"), "~"
                stacks.update([symbols.table[bisect.bisect_right(symbols.table, address) - 1]])
            return call(stack)
        symbols.call = note
        events, names = decode(first, layout, symbols)
        kept.update(ended=last, events=len(events), symbols=sorted(stacks.items()), pages={
            cpu: [[text[i:i + 100] for i in range(0, len(text), 100)] for text in
                  (base64.b64encode(zlib.compress(page, 9)).decode() for page in of_cpu)]
            for cpu, of_cpu in first.items()})
        return events, names

    def keep_members(events, members, began, ended, within):
        kept.update(members=sorted(members), began=began)
        return analyse(events, members, began, ended, within)

    finder.decode, finder.Layout, finder.Analysis = keep, Layout, keep_members
    with subprocess.Popen([KNOWN, "condvar", "2", "threads"]) as known:
        sys.argv = ["", "--seconds", "0.02", "-p", str(known.pid)]
        finder.main()
        known.kill()
    with open(path, "w") as out:
        json.dump(kept, out, indent=0)
        out.write("\n")


if __name__ == "__main__":
    what = sys.argv[1]
    if what != "analysis":
        KNOWN = os.path.abspath(sys.argv[3])
        want_tracing()
    if what == "record":
        record(sys.argv[4])
    else:
        only = sys.argv[4:] or [{"analysis": "Analysis", "live": "Live"}[what]]
        unittest.main(argv=[sys.argv[0], "-v", *only])
