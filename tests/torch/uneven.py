# SPDX-License-Identifier: Apache-2.0
"""A healthy PyTorch program whose steps are uneven: in each step every rank computes and sleeps for times
of its own, and now and then one rank keeps all others waiting for longer. Its arguments: for how many
seconds it goes on, and the longest time in which a rank only sleeps."""

import os
import random
import sys
import time

import torch
import torch.distributed as dist


def compute(seconds, size=96):
    end = time.monotonic() + seconds
    a = torch.rand(size, size)
    while time.monotonic() < end:
        a = a @ a.T / size


def search(seconds):
    """Computes in Python, on lines of its own."""
    end, found, n = time.monotonic() + seconds, 0, 2
    while time.monotonic() < end:
        if all(n % k for k in range(2, int(n**0.5) + 1)):
            found += 1
        n += 1
    return found


def main():
    seconds, longest = float(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own, shared = random.Random(os.getpid()), random.Random(1)
    end, steps = time.monotonic() + seconds, 0
    go_on = torch.ones(1)
    while go_on.item() > 0:
        steps += 1
        compute(own.expovariate(4))
        time.sleep(min(own.expovariate(4), longest))
        way, late = shared.randrange(12), shared.randrange(ranks)
        if rank == late and way == 0:
            time.sleep(own.uniform(0.3, 1) * longest)
        elif rank == late and way == 1:
            compute(own.uniform(0.5, 3) * longest)
        elif rank == late and way == 2:
            search(own.uniform(0.5, 3) * longest)
        go_on = torch.tensor([1.0 if rank > 0 or time.monotonic() < end else -float(ranks)])
        dist.all_reduce(go_on)
    if rank == 0:
        print(f"{steps} steps", flush=True)
    dist.destroy_process_group()


main()
