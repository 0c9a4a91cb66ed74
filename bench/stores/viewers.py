#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job without processes in a running store, and viewers of its live page: what bench/store.py needs
to find what viewers cost the store's clients.

    bench/stores/viewers.py PORT WORKERS VIEWERS

Prints a line when all are there, and goes on until its standard input ends. Each second the workers
go on by a step, a few of them more slowly than the others, so that the page has changes to tell."""

import os
import pathlib
import select
import socket
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("SOURCE_ROOT", str(ROOT))
os.environ.setdefault("BUILD_ROOT", str(ROOT / "build"))
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from testlib.fake_agents import fake_job  # noqa: E402

NODES = 4
BEAT_S = 1.0


def watch(port):
    viewer = socket.create_connection(("127.0.0.1", port))
    viewer.sendall(b"GET /page/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    if not viewer.recv(12).endswith(b"200"):
        sys.exit("the store takes no viewer")
    return viewer


def step(agents, number):
    for agent in agents:
        for worker in agent.workers:
            worker["step"] += 1 + (worker["rank"] % 50 == number % 50)
        agent.beat()


def main():
    port, workers, count = map(int, sys.argv[1:])
    agents = fake_job(port, NODES, workers // NODES)
    viewers = [watch(port) for _ in range(count)]
    print("ready", flush=True)
    number, beat = 0, time.monotonic()
    while True:
        ready, _, _ = select.select([sys.stdin, *viewers], [], [], max(0, beat - time.monotonic()))
        if sys.stdin in ready:
            return
        for viewer in ready:
            if not viewer.recv(1 << 20):
                sys.exit("the store has ended a viewer")
        if time.monotonic() >= beat:
            beat += BEAT_S
            number += 1
            step(agents, number)


if __name__ == "__main__":
    main()
