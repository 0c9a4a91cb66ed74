#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long one client of the store waits while fifty connections send as fast as they can.

    bench/flood.py [--build DIR] [--connections N] [--seconds S] [--only REGEX] [--out FILE]

Each kind of flood runs against a ctrdzvd of its own with --max-memory 32M, as another user where that
is possible. The one client asks for a small key again and again. Its waits and the most memory that the
store took are shown; ends with 1 when a wait or the memory passes its goal. The store has one core, the
flood another.
"""

import argparse
import json
import os
import pathlib
import re
import select
import socket
import statistics
import struct
import subprocess
import sys
import time

CAP = "32M"
WAIT_GOAL_MS, MEMORY_GOAL_MB = 50, 80
NOBODY = 65534
KEYS = 60000


def text(value):
    return struct.pack("<Q", len(value)) + value


HELLO = b"\0" + struct.pack("<I", 0x3C85F7CE)
NAMES = [b"/k%07d" % number for number in range(KEYS)]


def set_key(key, value):
    return b"\1" + text(key) + text(value)


def keys(opcode, names):
    return opcode + struct.pack("<Q", len(names)) + b"".join(map(text, names))


# What is set up first, and what each connection then repeats; whether it reads the answers.
FLOODS = {
    "ADD": ([], (b"\4" + text(b"/n") + struct.pack("<q", 1)) * 3000, True),
    "ADD, answers not read": ([], (b"\4" + text(b"/n") + struct.pack("<q", 1)) * 3000, False),
    "SET of 64 KiB": ([], set_key(b"/big", b"x" * 65536) * 4, True),
    "GET of 1 MiB": ([set_key(b"/m", b"x" * (1 << 20))], (b"\3" + text(b"/m")) * 3000, True),
    "MULTI_GET of 3,000 x 1 MiB": ([set_key(b"/m", b"x" * (1 << 20))], keys(b"\x0a", [b"/m"] * 3000), True),
    "APPEND to one value": ([], b"\x09" + text(b"/long") + text(b"x" * 1000), True),
    "LIST_KEYS of 60,000": ([set_key(name, b"") for name in NAMES], b"\x11" * 200, True),
    "LIST_KEYS, answers not read": ([set_key(name, b"") for name in NAMES], b"\x11" * 200, False),
    "CHECK of 3,000 keys": ([set_key(name, b"") for name in NAMES], keys(b"\5", NAMES[:3000]), True),
    "WAIT for 3,000 keys": ([set_key(name, b"") for name in NAMES], keys(b"\6", NAMES[:3000]), True),
    "garbage": ([], b"\xff" * 65536, True),
    "HTTP": (None, b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n", True),
}


def connect(port):
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def flood(port, kind, count, seconds):
    """Sends until the time is over; a connection that was ended is made again."""
    first, repeated, reads = FLOODS[kind]
    if first:
        with connect(port) as client:
            client.sendall(HELLO + b"".join(first) + b"\7")
            client.recv(8)
    hello = HELLO if first is not None else b""
    poll, clients, sent = select.epoll(), {}, {}

    def add():
        try:
            client = connect(port)
            client.sendall(hello)
        except OSError:
            return
        client.setblocking(False)
        clients[client.fileno()], sent[client.fileno()] = client, 0
        poll.register(client, select.EPOLLOUT | (select.EPOLLIN if reads else 0))

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(clients) < count and time.monotonic() < end:
            add()
        for fd, _ in poll.poll(0.1):
            try:
                if reads and not clients[fd].recv(1 << 20):
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                clients.pop(fd).close()
                continue
            try:
                at = sent[fd]
                sent[fd] = (at + clients[fd].send(memoryview(repeated)[at:])) % len(repeated)
            except BlockingIOError:
                pass
            except OSError:
                clients.pop(fd).close()


def fork_flood(port, kind, args):
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setaffinity(0, {args.cores[-1]})
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            flood(port, kind, args.connections, args.seconds)
        finally:
            os._exit(0)
    return pid


def waits(client, end):
    """Milliseconds of each answer."""
    took = []
    client.settimeout(30)
    while time.monotonic() < end:
        begin = time.perf_counter()
        client.sendall(b"\3" + text(b"/v"))
        got = b""
        while len(got) < 9:
            got += client.recv(16) or sys.exit("the store ended the connection of the client that waits")
        took.append((time.perf_counter() - begin) * 1e3)
        time.sleep(0.001)
    return took


def peak_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024


def measure(kind, args):
    store = subprocess.Popen(
        [args.build / "ctrdzvd", "--port", "0", "--max-memory", CAP, "--ready-fd", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        os.sched_setaffinity(store.pid, {args.cores[0]})
        port = int(store.stdout.readline())
        with connect(port) as client:
            client.sendall(HELLO + set_key(b"/v", b"1"))
            pid = fork_flood(port, kind, args)
            try:
                # The wait is the store's, not that of a client that gets no processor.
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            except PermissionError:
                pass
            took = waits(client, time.monotonic() + args.seconds)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            os.waitpid(pid, 0)
        return {"median_ms": statistics.median(took), "longest_ms": max(took), "peak_mb": peak_mb(store.pid)}
    finally:
        store.kill()
        store.wait()
        store.stdout.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    args.cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {args.cores[-1]})
    results, missed = {}, 0
    print(f"{'':30} {'median':>9} {'longest':>9} {'memory':>9}")
    for kind in FLOODS:
        if not re.search(args.only, kind):
            continue
        result = results[kind] = measure(kind, args)
        bad = result["longest_ms"] > WAIT_GOAL_MS or result["peak_mb"] > MEMORY_GOAL_MB
        missed += bad
        print(f"{kind:30} {result['median_ms']:6.2f} ms {result['longest_ms']:6.1f} ms"
              f" {result['peak_mb']:6.1f} MB{' MISSED' if bad else ''}", flush=True)  # fmt: skip
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
