#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a step would take on 1 to 64 GPUs, from what was measured on one.

    bench/model.py [RESULTS.json] [--nvlink GB/s] [--network GB/s] [--bucket-mb N] [--out FILE.svg]

Takes the steps that tools/gpu-check has timed (its gpu-check.json); without a file, those of an H200 in
bench/results. Each GPU has a batch of its own (weak
scaling). Backward passes give the gradients of layers one after the other; a bucket is summed while
the layers below it are computed; what is not hidden makes the step longer. Prints a table, and draws
the efficiency; two results of others stand beside it, though for models other than these.

What it leaves out: GPUs that wait for each other because their steps differ, kernels that slow down
while NCCL uses some of their processors, and storage.
"""

import argparse
import dataclasses
import html
import json
import math
import pathlib
import sys
import types

from gpu import table as gpu_table

WORLDS = (1, 2, 4, 8, 16, 32, 64)
# Of one GPU's speed, as others have written: 6.5 times on 8 GPUs of one machine; 16 GPUs on two machines
# 70 % faster than 8.
PUBLISHED = {8: 6.5, 16: 6.5 * 1.7}
MEASURED = pathlib.Path(__file__).resolve().parent / "results/gpu-NVIDIA-H200-2026-11-27.json"


@dataclasses.dataclass(frozen=True)
class Links:
    """Bandwidths in bytes a microsecond, which are megabytes a second; latencies in microseconds."""

    nvlink: float = 370e3  # of a ring of 8 H200, as the sum over all links that NCCL's tests print
    network: float = 45e3  # of the adapter of each GPU, of 50 GB/s
    per_node: int = 8
    hop: float = 2.5  # of a message from machine to machine, with its protocol

    # NCCL's own model of a ring over NVLink (its graph/tuning.cc, 2.28): what a call costs, what each of
    # the 2 (n - 1) steps costs, and which part of the bandwidth is left.
    PROTOCOLS = {"LL": (6.6, 0.6, 0.5), "LL128": (14.0, 1.9, 0.92), "Simple": (8.4, 3.4, 1.0)}

    def ring(self, gpus, size):
        """An all-reduce of `size` bytes within a machine, by the fastest of its protocols."""
        if gpus == 1:
            return 0.0
        steps, moved = 2 * (gpus - 1), 2 * (gpus - 1) / gpus * size
        return min(base + steps * step + moved / (self.nvlink * part) for base, step, part in self.PROTOCOLS.values())

    def all_reduce(self, gpus, size):
        """Sum within each machine, then between the machines, each GPU a share of it by its own adapter."""
        local, nodes = min(gpus, self.per_node), -(-gpus // self.per_node)
        inside = self.ring(local, size)
        if nodes == 1:
            return inside
        share = size / local
        return inside + 2 * math.log2(nodes) * self.hop + 2 * (nodes - 1) / nodes * share / self.network


def buckets_of(sizes, limit, first):
    """Bytes of gradients of the layers from the last to the first, as trainer/model/buckets.c gathers them:
    pairs of the bytes and the number of the layer that completes them."""
    made, size, most = [], 0, min(first, limit)
    for layer in range(len(sizes) - 2, -1, -1):
        size += 4 * sizes[layer + 1] * (sizes[layer] + 1)
        if size >= most or layer == 0:
            made.append((size, layer))
            size, most = 0, limit
    return made


def backward_of(sizes, step):
    """When each layer's gradient is there, before the end of the step: the time of products is as their
    operations, forward one, backward two, but for the first layer one."""
    work = [a * b for a, b in zip(sizes, sizes[1:])]
    unit = step / (3 * sum(work) - work[0])
    at, done = -unit * (2 * sum(work) - work[0]), {}
    for layer in range(len(work) - 1, -1, -1):
        at += unit * work[layer] * (2 if layer > 0 else 1)
        done[layer] = at
    return done


def step_of(sizes, step, gpus, links, limit=25 << 20, first=1 << 20):
    """Microseconds of a step on so many GPUs, if it takes `step` on one."""
    done, free = backward_of(sizes, step), -math.inf
    for size, layer in buckets_of(sizes, limit, first):
        free = max(free, done[layer]) + links.all_reduce(gpus, size)
    return step + max(0.0, free) if gpus > 1 else step


def measured(path):
    """{(sizes, batch, precision): microseconds} of a report of tools/gpu-check, also of one that was killed.
    OSError, ValueError, and KeyError or the like where it is no such report."""
    report, found = json.loads(path.read_text(encoding="utf-8")), {}
    for (program, variant, shape, batch, precision), us in gpu_table.figures(types.SimpleNamespace(data=report)).items():
        if (program, variant) == ("train", ""):
            found[tuple(int(n) for n in shape.split(",")), batch, precision] = us
    return found, f"measured on {report.get('device') or 'an unknown device'}, {report.get('began', '')[:10]}"


def predict(cases, links, limit):
    return {case: {gpus: step_of(case[0], us, gpus, links, limit) for gpus in WORLDS} for case, us in cases.items()}


def words_of(case):
    sizes, batch, precision = case
    return f"{'-'.join(map(str, sizes))}, batch {batch} each, {precision}"


def table(predicted):
    yield f"{'microseconds of a step on ... GPUs':<44}" + "".join(f"{gpus:>10}" for gpus in WORLDS)
    for case, steps in predicted.items():
        yield f"{words_of(case):<44}" + "".join(f"{steps[gpus]:>10.1f}" for gpus in WORLDS)
        yield f"{'  efficiency':<44}" + "".join(f"{steps[1] / steps[gpus]:>10.1%}" for gpus in WORLDS)
        yield f"{'  times as fast as one':<44}" + "".join(f"{gpus * steps[1] / steps[gpus]:>10.2f}" for gpus in WORLDS)
    yield f"{'results of others: times as fast as one':<44}" + "".join(
        f"{PUBLISHED[gpus]:>10.2f}" if gpus in PUBLISHED else f"{'':>10}" for gpus in WORLDS
    )


WIDTH, HEIGHT, LEFT, TOP = 620, 320, 60, 60
COLOURS = ("#0066cc", "#2a7f62", "#b36b00", "#7a3fa0", "#b3402a", "#008b8b", "#555555", "#99bb00")


def _x(gpus):
    return LEFT + WIDTH * math.log2(gpus) / math.log2(WORLDS[-1])


def _y(efficiency):
    return TOP + HEIGHT * (1 - efficiency)


def plot(predicted, title):
    """SVG: efficiency over GPUs, which double from place to place."""
    bottom = TOP + HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" height="{bottom + 60 + 18 * (len(predicted) + 1)}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">Efficiency by number of GPUs, predicted</text>',
        f'<text x="{LEFT}" y="40" fill="#555">{html.escape(title)}</text>',
    ]  # fmt: skip
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<line x1="{LEFT}" y1="{_y(tick)}" x2="{LEFT + WIDTH}" y2="{_y(tick)}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{_y(tick) + 4}" text-anchor="end">{tick:.0%}</text>')
    for gpus in WORLDS:
        parts.append(f'<text x="{_x(gpus):.1f}" y="{bottom + 18}" text-anchor="middle">{gpus}</text>')
    for number, (case, steps) in enumerate(predicted.items()):
        colour, place = COLOURS[number % len(COLOURS)], bottom + 46 + 18 * number
        points = " ".join(f"{_x(gpus):.1f},{_y(steps[1] / steps[gpus]):.1f}" for gpus in WORLDS)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT}" y="{place}" fill="{colour}">{html.escape(words_of(case))}</text>')
    for gpus, speed in PUBLISHED.items():
        parts.append(f'<circle cx="{_x(gpus):.1f}" cy="{_y(speed / gpus):.1f}" r="5" fill="#b3402a"/>')
        parts.append(f'<text x="{_x(gpus) + 9:.1f}" y="{_y(speed / gpus) + 4:.1f}">{speed:.3g} x</text>')
    parts.append(f'<text x="{LEFT}" y="{bottom + 46 + 18 * len(predicted)}" fill="#b3402a">dots: results of others</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=MEASURED, help="gpu-check.json (default: of an H200)")
    parser.add_argument("--nvlink", type=float, default=Links.nvlink / 1e3, help="GB/s of a ring within a machine (%(default)s)")
    parser.add_argument("--network", type=float, default=Links.network / 1e3, help="GB/s of each GPU's adapter (%(default)s)")
    parser.add_argument("--bucket-mb", type=int, default=25, help="as of train (%(default)s)")
    parser.add_argument("--out", type=pathlib.Path, help="where the drawing goes")
    args = parser.parse_args(argv)
    if not (0 < args.nvlink < math.inf and 0 < args.network < math.inf and args.bucket_mb >= 1):
        parser.error("bandwidths and buckets are above zero")
    try:
        cases, origin = measured(args.results)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
        print(f"model: {args.results}: no report of tools/gpu-check: {why}", file=sys.stderr)
        return 1
    if not cases:
        print(f"model: {args.results}: no step of train was timed", file=sys.stderr)
        return 1
    predicted = predict(cases, Links(nvlink=args.nvlink * 1e3, network=args.network * 1e3), args.bucket_mb << 20)
    title = f"{origin}; NVLink {args.nvlink:g} GB/s, network {args.network:g} GB/s for each GPU"
    print(title, *table(predicted), sep="\n")
    if args.out:
        try:
            args.out.write_text(plot(predicted, title), encoding="utf-8")
        except OSError as why:
            print(f"model: {why}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
