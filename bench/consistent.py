#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The price of --consistent: default mode against eight shards of 32 samples, by number of workers.

    bench/consistent.py --build build [--rounds N] [--workers N,N,...] [--out FILE]

Ends with 1 when a price is above the goal of 1.20.
"""

import argparse
import statistics
import sys

from shared import interleave

GOAL = 1.20
BATCH = 256


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    interleave.arguments(parser)
    parser.add_argument("--workers", default="1,2")
    args = parser.parse_args()
    report, missed = {}, False
    for workers in map(int, args.workers.split(",")):
        base = interleave.command(args, workers, "--batch-size", BATCH)
        variants = {"default": base, "consistent": [*base, "--consistent"]}
        figures = interleave.measure(variants, args.rounds)
        price = interleave.ratio(figures, "default", "consistent")
        missed |= price > GOAL
        report[workers] = {"price": price, "samples_per_s": figures}
        medians = {name: statistics.median(rates) for name, rates in figures.items()}
        print(f"{workers} workers: default {medians['default']:.0f} samples/s, consistent "
              f"{medians['consistent']:.0f}, price {price:.3f} (goal {GOAL:.2f})", flush=True)  # fmt: skip
    interleave.write(args, report)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
