#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test accuracy on Fashion-MNIST with the README's settings, over numbers of workers and seeds.

    bench/accuracy.py --build build

Each seed trains with the first number of workers, and the first seed with every number: with
`--consistent`, which the settings have, a seed gives the same parameters for any of them. Prints a
table and writes JSON after each training; ends with 1 when an accuracy is below the goal, or when two
are more than 0.2 points apart.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from ddp_vs_train import cpu_name

HERE = pathlib.Path(__file__).resolve().parent
GOAL, SPREAD = 0.90, 0.002
# What README.md names for accuracy.
SETTINGS = [
    "--hidden", "2048,512", "--augment", "flip", "--batch-size", "1024", "--optimizer", "adamw",
    "--lr", "0.002", "--weight-decay", "0.5", "--warmup-epochs", "1", "--epochs", "30", "--consistent",
]  # fmt: skip


def run(args, workers, seed, folder):
    metrics = pathlib.Path(folder) / "metrics"
    metrics.unlink(missing_ok=True)
    command = [
        str(args.build / "ctrun"), "--nproc-per-node", str(workers), str(args.build / "train"),
        *SETTINGS, *args.also, "--device", args.device, "--seed", str(seed), "--metrics", str(metrics),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout}{done.stderr}")
    last = json.loads(metrics.read_text().splitlines()[-1])
    return {
        "workers": workers, "seed": seed, "test_accuracy": last["test_accuracy"],
        "seconds": last["seconds"],
    }  # fmt: skip


def summarize(report):
    by_seed = {}
    for one in report["runs"]:
        by_seed.setdefault(one["seed"], []).append(one["test_accuracy"])
    report["lowest"] = min(map(min, by_seed.values()))
    report["highest"] = max(map(max, by_seed.values()))
    report["spread_over_workers"] = max(max(found) - min(found) for found in by_seed.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--also", action="append", default=[], help="another option for train")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results" / "accuracy.json")
    args = parser.parse_args()

    report = {
        "cpu": cpu_name(), "cores": os.cpu_count(), "settings": [*SETTINGS, *args.also],
        "goal": GOAL, "runs": [],
    }  # fmt: skip
    print(f"train {' '.join(report['settings'])}")
    print(f"{'workers':>7} {'seed':>5} {'accuracy':>9} {'seconds':>8}")
    order = [(args.workers[0], seed) for seed in args.seeds]
    order += [(workers, args.seeds[0]) for workers in args.workers[1:]]
    with tempfile.TemporaryDirectory() as folder:
        for workers, seed in order:
            one = run(args, workers, seed, folder)
            print(
                f"{workers:>7} {seed:>5} {one['test_accuracy']:>9.4f} {one['seconds']:>8.1f}",
                flush=True,
            )
            report["runs"].append(one)
            summarize(report)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(
        f"from {report['lowest']:.4f} to {report['highest']:.4f}; numbers of workers differ by at "
        f"most {report['spread_over_workers']:.4f} with one seed"
    )
    good = report["lowest"] >= GOAL and report["highest"] - report["lowest"] <= SPREAD
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
