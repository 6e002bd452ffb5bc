#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tables of packets of UDP, of a results folder of vm/bench --servers, and their bounds."""

import json
import os
import signal
import sys

from render import table

COLUMNS = ((1, 1), (64, 1), (1000, 1), (1, 64), (64, 64), (1000, 64))     # sessions, burst
TITLES = {
    "tasks plain": "**tasks**, recvfrom and sendto",
    "tasks": "**tasks**, recvmmsg and sendmmsg",
    "tasks gso": "**tasks**, the same with GSO",
    "tasks gso gro": "**tasks**, the same with GSO and GRO",
    "tasks ring": "**tasks**, multishot RECVMSG and sendmmsg",
    "epoll plain": "epoll loop, recvfrom and sendto",
    "epoll": "epoll loop, recvmmsg and sendmmsg",
    "epoll gso": "epoll loop, the same with GSO",
    "epoll gso gro": "epoll loop, the same with GSO and GRO",
    "go": "Go",
    "go locked": "Go, LockOSThread()",
}
VETH = {
    "veth --io plain": "recvfrom and sendto",
    "veth": "recvmmsg and sendmmsg",
    "veth --gso --gro": "the same with GSO and GRO",
    "veth --xdp there0": "AF_XDP, copy mode",
}
CRYPTO = {
    "none": "not sealed",
    "user": "AES-GCM by libcrypto",
    "afalg": "AES-GCM by AF_ALG",
}
RATES = {
    "veth": "**tasks**, recvmmsg and sendmmsg, veth",
    "veth --xdp there0": "**tasks**, AF_XDP, veth",
}
LOOP = 1.10         # tasks, of the epoll loop with the same techniques
SEGMENTS = 5        # recvfrom and sendto, of mmsg with GSO and GRO
XDP = 0.8           # AF_XDP, of recvmmsg and sendmmsg without GSO


def load(folder, name):
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return []
    keys = ("server", "mode", "sessions", "burst", "server_ns", "sent", "received", "p50", "p99",
            "highest", "rate", "queue_bytes", "drops")
    with open(path, encoding="utf-8") as file:
        return [{key: row[key] for key in keys if key in row}
                for row in map(json.loads, file) if "left_out" not in row]


def read(folder):
    """-> the parts "packets" and "rates", or less"""
    data = {}
    for name, files in (("packets", ("packets", "packets-veth")), ("rates", ("packets-rates",))):
        rows = [row for file in files for row in load(folder, file)]
        if rows:
            with open(os.path.join(folder, name + "-state.txt"), encoding="utf-8") as file:
                data[name] = {"state": file.read().strip(), "rows": rows}
    return data


def rows_of(data, name):
    return data.get(name, {"rows": []})["rows"]


def figures(data):
    """-> {(server, sessions, burst): instructions of a packet}"""
    return {(row["server"], row["sessions"], row["burst"]): row["server_ns"]
            for row in rows_of(data, "packets")}


def cell(found, server, sessions, burst):
    if (server, sessions, burst) not in found:
        return ""
    text = f"{found[server, sessions, burst]:,.0f}"
    loop = server.replace("tasks", "epoll")
    if server.startswith("tasks") and (loop, sessions, burst) in found:
        text += f" ({found[server, sessions, burst] / found[loop, sessions, burst]:.2f})"
    return text


def insn_table(data):
    found = figures(data)
    return table(["sessions x burst", *(f"{n:,} x {burst}" for n, burst in COLUMNS)],
                    [[title, *(cell(found, server, *column) for column in COLUMNS)]
                     for server, title in TITLES.items()
                     if any((server, *column) in found for column in COLUMNS)])


def veth_table(data):
    found = figures(data)
    base = found.get(("veth", 64, 16))
    return table(["64 sessions x 16 packets, veth", "instructions", "ratio"],
                    [[title, f"{found[server, 64, 16]:,.0f}",
                      f"{found[server, 64, 16] / base:.2f}"]
                     for server, title in VETH.items() if base and (server, 64, 16) in found])


def crypto_table(data):
    found = figures(data)
    sizes = (64, 1400)
    rows = [[title, *(f"{found[f'crypto {name} {size}', 64, 16]:,.0f}" for size in sizes)]
            for name, title in CRYPTO.items() if (f"crypto {name} 64", 64, 16) in found]
    return table(["64 sessions x 16 packets", *(f"{size:,} bytes" for size in sizes)], rows)


def rate_table(data):
    return table(["server", "highest, packets/s", "seconds", "sent", "lost", "p50, us", "p99, us",
                     "deepest queue, KiB"],
                    [[RATES.get(row["server"]) or TITLES[row["server"]], f"{row['highest']:,}",
                      f"{row['sent'] / row['rate']:.0f}", f"{row['sent']:,}",
                      f"{row['sent'] - row['received']:,}", f"{row['p50'] / 1000:,.0f}",
                      f"{row['p99'] / 1000:,.0f}",
                      "" if "--xdp" in row["server"] else f"{row['queue_bytes'] / 1024:,.0f}"]
                     for row in rows_of(data, "rates")])


def states(data):
    return [f"{what}: {data[name]['state']}."
            for what, name in (("Instructions", "packets"), ("Rates", "rates")) if name in data]


def gates(data):
    """-> [(passed, text)]"""
    found = figures(data)
    made = []

    def hold(name, part, whole, bound, least=False):
        if part not in found or whole not in found:
            made.append((False, f"{name}: wanted results of {part} and {whole}, found none"))
            return
        ratio = found[part] / found[whole]
        made.append((ratio >= bound if least else ratio <= bound,
                     f"{name}: {ratio:.2f} x, wanted at {'least' if least else 'most'} {bound}"))

    for sessions in (64, 1000):
        # 64,000 packets at once, each by itself, are more than a socket holds.
        for kind in ("", " gso gro") if sessions == 64 else (" gso gro",):
            hold(f"packets, tasks{kind}, {sessions} sessions x 64, to the epoll loop",
                 ("tasks" + kind, sessions, 64), ("epoll" + kind, sessions, 64), LOOP)
    hold("packets, recvfrom, to GSO and GRO", ("tasks plain", 64, 64), ("tasks gso gro", 64, 64),
         SEGMENTS, least=True)
    hold("packets, AF_XDP, to recvmmsg and sendmmsg", ("veth --xdp there0", 64, 16),
         ("veth", 64, 16), XDP)
    for row in rows_of(data, "rates"):
        made.append((row["sent"] == row["received"],
                     f"packets, {row['server']}, at 0.9 of the highest rate: "
                     f"{row['sent'] - row['received']} lost, wanted 0"))
    return made


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: bench/packets.py FOLDER")
    data = read(sys.argv[1])
    if not data:
        sys.exit(f"packets.py: {sys.argv[1]}: wanted packets.json, found none")
    for made in (insn_table, veth_table, crypto_table, rate_table):
        print(*made(data), "", sep="\n")
    failed = False
    for passed, text in gates(data):
        print("PASS" if passed else "FAIL", text)
        failed = failed or not passed
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
    main()
