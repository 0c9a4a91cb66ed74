# SPDX-License-Identifier: Apache-2.0
"""Runs variants of `train` in turn (A B C A B C ...), so that all see the same machine, and compares
them round by round. A round in which other programs used the machine is run again."""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

# CPUs that others may use during a run on average (of which there are some always: timers,
# interrupts, this script), and how often a round is tried before one is taken as it is.
OTHERS_MOST, TRIES = 0.06, 4


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


class Watch:
    """How many CPUs were busy for others than this process and its children while it was open."""

    def __enter__(self):
        self.begin = self.now()
        return self

    def __exit__(self, *_):
        busy, own, wall = (b - a for a, b in zip(self.begin, self.now()))
        self.others = max(0.0, (busy - own) / wall)

    @staticmethod
    def now():
        fields = pathlib.Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields)
        usage = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        ticks = user + nice + system + irq + softirq + steal
        own = sum(u.ru_utime + u.ru_stime for u in usage)
        return ticks / os.sysconf("SC_CLK_TCK"), own, time.monotonic()


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


def quiet_round(run, names):
    """{name: run(name)} of a round in which the machine was free, or of the last try."""
    for _ in range(TRIES):
        with Watch() as watch:
            results = {name: run(name) for name in names}
        if watch.others <= OTHERS_MOST:
            return results
        print(f"# other programs used {watch.others:.2f} CPUs: this round does not count", flush=True)
    print("# taken all the same: the machine is not idle", flush=True)
    return results


def measure(variants, rounds):
    """{name: argv} -> {name: [samples/s of each round]}."""
    figures = {name: [] for name in variants}
    with tempfile.TemporaryDirectory(prefix="ctrun-bench-") as folder:
        metrics = pathlib.Path(folder) / "metrics"
        for _ in range(rounds):
            results = quiet_round(lambda name: samples_per_s(variants[name], metrics), variants)
            for name, rate in results.items():
                figures[name].append(rate)
    return figures


def ratio(figures, name, base):
    """Median over rounds of one variant's rate by the other's of the same round."""
    return statistics.median(a / b for a, b in zip(figures[name], figures[base]))


def write(args, report):
    if args.out is not None:
        args.out.write_text(json.dumps(report, indent=2) + "\n")
