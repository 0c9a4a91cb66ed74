#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nothing lost, and the same model whatever happens: kills workers, ends and starts jobs of changing
size at random moments, and compares the final parameters with those of an undisturbed run.

    bench/torture.py kills     [--build DIR] [--count N] [--workers N] [--seed N] [--kind KIND]
    bench/torture.py schedules [--build DIR] [--count N] [--seed N]

kills: jobs of which 20 workers each are killed, one after the other, `count` in all. Of kind `memory`,
`process` (those that are not killed keep their process) and `pipeline` (layers on two workers) no step that was finished may be lost, and of kind `files`
(checkpoints alone, without snapshots) none that stood in a checkpoint.
schedules: `count` jobs, each of several parts with 1, 2, 4 or 8 workers, which are killed or ended at
any time. Ends with 1 when a hash differs or a step is lost.
"""

import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

# Where trainer/recovery/step_snapshot.c has its marks, for how many ranks, the size of one, and the place of the
# number of epochs in its header. Assertions there name these constants.
FRONT, RANKS, MARK, TOLD = 4096, 1024, 64, 32
DEADLINE = 120
JOB_KILLS = 20
TRAIN = ("--batch-size", "256")
STEPS = 47  # of an epoch: 12,000 samples
KINDS = {
    "memory": ("--hidden", "64", "--consistent"),
    "pipeline": ("--hidden", "64,48", "--pipeline-stages", "2"),
    "process": ("--hidden", "64", "--consistent", "--in-process-restart", "on"),
    "files": ("--hidden", "64", "--consistent", "--snapshot", "off"),
}


class Job:
    """A `ctrun train` whose output is read as it comes."""

    def __init__(self, build, workers, restarts, *train):
        self.build = build
        self.proc = subprocess.Popen(
            [build / "ctrun", "-n", str(workers), "--max-restarts", str(restarts),
             "--monitor-interval", "0.01", "train", "--data", "synthetic", "--device", "cpu",
             *map(str, train)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=build,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self.lines = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        with self.proc.stdout:
            for line in self.proc.stdout:
                self.lines.append(line)

    def running(self):
        return self.proc.poll() is None

    def finish(self):
        """Waits for the end; the exit code."""
        try:
            code = self.proc.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            code = "no end in time"
        self.reader.join()
        return code

    def text(self):
        return "".join(self.lines)

    def hash(self):
        found = re.search(r"parameters: hash ([0-9a-f]{16})", self.text())
        return found and found[1]

    def workers(self):
        """Pids of the workers that run now."""
        try:
            children = pathlib.Path(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children").read_text()
            return [c for c in map(int, children.split()) if self._is_train(c)]
        except OSError:
            return []

    @staticmethod
    def _is_train(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/comm").read_text() == "train\n"
        except OSError:
            return False

    def kill_one(self, choose):
        """Kills a worker; False when there was none."""
        workers = self.workers()
        if not workers:
            return False
        try:
            os.kill(choose(workers), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def resumed(self):
        """The steps after which new generations went on, in order."""
        memory = r"from memory after step (\d+)"
        files = r"resuming after epoch (\d+)(?: and (\d+) steps)?"
        found = re.findall(f"{memory}|{files}", self.text())
        return [int(m) if m else STEPS * int(e) + int(n or 0) for m, e, n in found]

    def _memory(self):
        """The front of the memory that keeps steps, or nothing."""
        folder = pathlib.Path(f"/proc/{self.proc.pid}/fd")
        try:
            fd = next(f for f in folder.iterdir() if "ctrun-snapshot" in os.readlink(f))
            with open(fd, "rb") as memory:
                front = memory.read(FRONT + 2 * RANKS * MARK)
        except (OSError, StopIteration):
            return b""
        return front if len(front) == FRONT + 2 * RANKS * MARK else b""

    def epochs_told(self):
        """Of the epochs that are over, those that have been reported."""
        front = self._memory()
        return struct.unpack_from("<q", front, TOLD)[0] if front else 0

    def steps_in_memory(self):
        """(newest step that all ranks have written, newest one that any has)."""
        front = self._memory()
        whole = any_rank = 0
        for slot in range(2 if front else 0):
            at = FRONT + slot * RANKS * MARK
            marks = [struct.unpack_from("<qii", front, at + r * MARK) for r in range(8)]
            world = marks[0][1]
            any_rank = max(any_rank, *(m[0] for m in marks))
            if 1 <= world <= 8 and len(set(marks[:world])) == 1:
                whole = max(whole, marks[0][0])
        return whole, any_rank


def steps_in(folder):
    """The newest step of which a checkpoint is there."""
    names = os.listdir(folder) if folder.exists() else []
    found = [int(m[1]) for m in (re.fullmatch(r"step-(\d+)\.safetensors", n) for n in names) if m]
    return max(found, default=0)


def undisturbed(build, *train, workers=1):
    job = Job(build, workers, 0, *train)
    code = job.finish()
    if code != 0:
        sys.exit(f"the undisturbed run ended with {code}\n{job.text()[-2000:]}")
    return job.hash()


def wait_for_step(job, wanted, kept):
    """Until the running generation has kept a step, if that is wanted."""
    went_on, deadline = (job.resumed() or [0])[-1], time.monotonic() + DEADLINE
    while wanted and job.running() and time.monotonic() < deadline:
        if kept()[0] > went_on:
            return
        time.sleep(0.002)


def run_kills(build, count, workers, seed, epochs=None, kind="memory"):
    """Problems as texts, and a summary."""
    epochs = epochs or 20 + 8 * count
    for longer in (1, 2, 4, 8, 16):  # a fast machine may be through before the last kill
        killed, problems, summary = kill_in_one_job(build, count, workers, seed, longer * epochs, kind)
        if killed == count or problems:
            return problems, summary
    return [f"only {killed} of {count} kills before the end of {longer * epochs} epochs"], summary


def kill_in_one_job(build, count, workers, seed, epochs, kind):
    with tempfile.TemporaryDirectory(prefix="ctrun-torture-") as folder:
        train = (*TRAIN, *KINDS[kind], "--epochs", epochs)
        alone = workers if kind == "pipeline" else 1
        expected = undisturbed(build, *train, workers=alone)
        if kind != "files":
            return kill_all(Job(build, workers, count + 10, *train), expected, count, seed)
        folder = pathlib.Path(folder) / "checkpoints"
        train += ("--checkpoint-dir", folder, "--resume", "auto", "--checkpoint-every", "20")
        job = Job(build, workers, count + 10, *train)
        return kill_all(job, expected, count, seed, lambda: (steps_in(folder),) * 2)


def kill_all(job, expected, count, seed, kept=None):
    """kept() is the newest step that must not be lost, and the newest that may be there. Gives the kills
    that were possible before the job's end, problems as texts, and a summary."""
    rng = random.Random(seed)
    kept = kept or job.steps_in_memory
    problems, killed, redone = [], 0, 0
    while killed < count and job.running():
        # One in ten while the workers are still starting.
        wait_for_step(job, rng.random() < 0.9, kept)
        time.sleep(rng.uniform(0.0, 0.1))
        seen = len(job.resumed())
        before, started = kept()
        if not job.kill_one(rng.choice):
            continue
        killed += 1
        deadline = time.monotonic() + DEADLINE
        while before > 0 and job.running() and len(job.resumed()) == seen:
            if time.monotonic() > deadline:
                break
            time.sleep(0.002)
        after = job.resumed()[seen:]
        if before > 0 and after:
            redone = max(redone, started - after[0])
            if after[0] < before:
                problems.append(f"kill {killed}: step {before} was kept, went on after {after[0]}")
    code = job.finish()
    if code != 0 or job.hash() != expected:
        problems.append(f"exit {code}, hash {job.hash()} instead of {expected}\n{job.text()[-2000:]}")
    return killed, problems, f"{killed} kills, went on {len(job.resumed())} times, at most {redone} " \
                             f"written steps done again, hash {job.hash()}"  # fmt: skip


def run_schedule(build, seed, expected, train):
    """One job in parts; a problem as text, or None."""
    rng = random.Random(seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ctrun-torture-"))
    log = []
    try:
        for part in range(rng.randrange(2, 6), -1, -1):
            workers = rng.choice((1, 2, 4, 8))
            job = Job(build, workers, 20, *train, "--checkpoint-dir", folder, "--resume", "auto",
                      "--checkpoint-every", rng.choice((1, 7, 20)))  # fmt: skip
            for _ in range(rng.randrange(3)):
                time.sleep(rng.uniform(0.0, 0.3))
                log.append(f"{workers} workers, kill {job.kill_one(rng.choice)}")
            if part > 0:
                time.sleep(rng.uniform(0.0, 0.4))
                job.proc.send_signal(rng.choice((signal.SIGTERM, signal.SIGKILL)))
            code = job.finish()
            log.append(f"{workers} workers, exit {code}")
        if code != 0 or job.hash() != expected:
            return f"seed {seed}: {log}, hash {job.hash()} instead of {expected}\n{job.text()[-2000:]}"
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_schedules(build, count, seed):
    train = (*TRAIN, "--hidden", "48", "--consistent", "--epochs", "20")
    expected = undisturbed(build, *train)
    problems = [run_schedule(build, seed + i, expected, train) for i in range(count)]
    return [p for p in problems if p], f"{count} schedules, hash {expected}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("mode", choices=("kills", "schedules"))
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--count", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, default="memory")
    args = parser.parse_args()
    build = args.build.resolve()
    if args.mode == "kills":
        left, parts = args.count or 200, []
        while left > 0:
            part = min(left, JOB_KILLS)
            parts.append((run_kills, part, args.workers, args.seed + left, None, args.kind))
            left -= JOB_KILLS
    else:
        parts = [(run_schedules, args.count or 100, args.seed)]
    failed = False
    for run, *rest in parts:
        problems, summary = run(build, *rest)
        print(*problems, summary, sep="\n", flush=True)
        failed |= bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
