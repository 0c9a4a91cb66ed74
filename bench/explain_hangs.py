#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does ctrun name the right rank and its line of Python when a PyTorch job hangs, and how soon?

    bench/explain_hangs.py [--build DIR] [--ranks N] [--count N] [--only NAME ...] [--torch-venv DIR] [--seed N]
                           [--healthy SECONDS]

Runs tests/torch/hang.py under `ctrun --hang-timeout` so often, each time with one of its ways to hang and
with or without PyTorch's worker server, in an order drawn from the seed. Counts the runs in which the report
names the rank and the line, and prints how long that took after the verdict. A size that differs is only in
PyTorch's recordings, so it is always tried with the worker server. Ends with 1 if one run was not explained
or took longer than 5 s.

With --healthy it runs tests/torch/uneven.py for so long instead, whose steps are uneven and in which nothing
hangs, and ends with 1 if ctrun says that something does.
"""

import argparse
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PROGRAM = ROOT / "tests/torch/hang.py"
UNEVEN = ROOT / "tests/torch/uneven.py"
SUSPECT = 2
HANG_TIMEOUT_S = 5
LONGEST_SLEEP_S = 3
MOST_S = 5.0
LIMIT_S = 180


def places():
    """By the name of a hang: the number of the line that holds the job up."""
    found, name = {}, None
    for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("def "):
            name = line[4:].partition("(")[0]
        if line.endswith("# here"):
            found[name] = number
    return found


def run(args, how, server, line):
    """(explained, seconds from the verdict to the explanation, what ctrun said)"""
    command = [args.build / "ctrun", "--nproc-per-node", args.ranks, "--hang-timeout", HANG_TIMEOUT_S, "--on-hang", "abort",
               "--shutdown-timeout", 2, args.torch_venv / "bin/python", PROGRAM, how, *(["worker"] if server else [])]  # fmt: skip
    job = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                           env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    wanted = rf"ctrun: rank {SUSPECT} is at hang.py:{line} in {how}"
    if how == "shape":
        wanted = rf"ctrun: rank {SUSPECT} came to number 4 of group default_pg with all_reduce of Float \[3\]"
    said, verdict, explained, end = [], None, None, time.monotonic() + LIMIT_S
    for text in job.stderr:
        said.append(text)
        if re.match(r"ctrun: .* hangs: ", text):
            verdict = time.monotonic()
        if verdict and re.match(wanted, text) and explained is None:
            explained = time.monotonic() - verdict
        if time.monotonic() > end:
            job.terminate()
    job.wait()
    return explained is not None and job.returncode == 122, explained, "".join(said)


def run_healthy(args):
    """How many false verdicts there were in a job that does not hang; None if it did not end well."""
    command = [args.build / "ctrun", "--nproc-per-node", args.ranks, "--hang-timeout", HANG_TIMEOUT_S, "--on-hang", "report",
               args.torch_venv / "bin/python", UNEVEN, args.healthy, LONGEST_SLEEP_S]  # fmt: skip
    job = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    verdicts = re.findall(r"^ctrun: .* hangs: .*", job.stderr, re.M)
    print(job.stdout + "\n".join(verdicts or ["no verdict"]) if job.returncode == 0 else job.stderr)
    return len(verdicts) if job.returncode == 0 else None


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--only", nargs="+", choices=sorted(places()))
    parser.add_argument("--torch-venv", type=pathlib.Path, default=CACHE / "ctrun/torch-venv")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--healthy", type=float, metavar="SECONDS")
    args = parser.parse_args(argv)
    if args.healthy is not None:
        return 0 if run_healthy(args) == 0 else 1
    if args.ranks <= SUSPECT:
        parser.error(f"--ranks must be more than {SUSPECT}")
    ways = args.only or sorted(places())
    order = [(ways[i % len(ways)], (i // len(ways)) % 2 == 1) for i in range(args.count)]
    random.Random(args.seed).shuffle(order)
    print(f"{args.count} hangs of {args.ranks} ranks, seed {args.seed}", flush=True)
    good, took = 0, []
    for how, server in order:
        server = server or how == "shape"
        explained, seconds, said = run(args, how, server, places()[how])
        in_time = explained and seconds <= MOST_S
        good += in_time
        took += [seconds] if explained else []
        words = f"{seconds:.2f} s" if explained else "NOT EXPLAINED"
        print(f"{how:<12} {'worker server' if server else 'py-spy':<14} {words}", flush=True)
        if not in_time:
            print(said, flush=True)
    if took:
        print(f"{good} of {args.count}; after the verdict {min(took):.2f} / {statistics.median(took):.2f} / {max(took):.2f} s")
    return 0 if good == args.count else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
