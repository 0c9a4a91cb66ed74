#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon training goes on after a worker was killed, with two workers on the CPU: the same unmodified
PyTorch script (bench/ddp.py: DDP over gloo) under ctrun, under `ctrun --warm` and under `torchrun
--standalone`, which is the comparison; and, for itself, `ctrun train`, which is another program in another language,
cold and warm. MPICH's mpiexec and srun do not start workers again (bench/README.md).

    bench/restart.py [--build DIR] [--kills N] [--data DIR] [--torch-venv DIR] [--realtime] [--rest SECONDS]
                     [--hurry] [--only NAME,...] [--limit SECONDS] [--out FILE]

In turn, a job of each is started and one of its workers killed by SIGKILL while it trains; the time until all
ranks have finished their next step is taken; under `ctrun --warm` the kill comes when its spares are ready.
`train` goes on where it was, the script begins anew: most of its time is `import torch`. It keeps the data set
as bytes (--bytes of bench/ddp.py), because to normalise all of it takes half a second more at each start, whoever
starts it. All read the data set uncompressed. PyTorch's ranks sometimes miss each other after a restart: when
they give up, the launcher starts them once more, which counts. A job that ends or stands still is tried again, so
that as many restarts are measured as were asked for, but a job of ctrun that does so is also a goal that is missed.

--hurry (root only) takes spares out of SCHED_IDLE while they import: where other programs use the idle time they take
minutes otherwise, and by the hand-over all have left it. --only measures some of script, script-warm, torchrun, train
and train-warm. --realtime as in bench/launch.py; --rest leaves the machine to others between two jobs. With --limit no
job begins after that time.

Ends with 2 when it has measured fewer restarts than were asked for, and with 1 when a goal is missed: the script comes
back as soon as under torchrun; with --warm in half a second, and ten times as soon as torchrun's median and as torchrun
in the same round, each time; `train` in a fifth of a second, with --warm in a fiftieth; no job of ctrun has failed.
"""

import argparse
import contextlib
import gzip
import json
import os
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import ddp_vs_train
import torture
from shared import ending, store_report

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
SCRIPT_GOAL = 1.1  # ctrun's time by torchrun's, at most
WARM_GOAL, WARM_RATIO_GOAL = 0.5, 0.1  # seconds; and by the median of torchrun's
TRAIN_GOAL, TRAIN_WARM_GOAL = 0.2, 0.02  # seconds
WORKERS = 2
DEADLINE = 30  # several times what each takes on a quiet machine
SPARES_DEADLINE = 120  # they import at idle priority
PAUSE = 0.0002
STEPS = 100  # before the kill
EPOCHS = "1000"  # far more than are needed
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


class Side:
    """A launcher with two workers that train."""

    def __init__(self, argv, log, **environment):
        self.proc = subprocess.Popen(
            [str(a) for a in argv], stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )  # fmt: skip

    def wait_for(self, condition):
        """Until condition(generation, newest step that all have finished); returns the generation."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            generation, step = self.progress()
            if condition(generation, step):
                return generation
            if self.proc.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.proc.returncode}")
            time.sleep(PAUSE)
        raise RuntimeError(f"{self.name} makes no progress")

    def restart(self, choose):
        """Seconds from the death of a worker to the next finished step."""
        before = self.wait_for(lambda generation, step: step >= STEPS)
        workers = self.workers()
        if len(workers) != WORKERS:
            raise RuntimeError(f"{self.name} has the workers {workers}")
        begin = time.monotonic()
        os.kill(choose(workers), signal.SIGKILL)
        self.wait_for(lambda generation, step: generation > before and step > 0)
        return time.monotonic() - begin

    def workers(self):
        return [pid for pid in children(self.proc.pid) if self.is_worker(pid)]

    def close(self):
        ending.end(self.proc)


class WarmSide:
    """Of a Side with LOGLEVEL=info: its workers are known when ctrun has said that their spares are ready."""

    log, hurry = None, False

    def workers(self):
        end = time.monotonic() + SPARES_DEADLINE
        while time.monotonic() < end:
            if self.log.read_text().count("is ready (pid") == WORKERS:
                return [pid for pid in super().workers() if not is_spare(pid)]
            if self.hurry:
                hurry(super().workers())
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} has no spares")


def children(pid):
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


class Train(Side):
    """Reads its progress from the memory in which train keeps its state for the next generation."""

    name = "ctrun train"
    options = ()

    def __init__(self, args, folder, log, **environment):
        super().__init__(
            [args.build / "ctrun", *self.options, "-n", WORKERS, "--max-restarts", "5", "train", "--data", args.data,
             "--hidden", "512", "--epochs", EPOCHS, "--device", "cpu", "--batch-size", "256"], log, **environment,
        )  # fmt: skip
        self.memory = None

    @staticmethod
    def is_worker(pid):
        return pathlib.Path(f"/proc/{pid}/comm").read_text() == "train\n"

    def progress(self):
        """Of the rank that is behind: (generation, newest step)."""
        if self.memory is None:
            self.memory = self.open()
            if self.memory is None:
                return -1, 0
        newest = [(-1, 0)] * WORKERS
        for slot in range(2):
            at = torture.FRONT + slot * torture.RANKS * torture.MARK
            for rank in range(WORKERS):
                mark = os.pread(self.memory, 16, at + rank * torture.MARK)
                if len(mark) < 16:
                    return -1, 0  # no worker has come so far
                step, _, generation = struct.unpack("<qii", mark)
                newest[rank] = max(newest[rank], (generation if step > 0 else -1, step))
        return min(newest)

    def open(self):
        try:
            for fd in pathlib.Path(f"/proc/{self.proc.pid}/fd").iterdir():
                if "ctrun-snapshot" in os.readlink(fd):
                    return os.open(fd, os.O_RDONLY)
        except OSError:
            pass
        return None


class TrainOfWarm(WarmSide, Train):
    name = "ctrun --warm train"
    options = ("--warm",)

    def __init__(self, args, folder, log):
        self.log, self.hurry = folder / "log", args.hurry
        super().__init__(args, folder, log, LOGLEVEL="info")


class Script(Side):
    """bench/ddp.py under a launcher; each rank tells its steps in a file."""

    def __init__(self, args, folder, log):
        self.steps = [folder / f"steps.{rank}" for rank in range(WORKERS)]
        for path in self.steps:
            path.unlink(missing_ok=True)
        super().__init__(
            [*self.command(args), "--nproc-per-node", WORKERS, "--max-restarts", "5", ROOT / "bench" / "ddp.py",
             "--bytes", "--data", args.data, "--hidden", "512", "--epochs", EPOCHS, "--steps", folder / "steps"],
            log, PYTHON_EXEC=str(args.torch_venv / "bin" / "python"),
        )  # fmt: skip

    @staticmethod
    def is_worker(pid):
        argv = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"--steps" in argv and b"python" in argv[0]

    def progress(self):
        try:
            return min(struct.unpack("<qq", path.read_bytes()) for path in self.steps)
        except (OSError, struct.error):
            return -1, 0


class ScriptOfCtrun(Script):
    name = "script, ctrun"

    @staticmethod
    def command(args):
        return [args.build / "ctrun"]


class ScriptOfWarm(WarmSide, Script):
    name = "script, ctrun --warm"

    def __init__(self, args, folder, log):
        self.log, self.hurry = folder / "log", args.hurry
        super().__init__(args, folder, log)

    @staticmethod
    def command(args):
        return ["env", "LOGLEVEL=info", args.build / "ctrun", "--warm"]


def is_spare(pid):
    try:
        return b"CTRUN_WARM=" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended
        return False


def hurry(pids):
    """Takes spares among these out of SCHED_IDLE."""
    for pid in filter(is_spare, pids):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


class ScriptOfTorchrun(Script):
    name = "script, torchrun"

    @staticmethod
    def command(args):
        return [args.torch_venv / "bin" / "torchrun", "--standalone"]


SIDES = {"script": ScriptOfCtrun, "script-warm": ScriptOfWarm, "torchrun": ScriptOfTorchrun,
         "train": Train, "train-warm": TrainOfWarm}  # fmt: skip


def unpack(data, folder):
    """The data set without gzip; returns where it is."""
    for packed in pathlib.Path(data).glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder if any(folder.iterdir()) else data


def restart_once(kind, args, folder, rng):
    with open(folder / "log", "w+") as log:
        side = kind(args, folder, log)
        try:
            return side.restart(rng.choice)
        finally:
            side.close()


def measure(args, folder):
    """Seconds of each restart, and how many failed, by side."""
    rng = random.Random(args.seed)
    sides = [SIDES[name] for name in args.only]
    limit = time.monotonic() + args.limit
    took, failed = {side.name: [] for side in sides}, {side.name: 0 for side in sides}
    for kind in sides * args.kills:
        while time.monotonic() < limit:
            time.sleep(args.rest)
            try:
                took[kind.name].append(restart_once(kind, args, folder, rng))
                print(f"{kind.name:18} {took[kind.name][-1] * 1e3:9.1f} ms", flush=True)
                break
            except RuntimeError as why:
                print(f"{kind.name:18}    failed: {why}", flush=True)
                failed[kind.name] += 1
                if issubclass(kind, Train) or failed[kind.name] > 2 * args.kills:
                    sys.exit((folder / "log").read_text()[-2000:])
    return took, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--kills", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=FASHION_MNIST)
    parser.add_argument("--torch-venv", type=pathlib.Path, default=CACHE / "ctrun" / "torch-venv")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--hurry", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SIDES))
    parser.add_argument("--rest", type=float, default=0)
    parser.add_argument("--limit", type=float, default=3600)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results" / "restart.json")
    args = parser.parse_args()
    args.build = args.build.resolve()
    ending.on_signals()
    facts = store_report.machine() | {"realtime": args.realtime}
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    with tempfile.TemporaryDirectory(prefix="ctrun-restart-") as folder:
        args.data = unpack(args.data, pathlib.Path(folder))
        took, failed = measure(args, pathlib.Path(folder))
    medians = {name: statistics.median(seconds) for name, seconds in took.items() if seconds}
    report = {
        "machine": facts, "torch": ddp_vs_train.torch_version(str(args.torch_venv / "bin" / "python")),
        "kills": args.kills, "seconds": took, "median": medians, "failed": failed,
    }  # fmt: skip
    goals = check_failures(failed) + check_script(took, medians, report) + check_train(took, medians)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    missing = sum(args.kills - len(seconds) for seconds in took.values())
    if missing > 0:
        print(f"{missing} restarts were not measured because of --limit")
    return 1 if not all(goals) else 2 if missing > 0 else 0


def check_failures(failed):
    """Prints how many jobs have failed, and returns whether none of ctrun has. Those of torchrun are not judged."""
    for name, jobs in failed.items():
        if jobs > 0:
            print(f"{name}: {jobs} jobs have failed")
    return [jobs == 0 for name, jobs in failed.items() if name != ScriptOfTorchrun.name]


def check_script(took, medians, report):
    """Prints how the script did, and returns whether each goal was met."""
    goals = []
    torchrun = medians.get(ScriptOfTorchrun.name)
    if torchrun and ScriptOfWarm.name in medians:
        warm = max(took[ScriptOfWarm.name])
        ratio = report["slowest_warm_by_torchrun"] = warm / torchrun
        rounds = [mine / theirs for mine, theirs in zip(took[ScriptOfWarm.name], took[ScriptOfTorchrun.name])]
        worst = report["worst_round_of_warm_by_torchrun"] = max(rounds)
        print(f"ctrun --warm: {medians[ScriptOfWarm.name]:.2f} s, at most {warm:.2f} s (at most {WARM_GOAL:g}), which "
              f"is {ratio:.3f} of torchrun's median; in the worst round {worst:.3f} of what torchrun took in it (both "
              f"at most {WARM_RATIO_GOAL:g})")  # fmt: skip
        goals.append(warm <= WARM_GOAL and ratio <= WARM_RATIO_GOAL and worst <= WARM_RATIO_GOAL)
    if torchrun and ScriptOfCtrun.name in medians:
        ratio = report["script_ctrun_by_torchrun"] = medians[ScriptOfCtrun.name] / torchrun
        print(f"from SIGKILL to the next step of all ranks: the same script {medians[ScriptOfCtrun.name]:.2f} s under "
              f"ctrun, {torchrun:.2f} s under torchrun ({ratio:.2f}, at most {SCRIPT_GOAL:g})")  # fmt: skip
        goals.append(ratio <= SCRIPT_GOAL)
    return goals


def check_train(took, medians):
    """The same for train."""
    goals = []
    for side, goal in ((Train, TRAIN_GOAL), (TrainOfWarm, TRAIN_WARM_GOAL)):
        if side.name in medians:
            print(f"{side.name}: {medians[side.name] * 1e3:.1f} ms ({min(took[side.name]) * 1e3:.1f} to "
                  f"{max(took[side.name]) * 1e3:.1f}; the median at most {goal * 1e3:.0f})")  # fmt: skip
            goals.append(medians[side.name] <= goal)
    return goals


if __name__ == "__main__":
    sys.exit(main())
