# SPDX-License-Identifier: Apache-2.0
"""A DDP program with the lines of docs/PYTHON.md. Rank 1 stands still in step 5, outside of any collective."""

import time

import ctworker
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    if step == 5 and dist.get_rank() == 1:
        print("standing still", flush=True)
        time.sleep(1000)
    loss = model(torch.ones(8, 4)).square().mean()
    optimizer.zero_grad()
    with ctworker.phase(ctworker.Phase.COLLECTIVE):
        loss.backward()
    optimizer.step()
    ctworker.progress(step + 1, loss=loss.item(), total=20)
