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
            return self.state(job, "JobState")

        try:
            wait.wait_until(lambda: state() == "COMPLETED", "the job has ended well", DEADLINE)
        except AssertionError as late:
            shown = self.ask("scontrol", "show", "job", job) + self.ask("sinfo", "-N", "-l")
            logs = "\n".join(log.read_text(errors="replace")[-3000:] for log in self.slurm.dir.glob("slurm*.log"))
            raise AssertionError(f"{late}\n{shown}\n{self.said()}\n{bytes(metrics[-500:])}\n{logs}") from None
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

    def test_a_job_that_slurm_does_not_queue_again_ends_with_the_code_of_ctrun(self):
        job = self.sbatch("--no-requeue", "-N1", CONTRIB / "ctrun-requeue.sbatch", "sh", "-c", "exit 121")
        done = wait.wait_until(
            lambda: (s := self.state(job, "JobState")) in ("FAILED", "COMPLETED") and s, "the job ends", DEADLINE
        )
        self.assertEqual((done, self.state(job, "ExitCode")), ("FAILED", "121:0"), self.said())
        self.assertIn(f"Slurm does not queue job {job} again: it ends with 121", self.said())

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

    def test_an_array_may_be_a_list(self):
        self.out = self.tmp / "out-%a.txt"
        facts = self.tmp / "facts"
        facts.mkdir()
        script = f"echo $GROUP_RANK > {facts}/$SLURM_ARRAY_TASK_ID"
        job = self.sbatch("--array=1,4", CONTRIB / "ctrun-array.sbatch", "-n", "1", "sh", "-c", script)
        wait.wait_until(lambda: len(list(facts.iterdir())) == 2, "both have started", DEADLINE)
        wait.wait_until(lambda: self.ask("squeue", "-h", "-j", job) == "", "both have ended", DEADLINE)
        self.assertEqual([(facts / task).read_text() for task in ("1", "4")], ["0\n", "1\n"])


class ArrayScript(testlib.Case):
    """The script alone: what Slurm would say is in files, and no Slurm is needed."""

    def script_of_task(self, task, squeue, ctrun='echo "$@"', scontrol="true"):
        tools = self.tmp / "tools"
        tools.mkdir()
        for name, text in (("squeue", squeue), ("sleep", "true"), ("ctrun", ctrun), ("scontrol", scontrol)):
            path = tools / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        env = {
            "PATH": f"{tools}:{os.environ['PATH']}", "CTRUN": str(tools / "ctrun"), "SLURMD_NODENAME": "here",
            "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_MIN": "1",
            "SLURM_ARRAY_TASK_MAX": "7", "SLURM_ARRAY_TASK_STEP": "1", "SLURM_ARRAY_TASK_COUNT": "3",
        }  # fmt: skip
        return self.run_program("sh", CONTRIB / "ctrun-array.sbatch", "true", env=env)

    def test_a_task_ends_when_the_first_one_is_gone(self):
        for number, answer in enumerate(("true", "echo COMPLETED n1", "echo CANCELLED n1")):
            with self.subTest(answer):
                self.tmp = self.tmp / str(number)
                self.tmp.mkdir()
                result = self.script_of_task("3", answer)
                self.assertEqual(result.code, 1, result)
                self.assertIn("task 1, which hosts the store, is gone", result.out)

    def test_a_task_waits_for_one_that_is_queued_again(self):
        mark = self.tmp / "asked"
        answer = f"""case $* in *%K*) echo 7; echo 1; echo 3; exit;; esac
        echo x >> {mark}
        case $(wc -l < {mark}) in [1-3]) echo COMPLETED n1;; [4-9]) echo PENDING;; 1[0-3]);; 14) exit 1;;
        *) echo RUNNING n1;; esac"""
        result = self.script_of_task("7", answer)
        self.assertEqual(result.code, 0, result)
        self.assertIn("--nnodes 3 --node-rank 2 --rdzv-id slurm-7 --master-addr n1", result.out)

    def test_a_task_that_is_not_queued_again_ends_with_the_code_of_ctrun(self):
        result = self.script_of_task("1", "echo 1", ctrun="exit 121", scontrol="echo no >&2; exit 1")
        self.assertEqual(result.code, 121, result)
        self.assertIn("Slurm does not queue task 1 again: it ends with 121", result.out)

    def test_a_list_that_is_not_known_has_no_ranks(self):
        result = self.script_of_task("1", "echo 1")
        self.assertEqual(result.code, 0, result)
        self.assertIn("--nnodes 3 --rdzv-id slurm-7 --master-addr here", result.out)


if __name__ == "__main__":
    testlib.main()
