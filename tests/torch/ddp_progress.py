# SPDX-License-Identifier: Apache-2.0
"""Runs the lines of docs/PYTHON.md in a DDP program of 10,000 steps. With the argument "hang", rank 1 stands still
in the step with the number 5, outside of any collective."""

import os
import pathlib
import re
import sys
import time

import torch
import torch.distributed as dist


class Loader:
    def __len__(self):
        return 10000

    def __iter__(self):
        for number in range(len(self)):
            if number == 5:
                print("step 5 begins", flush=True)
                time.sleep(1000 if sys.argv[1:] == ["hang"] and dist.get_rank() == 1 else 0)
            yield torch.ones(8, 4), torch.zeros(8, 1)


class Optimizer(torch.optim.SGD):
    """Rank 1 leaves each step later than rank 0."""

    def step(self, closure=None):
        super().step(closure)
        time.sleep(0.2 * dist.get_rank())


dist.init_process_group("gloo")
print("the store listens at", os.environ["MASTER_PORT"], flush=True)
loader = Loader()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
criterion = torch.nn.MSELoss()
optimizer = Optimizer(model.parameters(), lr=0.01)
page = pathlib.Path(__file__).parents[2] / "docs" / "PYTHON.md"
exec(compile(re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[1], page, "exec"))
print(f"rank {dist.get_rank()} saves step {step}", flush=True)
