# SPDX-License-Identifier: Apache-2.0
"""train goes on in the same process when another worker dies: on the CPU, and on GPUs against the
stand-in for CUDA and NCCL (tests/fake_gpu_plugins)."""

import json
import os
import re
import signal
import sys
import unittest

import testlib
from testlib import idx, netns, wait_until
from testlib.paths import BUILD_ROOT, SOURCE_ROOT

sys.path.insert(0, str(SOURCE_ROOT / "bench"))
import torture  # noqa: E402

FAKE_GPU_PLUGINS = os.environ.get("FAKE_GPU_PLUGINS")
# A sanitizer makes steps slow: fewer are enough to be in the midst of them when a worker is killed.
SANITIZED = os.environ["SANITIZE"] != "none"
# Of the 88 images in batches of 16.
STEPS_PER_EPOCH = 5


def epochs_beyond(step):
    """So many that the job is seconds from its end when it is seen to have done that step: one takes the
    stand-in about 30 ms."""
    return str((step + 60) // STEPS_PER_EPOCH)


# For workers that end while ctrun still signals them: its SIGCONT takes away the stop by which a leak
# sanitizer's tracer attaches, which then waits for good.
NO_LEAKS = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


class InProcessRestart(testlib.Case):
    """A job whose workers are killed, and the one that it should have become."""

    train_args = ()
    env = {}

    def setUp(self):
        super().setUp()
        self.data = self.tmp / "data"
        self.data.mkdir()
        idx.write_dataset(self.data, train=88, test=40, packed=False)

    def command(self, *args):
        return (
            testlib.program("train"), "--data", self.data, "--hidden", "24,16", "--batch-size", "16",
            *self.train_args, *args,
        )  # fmt: skip

    def start_job(self, workers, *args, restarts=9, name="job"):
        metrics = self.tmp / f"{name}.jsonl"
        metrics.unlink(missing_ok=True)
        return self.start_ctrun(
            "--standalone", "-n", workers, "--max-restarts", restarts, "--monitor-interval", "0.01",
            "--no-python", *self.command("--metrics", metrics, *args),
            env={"OMP_NUM_THREADS": "1", **self.env},
        )  # fmt: skip

    def lines(self, name="job"):
        path = self.tmp / f"{name}.jsonl"
        text = path.read_text() if path.exists() else ""
        # The last one may be being written.
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def last_step(self):
        return max((line["step"] for line in self.lines() if "step" in line), default=0)

    def workers(self, job, count):
        """Pids of the workers by local rank, from their environment, once all are there."""

        def all_there():
            self.assertTrue(job.running(), job.result())
            found = {}
            try:
                with open(f"/proc/{job.pid}/task/{job.pid}/children", encoding="ascii") as f:
                    for pid in map(int, f.read().split()):
                        with open(f"/proc/{pid}/environ", "rb") as e:
                            found.update({int(r): pid for r in re.findall(rb"\0LOCAL_RANK=(\d+)\0", e.read())})
            except OSError:
                return None
            return found if len(found) == count else None

        return wait_until(all_there, f"{count} workers")

    def wait_step(self, job, step):
        def there():
            if self.last_step() >= step:
                return True
            self.assertTrue(job.running(), job.result())
            return False

        wait_until(there, f"step {step}")

    def finish(self, job):
        result = job.wait(120)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(job.family(), [], result)
        return result

    @staticmethod
    def hash_of(result):
        return re.search(r"parameters: hash ([0-9a-f]{16})", result.out)[1]

    @staticmethod
    def resumed(job):
        return [int(n) for n in re.findall(r"from memory after step (\d+)", job.out)]

    def undisturbed(self, workers, *args):
        result = self.finish(self.start_job(workers, *args, name="undisturbed"))
        self.hash = self.hash_of(result)
        return result

    def kill(self, job, workers, victims, step):
        """Kills these ranks when that step was reported; nothing that rank 0 has kept may be lost."""
        self.wait_step(job, step)
        before = self.workers(job, workers)
        went_on = len(self.resumed(job))
        told = self.last_step()
        for victim in victims:
            os.kill(before[victim], signal.SIGKILL)
        wait_until(lambda: len(self.resumed(job)) > went_on or not job.running(), "the next generation")
        self.assertTrue(job.running(), job.result())
        after = self.workers(job, workers)
        for rank in range(workers):
            self.assertEqual(before[rank] == after[rank], rank not in victims, job.result())
        if 0 not in victims:
            self.assertGreaterEqual(self.resumed(job)[-1], told, job.result())
        return self.resumed(job)[-1]


class Cpu(InProcessRestart):
    train_args = ("--device", "cpu", "--in-process-restart", "on", "--metrics-every", "20")

    def test_random_kills_lose_no_step(self):
        problems, summary = torture.run_kills(
            BUILD_ROOT, 5, 2, os.getpid(), epochs=5 if SANITIZED else 15, kind="process"
        )
        self.assertEqual(problems, [], summary)

    def test_survivors_keep_their_process(self):
        args = ("--epochs", "400", "--consistent")
        self.undisturbed(4, *args)
        job = self.start_job(4, *args)
        for step, victims in ((40, (2,)), (400, (0,)), (800, (1, 3))):
            self.kill(job, 4, victims, step)
        self.assertEqual(self.hash_of(self.finish(job)), self.hash)

    def test_stages_of_a_pipeline(self):
        args = ("--epochs", "400", "--pipeline-stages", "2")
        self.undisturbed(4, *args)
        job = self.start_job(4, *args)
        for step, victims in ((40, (2,)), (400, (0,))):
            self.kill(job, 4, victims, step)
        self.assertEqual(self.hash_of(self.finish(job)), self.hash)

    def test_a_restart_goes_on_from_checkpoints_alone(self):
        args = ("--epochs", "400", "--consistent", "--snapshot", "off")
        self.undisturbed(2, *args)
        checkpoints = ("--checkpoint-dir", self.tmp / "checkpoints", "--checkpoint-every", "10")
        job = self.start_job(2, *args, *checkpoints, "--resume", "auto")
        self.wait_step(job, 100)
        before = self.workers(job, 2)
        os.kill(before[1], signal.SIGKILL)
        job.wait_for("resuming after epoch")
        self.assertEqual(self.workers(job, 2)[0], before[0])
        self.assertEqual(self.hash_of(self.finish(job)), self.hash)

    def test_automatically_only_gpus_do(self):
        job = self.start_job(2, "--epochs", "400", "--in-process-restart", "auto")
        self.wait_step(job, 40)
        before = self.workers(job, 2)
        os.kill(before[1], signal.SIGKILL)
        job.wait_for("from memory after step")
        self.assertNotEqual(self.workers(job, 2)[0], before[0])
        self.finish(job)

    def test_ctrun_is_asked_to_end(self):
        job = self.start_job(2, "--epochs", "100000", "--checkpoint", self.tmp / "c.safetensors")
        self.wait_step(job, 40)
        os.kill(self.workers(job, 2)[1], signal.SIGKILL)
        job.wait_for("from memory after step")
        self.wait_step(job, self.resumed(job)[0] + 40)  # no rank saves before its first step
        job.signal(signal.SIGTERM)
        result = job.wait()
        self.assertEqual(result.code, 123, result)  # all have saved and ended in order
        self.assertEqual(job.family(), [], result)

    def test_the_last_failure_ends_those_that_wait(self):
        # With something to save they hear SIGTERM and stay, to be told that the job is over.
        self.env = NO_LEAKS
        saves = ("--checkpoint", self.tmp / "c.safetensors")
        job = self.start_job(3, "--epochs", "100000", *saves, restarts=1)
        for step in (20, 200):
            self.wait_step(job, step)
            os.kill(self.workers(job, 3)[1], signal.SIGKILL)
            if step == 20:
                job.wait_for("from memory after step")
        result = job.wait()
        self.assertEqual(result.code, 128 + signal.SIGKILL, result)
        self.assertNotIn("train: ", result.err)  # who was dismissed has nothing to complain of
        self.assertEqual(job.family(), [], result)

    def test_the_last_failure_on_another_machine(self):
        # There it is known that nothing follows before anybody is told to wait for it.
        cluster = netns.Cluster(self, 2)
        saves = ("--checkpoint", self.tmp / "c.safetensors", "--metrics", self.tmp / "job.jsonl")
        jobs = [
            self.start(
                *cluster.nodes[i], testlib.program("ctrun"), "--nnodes", 2, "--nproc-per-node", 2,
                "--master-addr", cluster.addresses[0], "--no-python",
                *self.command("--epochs", "100000", *saves), env={"OMP_NUM_THREADS": "1", **NO_LEAKS},
            )  # fmt: skip
            for i in range(2)
        ]
        self.wait_step(jobs[0], 40)
        os.kill(self.workers(jobs[1], 2)[1], signal.SIGKILL)
        for job in jobs:
            result = job.wait()
            self.assertEqual(result.code, 128 + signal.SIGKILL, result)
            self.assertNotIn("train: ", result.err)
            self.assertEqual(job.family(), [], result)


@unittest.skipUnless(FAKE_GPU_PLUGINS, "no stand-in for CUDA and NCCL in this build")
class Gpu(InProcessRestart):
    train_args = ("--device", "cuda", "--metrics-every", "5")

    def setUp(self):
        super().setUp()
        self.reports = self.tmp / "reports"
        self.reports.mkdir()
        self.env = {"CTRUN_PLUGIN_DIR": FAKE_GPU_PLUGINS, "FAKE_GPU_REPORT": str(self.reports)}

    def finish(self, job):
        """Also sees that whoever ended by himself kept the rules of CUDA and NCCL."""
        result = super().finish(job)
        reports = list(self.reports.iterdir())
        self.assertGreater(len(reports), 0)
        for path in reports:
            seen = dict(line.split(" ", 1) for line in path.read_text().splitlines())
            self.assertEqual((seen["violations"], seen["left"]), ("0", "0"), path.read_text())
        return result

    def same_bits(self, workers):
        """What makes the sums of GPUs those of another run, where this build can do it: a shard for each."""
        consistent = f"--consistent={workers}"
        command = self.command(consistent, "--epochs", "1", "--metrics", self.tmp / "tried.jsonl")
        tried = self.run_program(*command, env={"CTRUN_PLUGIN_DIR": FAKE_GPU_PLUGINS})
        return () if "--consistent needs" in tried.err else (consistent,)

    def assert_same_model(self, job):
        """To the bit, or without that as far as kernels that add in other orders let it be so."""
        result = self.finish(job)
        if any(str(arg).startswith("--consistent") for arg in job.argv):
            self.assertEqual(self.hash_of(result), self.hash)
            return
        last = [[x for x in self.lines(name) if "test_loss" in x][-1] for name in ("undisturbed", "job")]
        for field in ("loss", "test_loss"):
            one, other = (epoch[field] for epoch in last)
            self.assertLess(abs(one - other), 0.02 * one, last)

    def check_kills(self, workers, kills, *args):
        args = ("--epochs", epochs_beyond(kills[-1][0]), *self.same_bits(workers), *args)
        self.undisturbed(workers, *args)
        job = self.start_job(workers, *args)
        for step, victims in kills:
            self.kill(job, workers, victims, step)
        self.assert_same_model(job)

    def test_survivors_keep_their_process(self):
        self.check_kills(4, ((10, (1,)), (40, (2,)), (70, (0,)), (100, (1, 2, 3)), (130, (0, 1))))

    def test_any_order_of_work(self):
        for seed in ("1", "2"):
            self.env["FAKE_GPU_SEED"] = seed
            self.check_kills(2, ((15, (1,)), (30, (0,))))

    def test_bfloat16_and_a_state_of_two_arrays(self):
        self.check_kills(2, ((20, (1,)), (50, (0,))), "--precision", "bf16", "--optimizer", "adamw")

    def test_steps_that_are_not_recorded(self):
        self.check_kills(2, ((20, (1,)), (50, (0,))), "--cuda-graph", "off")

    def test_images_that_are_augmented(self):
        self.check_kills(2, ((20, (1,)), (50, (0,))), "--augment", "shift")

    def test_memory_is_newer_than_checkpoints(self):
        checkpoints = ("--checkpoint-dir", self.tmp / "checkpoints", "--resume", "auto")
        args = ("--epochs", epochs_beyond(100), *self.same_bits(2))
        self.undisturbed(2, *args)
        job = self.start_job(2, *args, "--checkpoint-every", "30", *checkpoints)
        for step, victims in ((40, (1,)), (100, (0,))):
            saved = torture.steps_in(checkpoints[1])
            self.assertGreaterEqual(self.kill(job, 2, victims, step), saved)
        self.assert_same_model(job)

    def test_a_start_just_before_a_smaller_batch(self):
        # What is made for that is too small for the batches behind it, and enlarged while they go on.
        checkpoints = self.tmp / "checkpoints"
        self.finish(self.start_job(2, "--epochs", "1", "--checkpoint-every", "5", "--checkpoint-dir", checkpoints))
        self.finish(self.start_job(
            2, "--epochs", "20", "--cuda-graph", "off", "--resume", checkpoints / "step-000000000005.safetensors"
        ))  # fmt: skip

    def test_no_epoch_is_reported_twice(self):
        self.check_kills(2, ((20, (1,)), (50, (1,)), (90, (1,))))
        epochs = [line["epoch"] for line in self.lines() if "test_loss" in line]
        self.assertEqual(epochs, sorted(set(epochs)))

    def test_off_starts_new_processes(self):
        job = self.start_job(2, "--epochs", "60", "--in-process-restart", "off")
        self.wait_step(job, 10)
        before = self.workers(job, 2)
        os.kill(before[1], signal.SIGKILL)
        job.wait_for("restarting the job")
        wait_until(lambda: job.out.count("2 workers on cuda") == 2, "a new start")
        self.assertNotEqual(self.workers(job, 2)[0], before[0])
        self.finish(job)

    def test_the_job_shrinks_and_grows(self):
        cluster = netns.Cluster(self, 2)

        def start_node(i):
            return self.start(
                *cluster.nodes[i], testlib.program("ctrun"), "--nnodes", "1:2", "--nproc-per-node", 2,
                "--master-addr", cluster.addresses[0], "--rdzv-conf",
                "last_call_timeout=0.2,join_timeout=60", "--max-restarts", 9,
                "--no-python", *self.command("--metrics", self.tmp / "job.jsonl", "--epochs", "100000"),
                env=self.env,
            )  # fmt: skip

        jobs = [start_node(i) for i in range(2)]
        jobs[0].wait_for("4 workers on cuda")
        self.wait_step(jobs[0], 20)
        before = self.workers(jobs[0], 2)
        jobs[1].signal(signal.SIGKILL)
        jobs[0].wait_for("2 workers on cuda")
        wait_until(lambda: self.resumed(jobs[0]), "the smaller job")
        self.wait_step(jobs[0], 60)
        other = start_node(1)
        wait_until(lambda: len(self.resumed(jobs[0])) == 2, f"the larger job: {jobs[0].result()} {other.result()}")
        self.assertEqual(self.workers(jobs[0], 2), before)
        self.assertGreaterEqual(self.resumed(jobs[0])[1], 60)
        self.wait_step(jobs[0], self.resumed(jobs[0])[1] + 20)
        jobs[0].signal(signal.SIGTERM)
        for job in (jobs[0], other):
            job.wait()
            self.assertEqual(job.family(), [], job.result())


if __name__ == "__main__":
    testlib.main()
