# SPDX-License-Identifier: Apache-2.0
"""Runs variants of `train` in turn (A B C A B C ...), so that all see the same machine, and compares
them round by round."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile


def arguments(parser):
    """Options that every such benchmark has."""
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3, help="the first one does not count")
    parser.add_argument("--data", default=None, help="as train has it")
    parser.add_argument("--out", type=pathlib.Path, help="write the figures there as JSON")


def command(args, workers, *train, ctrun=()):
    """`train` under ctrun with the model and rule that all benchmarks share."""
    data = () if args.data is None else ("--data", args.data)
    return [
        args.build.resolve() / "ctrun", "--nproc-per-node", workers, *ctrun, "train", *data,
        "--hidden", "512", "--epochs", args.epochs, "--device", "cpu", *train,
    ]  # fmt: skip


def samples_per_s(argv, metrics):
    metrics.unlink(missing_ok=True)
    # One thread per worker, also for a worker that has all CPUs to itself.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    argv = [str(a) for a in (*argv, "--metrics", metrics)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)}\nended with {done.returncode}\n{done.stdout}{done.stderr}")
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    rates = [e["samples_per_s"] for e in events if e["event"] == "epoch"]
    return statistics.median(rates[1:])


def measure(variants, rounds):
    """{name: argv} -> {name: [samples/s of each round]}."""
    figures = {name: [] for name in variants}
    with tempfile.TemporaryDirectory(prefix="ctrun-bench-") as folder:
        for _ in range(rounds):
            for name, argv in variants.items():
                figures[name].append(samples_per_s(argv, pathlib.Path(folder) / "metrics"))
    return figures


def ratio(figures, name, base):
    """Median over rounds of one variant's rate by the other's of the same round."""
    return statistics.median(a / b for a, b in zip(figures[name], figures[base]))


def write(args, report):
    if args.out is not None:
        args.out.write_text(json.dumps(report, indent=2) + "\n")
