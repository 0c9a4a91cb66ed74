# SPDX-License-Identifier: Apache-2.0
"""What `train` does, as a PyTorch user would write it to be fast: DistributedDataParallel over gloo,
the whole data set resident as float tensors, one gather per batch, a fused optimizer.

With --bytes the images stay bytes, and each batch is normalised: less to do before the first step.

Started by ctrun or torchrun. Same model, initialisation law, batches of the same size, loss and update
rule as `train --hidden ... --schedule constant`; prints and writes the same metrics.
"""

import argparse
import gzip
import json
import os
import pathlib
import struct
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
MEAN, STD = 0.2860, 0.3530  # of its training images, as its users write them down


def load(folder, name, header):
    path = pathlib.Path(folder) / name
    if path.exists():
        return torch.from_file(str(path), size=path.stat().st_size, dtype=torch.uint8)[header:]
    return torch.frombuffer(bytearray(gzip.open(str(path) + ".gz").read()), dtype=torch.uint8)[header:]


def load_split(folder, prefix):
    labels = load(folder, f"{prefix}-labels-idx1-ubyte", 8).long()
    images = load(folder, f"{prefix}-images-idx3-ubyte", 16).view(len(labels), -1)
    return images, labels


def normalise(images, mean, std):
    """Of bytes; in place, because new memory costs more time than the arithmetic."""
    return images.float().div_(255).sub_(mean).div_(std)


def make_model(sizes):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i + 2 < len(sizes):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=FASHION_MNIST)
    parser.add_argument("--hidden", default="512")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=256, help="of all workers together")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument(
        "--precision", choices=("f32", "bf16-autocast", "bf16-model"), default="f32",
        help="bf16-autocast keeps float32 weights, bf16-model does not",
    )
    parser.add_argument("--bytes", action="store_true", help="normalise each batch, not the whole data set")
    parser.add_argument("--metrics")
    parser.add_argument("--steps", help="rank R keeps its restart count and finished steps in STEPS.R")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = load_split(args.data, "train")
    test_images, test_labels = load_split(args.data, "t10k")
    mean, std = MEAN, STD
    if not args.bytes:
        images = images.float().div_(255)
        mean, std = images.mean(), images.std()
        images = images.sub_(mean).div_(std)
        test_images = normalise(test_images, mean, std)

    pure, autocast = args.precision == "bf16-model", args.precision == "bf16-autocast"
    if pure and not args.bytes:
        images, test_images = images.bfloat16(), test_images.bfloat16()

    def batch_of(chosen):
        if not args.bytes:
            return chosen
        chosen = normalise(chosen, MEAN, STD)
        return chosen.bfloat16() if pure else chosen

    torch.manual_seed(1)
    sizes = [images.shape[1], *map(int, args.hidden.split(",")), 10]
    model = DistributedDataParallel(
        make_model(sizes).to(torch.bfloat16 if pure else torch.float32), gradient_as_bucket_view=True, static_graph=True
    )
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=args.momentum, fused=True
    )
    loss_fn = nn.CrossEntropyLoss()
    batch, total = args.batch_size, len(labels)
    generator = torch.Generator()
    generation = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    told = os.open(f"{args.steps}.{rank}", os.O_WRONLY | os.O_CREAT) if args.steps else None
    steps = 0

    for epoch in range(args.epochs):
        dist.barrier()
        start = time.perf_counter()
        order = torch.randperm(total, generator=generator.manual_seed(epoch))
        loss_sum = torch.zeros(())
        for first in range(0, total, batch):
            size = min(batch, total - first)
            index = order[first + size * rank // world : first + size * (rank + 1) // world]
            batch_images = batch_of(images[index])
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = loss_fn(model(batch_images).float(), labels[index])
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()
            steps += 1
            if told is not None:
                os.pwrite(told, struct.pack("<qq", generation, steps), 0)
            loss_sum += loss.detach() * len(index)
        dist.barrier()
        seconds = time.perf_counter() - start
        dist.all_reduce(loss_sum)
        if rank == 0:
            with torch.no_grad():
                hits = (model.module(batch_of(test_images)).argmax(1) == test_labels).float().mean()
            event = {
                "event": "epoch",
                "epoch": epoch + 1,
                "loss": loss_sum.item() / total,
                "test_accuracy": hits.item(),
                "samples_per_s": total / seconds,
                "world_size": world,
            }
            print(json.dumps(event), flush=True)
            if args.metrics:
                with open(args.metrics, "a") as out:
                    print(json.dumps(event), file=out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
