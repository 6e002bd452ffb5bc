#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Run tools/packet-server, and be its clients, good ones and bad ones.

usage: packets.py TEST SERVER LOAD [LAUNCHER...]

TEST is a function test_TEST below. PACKETS_SEED in the environment: the fuzzer repeats this run.
Waits are for conditions, and fail after PATIENCE seconds.
"""

import ctypes
import errno
import fcntl
import functools
import http.client
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

PATIENCE = 60
SERVER, LOAD, *LAUNCHER = sys.argv[2:]
HEADER = struct.Struct(">BBHIIIQ")      # tools/packet-server/stream.h
DATA, ACK, FIN = 1, 2, 3


class Skip(Exception):
    """What is tested is not there."""


class Server:
    """packet-server in the background, which ends well by stop(), or else at the end of the block."""

    def __init__(self, *args, address="127.0.0.1", prefix=(), prepare=None):
        # pylint: disable=consider-using-with
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*prefix, *LAUNCHER, SERVER, "--json", *args, f"{address}:0"], stdout=subprocess.PIPE,
            stderr=self.errors, preexec_fn=prepare)
        line = self.process.stdout.readline().decode()
        self.stats = None
        if not line.startswith("listening on "):
            self.process.wait()
            raise AssertionError(f"the server has ended: {self.messages()}")
        host, port = line.split()[2].split(":")
        self.address = (host, int(port))

    def messages(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def __enter__(self):
        return self

    def stop(self):
        """-> the sum of the slots' counters"""
        assert self.process.poll() is None, f"the server has ended: {self.messages()}"
        self.process.send_signal(signal.SIGTERM)
        output = self.process.communicate(timeout=PATIENCE)[0].decode()
        assert self.process.returncode == 0, f"{self.process.returncode}: {self.messages()}"
        slots = json.loads(output.splitlines()[-1])["slots"]
        self.stats = {key: sum(slot[key] for slot in slots)
                      for key in slots[0] if key not in ("slot", "batches")}
        assert self.stats["begun"] >= self.stats["ended"]
        return self.stats

    def memory(self):
        """Resident, in KiB."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def __exit__(self, error, *_):
        try:
            if not error and self.process.returncode is None:
                self.stop()
        finally:
            self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def load(server, *args, prefix=()):
    """-> what packet-load printed: nothing wrong, and all packets, or the ends of all sessions"""
    mode = args[-1]
    found = subprocess.run([*prefix, *LAUNCHER, LOAD, "--patience", str(PATIENCE), *args[:-1], mode,
                            f"{server.address[0]}:{server.address[1]}"],
                           stdout=subprocess.PIPE, check=False)
    assert found.returncode == 0, (found.returncode, found.stdout)
    answer, wanted = json.loads(found.stdout), dict(zip(args, args[1:]))
    assert answer["wrong"] == 0, answer
    if mode == "reliable":
        assert answer["over"] == int(wanted["--sessions"]), answer
    else:
        assert answer["received"] >= int(wanted["--packets"]), answer
    return answer


def refused(*args, status=None):
    """-> what the server says when it ends at once"""
    found = subprocess.run([*LAUNCHER, SERVER, *args], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, check=False)
    assert found.returncode == status, (args, found.returncode, found.stderr)
    return found.stderr.decode()


def udp_socket(server, timeout=PATIENCE):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.connect(server.address)
    made.settimeout(timeout)
    return made


def echoed(server, payload=b"are you there?"):
    """
    The server still answers. Packets are lost, mostly so beside a flood on a busy machine, so it is
    asked more than once.
    """
    until = time.monotonic() + PATIENCE
    with udp_socket(server, 0.01) as client:
        while time.monotonic() < until:
            client.send(payload)
            try:
                if client.recv(1 << 16) == payload:
                    return True
            except socket.timeout:
                pass
    return False


def has_crypto(kind):
    with tempfile.NamedTemporaryFile() as key:
        key.write(b"k" * 32)
        key.flush()
        try:
            with Server("--crypto", kind, "--key", key.name, "udp"):
                return True
        except AssertionError as error:
            print(f"left out: --crypto {kind}: {error}")
            assert "AF_ALG" in str(error) or "libcrypto" in str(error), error
            return False


# ---------------------------------------------------------------- the options

def test_udp():
    techniques = ((), ("--io", "plain"), ("--gso",), ("--gro",), ("--gso", "--gro"), ("--io", "ring"),
                  ("--io", "ring", "--gso", "--gro"), ("--steer", "cpu"), ("--slots", "2", "--gro"))
    for options in techniques:
        with Server("--slots", "1", *options, "udp") as server:
            for burst in ("1", "32"):
                load(server, "--sessions", "20", "--burst", burst, "--packets", "2000", "udp")
            stats = server.stop()
            assert stats["begun"] >= 20 and stats["packets_out"] >= 4000, stats
            assert stats["forged"] + stats["malformed"] + stats["oversized"] == 0, stats
    bad_datagrams()
    no_room()
    forged_source()
    idle_sessions_end()
    no_memory()
    forged()
    command_line()


def bad_datagrams():
    with Server("--slots", "1", "udp") as server, udp_socket(server) as client:
        client.send(b"")
        client.send(b"x" * 2049)
        client.send(b"x" * 60000)
        client.send(b"x" * 2048)
        assert client.recv(1 << 16) == b"x" * 2048
        stats = server.stop()
        assert (stats["short_packets"], stats["oversized"], stats["packets_in"]) == (1, 2, 1), stats


def no_room():
    """
    More clients than sessions: of the echo, one that waits for packets serves the next client. Of the
    reliable mode, the others are counted, and those with a session go on.
    """
    with Server("--slots", "1", "--sessions", "3", "udp") as server:
        clients = [udp_socket(server) for _ in range(10)]
        for _ in range(3):
            for client in clients:
                client.send(b"hello")
                assert client.recv(100) == b"hello"
        for client in clients:
            client.close()
        stats = server.stop()
        # Which session serves the next client depends on the hash of its port: three of ten may last.
        assert 24 <= stats["begun"] <= 30 and stats["refused"] == 0, stats
    with Server("--slots", "1", "--sessions", "3", "reliable") as server:
        clients = [udp_socket(server) for _ in range(10)]
        for number, client in enumerate(clients):
            client.send(HEADER.pack(0xa7, DATA, 1, number, 0, 0, 0) + b"x")
        for client in clients[:3]:
            assert client.recv(2000)
        # After the others' packets, so these have been taken.
        clients[0].send(HEADER.pack(0xa7, FIN, 0, 0, 1, 1, 0))
        while HEADER.unpack(clients[0].recv(2000)[:HEADER.size])[1] != FIN:
            pass
        for client in clients:
            client.close()
        stats = server.stop()
        assert stats["begun"] == 3 and stats["refused"] == 7, stats


def forged_source():
    """A packet that seems to come from the server's own port is not answered: that had no end."""
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    except PermissionError:
        print("left out: a forged source needs root")
        return
    for kind, address, sources in (
            ("udp", "127.0.0.1", ("127.0.0.1",)), ("reliable", "127.0.0.1", ("127.0.0.1",)),
            ("udp", "0.0.0.0", ("127.0.0.1", "127.1.2.3"))):
        with Server("--slots", "1", kind, address=address) as server:
            server.address = ("127.0.0.1", server.address[1])
            packet = HEADER.pack(0xa7, DATA, 1, 9, 0, 0, 0) + b"x"
            port = server.address[1]
            for source in sources:
                raw.bind((source, 0))
                raw.sendto(struct.pack(">HHHH", port, port, 8 + len(packet), 0) + packet,
                           server.address)
            # After them, so they have been taken.
            with udp_socket(server) as client:
                client.send(packet)
                assert client.recv(2000)
            stats = server.stop()
            assert stats["strays"] == len(sources) and stats["begun"] == 1, stats
    # From another address of the same port it is a client like any other.
    with Server("--slots", "1", "udp") as server, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.2", server.address[1]))
        client.settimeout(PATIENCE)
        client.sendto(b"hello", server.address)
        assert client.recv(100) == b"hello"
    for options in ((), ("--io", "plain"), ("--io", "ring"), ("--gso", "--gro")):
        from_port_0(raw, options)
    raw.close()


def from_port_0(raw, options):
    """Nobody can be answered there. Those that came in the same call are answered all the same."""
    packets = [b"hello%d" % number for number in range(40)]
    with Server("--slots", "1", *options, "udp") as server, udp_socket(server) as client:
        raw.bind(("127.0.0.1", 0))
        server.process.send_signal(signal.SIGSTOP)
        for packet in packets:
            raw.sendto(struct.pack(">HHHH", 0, server.address[1], 8 + len(packet), 0) + packet,
                       server.address)
            client.send(packet)
        server.process.send_signal(signal.SIGCONT)
        assert sorted(client.recv(100) for _ in packets) == sorted(packets)
        stats = server.stop()
        assert stats["packets_in"] == stats["packets_out"] + stats["unsent"], stats
        assert (stats["packets_out"], stats["unsent"]) == (40, 40), stats


def idle_sessions_end():
    """A session without packets ends: the leading one with the next packet, which is another's."""
    with Server("--slots", "1", "--idle", "1", "--interval", "1", "udp") as server:
        until = time.monotonic() + PATIENCE
        timed_out = 0
        while timed_out == 0:
            assert time.monotonic() < until, "no session has ended"
            assert echoed(server)
            timed_out = json.loads(server.process.stdout.readline())["slots"][0]["timed_out"]


def refuse_to_receive():
    """From now on, recvmmsg(2) fails with ENOMEM: a filter of seccomp(2)."""
    load_number, equal, return_it = 0x20, 0x15, 0x06
    filters = b"".join(struct.pack("HBBI", *line) for line in (
        (load_number, 0, 0, 0), (equal, 0, 1, 299), (return_it, 0, 0, 0x50000 | errno.ENOMEM),
        (return_it, 0, 0, 0x7fff0000)))
    program = struct.pack("HP", 4, ctypes.addressof(kept := ctypes.create_string_buffer(filters)))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program, 0, 0) == 0, kept


def no_memory():
    """A server that can't receive tries again, and ends when it is to end."""
    if os.uname().machine != "x86_64":
        print("left out: wanted x86-64, for the number of recvmmsg(2)")
        return
    with Server("--slots", "2", "udp", prepare=refuse_to_receive) as server:
        server.stop()


def forged():
    """What is not sealed with the key takes no room, and disturbs nobody."""
    if not has_crypto("user"):
        return
    with tempfile.NamedTemporaryFile() as key:
        key.write(os.urandom(32))
        key.flush()
        options = ("--crypto", "user", "--key", key.name)
        with Server("--slots", "1", "--sessions", "1", *options, "udp") as server:
            with udp_socket(server) as client:
                for size in (1, 27, 28, 29, 100, 2000):
                    client.send(os.urandom(size))
                load(server, *options, "--sessions", "1", "--burst", "16", "--packets", "1000",
                     "udp")
            stats = server.stop()
            assert stats["forged"] == 4 and stats["short_packets"] == 2, stats
            assert stats["begun"] == 1 and stats["refused"] == 0, stats
        with Server("--slots", "1", *options, "--gso", "--gro", "udp") as server:
            load(server, *options, "--sessions", "5", "--burst", "32", "--packets", "1000", "udp")
        with Server("--slots", "1", *options, "reliable") as server:
            load(server, *options, "--sessions", "5", "--bytes", "20000", "--lose", "10",
                 "reliable")


def command_line():
    for args in ((), ("udp",), ("pigeon", "0"), ("--io", "mail", "udp", "0"),
                 ("--slots", "0", "udp", "0"), ("--batch", "1000", "udp", "0"), ("udp", "70000"),
                 ("--steer", "session", "udp", "0"), ("--crypto", "user", "udp", "0"),
                 ("--key", "/dev/null", "--crypto", "user", "udp", "0"),
                 ("--xdp", "lo", "tcp", "0")):
        assert refused(*args, status=2), args
    with Server("--slots", "1", "udp") as server:
        text = refused("--slots", "1", "udp", str(server.address[1]), status=1)
        assert "can't have it: Address already in use" in text, text
    assert "wanted a folder" in refused("--root", "/nowhere", "http", "0", status=1)
    # An interface without queues, or a user without privileges: the sockets do it, with a reason.
    with Server("--slots", "1", "--xdp", "nothing0", "udp") as server:
        assert echoed(server)
        assert "sockets instead" in server.messages() or "built without" in server.messages()


# ---------------------------------------------------------------- the reliable mode

def test_reliable():
    for options in ((), ("--gso", "--gro"), ("--steer", "session", "--slots", "2"),
                    ("--io", "plain"), ("--io", "ring")):
        with Server("--slots", "1", *options, "reliable") as server:
            found = load(server, "--sessions", "20", "--bytes", "20000", "--lose", "20",
                         "--reorder", "20", "--double", "5", "reliable")
            assert found["bytes"] == 400000, found
            assert found["retransmitted"] > 0, found
    # Many sessions at once, most of them waiting.
    with Server("--slots", "1", "reliable") as server:
        load(server, "--sessions", "300", "--bytes", "3000", "reliable")
        stats = server.stop()
        assert stats["begun"] == 300, stats
    with Server("--slots", "1", "reliable") as server, udp_socket(server) as client:
        client.send(HEADER.pack(0xa7, ACK, 0, 9, 0, 0, 0))              # of no session
        client.send(HEADER.pack(0xa7, DATA, 1, 9, 1000, 0, 0) + b"x")   # no beginning
        client.send(b"x" * (HEADER.size - 1))
        client.send(HEADER.pack(0xa7, DATA, 1, 9, 0, 0, 0) + b"x")
        found = client.recv(2000)
        assert HEADER.unpack(found[:HEADER.size])[3] == 9
        client.send(HEADER.pack(0xa7, DATA, 5, 9, 1, 0, 0) + b"x")      # not its size
        client.send(HEADER.pack(0xa7, DATA, 1, 8, 1, 0, 0) + b"x")      # another session
        client.send(HEADER.pack(0xa7, FIN, 0, 9, 1, 1, 0))
        while HEADER.unpack(found[:HEADER.size])[1] != FIN:
            found = client.recv(2000)
        stats = server.stop()
        assert (stats["strays"], stats["short_packets"], stats["malformed"]) == (3, 1, 1), stats


# ---------------------------------------------------------------- TCP

def test_tcp():
    with Server("--slots", "2", "tcp") as server:
        load(server, "--sessions", "50", "--packets", "5000", "tcp")
    # Somebody who sends and never reads: the connection ends, and others do not notice.
    with Server("--slots", "1", "--idle", "1", "tcp") as server:
        deaf = socket.create_connection(server.address, timeout=PATIENCE)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            for _ in range(1000000):
                deaf.sendall(b"x" * 65536)
            raise AssertionError("the server took 64 GB from somebody who never reads")
        except OSError:
            pass
        before = server.memory()
        assert before < 200000 or "fsanitize" in str(LAUNCHER), before
        load(server, "--sessions", "5", "--packets", "100", "tcp")
        deaf.close()
        assert server.stop()["timed_out"] >= 1
    no_descriptors()
    ends_without_descriptors()
    # The largest number of connections.
    with Server("--slots", "1", "--sessions", "3", "tcp") as server:
        clients = [socket.create_connection(server.address, timeout=PATIENCE) for _ in range(4)]
        for client in clients[:3]:
            client.sendall(b"x")
            assert client.recv(10) == b"x"
        assert clients[3].recv(10) == b""
        for client in clients:
            client.close()
        stats = server.stop()
        assert stats["begun"] == 3 and stats["refused"] == 1, stats


def turned_away(client):
    """The server has closed the connection, and sent nothing."""
    try:
        return client.recv(10) == b""
    except ConnectionError:
        return True


def has_spare(server):
    """The one that the server keeps is /dev/null, beside its standard streams."""
    folder = f"/proc/{server.process.pid}/fd"
    for name in os.listdir(folder):
        try:
            if int(name) > 2 and os.readlink(f"{folder}/{name}") == "/dev/null":
                return True
        except FileNotFoundError:   # closed meanwhile
            pass
    return False


def until_spare_is_lost(server):
    until = time.monotonic() + PATIENCE
    while has_spare(server):
        assert time.monotonic() < until, "the server still has its spare descriptor"
        time.sleep(0.01)


def loses_spare(server):
    """
    The descriptor that the server keeps to turn clients away with: the limit is too low to open it
    again. When there is one descriptor again it is for that, not for the client that waits.
    """
    def limit(number):
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (number, 40))

    limit(4)
    with socket.create_connection(server.address, timeout=PATIENCE) as first:
        until_spare_is_lost(server)
        used = {int(name) for name in os.listdir(f"/proc/{server.process.pid}/fd")}
        limit(min(set(range(40)) - used) + 1)
        assert turned_away(first)
        with socket.create_connection(server.address, timeout=PATIENCE) as second:
            assert turned_away(second)
    limit(40)


def no_descriptors():
    """More clients than descriptors: those without are turned away, and later there is room."""
    with Server("--slots", "1", "tcp", prepare=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (40, 40))) as server:
        loses_spare(server)
        clients = [socket.create_connection(server.address, timeout=PATIENCE) for _ in range(60)]
        served = []
        for client in clients:
            try:
                client.sendall(b"x")
                if client.recv(10) == b"x":
                    served.append(client)
            except OSError:     # reset
                pass
        assert 10 < len(served) < 40, len(served)
        for client in clients:
            client.close()
        until = time.monotonic() + PATIENCE
        answered = False
        while not answered and time.monotonic() < until:
            with socket.create_connection(server.address, timeout=PATIENCE) as client:
                try:
                    client.sendall(b"y")
                    answered = client.recv(10) == b"y"
                except OSError:
                    pass
        assert answered
        assert server.stop()["no_descriptors"] >= 1


def ends_without_descriptors():
    """Whoever waits for a descriptor learns that the server ends. LeakSanitizer would need one."""
    with Server("--slots", "1", "tcp", prefix=("env", "ASAN_OPTIONS=detect_leaks=0")) as server:
        with socket.create_connection(server.address, timeout=PATIENCE):
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (4, 40))
            with socket.create_connection(server.address, timeout=PATIENCE):
                until_spare_is_lost(server)
                assert server.stop()["no_descriptors"] >= 1


def test_http():
    with tempfile.TemporaryDirectory() as root:
        files = {"index.html": b"hello\n", "empty": b"", "large": os.urandom(1000000)}
        for name, content in files.items():
            with open(os.path.join(root, name), "wb") as file:
                file.write(content)
        os.symlink("/etc/hostname", os.path.join(root, "out"))
        os.mkdir(os.path.join(root, "folder"))
        with Server("--slots", "2", "--root", root, "http") as server:
            client = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
            for path, status, content in (
                    ("/", 200, files["index.html"]), ("/large", 200, files["large"]),
                    ("/empty", 200, b""), ("/nothing", 404, None), ("/folder", 404, None),
                    ("/../../../../../../etc/hostname", 404, None), ("/out", 404, None),
                    ("/%2e%2e/%2e%2e/etc/hostname", 404, None), ("/large?x", 200, files["large"]),
                    ("http://any.example/empty", 200, b"")):
                client.request("GET", path)
                answer = client.getresponse()
                found = answer.read()
                assert answer.status == status, (path, answer.status)
                assert content is None or found == content, path
            client.request("HEAD", "/large")
            answer = client.getresponse()
            assert answer.read() == b"" and answer.getheader("Content-Length") == "1000000"
            client.request("DELETE", "/large")
            assert client.getresponse().status == 405
            client.close()
            with socket.create_connection(server.address, timeout=PATIENCE) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\n\r\nGET /empty HTTP/1.1\r\n\r\nGET /")
                raw.sendall(b" HTTP/1.1\r\nConnection: close\r\n\r\n")
                found = until_end(raw)
                assert found.count(b"200 OK") == 3 and found.count(b"hello\n") == 2, found
            stats = server.stop()
            assert stats["requests"] == 9 and stats["errors"] == 6, stats
        refused_requests(root)
        slow_requests(root)
        changing_file(root)


def until_end(raw):
    """All that the server sends, to the end of the connection: not to a reset."""
    found = b""
    while piece := raw.recv(65536):
        found += piece
    return found


# Heads that are refused; tests/packets/requests.c has all forms.
BAD_HEADS = (
    (b"x" * 9000, 431), (b"x" * 8192, 431),
    (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 101, 431),
    (b"GET / HTTP/1.1\r\nX: " + b"y" * 8192, 431),
    (b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\n", 414),
    (b"\r\n", 400), (b"GET / HTTP/3.0\r\n", 505), (b"GET / HTTP/1.1\n", 400),
    (b"GET / HTTP/1.1\r", 400), (b"\0", 400), (b"GET / HTTP/1.1\r\nX: \0\r\n", 400),
    *((b"GET / HTTP/1.1\r\n" + fields + b"\r\n", status) for fields, status in (
        (b"Content-Length: %d", 413), (b"Content-Length: 0%d", 413), (b"content-length:%d", 413),
        (b"Content-Length : %d", 400), (b"Content-Length\t: %d", 400),
        (b" Content-Length: %d", 400), (b"Content-Length %d", 400),
        (b"Content-Length: +%d", 400), (b"Content-Length: -%d", 400),
        (b"Content-Length: 0x%d", 400), (b"Content-Length: %d, %d", 400),
        (b"Content-Length: %d0000000000000000000", 400),
        (b"Content-Length: 0\r\nContent-Length: %d", 400),
        (b"Content-Length: %d\r\nContent-Length: 0", 400),
        (b"Content-Length: %d\r\nContent-Length: %d", 400),
        (b"Content-Length:\r\n %d", 400), (b"Content-Length: 0\r\n\t%d", 400),
        (b"X: y\nContent-Length: %d", 400), (b"X: y\rContent-Length: %d", 400),
        (b"Transfer-Encoding: chunked", 413), (b"Transfer-Encoding: gzip, chunked", 501),
        (b"Transfer-Encoding: chunked\r\nContent-Length: %d", 400),
        (b"Content-Length: 0\r\nTransfer-Encoding: chunked", 400),
        (b"Transfer-Encoding: xchunked", 400), (b"Transfer-Encoding : chunked", 400),
        (b"Transfer-Encoding\r\n : chunked", 400), (b"Transfer-Encoding: \x0bchunked", 400))),
)


def refused_requests(root):
    """
    One answer, and the end of the connection, also if much more comes. What follows the head may be
    a body: it is not taken for a request.
    """
    body = b"GET /empty HTTP/1.1\r\nHost: x\r\n\r\n"
    with Server("--slots", "2", "--root", root, "http") as server:
        for more in (b"", b"x" * 300000):
            for head, status in BAD_HEADS:
                head = head.replace(b"%d", b"%d" % len(body + more))
                with socket.create_connection(server.address, timeout=PATIENCE) as raw:
                    raw.sendall(head + b"\r\n" + body + more)
                    found = until_end(raw)
                assert found.startswith(b"HTTP/1.1 %d " % status), (head[:60], found[:60])
                assert found.count(b"HTTP/1.1 ") == 1, (head[:60], found)
        # A good one before a bad one is answered.
        with socket.create_connection(server.address, timeout=PATIENCE) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nX\r\n\r\n" + body)
            found = until_end(raw)
        assert found.count(b" 200 ") == 1 and found.count(b" 400 ") == 1, found
        stats = server.stop()
        assert stats["requests"] == 1 and stats["errors"] == 2 * len(BAD_HEADS) + 1, stats


def slow_requests(root):
    """A head has --idle seconds as a whole, and not each byte of it."""
    with Server("--slots", "1", "--idle", "1", "--root", root, "http") as server:
        with socket.create_connection(server.address, timeout=0.05) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n")
            until = time.monotonic() + PATIENCE
            ended = False
            while not ended and time.monotonic() < until:
                try:
                    raw.sendall(b"X")
                    ended = raw.recv(100) == b""
                except socket.timeout:
                    pass
                except OSError:
                    ended = True
        assert ended
        assert server.stop()["timed_out"] == 1


def changing_file(root):
    """A file becomes longer or shorter as it is sent: nothing more is sent, or the connection ends."""
    path, size = os.path.join(root, "changing"), (40 << 20) + 1
    with Server("--slots", "1", "--root", root, "http") as server:
        for shorter in (False, True):
            with open(path, "wb") as file:
                file.truncate(size)
            with socket.create_connection(server.address, timeout=PATIENCE) as raw:
                raw.sendall(b"GET /changing HTTP/1.1\r\n\r\n")
                head, _, body = raw.recv(65536).partition(b"\r\n\r\n")
                with open(path, "ab") as file:
                    file.truncate(1 << 20) if shorter else file.write(b"more")
                body = bytearray(body)
                while len(body) < size and (piece := raw.recv(1 << 20)):
                    body += piece
                assert b"Content-Length: %d\r\n" % size in head + b"\r\n", head
                assert len(body) < size if shorter else body == bytes(size), len(body)
                if not shorter:
                    raw.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
                    assert until_end(raw).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(server.address, timeout=PATIENCE) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert until_end(raw).startswith(b"HTTP/1.1 200 ")


# ---------------------------------------------------------------- floods, and the end

# Each never waits for answers. It is a process of its own, which the test ends.

def flood_tcp(address, data):
    with socket.create_connection(address, timeout=PATIENCE) as flood:
        flood.setblocking(False)
        rest = b""
        while True:
            rest = rest or data
            try:
                rest = rest[flood.send(rest):]
            except BlockingIOError:
                pass
            try:
                flood.recv(1 << 20)
            except BlockingIOError:
                pass


def flood_connections(address, _):
    while True:
        try:
            socket.create_connection(address, timeout=PATIENCE).close()
        except OSError:
            pass


def flood_udp(address, sockets):
    floods = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(sockets)]
    for flood in floods:
        flood.setblocking(False)
    while True:
        for flood in floods:
            try:
                flood.sendto(b"x" * 200, address)
                if sockets == 1:
                    flood.recv(1 << 16)
            except OSError:
                pass


class Flood:
    """@how(address, data) in the background."""

    def __init__(self, how, server, data):
        self.child = os.fork()
        if self.child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)     # if the parent dies
            try:
                how(server.address, data)
            finally:
                os._exit(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


def is_busy(server, ticks):
    """It has used so much CPU time."""
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12]) >= ticks


def answers_tcp(server, request, wanted):
    """Another client than the flood has its answer. It may be refused while the server is full."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with socket.create_connection(server.address, timeout=PATIENCE) as client:
            try:
                client.sendall(request)
                found = client.recv(100)
            except ConnectionError:
                found = b""
        if found:
            return found.startswith(wanted)
    return False


def test_flood():
    """
    One client sends without end. Another one has its answers all the same, and SIGTERM ends the
    server within a second. On a busy machine the best of some times counts, and how long a server
    without a flood takes.
    """
    pipelined = b"GET / HTTP/1.1\r\n\r\n" * 100
    with tempfile.TemporaryDirectory() as root:
        with open(os.path.join(root, "index.html"), "wb") as file:
            file.write(b"hello\n")
        for how, data, options in (
                (flood_tcp, b"x" * 65536, ("tcp",)),
                (flood_tcp, b"x" * 65536, ("--slots", "2", "tcp")),
                (flood_tcp, pipelined, ("--root", root, "http")),
                (flood_tcp, pipelined.replace(b"/ ", b"/no "), ("--root", root, "http")),
                (flood_connections, None, ("tcp",)),
                (flood_connections, None, ("--slots", "2", "--root", root, "http")),
                (flood_udp, 1, ("udp",)), (flood_udp, 1, ("--io", "plain", "udp")),
                (flood_udp, 1, ("--io", "ring", "udp")),
                (flood_udp, 300, ("--slots", "2", "udp")),
                (flood_udp, 300, ("--sessions", "1", "udp")), (flood_udp, 300, ("reliable",))):
            within_a_second(functools.partial(one_flood, how, data), ("--slots", "1", *options))
    within_a_second(unread_reports, ("--slots", "64", "tcp"))
    within_a_second(unread_reports, ("--slots", "64", "--interval", "1", "tcp"))


def within_a_second(end, options):
    """The best of some times, which end(options) returns, or None for one that does not count."""
    found = []
    while len(found) < 5:
        found.append(end(options))
        if found[-1] and (found[-1] < 1 or found[-1] < 10 * quiet_end(options)):
            return
    raise AssertionError(f"{options}: wanted an end within 1 s, found {found}")


def quiet_end(options):
    with Server(*options) as server:
        begun = time.monotonic()
        server.stop()
        return time.monotonic() - begun


def unread_reports(options):
    """Nobody reads the pipe that the reports go to, and it is full."""
    with Server(*options) as server:
        fcntl.fcntl(server.process.stdout, 1031, 4096)      # F_SETPIPE_SZ
        until = time.monotonic() + PATIENCE
        waiting = b""
        while "--interval" in options and struct.unpack("I", waiting or bytes(4))[0] < 4096:
            assert time.monotonic() < until, "the pipe is not full"
            time.sleep(0.01)
            waiting = fcntl.ioctl(server.process.stdout, termios.FIONREAD, bytes(4))
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        return time.monotonic() - begun


def one_flood(how, data, options):
    """None: it did not end all its tasks."""
    with Server(*options) as server, Flood(how, server, data):
        until = time.monotonic() + PATIENCE
        while not is_busy(server, 10) and time.monotonic() < until:
            time.sleep(0.01)
        if options[-1] == "tcp":
            assert answers_tcp(server, b"x", b"x"), options
        elif options[-1] == "http":
            assert answers_tcp(server, b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200"), options
        elif options[-1] == "udp":
            assert echoed(server), options
        begun = time.monotonic()
        stats = server.stop()
        return time.monotonic() - begun if stats["begun"] == stats["ended"] else None


def lasting_port():
    """One that is free, and that no client anywhere is given meanwhile, as those of port 0 are."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low = int(file.read().split()[0])
    while True:
        port = random.randrange(1024, low) if low > 2000 else random.randrange(61000, 65536)
        try:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                with socket.socket(type=kind) as free:
                    free.bind(("", port))
            return port
        except OSError:
            pass


def test_twice():
    """
    A second server on the same port refuses to start, with any number of slots: it would get a part
    of the first one's packets.
    """
    for kind in ("udp", "reliable", "tcp", "http"):
        for slots in ("1", "2", "3"):
            with Server("--slots", slots, kind) as server:
                for more in ("1", "2", "3"):
                    for address in ("127.0.0.1", "0.0.0.0"):
                        found = refused("--slots", more, kind, f"{address}:{server.address[1]}",
                                        status=1)
                        assert found.count("\n") == 1, found
                        for word in (f"wanted {address}:{server.address[1]}, ",
                                     "can't have it: Address already in use; ", "another port"):
                            assert word in found, found
                # Nothing of it goes to sockets that are closed by now.
                if kind == "udp":
                    assert all(echoed(server) for _ in range(20))
                elif kind == "tcp":
                    assert all(answers_tcp(server, b"x", b"x") for _ in range(20))
    assert "take an address of this machine" in refused("udp", "192.0.2.1:0", status=1)
    # Two at the same moment: one of them has the port.
    for kind in ("udp", "tcp"):
        for _ in range(10):
            port = lasting_port()
            pair = [subprocess.Popen([*LAUNCHER, SERVER, "--slots", "2", kind, str(port)],
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                    for _ in range(2)]
            started = [server for server in pair if server.stdout.readline()]
            for server in started:
                server.terminate()
            for server in pair:
                server.communicate(timeout=PATIENCE)
            assert len(started) == 1, (kind, started)


# ---------------------------------------------------------------- anything at all

def test_fuzz():
    """Random and mutated packets and requests. The server goes on, and takes no more memory."""
    seed = int(os.environ.get("PACKETS_SEED", random.randrange(1 << 32)))
    print(f"PACKETS_SEED={seed}", flush=True)
    dice = random.Random(seed)
    with Server("--slots", "2", "--sessions", "50", "reliable") as server:
        clients = [udp_socket(server, 0) for _ in range(20)]
        before = None
        for turn in range(6000):
            client = dice.choice(clients)
            packet = bytearray(HEADER.pack(
                0xa7, dice.choice((DATA, ACK, FIN, dice.randrange(256))), dice.randrange(1300),
                dice.choice((1, 2, dice.getrandbits(32))),
                dice.choice((0, 1, 31, 32, dice.getrandbits(32))),
                dice.choice((0, 1, dice.getrandbits(32))), dice.getrandbits(64)))
            packet += dice.randbytes(dice.choice((0, 1, packet[2] << 8 | packet[3])))
            if dice.random() < 0.3:
                packet[dice.randrange(len(packet))] = dice.randrange(256)
            if dice.random() < 0.1:
                packet = packet[:dice.randrange(len(packet))]
            try:
                client.send(packet)
                client.recv(1 << 16)
            except OSError:
                pass
            if turn == 3000:
                before = server.memory()
        after = server.memory()
        assert after < before * 1.5 + 20000, (before, after)
        # Their ports are not free: the server knows their sessions, and a new one would be a stray.
        load(server, "--sessions", "5", "--bytes", "5000", "--seed", "77", "reliable")
        for client in clients:
            client.close()
        stats = server.stop()
        assert stats["malformed"] and stats["strays"], stats
    with tempfile.TemporaryDirectory() as root, \
            Server("--slots", "2", "--root", root, "http") as server:
        words = [b"GET", b"HEAD", b" ", b"/", b"HTTP/1.1", b"\r\n", b"\r\n\r\n", b"%2e", b"..",
                 b"Content-Length: ", b"\0", b":", b"Connection: close", b"x" * 3000]
        for _ in range(300):
            with socket.create_connection(server.address, timeout=PATIENCE) as client:
                for _ in range(dice.randrange(4)):
                    piece = b"".join(dice.choice(words) for _ in range(dice.randrange(9)))
                    try:
                        client.sendall(piece + dice.randbytes(dice.choice((0, 0, 0, 9))))
                    except OSError:
                        break
        with open(os.path.join(root, "index.html"), "wb") as file:
            file.write(b"still here")
        client = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
        client.request("GET", "/")
        assert client.getresponse().read() == b"still here"
        client.close()
        assert server.stop()["errors"] > 0


# ---------------------------------------------------------------- network namespaces

def run(*args, need=True):
    found = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert found.returncode == 0 or not need, (args, found.stdout)
    return found.returncode == 0


def test_namespaces():
    """A pair of interfaces: AF_XDP, a small MTU, a SYN flood, and netem if the kernel has it."""
    if os.geteuid() != 0:
        raise Skip("network namespaces: needs root")
    there, here = f"pk{os.getpid()}s", f"pk{os.getpid()}c"
    if not run("ip", "netns", "add", there, need=False):
        raise Skip("network namespaces: this kernel or user can't make one")
    run("ip", "netns", "add", here)
    try:
        in_there, in_here = ("ip", "netns", "exec", there), ("ip", "netns", "exec", here)
        if not run(*in_here, "ip", "link", "add", "veth0", "numrxqueues", "2", "numtxqueues", "2",
                   "type", "veth", "peer", "name", "veth1", "numrxqueues", "2", "numtxqueues", "2",
                   need=False):
            raise Skip("veth: this kernel has none")
        run(*in_here, "ip", "link", "set", "veth1", "netns", there)
        for namespace, name, address in ((in_here, "veth0", 1), (in_there, "veth1", 2)):
            run(*namespace, "ip", "address", "add", f"10.9.8.{address}/24", "dev", name)
            run(*namespace, "ip", "link", "set", name, "up")
            run(*namespace, "ip", "link", "set", "lo", "up")
        xdp(in_there, in_here)
        small_mtu(in_there, in_here)
        syn_flood(in_there, in_here)
        netem(in_there, in_here)
    finally:
        run("ip", "netns", "del", there)
        run("ip", "netns", "del", here)


def xdp(in_there, in_here):
    there = functools.partial(Server, address="10.9.8.2", prefix=in_there)
    with there("--slots", "2", "--xdp", "veth1", "udp") as server:
        if "sockets instead" in server.messages():
            print(f"left out: {server.messages()}")
            return
        load(server, "--sessions", "20", "--burst", "16", "--packets", "5000", "udp",
             prefix=in_here)
        stats = server.stop()
        assert stats["packets_out"] >= 5000, stats
    # More at once than a send takes, and each client waits for all answers.
    with there("--slots", "2", "--batch", "256", "--xdp", "veth1", "udp") as server:
        load(server, "--sessions", "1", "--burst", "256", "--packets", "20000", "udp",
             prefix=in_here)
    # One slot for two queues: sockets, and a reason. Who has no privileges gets the same (but
    # that of reading what may be in a private home directory: the libraries).
    with there("--slots", "1", "--xdp", "veth1", "udp") as server:
        assert "sockets instead" in server.messages(), server.messages()
        load(server, "--sessions", "2", "--packets", "100", "udp", prefix=in_here)
    with Server("--slots", "2", "--xdp", "veth1", "udp", address="10.9.8.2",
                prefix=(*in_there, "setpriv", "--bounding-set=-all,+dac_read_search",
                        "--inh-caps=-all")) as server:
        assert "sockets instead" in server.messages(), server.messages()
        load(server, "--sessions", "2", "--packets", "100", "udp", prefix=in_here)


def small_mtu(in_there, in_here):
    """The way back takes smaller packets than the way there: the kernel can't cut them by itself."""
    run(*in_there, "ip", "link", "set", "veth1", "mtu", "600")
    with Server("--slots", "1", "--gso", "--gro", "udp", address="10.9.8.2",
                prefix=in_there) as server:
        load(server, "--sessions", "2", "--burst", "4", "--size", "1000", "--packets", "200", "udp",
             prefix=in_here)
    run(*in_there, "ip", "link", "set", "veth1", "mtu", "1500")


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def syn_flood(in_there, in_here):
    with Server("--slots", "1", "tcp", address="10.9.8.2", prefix=in_there) as server:
        flood = os.fork()
        if flood == 0:
            enter(in_here)
            raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
            dice = random.Random(1)
            for _ in range(20000):
                source = struct.pack(">BBBB", 10, 9, 8, dice.randrange(3, 250))
                target = socket.inet_aton(server.address[0])
                tcp = struct.pack(">HHIIBBHHH", dice.randrange(1024, 65535), server.address[1],
                                  dice.getrandbits(32), 0, 5 << 4, 2, 65535, 0, 0)
                pseudo = source + target + struct.pack(">BBH", 0, 6, len(tcp))
                tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp)) + tcp[18:]
                ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0)
                try:
                    raw.sendto(ip + source + target + tcp, (server.address[0], 0))
                except OSError:
                    pass
            os._exit(0)
        load(server, "--sessions", "20", "--packets", "2000", "tcp", prefix=in_here)
        assert os.waitpid(flood, 0)[1] == 0
        load(server, "--sessions", "5", "--packets", "100", "tcp", prefix=in_here)


def enter(prefix):
    """Go into the namespace of `ip netns exec NAME`."""
    with open(f"/run/netns/{prefix[3]}", encoding="ascii") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")


def netem(in_there, in_here):
    lossy = ("loss", "20%", "delay", "2ms", "reorder", "25%", "50%")
    if not run(*in_there, "tc", "qdisc", "add", "dev", "veth1", "root", "netem", *lossy, need=False):
        print("left out: this kernel has no netem (CONFIG_NET_SCH_NETEM), or there is no tc")
        return
    run(*in_here, "tc", "qdisc", "add", "dev", "veth0", "root", "netem", *lossy)
    with Server("--slots", "1", "reliable", address="10.9.8.2", prefix=in_there) as server:
        found = load(server, "--sessions", "20", "--bytes", "50000", "reliable", prefix=in_here)
        assert found["bytes"] == 1000000, found
        assert found["retransmitted"] > 0


def main():
    if os.environ.get("SWITCHTO_BACKEND") == "swap":
        with subprocess.Popen([*LAUNCHER, SERVER, "udp", "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as probe:
            if not probe.stdout.readline():
                print(f"skipped: {probe.stderr.read().decode()}")
                sys.exit(77)
            probe.kill()
    # Without it, a process under ThreadSanitizer waits for a second at its end.
    os.environ["TSAN_OPTIONS"] = "atexit_sleep_ms=0 " + os.environ.get("TSAN_OPTIONS", "")
    # Whoever ends this ends its servers: one that hangs may use a CPU.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        globals()[f"test_{sys.argv[1]}"]()
    except Skip as reason:
        print(f"skipped: {reason}")
        sys.exit(77)


if __name__ == "__main__":
    main()
