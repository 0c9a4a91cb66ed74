#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed of `train` against PyTorch DDP + gloo, both started by the same ctrun.

    bench/ddp_vs_train.py --build build --python VENV/bin/python

Runs the two in turn (A B A B ...) so that both see the same machine, once more where other programs
used it. Takes from each run the median of its epochs after the first and compares the medians of all
rounds. Prints a table and writes JSON.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

from shared import interleave

HERE = pathlib.Path(__file__).resolve().parent
# How many times faster, by samples per rank and step.
GOALS = {
    "f32": {32: 6.0, 128: 3.2, 1024: 2.0},
    "bf16": {32: 8.0, 128: 5.0, 1024: 3.0},
}
# The first one counts: it trains as `train` does, with float32 parameters, sums and updates. A model
# that is bfloat16 throughout sends half of the bytes and learns less (see the losses in the JSON).
RIVALS = {"f32": ["f32"], "bf16": ["bf16-autocast", "bf16-model"]}


def run(command, environment, metrics):
    metrics.unlink(missing_ok=True)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout}{done.stderr}")
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    epochs = [e for e in events if e["event"] == "epoch"]
    return {
        "samples_per_s": statistics.median(e["samples_per_s"] for e in epochs[1:]),
        "loss": epochs[-1]["loss"],
        "test_accuracy": epochs[-1]["test_accuracy"],
    }


def commands(args, batch, metrics):
    ctrun = [str(args.build / "ctrun"), "--nproc-per-node", str(args.workers)]
    common = [
        "--hidden", "512", "--epochs", str(args.epochs), "--lr", "0.02", "--momentum", "0.9",
        "--batch-size", str(batch * args.workers), "--metrics", str(metrics),
    ]  # fmt: skip
    own = ["--schedule", "constant", "--weight-decay", "0", "--device", "cpu"]
    own += ["--precision", args.precision]
    ddp = [*ctrun, str(HERE / "ddp.py"), *common, "--threads", str(args.threads), "--precision"]
    return {
        "train": [*ctrun, "train", *common, *own],
        **{f"ddp {rival}": [*ddp, rival] for rival in RIVALS[args.precision]},
    }


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def torch_version(python):
    code = "import torch; print(torch.__version__)"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's, per worker")
    parser.add_argument("--precision", choices=list(GOALS), default="f32")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=list(GOALS["f32"]), help="per worker"
    )
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    suffix = "" if args.precision == "f32" else f"_{args.precision}"
    out = args.out or HERE / "results" / f"ddp_vs_train{suffix}.json"

    version = torch_version(args.python)
    if not version:
        sys.exit(f"{args.python} has no torch: name another interpreter by --python")
    environment = {**os.environ, "PYTHON_EXEC": args.python, "OMP_NUM_THREADS": str(args.threads)}
    report = {
        "cpu": cpu_name(), "cores": os.cpu_count(), "torch": version, "workers": args.workers,
        "rounds": args.rounds, "model": "784-512-10", "precision": args.precision, "batches": [],
    }  # fmt: skip
    print(f"{args.workers} workers, 784-512-10, {args.precision}, torch {version}, {cpu_name()}; samples/s")
    print(f"{'per worker':>10} {'train':>10} {'ddp':>13} {'samples/s':>10} {'ratio':>7} {'goal':>5}  ratios of rounds")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for batch in args.batches:
            runs = {}
            metrics = pathlib.Path(folder) / "m"
            variants = commands(args, batch, metrics)
            for _ in range(args.rounds):
                results = interleave.quiet_round(
                    lambda name: run(variants[name], environment, metrics), variants
                )
                for name, result in results.items():
                    runs.setdefault(name, []).append(result)
            rates = {n: statistics.median(r["samples_per_s"] for r in runs[n]) for n in runs}
            goal = GOALS[args.precision].get(batch)
            ratios = {}
            for rival in RIVALS[args.precision]:
                theirs = runs[f"ddp {rival}"]
                each = [a["samples_per_s"] / b["samples_per_s"] for a, b in zip(runs["train"], theirs)]
                ratios[rival] = rates["train"] / rates[f"ddp {rival}"]
                counts = rival == RIVALS[args.precision][0]
                print(
                    f"{batch:>10} {rates['train']:>10.0f} {rival:>13} {rates[f'ddp {rival}']:>10.0f} "
                    f"{ratios[rival]:>7.2f} {goal if goal and counts else '-':>5}  "
                    f"{' '.join(f'{r:.2f}' for r in each)}",
                    flush=True,
                )
                good = good and (goal is None or not counts or ratios[rival] >= goal)
            report["batches"].append(
                {"per_worker": batch, "ratios": ratios, "goal": goal, "median": rates, "runs": runs}
            )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
