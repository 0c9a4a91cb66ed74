# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program that hangs in the way that its argument names, in its fourth step. The line that
holds the job up ends with "# here"."""

import ctypes
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

SUSPECT = 2


def skip():
    while True:
        time.sleep(1000)  # here


def shape():
    dist.all_reduce(torch.ones(3))  # here


def operation():
    dist.all_gather([torch.ones(5) for _ in range(dist.get_world_size())], torch.ones(5))  # here


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)  # here


def hold_gil():
    ctypes.PyDLL(None).sleep(1000)  # here


def loop_in_c():
    sum(range(10**14))  # here


def lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # here


class Stuck(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(1000)


def data_loader():
    loader = torch.utils.data.DataLoader(Stuck(), num_workers=1)
    for _ in loader:  # here
        pass


def main():
    dist.init_process_group("gloo")
    for step in range(10):
        if step == 3 and dist.get_rank() == SUSPECT:
            globals()[sys.argv[1]]()
        dist.all_reduce(torch.ones(5))  # the others


server = sys.argv[2] if len(sys.argv) > 2 else ""
if server == "worker":  # PyTorch's worker server at TORCH_WORKER_SERVER_SOCKET
    from torch.distributed.elastic.control_plane import worker_main

    main = worker_main()(main)
elif server == "debug":  # the same at a port that the store knows
    from torch.distributed.debug import start_debug_server

    start_debug_server(port=0)
main()
