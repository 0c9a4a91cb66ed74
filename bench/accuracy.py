#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test accuracy on Fashion-MNIST with the README's settings, over numbers of workers and seeds.

    bench/accuracy.py --build build

Each number of workers trains with each seed; the same seed on another number of workers differs by
rounding alone (not at all with `--also=--consistent`). Prints a table and writes JSON.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from ddp_vs_train import cpu_name

HERE = pathlib.Path(__file__).resolve().parent
GOAL, SPREAD = 0.90, 0.002
# What README.md names for accuracy.
SETTINGS = [
    "--hidden", "1024,512", "--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.3",
    "--warmup-epochs", "1", "--epochs", "20",
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
    with tempfile.TemporaryDirectory() as folder:
        for workers in args.workers:
            for seed in args.seeds:
                one = run(args, workers, seed, folder)
                report["runs"].append(one)
                print(
                    f"{workers:>7} {seed:>5} {one['test_accuracy']:>9.4f} {one['seconds']:>8.1f}",
                    flush=True,
                )
    found = [one["test_accuracy"] for one in report["runs"]]
    means = {
        workers: statistics.mean(
            one["test_accuracy"] for one in report["runs"] if one["workers"] == workers
        )
        for workers in args.workers
    }
    report["lowest"], report["highest"] = min(found), max(found)
    report["mean_by_workers"] = means
    print(f"from {min(found):.4f} to {max(found):.4f}; means by workers:", end="")
    print("".join(f"  {workers}: {mean:.4f}" for workers, mean in means.items()))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    good = min(found) >= GOAL and max(means.values()) - min(means.values()) <= SPREAD
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
