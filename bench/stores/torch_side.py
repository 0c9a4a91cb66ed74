# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/store.py; runs under a Python that has torch.

    torch_side.py serve     PyTorch's own TCPStore daemon (libuv backend); prints its port
    torch_side.py client    reads "PORT get|add SECONDS" lines, answers their rate and number

Both end with their standard input.
"""

import datetime
import resource
import sys
import time

from torch.distributed import TCPStore

BATCH = 100


def connect(port):
    return TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False,
                    timeout=datetime.timedelta(seconds=30))  # fmt: skip


def rate(operation, seconds):
    """Runs `operation` for a fifth of the time to warm up, then counts. Returns the rate, and how often
    it ran at all."""
    total = 0
    for part in (seconds / 5, seconds):
        done, begin = 0, time.perf_counter()
        while (now := time.perf_counter()) - begin < part:
            for _ in range(BATCH):
                operation()
            done += BATCH
        total += done
    return done / (now - begin), total


def client():
    print("ready", flush=True)
    for line in sys.stdin:
        port, name, seconds = line.split()
        store = connect(int(port))
        store.set("bench", "0123456789abcdef")
        operations = {"get": lambda: store.get("bench"), "add": lambda: store.add("bench/counter", 1)}
        print(*rate(operations[name], float(seconds)), flush=True)


def serve():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    print(store.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    {"serve": serve, "client": client}[sys.argv[1]]()
