# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own store, in a process of its own, until its stdin ends. store_conformance.py is run
against it too: what that expects is then PyTorch's behaviour and not just ours."""

import sys

import torch.distributed as dist

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(f"own store on port {store.port}", flush=True)
sys.stdin.read()
