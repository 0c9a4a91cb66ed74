#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long starting N processes and seeing them end takes: ctrun against the least that a launcher can
do, MPICH's and Open MPI's mpiexec, srun in a Slurm of our own, and torchrun.

    bench/launch.py [--build DIR] [--sizes 2 8 ...] [--rounds N] [--only REGEX] [--realtime] [--out FILE]

Each round runs all of them in an order of its own, since one that runs after torchrun finds nothing of its
own in the caches; medians of the rounds are compared. What is not installed is left
out. --realtime runs everything before other work on the machine (needs root), which makes figures of a
shared machine those of a quiet one. Ends with 1 when a goal is missed.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import unittest

from shared import store_report

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
SIZES = (2, 8, 64, 256)
# Open MPI has been seen to stand still for minutes with many ranks on few cores.
LIMIT = 60
STORE_MIB = 200
TRUE = "/bin/true"

# name of the rival, size or None for all, ctrun's time by the rival's, at most
GOALS = (("floor", None, 2.0), ("mpich", None, 1.0), ("torchrun", 2, 0.01))
SPAWN_GOAL = 1.2

Took = collections.namedtuple("Took", "wall_ms cpu_ms")


def once(argv, env=None):
    """Runs it to its end; CPU time is its own and that of all that it has waited for. None when it does
    not end in time."""
    argv = [str(a) for a in argv]
    null = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1)]
    begin = time.perf_counter()
    pid = os.posix_spawnp(argv[0], argv, env or os.environ, file_actions=null)
    signal.alarm(LIMIT)
    try:
        _, status, usage = os.wait4(pid, 0)
    except TimeoutError:
        os.kill(pid, signal.SIGTERM)  # they take their ranks with them
        os.wait4(pid, 0)
        return None
    finally:
        signal.alarm(0)
    wall = time.perf_counter() - begin
    if status != 0:
        sys.exit(f"{' '.join(argv)}\nended with {os.waitstatus_to_exitcode(status)}")
    return Took(wall * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3)


def on_alarm(number, frame):
    raise TimeoutError


def start_slurm(build):
    """The tests' private Slurm, or None."""
    os.environ |= {"BUILD_ROOT": str(build), "SOURCE_ROOT": str(ROOT)}
    sys.path.insert(0, str(ROOT / "tests" / "integration"))
    import testlib
    from testlib.slurm import Slurm

    case = testlib.Case()
    case.setUp()
    try:
        return case, Slurm(case)
    except unittest.SkipTest as why:
        print(f"left out: srun: {why}")
        return case, None


def variants(args, slurm):
    """{name: (size -> argv, environment)}"""
    build, bench = args.build, args.build / "bench" / "programs"
    client = bench / "bench-floor-client"
    torchrun = args.torch_venv / "bin" / "torchrun"
    found = {
        "ctrun": (lambda n: [build / "ctrun", "-n", n, "--no-python", TRUE], None),
        "floor": (lambda n: [bench / "bench-floor-launch", n, client], None),
        "ctrun, connecting": (lambda n: [build / "ctrun", "-n", n, "--no-python", client], None),
        "mpich": (lambda n: ["mpiexec.mpich", "-n", n, TRUE], None),
        "openmpi": (lambda n: ["mpirun.openmpi", "-np", n, "--oversubscribe", "--allow-run-as-root", TRUE], None),
    }
    if slurm is not None:
        found["srun"] = (lambda n: [*slurm.inside, "srun", "--overcommit", "-n", n, TRUE], os.environ | slurm.env)
    found["torchrun"] = (lambda n: [torchrun, "--nproc-per-node", n, "--no-python", TRUE], None)
    for name, (argv, _) in list(found.items()):
        if shutil.which(str(argv(1)[0])) is None:
            print(f"left out: {name}: no {argv(1)[0]}")
            del found[name]
        elif not re.search(args.only, name) and name != "ctrun":
            del found[name]
    return found


def measure(found, sizes, rounds):
    """{size: {name: [Took of each round]}}; a variant that stood still is not tried again with as many."""
    table = {size: {name: [] for name in found} for size in sizes}
    for size in sizes:
        for number in range(rounds + 1):
            order = list(found.items())
            random.Random(number).shuffle(order)
            for name, (argv, env) in order:
                if name not in table[size]:
                    continue
                took = once(argv(size), env)
                if took is None:
                    print(f"{name} with {size}: no end after {LIMIT} s")
                    del table[size][name]
                elif number > 0:  # the first warms the caches
                    table[size][name].append(took)
        print_row(size, table[size])
    return table


def median(runs, field="wall_ms"):
    return statistics.median(getattr(run, field) for run in runs)


def print_row(size, row):
    for name, runs in row.items():
        ratio = median(row["ctrun"]) / median(runs)
        cpu = median(row["ctrun"], "cpu_ms") / median(runs, "cpu_ms")
        print(
            f"{size:>5} {name:20} {median(runs):>9.2f} ms {median(runs, 'cpu_ms'):>9.2f} ms CPU   "
            f"ctrun / it {ratio:.3f} (CPU {cpu:.3f})", flush=True,
        )  # fmt: skip


def spawn_sizes(bench, rounds):
    """Microseconds for a spawn beside an empty store and a full one."""
    runs = {0: [], STORE_MIB: []}
    for _ in range(rounds):
        for mib in runs:
            argv = [bench / "bench-spawn-size", str(mib), "100"]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
            runs[mib].append(float(done.stdout))
    return {mib: statistics.median(us) for mib, us in runs.items()}


def missed_goals(table, spawn):
    for rival, only, most in GOALS:
        for size, row in table.items():
            if rival in row and only in (None, size):
                ratio = median(row["ctrun"]) / median(row[rival])
                if ratio > most:
                    yield f"{size} workers: {ratio:.3f} x {rival}, at most {most} is wanted"
    if spawn[STORE_MIB] > SPAWN_GOAL * spawn[0]:
        yield f"a spawn takes {spawn[0]} us beside an empty store, {spawn[STORE_MIB]} us beside {STORE_MIB} MiB"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="only rivals that match, e.g. 'floor|mpich'")
    parser.add_argument("--torch-venv", type=pathlib.Path, default=CACHE / "ctrun" / "torch-venv")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results" / "launch.json")
    args = parser.parse_args()
    args.build = args.build.resolve()
    return args


def main():
    args = parse_args()
    names = ["ctrun", *(f"bench/programs/bench-{name}" for name in ("floor-client", "floor-launch", "spawn-size"))]
    subprocess.run(["ninja", "-C", args.build, *names], check=True, stdout=subprocess.DEVNULL)
    signal.signal(signal.SIGALRM, on_alarm)
    facts = store_report.machine() | {"realtime": args.realtime, "rounds": args.rounds}
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    case, slurm = start_slurm(args.build) if re.search(args.only, "srun") else (None, None)
    try:
        table = measure(variants(args, slurm), args.sizes, args.rounds)
    finally:
        if case is not None:
            case.doCleanups()
    spawn = spawn_sizes(args.build / "bench" / "programs", args.rounds)
    print(f"one spawn: {spawn[0]} us beside an empty store, {spawn[STORE_MIB]} us beside one of {STORE_MIB} MiB")
    rows = [
        {"workers": size, "launcher": name, "wall_ms": median(runs), "cpu_ms": median(runs, "cpu_ms"),
         "ctrun_by_it": median(row["ctrun"]) / median(runs), "runs": runs}
        for size, row in table.items() for name, runs in row.items()
    ]  # fmt: skip
    missed = list(missed_goals(table, spawn))
    report = {"machine": facts, "rows": rows, "spawn_us": spawn, "missed": missed}
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(*missed, sep="\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
