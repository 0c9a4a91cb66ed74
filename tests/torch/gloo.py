# SPDX-License-Identifier: Apache-2.0
"""An ordinary PyTorch program: nothing in it knows who started it."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

tensor = torch.arange(1000, dtype=torch.float32) + rank
dist.all_reduce(tensor)
expected = torch.arange(1000, dtype=torch.float32) * world + sum(range(world))
assert torch.equal(tensor, expected), tensor

dist.barrier()
print(f"rank {rank} of {world} done under torch {torch.__version__}", flush=True)
dist.destroy_process_group()
