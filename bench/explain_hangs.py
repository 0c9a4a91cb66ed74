#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does ctrun name the right rank and its line of Python when a PyTorch job hangs, and how soon?

    bench/explain_hangs.py [--build DIR] [--ranks N] [--count N] [--only NAME ...] [--torch-venv DIR] [--seed N]
                           [--healthy SECONDS [--program torch|train|c]]

Runs tests/torch/hang.py under `ctrun --hang-timeout` so often, each time with one of its ways to hang and
with or without PyTorch's worker server, in an order drawn from the seed. Counts the runs in which the report
names the rank and the line, and prints how long that took after the verdict. A size that differs is only in
PyTorch's recordings, so it is always tried with the worker server. Ends with 1 if one run was not explained
or took longer than 5 s.

With --healthy it runs a program for so long instead whose steps are uneven and in which nothing hangs, and
ends with 1 if ctrun says that something does: tests/torch/uneven.py, bench/programs/uneven.c, or `train`,
which tests itself and writes a checkpoint all the time, while one worker after the other is stopped for less
than the timeout. For the C program, first: ninja -C DIR bench/programs/bench-uneven.
"""

import argparse
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PROGRAM = ROOT / "tests/torch/hang.py"
UNEVEN = ROOT / "tests/torch/uneven.py"
SUSPECT = 2
HANG_TIMEOUT_S = 5
LONGEST_SLEEP_S = 3
SLOW_FACTOR = 3
MOST_S = 5.0
LIMIT_S = 180
ENDED_WELL_AFTER_SIGNAL = 123


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


def workers_of(job):
    """The process ids of the workers that this ctrun has started."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text(encoding="utf-8").partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has ended meanwhile
        if name == "train" and int(rest.split()[1]) == job.pid:
            yield int(stat.parent.name)


def disturb(args, job):
    """Stops one worker after the other, each for less than the timeout, until the time is over."""
    draw, end, stops = random.Random(args.seed), time.monotonic() + args.healthy, 0
    while time.monotonic() < end and job.poll() is None:
        time.sleep(draw.expovariate(1))
        workers = sorted(workers_of(job))
        if len(workers) == args.ranks:
            pid = draw.choice(workers)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(draw.uniform(0, LONGEST_SLEEP_S))
            os.kill(pid, signal.SIGCONT)
            stops += 1
    job.terminate()  # train then writes a checkpoint and ends well
    return f"{stops} stops"


def healthy_program(args, folder):
    if args.program == "train":
        return [args.build / "train", "--data", "synthetic", "--hidden", "256,256", "--epochs", 1000000, "--checkpoint-dir", folder,
                "--checkpoint-every", "20s", "--metrics", f"{folder}/metrics.json"]  # fmt: skip
    if args.program == "c":
        return [args.build / "bench/programs/bench-uneven", args.healthy, LONGEST_SLEEP_S]
    return [args.torch_venv / "bin/python", UNEVEN, args.healthy, LONGEST_SLEEP_S]


def run_healthy(args):
    """How many false verdicts there were in a job that does not hang; None if it did not end well."""
    stopped = args.program == "train"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        command = [args.build / "ctrun", "--nproc-per-node", args.ranks, "--hang-timeout", HANG_TIMEOUT_S, "--on-hang", "report",
                   "--slow-factor", SLOW_FACTOR, "--shutdown-timeout", 120, *healthy_program(args, folder)]  # fmt: skip
        job = subprocess.Popen([str(word) for word in command], stdout=said, stderr=said, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
        if stopped:
            print(disturb(args, job))
        code = job.wait()
        said.seek(0)
        text = said.read()
    verdicts = re.findall(r"^ctrun: .* (?:hangs|is slow): .*", text, re.M)
    well = code == (ENDED_WELL_AFTER_SIGNAL if stopped else 0)
    print("\n".join([*text.splitlines()[-3:], *(verdicts or ["no verdict"])]) if well else f"{text}exit code {code}")
    return len(verdicts) if well else None


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--only", nargs="+", choices=sorted(places()))
    parser.add_argument("--torch-venv", type=pathlib.Path, default=CACHE / "ctrun/torch-venv")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--healthy", type=float, metavar="SECONDS")
    parser.add_argument("--program", choices=["torch", "train", "c"], default="torch")
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
