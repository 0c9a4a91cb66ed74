#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce between 2 workers of this machine: ours and Open MPI's, in turn.

    bench/allreduce.py [--build DIR] [--rounds N] [--workers N]

Prints medians over the rounds in microseconds, and how much faster ours is. Ends with 1 when the
gradients of the small model (1.63 MB, zero-copy) are not at least 5 times faster.
"""

import argparse
import collections
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = {4: "4 B", 65536: "64 KB", 1628200: "1.63 MB", 26000000: "26 MB"}
GOAL_BYTES, GOAL = 1628200, 5


def build(folder, name):
    """Path of the program once it is built, None when this build folder has none of that name."""
    command = ["ninja", "-C", folder, f"bench/programs/{name}", "ctrun"]
    if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        return None
    return folder / "bench" / "programs" / name


def measure(command, times):
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if run.returncode != 0:
        sys.exit(f"{command[0]} failed with {run.returncode}:\n{run.stderr}")
    for line in run.stdout.splitlines():
        size, how, microseconds = line.split()[-3:]
        times[int(size), how].append(float(microseconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    ours, mpi = build(args.build, "bench-allreduce"), build(args.build, "bench-allreduce-mpi")
    if ours is None:
        sys.exit(f"{args.build} does not build: run ninja -C {args.build}")
    count = str(args.workers)
    commands = [[args.build / "ctrun", "--nproc-per-node", count, ours]]
    if mpi is None:
        print("Open MPI was not found when the build was set up: only our own figures")
    else:
        commands.append(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", count, mpi])
    times = collections.defaultdict(list)
    for _ in range(args.rounds):
        for command in commands:
            measure(command, times)

    medians = {key: statistics.median(values) for key, values in times.items()}
    print(f"all-reduce, {count} workers, median of {args.rounds} rounds, microseconds")
    print(f"{'':>8} {'zero-copy':>10} {'copying':>10} {'Open MPI':>10} {'MPI/zero':>9} {'MPI/copy':>9}")
    reached = True
    for size, name in NAMES.items():
        zero, copy = medians[size, "zero-copy"], medians[size, "copying"]
        line = f"{name:>8} {zero:10.2f} {copy:10.2f}"
        if mpi is not None:
            theirs = medians[size, "mpi"]
            line += f" {theirs:10.2f} {theirs / zero:8.1f}x {theirs / copy:8.1f}x"
            reached = reached and (size != GOAL_BYTES or theirs / zero >= GOAL)
        print(line)
    if mpi is not None:
        print(f"{NAMES[GOAL_BYTES]} at least {GOAL}x faster than Open MPI: {'yes' if reached else 'NO'}")
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()
