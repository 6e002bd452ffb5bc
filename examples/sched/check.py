#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Run one of the servers beside this file, and be its clients.

usage: check.py echo|http-hello|server COMMAND...
"""

import http.client
import signal
import socket
import subprocess
import sys
import time

CLIENTS = 20


def check_echo(port, _server):
    clients = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(CLIENTS)]
    for turn in range(3):
        for i, client in enumerate(clients):
            client.sendall(b"%d %d\n" % (i, turn) * 1000)
        for i, client in enumerate(clients):
            wanted = b"%d %d\n" % (i, turn) * 1000
            found = b""
            while len(found) < len(wanted):
                piece = client.recv(1 << 16)
                assert piece, "the connection was closed"
                found += piece
            assert found == wanted
    for client in clients:
        client.close()


def check_http_hello(port, _server):
    clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(CLIENTS)]
    for _ in range(3):
        for client in clients:
            client.request("GET", "/")
        for client in clients:
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, b"hello\n")
    # Two requests in one piece, and one in two pieces.
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\nGET /")
        client.sendall(b" HTTP/1.1\r\n\r\n")
        found = b""
        while found.count(b"hello") < 3:
            piece = client.recv(1 << 16)
            assert piece, "the connection was closed"
            found += piece
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"x" * 8192)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 431 ")


def wait_until_read(client):
    port = f":{client.getsockname()[1]:04X} "
    while True:
        time.sleep(0.01)
        with open("/proc/net/tcp") as connections:
            queues = [line.split()[4] for line in connections if port in line]
        if set(queues) == {"00000000:00000000"}:
            return


def read_to_end(client):
    parts = []
    try:
        while part := client.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:  # it has not read all that was sent
        pass
    return b"".join(parts)


def read_answer(client):
    answer = http.client.HTTPResponse(client)
    answer.begin()
    assert answer.status == 200
    return answer.read()


def check_server(port, server):
    clients = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(65)]
    for _ in range(2):
        for client in clients[:64]:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        for client in clients[:64]:
            assert read_answer(client) == b"hello\n"
    # One too many: it waits until another one ends.
    late = clients.pop()
    late.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    late.settimeout(0.2)
    try:
        found = late.recv(1)
        raise AssertionError(f"an answer beyond the limit: {found}")
    except socket.timeout:
        late.settimeout(60)
    clients.pop().close()
    metrics = dict(line.split() for line in read_answer(late).decode().splitlines())
    assert metrics["requests"] == "129", metrics
    assert int(metrics['runs{slot="0"}']) > 0, metrics
    # What has begun is answered, what is idle is closed, and then the server ends. It reads at most
    # 8191 bytes at a time, so it sees a second request after it has answered the first one.
    begin = b"GET / HTTP/1.1\r\n"
    late.sendall(begin)
    wait_until_read(late)
    server.send_signal(signal.SIGTERM)
    assert clients[0].recv(1) == b""
    late.sendall(b"\r\n\r\n".rjust(8191 - len(begin), b"a") + begin + b"\r\n")
    found = read_to_end(late)
    assert found.count(b"hello\n") == 1, found
    status = server.wait(60)
    assert status == 0, status


def main():
    checks = {"echo": check_echo, "http-hello": check_http_hello, "server": check_server}
    with subprocess.Popen([*sys.argv[2:], "0"], stdout=subprocess.PIPE) as server:
        line = server.stdout.readline()
        if not line:
            sys.exit(server.wait() or "wanted a port from the server, found nothing")
        try:
            checks[sys.argv[1]](int(line), server)
            assert server.poll() in (None, 0), "the server has ended"
        finally:
            server.kill()


if __name__ == "__main__":
    main()
