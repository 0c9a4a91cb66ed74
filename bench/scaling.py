#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weak scaling of `train` on one machine, with the same samples per worker: 2 workers against 1, and 4
workers on 2 CPUs against 2. Besides, without a goal, 4 workers against 2 with the same samples in all:
smaller parts are also slower to multiply, so 1 worker is measured with half of its samples, too.

    bench/scaling.py --build build [--rounds N] [--batch N,N,...] [--out FILE]

Ends with 1 when a goal is missed: efficiency 0.93 at 128 samples per worker or more, 0.70 below, and
0.85 of 2 workers' rate with 4.
"""

import argparse
import statistics
import sys

from shared import interleave


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    interleave.arguments(parser)
    parser.add_argument("--batch", default="32,128,1024", help="samples per worker, 2 or more")
    args = parser.parse_args()
    report, missed = {}, False
    for batch in map(int, args.batch.split(",")):
        variants = {
            name: interleave.command(args, workers, "--batch-size", workers * each)
            for name, workers, each in (
                ("1", 1, batch), ("2", 2, batch), ("4", 4, batch),
                ("1 half", 1, batch // 2), ("4 half", 4, batch // 2),
            )
        }  # fmt: skip
        figures = interleave.measure(variants, args.rounds)
        efficiency = interleave.ratio(figures, "2", "1") / 2
        crowded = interleave.ratio(figures, "4", "2")
        halves = {n: interleave.ratio(figures, f"{n} half", base) for n, base in (("1", "1"), ("4", "2"))}
        goal = 0.93 if batch >= 128 else 0.70
        missed |= efficiency < goal or crowded < 0.85
        report[batch] = {
            "efficiency": efficiency, "4_over_2": crowded, "1_half_over_1": halves["1"],
            "4_half_over_2": halves["4"], "samples_per_s": figures,
        }  # fmt: skip
        rates = ", ".join(f"{n}: {statistics.median(r):.0f}" for n, r in figures.items())
        print(f"batch {batch}: samples/s by workers {rates}; efficiency {efficiency:.3f} (goal "
              f"{goal:.2f}), 4 over 2 workers {crowded:.3f} (goal 0.85); with half of the samples each "
              f"4 over 2 {halves['4']:.3f}, 1 over 1 {halves['1']:.3f}", flush=True)  # fmt: skip
    interleave.write(args, report)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
