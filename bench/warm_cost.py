#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do spares cost the job that runs? The step rate of a PyTorch script with one worker (bench/ddp.py --bytes)
under `ctrun --warm`, while its spare is made and afterwards, against the same without --warm.

The figure holds where ctrun may make spares at idle priority: as root (CAP_SYS_NICE) outside of any user namespace.
Each job says whether it did. Otherwise a spare has the priority of the worker while it imports. That costs the job
little as long as a CPU is free, as it is here, and up to half of a worker's CPU for the seconds of an import where none
is.

    bench/warm_cost.py [--build DIR] [--pairs N] [--limit SECONDS] [--resume] [--data DIR] [--torch-venv DIR]
                       [--out FILE]

The worker computes on one CPU; the spare has the time that is left on the others. The first spare is made while the
worker itself still imports, so it is killed when the training goes on steadily, and so are those that are made in its
place, one after the other: that is the time that is measured. Jobs without and with --warm take turns. Each job
with --warm is compared with the mean of the two around it, over the same seconds after the first steps, so that a
machine that becomes slower or faster all the while does not count. How much two jobs without --warm differ that follow
one another is told, too: on a machine that others use it says that nothing can be told.

Each job is written to --out when it is over. With --limit no job begins that would not end in time; --resume goes on
with what --out has. Ends with 1 when the median loss is 2 % or more while spares are made, or afterwards more than two
jobs without --warm differ; and with 2 when there are fewer than 5 pairs, or they say nothing.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import sys
import tempfile
import time

import restart
from shared import ending, store_report

GOAL = 0.02
MADE = 3  # spares that are made while the step rate is measured
AFTER = 10  # seconds that are measured after the last one is ready
ENOUGH = 5  # pairs for a median
NOISY = 2 * GOAL  # two jobs alike that differ so much say nothing about the goal


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
        generation, step = self.progress()
        if generation != 0 or self.proc.poll() is not None:
            raise RuntimeError(f"the job {self.name} did not go on by itself: {self.log.read_text()[-500:]}")
        return time.monotonic(), step


class Warm(Plain):
    name = "with --warm"
    extra = ("--warm",)

    def wait_for_spare(self, number):
        """(pid, MiB, ms of CPU) of the spare that is the first, second, ... to be ready."""
        limit = time.monotonic() + restart.SPARES_DEADLINE
        while True:
            ready = re.findall(r"is ready \(pid (\d+), (\d+) MiB, (\d+) ms of CPU", self.log.read_text())
            if len(ready) >= number:
                return map(int, ready[number - 1])
            if time.monotonic() > limit:
                raise RuntimeError("the spare is not ready in time: others use the idle time of this machine")
            self.now()
            time.sleep(0.02)


def rate(begin, end):
    if end[1] <= begin[1]:
        raise RuntimeError("the job makes no steps: others use this machine")
    return (end[1] - begin[1]) / (end[0] - begin[0])


def outcome(start, points, **facts):
    """The step rates of both phases, and the three points around them in seconds after the first steps."""
    first, middle, last = points
    return {"rates": [rate(first, middle), rate(middle, last)], "points": [point[0] - start for point in points], **facts}


def run_warm(args, folder):
    with open(folder / "log", "w+") as log:
        side = Warm(args, folder, log)
        try:
            side.wait_for(lambda generation, step: step >= restart.STEPS)
            start = time.monotonic()
            pid, mib, cpu_ms = side.wait_for_spare(1)
            idle = os.sched_getscheduler(pid) == os.SCHED_IDLE
            points = [side.now()]
            for number in range(2, MADE + 2):
                os.kill(pid, signal.SIGKILL)
                pid, mib, cpu_ms = side.wait_for_spare(number)
            points.append(side.now())
            time.sleep(AFTER)
            points.append(side.now())
            return outcome(start, points, mib=mib, cpu_ms=cpu_ms, idle=idle)
        finally:
            side.close()


def run_plain(args, folder, moments):
    """The same over the same seconds after the first steps."""
    with open(folder / "log", "w+") as log:
        side = Plain(args, folder, log)
        try:
            side.wait_for(lambda generation, step: step >= restart.STEPS)
            start = time.monotonic()
            points = []
            for moment in moments:
                time.sleep(max(0, start + moment - time.monotonic()))
                points.append(side.now())
            return outcome(start, points)
        finally:
            side.close()


def losses(series):
    """Of each job with --warm, by phase. A series begins with a job without --warm, and they take turns."""
    found = ([], [])
    for jobs in series:
        for before, warm, after in zip(jobs[0::2], jobs[1::2], jobs[2::2]):
            for phase in range(2):
                plain = (before["rates"][phase] + after["rates"][phase]) / 2
                found[phase].append(1 - warm["rates"][phase] / plain)
    return found


def noise(series):
    """By how much two jobs without --warm differ that follow one another, by phase."""
    pairs = [pair for jobs in series for pair in zip(jobs[0::2], jobs[2::2])]
    return [[abs(1 - after["rates"][p] / before["rates"][p]) for before, after in pairs] for p in range(2)]


def measure(args, folder, report):
    """Adds a series to the report, as long as there is time."""
    series = report["series"]
    wanted = args.pairs - len(losses(series)[0])
    if wanted <= 0:
        return
    begun = time.monotonic()
    points = run_warm(args, folder)["points"]  # this one reads all files into memory, and does not count
    longest = time.monotonic() - begun
    jobs = []
    series.append(jobs)
    while len(jobs) < 2 * wanted + 1:
        start = time.monotonic()
        if start - begun + longest > args.limit:
            print(f"stopped after {start - begun:.0f} s because of --limit; --resume goes on")
            return
        warm = len(jobs) % 2 == 1
        job = run_warm(args, folder) if warm else run_plain(args, folder, points)
        points = job["points"]
        jobs.append(job)
        longest = max(longest, time.monotonic() - start)
        args.out.write_text(json.dumps(report, indent=1) + "\n")
        spare = ""
        if warm:
            priority = "idle" if job["idle"] else "the usual"
            spare = (f"; a spare took {(points[1] - points[0]) / MADE:.1f} s at {priority} priority, {job['cpu_ms']} ms "
                     f"of CPU, {job['mib']} MiB")  # fmt: skip
        name = (Warm if warm else Plain).name
        print(f"{name:15} {job['rates'][0]:8.1f} steps/s, then {job['rates'][1]:8.1f}{spare}", flush=True)


def judge(report):
    """Prints the medians; returns the exit code."""
    lost, differ = losses(report["series"]), noise(report["series"])
    if len(lost[0]) < ENOUGH:
        print(f"{len(lost[0])} pairs are too few: at least {ENOUGH} are needed")
        return 2
    medians, alike = ([statistics.median(phase) for phase in phases] for phases in (lost, differ))
    report.update(lost_while_made=lost[0], lost_afterwards=lost[1], median=medians, noise=differ)
    wanted = (f"below {GOAL:.0%}", "at most as two jobs without --warm differ")
    for phase, when in enumerate(("while spares are made", "afterwards")):
        print(f"{len(lost[phase])} pairs; median loss {when} {medians[phase]:+.2%} ({min(lost[phase]):+.2%} to "
              f"{max(lost[phase]):+.2%}), wanted {wanted[phase]}; two jobs without --warm differ by {alike[phase]:.2%} "
              "(median)")  # fmt: skip
    if max(alike) > NOISY:
        print("so others use this machine, and nothing can be told")
        return 2
    return 0 if medians[0] < GOAL and medians[1] <= min(alike[1], GOAL) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=restart.ROOT / "build")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--limit", type=float, default=900)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--data", default=restart.FASHION_MNIST)
    parser.add_argument("--torch-venv", type=pathlib.Path, default=restart.CACHE / "ctrun" / "torch-venv")
    parser.add_argument("--out", type=pathlib.Path, default=restart.ROOT / "bench" / "results" / "warm_cost.json")
    args = parser.parse_args()
    args.build = args.build.resolve()
    ending.on_signals()
    report = {"machine": store_report.machine(), "series": []}
    if args.resume and args.out.exists():
        report["series"] = json.loads(args.out.read_text())["series"]
    with tempfile.TemporaryDirectory(prefix="ctrun-warm-cost-") as name:
        args.data = restart.unpack(args.data, pathlib.Path(name))
        try:
            measure(args, pathlib.Path(name), report)
        except RuntimeError as why:
            print(why)
    code = judge(report)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
