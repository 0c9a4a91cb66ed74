# SPDX-License-Identifier: Apache-2.0
"""A link between two machines that takes its time, loses frames and lets them overtake each other:
`lossy_link.py SECONDS LOSS SEED` makes the devices ctlossy0 and ctlossy1, which the caller moves to where
their ends belong. For kernels without netem."""

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
# Around the delay; frames less than this apart may change places.
JITTER = 0.2


def end(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def run(delay, loss, seed):
    ends = [end("ctlossy0"), end("ctlossy1")]
    print("cable is there", flush=True)
    chance, under_way, count = random.Random(seed), [], 0
    while True:
        wait = max(0, under_way[0][0] - time.monotonic()) if under_way else None
        for fd in select.select(ends, [], [], wait)[0]:
            try:
                frame = os.read(fd, 65536)
            except OSError:  # the device is down
                time.sleep(0.01)
                continue
            count += 1
            if chance.random() >= loss:
                due = time.monotonic() + delay * chance.uniform(1 - JITTER, 1 + JITTER)
                heapq.heappush(under_way, (due, count, ends[1 - ends.index(fd)], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, fd, frame = heapq.heappop(under_way)
            try:
                os.write(fd, frame)
            except OSError:
                pass  # as good as lost


if __name__ == "__main__":
    run(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
