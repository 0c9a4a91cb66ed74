# SPDX-License-Identifier: Apache-2.0
"""train --pipeline-stages: layers on several workers, the same training as on one."""

import json
import re
import signal

import testlib
from testlib import idx

# Three hidden layers and the last one: up to four stages. A low rate, so that differences in the
# order of sums stay what they are.
SMALL = (
    "--hidden", "48,40,32", "--batch-size", "60", "--epochs", "2", "--lr", "0.01", "--device", "cpu",
)  # fmt: skip


def read_metrics(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Pipeline(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = idx.write_dataset(self.tmp)

    def ranks(self, count, *args):
        return testlib.start_ranks(self, count, ("train", "--data", self.data, *SMALL, *args))

    def train(self, count, *args):
        """Runs a training and returns its metrics' lines and rank 0's output."""
        metrics = self.tmp / "metrics"
        metrics.unlink(missing_ok=True)
        procs = self.ranks(count, "--metrics", str(metrics), *args)
        results = [proc.wait() for proc in procs]
        for result in results:
            if "no instructions for bfloat16" in result.err or "needs oneDNN" in result.err:
                self.skipTest(result.err)
            self.assertEqual(result.code, 0, result)
        return read_metrics(metrics), results[0].out

    def check_same(self, want, got, delta):
        self.assertEqual([e["event"] for e in got], [e["event"] for e in want])
        for one, other in zip(want[:-1], got[:-1]):
            for name in ("loss", "test_loss"):
                self.assertAlmostEqual(other[name] / one[name], 1, delta=delta, msg=name)
            # A sample on the edge may fall to the other side.
            self.assertAlmostEqual(other["test_accuracy"], one["test_accuracy"], delta=0.0051)

    def test_losses_are_those_of_one_process(self):
        alone, _ = self.train(1)
        for count, *args in (
            (2, "--pipeline-stages", "2"),
            (4, "--pipeline-stages", "4"),
            (4, "--pipeline-stages", "2"),
            (6, "--pipeline-stages", "3"),
            (2, "--pipeline-stages", "2", "--micro-batches", "1"),
            (3, "--pipeline-stages", "3", "--micro-batches", "7"),
            (2, "--pipeline-stages", "2", "--micro-batches", "1000"),
        ):
            with self.subTest(count=count, args=args):
                piped, out = self.train(count, *args)
                self.check_same(alone, piped, 1e-5)
                self.assertIn(f"{count} workers in pipelines of {args[1]} on cpu", out)

    def test_adamw_and_an_uneven_batch(self):
        args = ("--optimizer", "adamw", "--lr", "0.0005", "--batch-size", "149")
        alone, _ = self.train(1, *args)
        # 600 samples leave 4 for the last batch: of four lanes with four micro-batches some idle.
        piped, _ = self.train(8, *args, "--pipeline-stages", "2", "--micro-batches", "4")
        self.check_same(alone, piped, 1e-5)

    def test_bf16_trains_alike_with_and_without_stages(self):
        alone, _ = self.train(1, "--precision", "bf16")
        piped, _ = self.train(4, "--precision", "bf16", "--pipeline-stages", "4")
        self.check_same(alone, piped, 0.01)

    def test_checkpoints_do_not_know_of_stages(self):
        whole, part = self.tmp / "whole", self.tmp / "part"
        same = ("--schedule", "constant", "--pipeline-stages")
        self.train(2, *same, "2", "--epochs", "4", "--checkpoint", str(whole))
        self.train(2, *same, "2", "--checkpoint", str(part))
        resume = ("--epochs", "4", "--resume", str(part))
        alone, _ = self.train(1, *resume, *same, "1")
        four, _ = self.train(4, *resume, *same, "4")
        self.check_same(alone, four, 1e-5)
        self.train(2, *resume, *same, "2", "--checkpoint", str(part))
        self.assertEqual(whole.read_bytes(), part.read_bytes())

    def test_dead_stage_ends_the_others_at_once(self):
        procs = self.ranks(4, "--epochs", "100000", "--pipeline-stages", "4")
        procs[0].wait_for("epoch 1/")
        procs[2].signal(signal.SIGKILL)
        for proc in (procs[0], procs[1], procs[3]):
            result = proc.wait()
            self.assertEqual(result.code, 1, result)
            self.assertRegex(result.err, r"\Atrain: [^\n]*rank \d \(pid \d+\)[^\n]*\n\Z")

    def test_dead_stage_is_restarted_like_any_worker(self):
        checkpoint = self.tmp / "m"
        script = self.script(
            "worker",
            "#!/bin/sh\n"
            '[ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && {\n'
            f'    (while [ ! -s "{checkpoint}" ]; do :; done; kill -9 $$) &\n'
            "}\n"
            'exec "$TRAIN" "$@"\n',
        )
        result = self.ctrun(
            "--nproc-per-node", "2", "--max-restarts", "1", "--no-python", "sh", script,
            "--data", self.data, *SMALL, "--epochs", "40", "--pipeline-stages", "2",
            "--checkpoint-dir", self.tmp / "d", "--checkpoint", checkpoint, "--resume", "auto",
            env={"TRAIN": testlib.program("train")},
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, r"rank 1 failed")
        self.assertEqual(len(re.findall(r"(?m)epoch 40/40", result.out)), 1)

    def test_what_cannot_be_is_refused_in_one_line(self):
        for count, args, want in (
            (3, ("--pipeline-stages", "2"), "3 workers are not a multiple"),
            (5, ("--pipeline-stages", "5"), "the model has only 4 layers"),
            (2, ("--pipeline-stages", "2", "--consistent=8"), "exclude each other"),
        ):
            with self.subTest(args=args):
                for proc in self.ranks(count, *args):
                    result = proc.wait()
                    self.assertNotEqual(result.code, 0, result)
                    self.assertRegex(result.err, r"\Atrain: [^\n]*\n\Z")
                self.assertIn(want, result.err)


if __name__ == "__main__":
    testlib.main()
