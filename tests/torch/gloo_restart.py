# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program whose first generation fails: rank 1 leaves after the group has formed, while
rank 0 stands in a collective. The second generation must find a store without traces of the first
and finish."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if restart == 0 and rank == 1:
    # At once: no tear-down that rank 0 could notice before our exit code stands.
    os._exit(17)

tensor = torch.ones(8) * (rank + 1)
dist.all_reduce(tensor)
assert tensor.tolist() == [world * (world + 1) / 2] * 8, tensor
dist.barrier()
print(f"rank {rank} done after {restart} restarts", flush=True)
# Otherwise a thread of gloo may still run when Python exits: "terminate called ..." and SIGABRT.
dist.destroy_process_group()
