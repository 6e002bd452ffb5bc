# SPDX-License-Identifier: MIT
"""Threads that hand over: handover.py WAY ROUNDS. Prints a sum, and the time of the rounds alone.

queue, simplequeue, event	two threads take turns; a round is there and back
producer	one thread puts items into a Queue of 100 places, three take them out
pool	three threads of a ThreadPoolExecutor compute a little for the main thread
io	two threads exchange a byte over pipes, beside a thread that computes
compute	three threads compute, and nothing else
"""

import concurrent.futures
import os
import queue
import sys
import threading
import time


def turns(new):
    """Two threads, and two queues."""
    def run(rounds):
        there, back = new(), new()

        def answer():
            for _ in range(rounds):
                back.put(there.get() + 1)

        with_thread(answer)
        total = 0
        for number in range(rounds):
            there.put(number)
            total += back.get()
        return total
    return run


def event(rounds):
    there, back = threading.Event(), threading.Event()

    def answer():
        for _ in range(rounds):
            there.wait()
            there.clear()
            back.set()

    with_thread(answer)
    for _ in range(rounds):
        there.set()
        back.wait()
        back.clear()
    return rounds


def producer(rounds):
    items, totals = queue.Queue(100), []

    def consume():
        totals.append(sum(iter(items.get, None)))

    consumers = [with_thread(consume) for _ in range(3)]
    for number in range(rounds):
        items.put(number)
    for _ in consumers:
        items.put(None)
    for consumer in consumers:
        consumer.join()
    return sum(totals)


def pool(rounds):
    with concurrent.futures.ThreadPoolExecutor(3) as executor:
        return sum(executor.map(lambda number: number + 1, range(rounds)))


def io(rounds):
    there, back = os.pipe(), os.pipe()
    end = False

    def answer():
        for _ in range(rounds):
            os.write(back[1], os.read(there[0], 1))

    def work():
        while not end:
            pass

    worker = with_thread(work)
    with_thread(answer)
    for _ in range(rounds):
        os.write(there[1], b"x")
        os.read(back[0], 1)
    end = True
    worker.join()
    return rounds


def compute(rounds):
    def work():
        total = 0
        for number in range(rounds):
            total += number
        totals.append(total)

    totals = []
    workers = [with_thread(work) for _ in range(3)]
    for worker in workers:
        worker.join()
    return sum(totals)


def with_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def main():
    ways = {"queue": turns(queue.Queue), "simplequeue": turns(queue.SimpleQueue), "event": event,
            "producer": producer, "pool": pool, "io": io, "compute": compute}
    run, rounds = ways[sys.argv[1]], int(sys.argv[2])
    run(min(rounds, 10))
    start, cpu = time.monotonic(), time.process_time()
    total = run(rounds)
    seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    print(total)
    print(f"measured {seconds:.6f} s, CPU {cpu:.6f} s")


main()
