# SPDX-License-Identifier: Apache-2.0
"""train --pipeline-stages on GPUs, against the stand-in for CUDA, cuBLASLt and NCCL: messages wait for
their receivers, streams are apart, and each GPU has only its own layers as they are."""

import json
import os
import pathlib
import signal

import testlib
from testlib import idx

FAKE_GPU_PLUGINS = os.environ["FAKE_GPU_PLUGINS"]

# Up to four stages; 88 samples leave 8 for the last batch.
ARGS = (
    "--hidden", "24,16,16", "--batch-size", "16", "--epochs", "2", "--device", "cuda",
    "--schedule", "constant",
)  # fmt: skip


class GpusPipeline(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = self.tmp / "data"
        self.data.mkdir()
        idx.write_dataset(self.data, train=88, test=40, packed=False)
        self.metrics = self.tmp / "metrics"
        self.reports = self.tmp / "reports"
        self.reports.mkdir()
        self.env = {"CTRUN_PLUGIN_DIR": FAKE_GPU_PLUGINS, "FAKE_GPU_REPORT": str(self.reports)}

    def command(self, workers, *args):
        return (
            testlib.program("ctrun"), "--standalone", "--no-python", "--max-restarts", "3",
            "-n", workers, testlib.program("train"), "--data", self.data, *ARGS,
            "--metrics", self.metrics, *args,
        )  # fmt: skip

    def check_rules(self, graphs=None):
        """Whoever ended by himself kept the rules of CUDA and NCCL."""
        for path in self.reports.iterdir():
            seen = dict(line.split(" ", 1) for line in path.read_text().splitlines())
            self.assertEqual((seen["violations"], seen["left"]), ("0", "0"), path.read_text())
            if graphs is not None:
                self.assertEqual(int(seen["graph_launches"]) > 0, graphs, path.read_text())
            path.unlink()

    def train(self, workers, *args, seed=0):
        """The events of a training to the end."""
        self.metrics.unlink(missing_ok=True)
        result = self.run_program(
            *self.command(workers, *args), env={**self.env, "FAKE_GPU_SEED": str(seed), "FAKE_GPU_THREADS": str(seed % 2)}
        )
        self.assertEqual(result.code, 0, result)
        piped = workers > 1
        recorded = "--augment" not in args and "--eval-only" not in args
        self.check_rules(graphs=recorded if piped else None)
        if piped:
            self.assertRegex(result.out, rf"{workers} workers in pipelines of \d on cuda")
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]

    def check_same(self, want, got, tolerance):
        self.assertEqual([e["event"] for e in got], [e["event"] for e in want])
        for one, other in zip(want[:-1], got[:-1]):
            for name in ("loss", "test_loss"):
                self.assertLess(abs(other[name] / one[name] - 1), tolerance, name)

    def events(self, kind):
        text = self.metrics.read_text() if self.metrics.exists() else ""
        return [e for e in map(json.loads, text.splitlines()) if e["event"] == kind]

    def pid_of(self, job, rank):
        for pid in job.family():
            if f"\0RANK={rank}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                return pid
        self.fail(f"no rank {rank}: {job.result()}")

    def test_losses_are_those_of_one_gpu(self):
        for precision, tolerance in (("f32", 1e-5), ("tf32", 1e-3), ("bf16", 0.02), ("fp8", 0.2)):
            args = ("--precision", precision)
            alone = self.train(1, *args)
            for workers, stages, *more in (
                (2, 2),
                (4, 4, "--micro-batches", "3"),
                (4, 2),
                (8, 4, "--micro-batches", "1"),
            )[: 4 if precision in ("f32", "bf16") else 1]:
                with self.subTest(precision=precision, workers=workers, stages=stages):
                    piped = self.train(workers, *args, "--pipeline-stages", stages, *more, seed=workers)
                    self.check_same(alone, piped, tolerance)

    def test_a_stage_takes_it_from_a_checkpoint(self):
        whole, other = self.tmp / "whole", self.tmp / "other"
        folder = self.tmp / "folder"
        for optimizer in ("sgd", "adamw"):
            with self.subTest(optimizer=optimizer):
                args = ("--optimizer", optimizer, "--lr", "0.001", "--pipeline-stages")
                every = ("--checkpoint-dir", folder, "--checkpoint-every", "4steps")
                ended = self.train(2, *args, "2", "--checkpoint", whole, *every)
                saved = sorted(folder.iterdir())[0]
                resumed = self.train(2, *args, "2", "--resume", saved, "--checkpoint", other)
                self.assertEqual(whole.read_bytes(), other.read_bytes())
                self.assertEqual(ended[-1]["param_hash"], resumed[-1]["param_hash"])
                for workers, stages in ((1, 1), (4, 2), (4, 4)):
                    tested = self.train(
                        workers, "--optimizer", optimizer, "--pipeline-stages", stages,
                        "--resume", whole, "--eval-only",
                    )[-1]  # fmt: skip
                    self.assertEqual(tested["param_hash"], ended[-1]["param_hash"])
                    self.assertEqual(tested["test_accuracy"], ended[-1]["test_accuracy"])
                for path in folder.iterdir():
                    path.unlink()

    def test_gpus_are_taken_where_there_are_enough(self):
        for workers, where in (("2", "cuda"), ("10", "cpu")):  # the stand-in has eight
            result = self.run_program(
                *self.command(workers, "--pipeline-stages", "2", "--device", "auto"), env=self.env
            )
            self.assertEqual(result.code, 0, result)
            self.assertIn(f"{workers} workers in pipelines of 2 on {where}", result.out)
            self.check_rules()

    def test_augmented_images_and_adamw(self):
        args = ("--augment", "flip,shift", "--optimizer", "adamw", "--lr", "0.001")
        self.check_same(
            self.train(1, *args), self.train(4, *args, "--pipeline-stages", "4"), 1e-5
        )

    def test_any_gpu_s_failure_ends_all_stages(self):
        for call in (50, 100, 150, 200, 300, 400, 500):
            result = self.run_program(
                testlib.program("ctrun"), "--standalone", "--no-python", "-n", "4",
                testlib.program("train"), "--data", self.data, *ARGS, "--pipeline-stages", "2",
                env={**self.env, "FAKE_GPU_FAIL": str(call)},
            )  # fmt: skip
            self.assertIn(result.code, (0, 1), result)
            if result.code == 1:
                self.assertIn("train: ", result.err)
            self.check_rules()

    def test_a_dead_stage_costs_what_came_after_the_checkpoint(self):
        epochs = 60
        job = self.start(
            *self.command(
                4, "--pipeline-stages", "2", "--epochs", epochs, "--resume", "auto",
                "--checkpoint-dir", self.tmp / "folder",
            ),
            env=self.env,
        )  # fmt: skip
        testlib.wait_until(lambda: len(self.events("epoch")) >= 3, "three epochs")
        others = [self.pid_of(job, rank) for rank in (0, 2, 3)]
        os.kill(self.pid_of(job, 1), signal.SIGKILL)
        begun = len(self.events("epoch"))
        testlib.wait_until(lambda: len(self.events("epoch")) > begun + 3, "training goes on")
        # Their processes stay, as without stages.
        self.assertEqual([self.pid_of(job, rank) for rank in (0, 2, 3)], others)
        result = job.wait()
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, r"rank 1 failed[^\n]*was killed by signal 9")
        done = [e["epoch"] for e in self.events("epoch")]
        self.assertEqual(done[-1], epochs)
        self.assertEqual(done.count(1), 1, "from a checkpoint, not from the beginning")
        self.check_rules()


if __name__ == "__main__":
    testlib.main()
