# SPDX-License-Identifier: Apache-2.0
"""A worker of two torchrun agents. In the first life of the job rank 1 leaves once the group stands,
while rank 0 is in a collective; the second life finishes. argv[1] is a file that tells the lives
apart: TORCHELASTIC_RESTART_COUNT stays 0 on an agent that only follows the restart of another."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
second_life = os.path.exists(sys.argv[1])
dist.barrier()  # both have looked before rank 1 makes the file

if rank == 1 and not second_life:
    open(sys.argv[1], "x").close()
    os._exit(17)

tensor = torch.ones(8) * (rank + 1)
dist.all_reduce(tensor)
assert tensor.tolist() == [world * (world + 1) / 2] * 8, tensor
dist.barrier()
life = "second" if second_life else "first"
print(f"rank {rank} of {world} done in the {life} life of {os.environ['TORCHELASTIC_RUN_ID']}")
dist.destroy_process_group()
