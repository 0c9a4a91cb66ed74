# SPDX-License-Identifier: Apache-2.0
"""train's GPU path as a whole program, against the stand-in for CUDA, cuBLASLt and NCCL."""

import json
import os

import testlib
from testlib import idx

FAKE_GPU_PLUGINS = os.environ["FAKE_GPU_PLUGINS"]


class TrainGpus(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = self.tmp / "data"
        self.data.mkdir()
        idx.write_dataset(self.data, train=88, test=40, packed=False)

    def train(self, *args, code=0, launcher=(), **env):
        """The epochs' losses, the last hash and what the stand-in saw."""
        metrics, report = self.tmp / "metrics.jsonl", self.tmp / "report"
        for path in (metrics, report):
            path.unlink(missing_ok=True)
        result = self.run_program(
            *launcher, testlib.program("train"), "--data", self.data, "--hidden", "24,16",
            "--batch-size", "16", "--epochs", "3", "--metrics", metrics, *args,
            env={"CTRUN_PLUGIN_DIR": FAKE_GPU_PLUGINS, "FAKE_GPU_REPORT": str(report), **env},
        )  # fmt: skip
        self.assertIn(result.code, code if isinstance(code, tuple) else (code,), result)
        seen = {}
        if report.exists():
            lines = report.read_text().splitlines()
            seen = dict(line.split(" ", 1) for line in lines)
            self.assertEqual(seen["violations"], "0", lines)
            self.assertEqual(seen["left"], "0", lines)
        if code != 0:
            return result, seen
        losses, final = [], None
        for line in metrics.read_text().splitlines():
            entry = json.loads(line)
            if "test_loss" in entry:
                losses += [entry["loss"], entry["test_loss"]]
                final = entry.get("param_hash")
        return losses, final, seen

    def assert_close(self, losses, expected, tolerance):
        self.assertEqual(len(losses), len(expected))
        for got, want in zip(losses, expected):
            self.assertLess(abs(got - want), tolerance * abs(want) + 1e-6, (losses, expected))

    def test_one_gpu_trains_as_the_cpu_does(self):
        expected, _, _ = self.train("--device", "cpu")
        for precision, tolerance in (("f32", 1e-4), ("tf32", 1e-4), ("bf16", 0.05), ("fp8", 0.2)):
            losses, _, seen = self.train("--device", "cuda", "--precision", precision)
            self.assert_close(losses, expected, tolerance)
            self.assertGreater(int(seen["graph_launches"]), 0)
            self.assertEqual(seen["connections"], "32")  # queues of the device, for its streams
        eager, _, seen = self.train("--device", "cuda", "--cuda-graph", "off")
        self.assert_close(eager, expected, 1e-4)
        self.assertEqual(seen["graph_launches"], "0")

    def test_several_gpus_of_one_process_train_as_workers_do(self):
        for gpus in (2, 4):
            expected, _, _ = self.train(
                "--device", "cpu",
                launcher=(testlib.program("ctrun"), "--standalone", "-n", gpus, "--no-python"),
            )  # fmt: skip
            for seed in range(2):
                losses, _, seen = self.train("--gpus", str(gpus), FAKE_GPU_SEED=str(seed))
                self.assert_close(losses, expected, 1e-4)
                self.assertGreater(int(seen["captured_collectives"]), 0)

    def test_workers_with_a_gpu_each(self):
        ctrun = (testlib.program("ctrun"), "--standalone", "--no-python", "-n")
        expected, _, _ = self.train("--device", "cpu", launcher=(*ctrun, "4"))
        for workers in (2, 4):
            losses, _, seen = self.train("--device", "cuda", launcher=(*ctrun, workers))
            self.assert_close(losses, expected, 1e-4)
            self.assertGreater(int(seen["captured_collectives"]), 0)

    def test_workers_that_share_a_gpu(self):
        one = {"CUDA_VISIBLE_DEVICES": "0", "FAKE_GPU_DEVICES": "1"}
        ctrun = (testlib.program("ctrun"), "--standalone", "--no-python", "-n", "2")
        expected, _, _ = self.train("--device", "cpu", launcher=ctrun)
        losses, _, seen = self.train("--device", "cuda", launcher=(*ctrun, "--share-gpu"), **one)
        self.assert_close(losses, expected, 1e-4)
        self.assertGreater(int(seen["captured_collectives"]), 0)
        # One worker may be stopped while it writes its report, so nobody reads that.
        result, _ = self.train("--device", "cuda", launcher=ctrun, code=1, FAKE_GPU_REPORT="/dev/null", **one)
        self.assertIn("--device cuda: 2 workers on this host but only 1 CUDA device", result.err)

    def launch(self, script, *options):
        """Workers that begin with this script of the shell."""
        ctrun = (testlib.program("ctrun"), "--standalone", "--no-python", "-n", "2", *options)
        return (*ctrun, "sh", "-c", f'{script}; exec "$@"', "sh")

    def test_a_rank_without_a_gpu_does_not_wait_for_the_others(self):
        """It computed on the CPU, and all waited ten minutes for each other."""
        launcher = self.launch('[ "$RANK" != 1 ] || export FAKE_GPU_DEVICES=1')
        result, _ = self.train(launcher=launcher, code=1, FAKE_GPU_REPORT="/dev/null")
        self.assertIn("rank 1 has chosen a CPU, but rank 0 has not", result.err)

    def test_the_loss_of_a_gpu_is_not_permanent(self):
        """The job ended at once, with its restarts unused and its spares idle."""
        script = (
            'case $RANK$CTRUN_GENERATION in 10) exit 3 ;; 11) export FAKE_GPU_DEVICES=1 ;; esac'
        )
        losses, _, _ = self.train(
            "--device", "cuda", launcher=self.launch(script, "--max-restarts", "3"))  # fmt: skip
        self.assertEqual(len(losses), 6)

    def test_the_steps_of_the_benchmark(self):
        report = self.tmp / "report"
        # Apart: the emulation of the fused head takes seconds for so many rows.
        for args in (
            ("f32", "apart"), ("bf16", "apart"), ("f32", "apart", "nccl"),
            ("bf16", "apart", "consistent"),
        ):  # fmt: skip
            result = self.run_program(
                testlib.BUILD_ROOT / "bench" / "programs" / "bench-gpu", "mlp", "2048", args[0], "3", "4", "3",
                "0.01", "short", *args[1:],
                env={"CTRUN_PLUGIN_DIR": FAKE_GPU_PLUGINS, "FAKE_GPU_REPORT": str(report)},
            )  # fmt: skip
            self.assertEqual(result.code, 0, result)
            row = json.loads(result.out)
            self.assertTrue(row["recorded"], row)
            self.assertEqual(row["head"], "apart")
            self.assertGreater(row["us_per_step"], 0)
            self.assertLess(abs(row["loss"] - 1.1), 0.1)  # ln(3): labels are random
            seen = report.read_text().split("\n")
            self.assertIn("violations 0", seen)
            self.assertIn("left 0", seen)
            self.assertIn(f"captured_collectives {args.count('nccl')}", seen)

    def test_any_gpu_s_failure_ends_the_process(self):
        _, _, seen = self.train("--gpus", "2")
        calls = int(seen["calls"])
        for part in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9):
            # A recording that fails is no failure.
            result, _ = self.train("--gpus", "2", code=(0, 1), FAKE_GPU_FAIL=str(int(calls * part)))
            if result.code == 1:
                self.assert_one_line(result.err)
                self.assertIn("train: GPU ", result.err)
                self.assertNotIn("given up", result.err)  # the cause, not what it led to

    def test_what_several_gpus_cannot_do_is_said(self):
        cases = (
            (("--gpus", "9"), 1, "--gpus 9: there are only 8 CUDA devices here"),
            (("--gpus", "2", "--device", "cpu"), 2, "--gpus and --device cpu exclude each other"),
            (("--gpus", "2", "--pipeline-stages", "2"), 2, "--gpus and --pipeline-stages exclude"),
            (("--gpus", "3", "--consistent"), 2, "--consistent: 3 workers cannot share 8 shards"),
            (("--precision", "fp8", "--consistent"), 2, "--consistent and --precision fp8 exclude"),
            (("--gpus", "0"), 2, "--gpus: 0 is not within 1 .. 64"),
        )
        for args, code, words in cases:
            result, _ = self.train(*args, code=code)
            self.assertIn(words, result.err)
            self.assert_one_line(result.err)
        result = self.ctrun(
            "--standalone", "-n", "2", "--no-python", testlib.program("train"), "--data", self.data,
            "--gpus", "2", env={"CTRUN_PLUGIN_DIR": FAKE_GPU_PLUGINS},
        )  # fmt: skip
        self.assertNotEqual(result.code, 0)
        self.assertIn("--gpus 2: this is one of 2 workers", result.err)


if __name__ == "__main__":
    testlib.main()
