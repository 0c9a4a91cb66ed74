# SPDX-License-Identifier: Apache-2.0
"""Runs train as a user does, on one GPU, and sees whether it did what its manual page says.

usage: scenario.py --build DIR [--small] NAME

Prints TAP, and lines of JSON for what was timed. Exit code 77 where this machine cannot do it.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from gpu import data, process  # noqa: E402 the path comes first

SKIP = 77


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def need(condition, words):
    if not condition:
        raise Failed(words)


def tell(what, value, **more):
    print(json.dumps({"what": what, "value": round(value, 4), **more}), flush=True)


class Scene:
    def __init__(self, build, small):
        self.build, self.small = build, small
        for left in build.glob("gpu-scenario.*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="gpu-scenario.", dir=build))
        self.data = self.tmp / "data"
        train, test, side = (88, 40, 6) if small else (12000, 2000, 28)
        data.write(self.data, train, test, side)
        self.hidden, self.batch = ("24,16", 16) if small else ("512,256", 128)
        self.steps = -(-train // self.batch)

    def close(self):
        shutil.rmtree(self.tmp, ignore_errors=True)

    def command(self, *args, name="run"):
        return [self.build / "train", "--device", "cuda", "--data", self.data, "--hidden", self.hidden, "--batch-size",
                self.batch, "--metrics", self.metrics(name), *args]  # fmt: skip

    def metrics(self, name="run"):
        return self.tmp / f"{name}.jsonl"

    def train(self, *args, name="run", launcher=(), env=None):
        """Runs it to its end; gives what it said."""
        self.metrics(name).unlink(missing_ok=True)
        argv = process.tied([*launcher, *self.command(*args, name=name)])
        started = time.monotonic()
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
        said = done.stdout + done.stderr
        need(done.returncode == 0, f"{' '.join(argv)}: exit code {done.returncode}: {said[-1500:]}")
        self.seconds = time.monotonic() - started
        return said

    def start(self, *args, name="run", launcher=(), env=None):
        self.metrics(name).unlink(missing_ok=True)
        argv = process.tied([*launcher, *self.command(*args, name=name)])
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, **(env or {})})  # fmt: skip

    def ctrun(self, workers, restarts=0):
        return [self.build / "ctrun", "--standalone", "-n", workers, "--max-restarts", restarts, "--share-gpu",
                "--monitor-interval", "0.01", "--no-python"]  # fmt: skip

    def epochs(self, name="run"):
        lines = data.epochs(self.metrics(name))
        need(lines, f"{name}: no epoch in the metrics")
        return lines

    def hash_of(self, name="run"):
        return self.epochs(name)[-1]["param_hash"]

    def losses(self, name="run"):
        return [line["loss"] for line in self.epochs(name)]

    def wait_step(self, process, step, name="run"):
        while data.last_step(self.metrics(name)) < step:
            need(process.poll() is None, f"it has ended before step {step}: {process.stdout.read()[-1500:]}"
                 if process.poll() is not None else "")  # fmt: skip
            time.sleep(0.002)


def close(one, other, tolerance):
    return len(one) == len(other) and all(abs(a - b) <= tolerance * abs(b) + 1e-5 for a, b in zip(one, other))


# ---- one process -------------------------------------------------------------------------------------


def learn(scene):
    scene.train("--epochs", 3)
    lines = scene.epochs()
    need(len(lines) == 3, f"{len(lines)} epochs in the metrics")
    need(lines[-1]["loss"] < lines[0]["loss"], f"the loss does not fall: {scene.losses()}")
    need(scene.small or lines[-1]["test_accuracy"] > 0.7, f"accuracy {lines[-1]['test_accuracy']}")
    tell("train_samples_per_s", lines[-1]["samples_per_s"])


def start(scene):
    """The bill before the first step: process, data, context, handles, kernels chosen."""
    process = scene.start("--epochs", 1, "--metrics-every", 1)
    began = time.monotonic()
    scene.wait_step(process, 1)
    tell("train_first_step_s", time.monotonic() - began)
    process.communicate()
    need(process.returncode == 0, f"exit code {process.returncode}")
    tell("train_whole_s", time.monotonic() - began)


def consistent(scene):
    """The same bits in every run, recorded or not."""
    hashes = []
    for run in ((), (), ("--cuda-graph", "off")):
        scene.train("--epochs", 2, "--consistent", *run)
        hashes.append(scene.hash_of())
    need(len(set(hashes)) == 1, f"hashes differ: {hashes}")


def resume(scene):
    """Stopped by a signal and resumed, it gives the bits of an undisturbed run."""
    epochs = ("--epochs", 40 if scene.small else 60, "--consistent")
    scene.train(*epochs, name="whole")
    folder = scene.tmp / "checkpoints"
    saving = (*epochs, "--checkpoint-dir", folder, "--checkpoint-every", 10, "--resume", "auto", "--metrics-every", 5)
    process = scene.start(*saving)
    scene.wait_step(process, 20)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[0]
    need(process.returncode == 0, f"exit code {process.returncode} after SIGTERM: {said[-800:]}")
    need(list(folder.glob("*.safetensors")), "no checkpoint was written")
    scene.train(*saving)
    need(scene.hash_of() == scene.hash_of("whole"), f"{scene.hash_of()} after resuming, {scene.hash_of('whole')} without")


def evaluate(scene):
    model = scene.tmp / "m.safetensors"
    scene.train("--epochs", 2, "--checkpoint", model)
    expected = scene.epochs()[-1]["test_accuracy"]
    said = scene.train("--eval-only", "--resume", model, name="again")
    found = [line["test_accuracy"] for line in data.metrics(scene.metrics("again")) if "test_accuracy" in line]
    need(found and abs(found[-1] - expected) < 1e-9, f"accuracy {found}, not {expected}: {said[-300:]}")


def precisions(scene):
    losses = {}
    for precision in ("f32", "tf32", "bf16", "fp8"):
        try:
            scene.train("--epochs", 3, "--precision", precision)
        except Failed as why:
            need("compute capability" in str(why), str(why))
            continue
        losses[precision] = scene.losses()
        tell(f"train_loss_{precision}", losses[precision][-1])
    for precision, tolerance in (("tf32", 0.02), ("bf16", 0.1), ("fp8", 0.3)):
        need(precision not in losses or close(losses[precision], losses["f32"], tolerance),
             f"{precision}: {losses.get(precision)}, f32: {losses['f32']}")  # fmt: skip


# ---- a launcher --------------------------------------------------------------------------------------


def workers_of(job, count):
    """Pids of the workers by rank, once all are there."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = {}
        try:
            children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            for pid in map(int, children):
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
                found.update({int(r): pid for r in re.findall(rb"\0LOCAL_RANK=(\d+)\0", environment)})
        except OSError:
            continue
        if len(found) == count:
            return found
        time.sleep(0.005)
    raise Failed(f"no {count} workers within 20 s")


def killed(scene):
    """Its only worker is killed, and a new one goes on from the newest checkpoint to the same bits."""
    epochs = ("--epochs", 60, "--consistent")
    scene.train(*epochs, name="whole")
    saving = ("--checkpoint-dir", scene.tmp / "checkpoints", "--checkpoint-every", 10, "--resume", "auto")
    job = scene.start(*epochs, *saving, "--metrics-every", 1, launcher=scene.ctrun(1, restarts=2))
    scene.wait_step(job, 40)
    os.kill(workers_of(job, 1)[0], signal.SIGKILL)
    began, seen = time.monotonic(), len(data.metrics(scene.metrics()))
    while job.poll() is None and len(data.metrics(scene.metrics())) <= seen + 1:
        time.sleep(0.002)
    tell("train_kill_to_next_step_s", time.monotonic() - began)
    said = job.communicate()[0]
    need(job.returncode == 0, f"exit code {job.returncode}: {said[-1500:]}")
    need(scene.hash_of() == scene.hash_of("whole"), f"{scene.hash_of()} after the kill, {scene.hash_of('whole')} without")


class Sharing:
    """How two ranks get to use one GPU, where NCCL lets them: by its own switch, which ctrun sets, or as
    if they were on two machines. The second way is for this test alone."""

    REFUSAL = re.compile(r"Duplicate GPU|invalid usage|ncclInvalidUsage|unhandled", re.I)

    def __init__(self, scene):
        self.scene = scene
        split = scene.tmp / "one-host-each"
        split.write_text('#!/bin/sh\nNCCL_HOSTID=rank-$RANK exec "$@"\n', encoding="utf-8")
        split.chmod(0o755)
        refusals = []
        for self.way, self.through in (("NCCL_MULTI_RANK_GPU_ENABLE", ()), ("NCCL_HOSTID", (split,))):
            try:
                scene.train("--epochs", 1, name="probe", launcher=self.launcher())
                tell("nccl_two_ranks", 1, way=self.way)
                return
            except Failed as why:
                need(self.REFUSAL.search(str(why)), str(why))
                refusals.append(f"{self.way}: {str(why)[-200:]}")
        raise Skipped("NCCL refuses two ranks on one GPU: " + " / ".join(refusals))

    def launcher(self, restarts=0):
        return (*self.scene.ctrun(2, restarts), *self.through)


def two_ranks(scene):
    sharing = Sharing(scene)
    scene.train("--epochs", 2, name="alone")
    scene.train("--epochs", 2, launcher=sharing.launcher())
    need(close(scene.losses(), scene.losses("alone"), 1e-3), f"{scene.losses()}, alone {scene.losses('alone')}")
    scene.train("--epochs", 2, "--consistent", name="alone")
    scene.train("--epochs", 2, "--consistent", launcher=sharing.launcher())
    need(scene.hash_of() == scene.hash_of("alone"), f"{scene.hash_of()}, alone {scene.hash_of('alone')}")


def stages(scene):
    sharing = Sharing(scene)
    scene.train("--epochs", 2, name="alone")
    scene.train("--epochs", 2, "--pipeline-stages", 2, launcher=sharing.launcher())
    need(close(scene.losses(), scene.losses("alone"), 1e-3), f"{scene.losses()}, alone {scene.losses('alone')}")


def peer_killed(scene):
    """The other rank dies; this one goes on in the same process, to the same bits."""
    sharing = Sharing(scene)
    epochs = ("--epochs", 60 if scene.small else 12, "--consistent")
    scene.train(*epochs, name="whole")
    job = scene.start(*epochs, "--metrics-every", 1, launcher=sharing.launcher(restarts=2))
    scene.wait_step(job, 40)
    before = workers_of(job, 2)
    os.kill(before[1], signal.SIGKILL)
    began, seen = time.monotonic(), len(data.metrics(scene.metrics()))
    while job.poll() is None and len(data.metrics(scene.metrics())) <= seen + 1:
        time.sleep(0.002)
    tell("train_peer_kill_to_next_step_s", time.monotonic() - began)
    after = workers_of(job, 2) if job.poll() is None else before
    said = job.communicate()[0]
    need(after[0] == before[0], f"rank 0 is another process: {said[-1500:]}")
    need(job.returncode == 0, f"exit code {job.returncode}: {said[-1500:]}")
    need(scene.hash_of() == scene.hash_of("whole"), f"{scene.hash_of()} after the kill, {scene.hash_of('whole')} without")


SCENARIOS = {
    "learn": learn, "start": start, "consistent": consistent, "resume": resume, "evaluate": evaluate,
    "precisions": precisions, "killed": killed, "two-ranks": two_ranks, "stages": stages, "peer-killed": peer_killed,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a rehearsal without a GPU")
    parser.add_argument("name", choices=SCENARIOS)
    args = parser.parse_args()
    scene = Scene(args.build, args.small)
    # A time limit ends it by a signal; nothing may be left in the temporary folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        SCENARIOS[args.name](scene)
    except Skipped as why:
        print(f"1..0 # SKIP {' '.join(str(why).split())}")
        return SKIP
    except Failed as why:
        for line in str(why).splitlines():
            print(f"# {line}")
        print(f"not ok 1 - {args.name}\n1..1")
        return 1
    finally:
        scene.close()
    print(f"ok 1 - {args.name}\n1..1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
