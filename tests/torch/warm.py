# SPDX-License-Identifier: Apache-2.0
"""warm.py GO OUT: trains a little with DistributedDataParallel, an optimizer, data loaders that are processes, and
a process of torch.multiprocessing. In generation 0 rank 0 kills itself when GO exists. In generation 1 each rank
writes OUT.RANK: which modules it had at its beginning, and what it has computed."""

import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

LOADED = sorted(name for name in sys.modules if name.startswith("torch"))


def double(value, queue):
    queue.put(2 * value)


def main(go, out):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if os.environ["CTRUN_GENERATION"] == "0":
        while not os.path.exists(go):
            time.sleep(0.01)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    numbers = torch.arange(64 * 8, dtype=torch.float32).view(64, 8) / 512 + rank
    for (batch,) in DataLoader(TensorDataset(numbers), batch_size=16, num_workers=2):
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        optimizer.step()
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=double, args=(21, queue))
    process.start()
    doubled = queue.get()
    process.join()
    seen = {
        "loaded": LOADED, "parameters": [p.tolist() for p in model.parameters()], "doubled": doubled,
        "rank": rank, "world": dist.get_world_size(), "seed": torch.initial_seed(),
        "threads": torch.get_num_threads(), "main": __name__,
    }  # fmt: skip
    with open(f"{out}.{rank}", "w") as file:
        json.dump(seen, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
