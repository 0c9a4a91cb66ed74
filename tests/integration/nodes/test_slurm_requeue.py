# SPDX-License-Identifier: Apache-2.0
"""A job under a real Slurm goes on by itself: a notice, a checkpoint, the requeue, and the same
parameters at the end. Also one job made of an array of one-node jobs."""

import fcntl
import json
import os
import subprocess

import testlib
from testlib import idx, paths, proc, wait
from testlib.slurm import Slurm

CTRUN = testlib.program("ctrun")
CONTRIB = paths.SOURCE_ROOT / "contrib" / "slurm"
# Slurm takes a while to clean up after a job before it starts it again, and the machine may be busy.
DEADLINE = 240


class Requeue(testlib.Case):
    def setUp(self):
        super().setUp()
        self.slurm = Slurm(self)
        self.out = self.tmp / "out.txt"

    def sbatch(self, *args):
        return self.ask("sbatch", "--parsable", "-o", self.out, *args).strip()

    def tell(self, *argv):
        return subprocess.run(
            [*map(str, (*self.slurm.inside, *argv))], capture_output=True, text=True, check=False,
            env=proc.clean_environment() | self.slurm.env | {"CTRUN": str(CTRUN)}, timeout=DEADLINE,
        )  # fmt: skip

    def ask(self, *argv):
        done = self.tell(*argv)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def said(self):
        return self.out.read_text(errors="replace") if self.out.exists() else ""

    def state(self, job, field):
        shown = self.ask("scontrol", "show", "job", "-o", job)
        return dict(f.split("=", 1) for f in shown.split() if "=" in f).get(field)

    def train_args(self, metrics):
        data = self.tmp / "data"
        if not data.exists():
            data.mkdir()
            idx.write_dataset(data)
        return ("train", "--data", data, "--hidden", "32", "--batch-size", "32", "--device", "cpu", "--consistent",
                "--epochs", "600", "--metrics", metrics)  # fmt: skip

    def test_notice_checkpoint_requeue_resume(self):
        whole, parts = self.tmp / "whole.jsonl", self.tmp / "parts"
        result = self.ctrun("-n", "2", *self.train_args(whole), deadline=DEADLINE)
        self.assertEqual(result.code, 0, result)
        # A training that stops when the pipe is full, after some 30 epochs, until somebody reads its metrics.
        os.mkfifo(parts)
        reader = os.open(parts, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        job = self.sbatch(
            "-N2", CONTRIB / "ctrun-requeue.sbatch", *self.train_args(parts),
            "--checkpoint-dir", self.tmp / "checkpoints", "--resume", "auto",
        )  # fmt: skip
        wait.wait_until(lambda: "epoch 5/" in self.said(), "it trains", DEADLINE)
        self.ask("scancel", "--signal=TERM", job)
        wait.wait_until(lambda: "received SIGTERM" in self.said(), "the notice has come", DEADLINE)
        metrics = bytearray()

        def state():
            try:
                metrics.extend(os.read(reader, 65536))
            except BlockingIOError:
                pass
            now = self.state(job, "JobState")
            if now == "PENDING":  # Slurm would let it wait for two minutes; it may have begun meanwhile
                self.tell("scontrol", "update", f"JobId={job}", "StartTime=now")
            return now

        wait.wait_until(lambda: state() == "COMPLETED", "the job has ended well", DEADLINE)
        state()
        self.assertIn("ctrun ended with 123", self.said())
        self.assertIn("preempted: the state after step ", self.said())
        self.assertEqual(self.state(job, "Restarts"), "1")
        self.assertIn("resuming after ", self.said())
        hashes = [json.loads(lines.splitlines()[-1])["param_hash"] for lines in (whole.read_text(), metrics.decode())]
        self.assertEqual(hashes[0], hashes[1])

    def test_what_a_restart_cannot_help_is_not_queued_again(self):
        job = self.sbatch("-N1", CONTRIB / "ctrun-requeue.sbatch", "--no-restart-on", "7", "sh", "-c", "exit 7")
        wait.wait_until(lambda: self.state(job, "JobState") == "FAILED", "the job has failed", DEADLINE)
        self.assertEqual(self.state(job, "ExitCode"), "119:0")
        self.assertEqual(self.state(job, "Restarts"), "0")

    def test_an_array_of_one_node_jobs_is_one_job(self):
        self.out = self.tmp / "out-%a.txt"
        facts = self.tmp / "facts"
        facts.mkdir()
        script = f"echo $RANK of $WORLD_SIZE on $GROUP_RANK > {facts}/$RANK"
        job = self.sbatch("--array=0-1", CONTRIB / "ctrun-array.sbatch", "-n", "1", "sh", "-c", script)
        wait.wait_until(lambda: len(list(facts.iterdir())) == 2, "both have started", DEADLINE)
        wait.wait_until(lambda: self.ask("squeue", "-h", "-j", job) == "", "both have ended", DEADLINE)
        self.assertEqual(
            [(facts / str(rank)).read_text() for rank in range(2)], ["0 of 2 on 0\n", "1 of 2 on 1\n"]
        )


if __name__ == "__main__":
    testlib.main()
