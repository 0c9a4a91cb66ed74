#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do spares cost the job that runs? The step rate of a PyTorch script with one worker (bench/ddp.py --bytes)
under `ctrun --warm`, while its spare is made and afterwards, against the same without --warm.

    bench/warm_cost.py [--build DIR] [--pairs N] [--data DIR] [--torch-venv DIR] [--out FILE]

The worker computes on one CPU; the spare has the time that is left on the others. Jobs with and without --warm
take turns, and both rates of a pair are taken over the same seconds after the first step. Ends with 1 when the
median loss is 2 % or more in either phase.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys
import tempfile
import time

import restart
import store_report

GOAL = 0.02
AFTER = 6  # seconds that are measured after the spare is ready


class Plain(restart.Script):
    name = "without --warm"
    extra = ()

    def __init__(self, args, folder, log):
        self.log = folder / "log"
        restart.WORKERS = 1
        super().__init__(args, folder, log)

    def command(self, args):
        return ["env", "LOGLEVEL=info", args.build / "ctrun", *self.extra]

    def now(self):
        return time.monotonic(), self.progress()[1]


class Warm(Plain):
    name = "with --warm"
    extra = ("--warm",)

    def ready(self):
        return re.search(r"is ready \(pid \d+, (\d+) MiB, (\d+) ms of CPU", self.log.read_text())


def rate(begin, end):
    return (end[1] - begin[1]) / (end[0] - begin[0])


def sleep_until(moment):
    time.sleep(max(0, moment - time.monotonic()))


def run_warm(args, folder):
    """(rates of both phases, their ends after the first step in seconds, MiB of the spare, its ms of CPU)"""
    with open(folder / "log", "w+") as log:
        side = Warm(args, folder, log)
        try:
            side.wait_for(lambda generation, step: step >= restart.STEPS)
            first = side.now()
            limit = time.monotonic() + restart.SPARES_DEADLINE
            while side.ready() is None:
                if time.monotonic() > limit:
                    sys.exit("the spare is not ready in time: others use the idle time of this machine")
                time.sleep(0.02)
            made = side.now()
            time.sleep(AFTER)
            last = side.now()
            mib, cpu_ms = map(int, side.ready().groups())
            return (rate(first, made), rate(made, last)), (made[0] - first[0], last[0] - first[0]), mib, cpu_ms
        finally:
            side.close()


def run_plain(args, folder, ends):
    with open(folder / "log", "w+") as log:
        side = Plain(args, folder, log)
        try:
            side.wait_for(lambda generation, step: step >= restart.STEPS)
            points = [side.now()]
            for end in ends:
                sleep_until(points[0][0] + end)
                points.append(side.now())
            return rate(points[0], points[1]), rate(points[1], points[2])
        finally:
            side.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=restart.ROOT / "build")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--data", default=restart.FASHION_MNIST)
    parser.add_argument("--torch-venv", type=pathlib.Path, default=restart.CACHE / "ctrun" / "torch-venv")
    parser.add_argument("--out", type=pathlib.Path, default=restart.ROOT / "bench" / "results" / "warm_cost.json")
    args = parser.parse_args()
    args.build = args.build.resolve()
    losses, spares = ([], []), []
    with tempfile.TemporaryDirectory(prefix="ctrun-warm-cost-") as name:
        folder = pathlib.Path(name)
        args.data = restart.unpack(args.data, folder)
        for _ in range(args.pairs):
            warm, ends, mib, cpu_ms = run_warm(args, folder)
            plain = run_plain(args, folder, ends)
            for phase in range(2):
                losses[phase].append(1 - warm[phase] / plain[phase])
            spares.append({"mib": mib, "cpu_ms": cpu_ms, "seconds": ends[0]})
            print(f"steps/s while the spare is made {warm[0]:.1f} ({plain[0]:.1f} without --warm, {losses[0][-1]:+.1%} lost), "
                  f"afterwards {warm[1]:.1f} ({plain[1]:.1f}, {losses[1][-1]:+.1%}); the spare took {ends[0]:.1f} s, "
                  f"{cpu_ms} ms of CPU, {mib} MiB", flush=True)  # fmt: skip
    medians = [statistics.median(phase) for phase in losses]
    print(f"median loss {medians[0]:.1%} while spares are made, {medians[1]:.1%} afterwards (below {GOAL:.0%})")
    report = {"machine": store_report.machine(), "lost_while_made": losses[0], "lost_afterwards": losses[1],
              "median": medians, "spares": spares}  # fmt: skip
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if max(medians) < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
