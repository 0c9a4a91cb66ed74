#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The price of a snapshot in memory after each step: train --snapshot step against off.

    bench/snapshot.py --build build [--rounds N] [--workers N] [--out FILE]

Ends with 1 when it is above the goal of 5 % of a step of 128 samples per worker.
"""

import argparse
import statistics
import sys

from shared import interleave

GOAL, PER_WORKER = 1.05, 128


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    interleave.arguments(parser)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    variants = {
        choice: interleave.command(
            args, args.workers, "--batch-size", PER_WORKER * args.workers, "--snapshot", choice,
            ctrun=("--max-restarts", 1),
        )
        for choice in ("off", "step")
    }  # fmt: skip
    figures = interleave.measure(variants, args.rounds)
    price = interleave.ratio(figures, "off", "step")
    medians = {name: statistics.median(rates) for name, rates in figures.items()}
    print(f"{args.workers} workers: off {medians['off']:.0f} samples/s, step {medians['step']:.0f}, "
          f"price {price:.3f} (goal {GOAL:.2f})")  # fmt: skip
    interleave.write(args, {"price": price, "samples_per_s": figures})
    return 1 if price > GOAL else 0


if __name__ == "__main__":
    sys.exit(main())
