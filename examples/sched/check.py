#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Run one of the servers beside this file, and be its clients.

usage: check.py echo|http-hello COMMAND...
"""

import http.client
import socket
import subprocess
import sys

CLIENTS = 20


def check_echo(port):
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


def check_http_hello(port):
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


def main():
    check = {"echo": check_echo, "http-hello": check_http_hello}[sys.argv[1]]
    with subprocess.Popen([*sys.argv[2:], "0"], stdout=subprocess.PIPE) as server:
        line = server.stdout.readline()
        if not line:
            sys.exit(server.wait() or "wanted a port from the server, found nothing")
        try:
            check(int(line))
            assert server.poll() is None, "the server has ended"
        finally:
            server.kill()


if __name__ == "__main__":
    main()
