# SPDX-License-Identifier: Apache-2.0
"""The files that train writes, read by those whose formats they are: the model by PyTorch and
safetensors, the curves by TensorBoard."""

import csv
import json
import pathlib
import subprocess
import unittest

import testlib
from testlib import idx
from testlib.pytorch import CURRENT, LIMIT, PROGRAMS

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


class Files(testlib.Case):
    def needs(self, module):
        probe = subprocess.run([CURRENT, "-c", f"import {module}"], capture_output=True, text=True) \
            if pathlib.Path(CURRENT).exists() else None  # fmt: skip
        if probe is None or probe.returncode != 0:
            raise unittest.SkipTest(f"no {module} under {CURRENT}: see tools/test --with-torch")

    def train(self, *args):
        metrics = self.tmp / "metrics"
        result = self.run_program(
            testlib.program("train"), "--device", "cpu", "--metrics", metrics, *args, deadline=LIMIT
        )
        self.assertEqual(result.code, 0, result)
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    def read(self, program, *args):
        result = self.run_program(CURRENT, PROGRAMS / program, *args, deadline=LIMIT)
        self.assertEqual(result.code, 0, result)
        return result.out

    def test_pytorch_computes_the_same_of_each_image(self):
        self.needs("torch")
        self.needs("safetensors")
        data = str(FASHION) if FASHION.exists() else idx.write_dataset(self.tmp)
        model, table = self.tmp / "m.safetensors", self.tmp / "table.csv"
        done = self.train(
            "--data", data, "--hidden", "128,64", "--epochs", "2", "--optimizer", "adamw",
            "--lr", "0.001", "--checkpoint", model, "--predict", table,
        )[-1]  # fmt: skip
        with open(table, newline="") as file:
            ours = [(int(row["class"]), float(row["probability"])) for row in csv.DictReader(file)]
        lines = self.read("read_model.py", data, model).splitlines()
        theirs = [(int(one), float(p)) for one, p in (line.split() for line in lines)]
        self.assertEqual([one for one, _ in ours], [one for one, _ in theirs])
        for (_, one), (_, other) in zip(ours, theirs):
            self.assertAlmostEqual(one, other, delta=1e-4)
        labels = idx.read_labels(pathlib.Path(data) / "t10k-labels-idx1-ubyte.gz")
        hits = sum(one == label for (one, _), label in zip(theirs, labels))
        self.assertEqual(hits, round(done["test_accuracy"] * len(labels)))
        self.assertGreater(hits, 0.7 * len(labels))

    def test_tensorboard_reads_the_curves(self):
        self.needs("tensorboard")
        board = self.tmp / "board"
        events = self.train(
            "--data", idx.write_dataset(self.tmp), "--hidden", "24", "--batch-size", "32",
            "--epochs", "3", "--metrics-every", "5", "--tensorboard", board,
        )  # fmt: skip
        seen = json.loads(self.read("read_events.py", board))
        epochs = [e for e in events if e["event"] == "epoch"]
        for tag, key in (
            ("loss/train", "loss"), ("loss/test", "test_loss"), ("accuracy/test", "test_accuracy"),
        ):  # fmt: skip
            found = dict(map(tuple, seen[tag]))
            for number, epoch in enumerate(epochs, 1):
                self.assertAlmostEqual(found[19 * number], epoch[key], delta=1e-6, msg=(tag, seen))
        steps = [e["step"] for e in events if e["event"] == "step"]
        self.assertLessEqual(set(steps), {step for found in seen.values() for step, _ in found})


if __name__ == "__main__":
    testlib.main()
