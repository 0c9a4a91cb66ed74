# SPDX-License-Identifier: Apache-2.0
"""train --consistent on GPUs: the same bits for any number of them, against the stand-in for CUDA,
cuBLASLt and NCCL, whose kernels and sums differ with all that they may depend on."""

import json
import os
import signal

import testlib
from testlib import idx, wait_until

FAKE_GPU_PLUGINS = os.environ["FAKE_GPU_PLUGINS"]

# Batches of which the last shard has one row, and an end of an epoch that leaves shards empty.
ARGS = ("--hidden", "24,16", "--batch-size", "36", "--device", "cuda", "--consistent")


class GpusConsistent(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = self.tmp / "data"
        self.data.mkdir()
        idx.write_dataset(self.data, train=232, test=40, packed=False)
        self.runs = 0
        self.reports = self.tmp / "reports"
        self.reports.mkdir()
        self.env = {"CTRUN_PLUGIN_DIR": FAKE_GPU_PLUGINS, "FAKE_GPU_REPORT": str(self.reports), "FAKE_GPU_ANY": "1"}

    def command(self, workers, *args):
        """A job of so many workers."""
        self.runs += 1
        self.metrics = self.tmp / f"metrics{self.runs}"
        return (
            testlib.program("ctrun"), "--standalone", "--no-python", "--monitor-interval", "0.01",
            "--max-restarts", "9", "-n", workers, testlib.program("train"), "--data", self.data,
            *ARGS, "--metrics", self.metrics, *args,
        )  # fmt: skip

    def check_rules(self):
        """Whoever ended by himself kept those of CUDA and NCCL."""
        launches = 0
        for path in self.reports.iterdir():
            seen = dict(line.split(" ", 1) for line in path.read_text().splitlines())
            self.assertEqual((seen["violations"], seen["left"]), ("0", "0"), path.read_text())
            launches += int(seen["graph_launches"])
            path.unlink()
        return launches

    def events(self, kind):
        text = self.metrics.read_text() if self.metrics.exists() else ""
        return [e for e in map(json.loads, text.splitlines()) if e["event"] == kind]

    def hashes(self, workers, *args, seed=0):
        """The hash after each epoch."""
        env = {**self.env, "FAKE_GPU_SEED": str(seed)}
        result = self.run_program(*self.command(workers, *args), env=env, deadline=120)
        self.assertEqual(result.code, 0, result)
        self.assertEqual("off" in args, self.check_rules() == 0, args)
        return [e["param_hash"] for e in self.events("epoch")]

    def test_any_number_of_workers_and_gpus(self):
        for precision, optimizer in (("f32", "sgd"), ("bf16", "adamw")):
            args = ("--epochs", "2", "--precision", precision, "--optimizer", optimizer)
            one = self.hashes(1, *args)
            self.assertEqual(len(set(one)), 2)
            self.assertEqual(self.hashes(1, *args, "--cuda-graph", "off"), one)
            for world in (2, 8):  # 4 run no code that these do not
                for how in ((world, *args), (1, *args, "--gpus", str(world))):
                    self.assertEqual(self.hashes(*how, seed=world), one, how)
                    self.assertEqual(self.hashes(*how, "--cuda-graph", "off"), one, how)
            self.assertNotEqual(self.hashes(1, *args, "--seed", "2"), one)

    def test_parts_that_are_multiplied_one_after_the_other(self):
        """Of each kind of kernel that cuBLASLt may lack: those of batches, those that can do fewer parts than
        they were chosen for, those without a workspace."""
        args = ("--epochs", "2")
        at_once = self.hashes(1, *args)
        for lacking in (1, 2, 4):
            self.env["FAKE_GPU_NO_KERNELS"] = str(lacking)
            one = self.hashes(1, *args)
            self.assertNotEqual(one, at_once, "the kernels are not lacking")
            for world in (2, 4, 8) if lacking == 1 else (8,):
                self.assertEqual(self.hashes(1, *args, "--gpus", str(world), seed=world), one, (lacking, world))

    def test_workers_without_a_sample(self):
        args = ("--epochs", "2", "--batch-size", "9")
        one = self.hashes(1, *args)
        self.assertEqual(self.hashes(8, *args), one)
        self.assertEqual(self.hashes(8, *args, "--cuda-graph", "off"), one)

    def test_buckets_and_augmented_images(self):
        args = ("--epochs", "1", "--augment", "shift", "--bucket-mb", "1", "--hidden", "600,600", "--cuda-graph", "off")
        self.assertEqual(self.hashes(4, *args), self.hashes(1, *args))

    def test_the_check_of_real_gpus(self):
        program = testlib.BUILD_ROOT / "tests/gpu_world_sizes/gpu-world-sizes"
        result = self.run_program(program, "small", env=self.env, deadline=600)
        self.assertEqual(result.code, 0, result)
        for precision in ("f32", "tf32", "bf16"):
            ranks = [r for r in result.out.splitlines() if r.startswith(f"# {precision} on")]
            self.assertEqual(len(ranks), 3 * (1 + 2 + 4 + 8))
            self.assertEqual(len({r.rpartition(" ")[2] for r in ranks}), 1, result)
        self.check_rules()

    def test_number_of_shards_is_part_of_the_result(self):
        two = self.hashes(1, "--epochs", "1", "--consistent=2")
        self.assertEqual(self.hashes(2, "--epochs", "1", "--consistent=2"), two)
        self.assertNotEqual(self.hashes(1, "--epochs", "1", "--consistent=16"), two)

    def test_other_number_of_workers_after_a_restart(self):
        path = self.tmp / "m.safetensors"
        # Constant, since another schedule spans all epochs and stopping early would change it.
        args = ("--schedule", "constant", "--checkpoint", path, "--precision", "bf16")
        whole = self.hashes(4, "--epochs", "3", *args)
        self.hashes(8, "--epochs", "1", *args)
        args += ("--resume", path)
        self.assertEqual(self.hashes(1, "--epochs", "2", *args, "--gpus", "2"), whole[1:2])
        self.assertEqual(self.hashes(1, "--epochs", "3", *args), whole[2:])

    def test_workers_that_are_killed(self):
        # Those that survive go on in their process, or all begin anew from a checkpoint.
        args = ("--epochs", "20", "--metrics-every", "5")
        undisturbed = self.hashes(1, *args)
        checkpoints = (
            "--checkpoint-dir", self.tmp / "checkpoints", "--checkpoint-every", "3", "--resume", "auto",
            "--in-process-restart", "off",
        )  # fmt: skip
        for extra in ((), checkpoints):
            job = self.start(*self.command(4, *args, *extra), env=self.env)
            for step, victim in ((20, 2), (80, 0)):
                self.kill(job, victim, step)
            result = job.wait(120)
            self.assertEqual(result.code, 0, result)
            self.assertEqual(self.events("epoch")[-1]["param_hash"], undisturbed[-1], result)
            self.check_rules()

    def kill(self, job, victim, step):
        """Kills that rank of the job's four once the step was reported."""

        def pids():
            self.assertTrue(job.running(), job.result())
            found = {}
            for pid in job.family():
                try:
                    with open(f"/proc/{pid}/environ", "rb") as f:
                        env = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
                except OSError:
                    return None
                if b"LOCAL_RANK" in env:
                    found[int(env[b"LOCAL_RANK"])] = pid
            return found if len(found) == 4 else None

        def reported():
            self.assertTrue(job.running(), job.result())
            return max((e["step"] for e in self.events("step")), default=0) >= step

        wait_until(reported, f"step {step}")
        os.kill(wait_until(pids, "four workers")[victim], signal.SIGKILL)


if __name__ == "__main__":
    testlib.main()
