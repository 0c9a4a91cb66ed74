# SPDX-License-Identifier: Apache-2.0
"""An all-reduce by PyTorch's gloo, again and again until the file `go` is in the folder. Each process notes when each
was done, in a file of its own. Run by bench/failover.py --torchrun under both launchers."""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

folder = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo")
with open(folder / f"steps-{dist.get_world_size()}-{os.getpid()}", "a", buffering=1) as notes:
    while True:
        end = torch.tensor([float((folder / "go").exists())])
        dist.all_reduce(end)
        notes.write(f"{time.monotonic_ns()}\n")
        if end.item() > 0:
            break
        time.sleep(0.02)
dist.destroy_process_group()
