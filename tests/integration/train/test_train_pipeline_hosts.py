# SPDX-License-Identifier: Apache-2.0
"""train --pipeline-stages over several machines, which are network namespaces: a stage sees only what
its own machine has, and the training is that of one process all the same."""

import array
import json
import re
import struct

import testlib
from testlib import idx, netns, program

# As in test_train_pipeline: up to four stages, and a low rate, so that differences in the order of
# sums stay what they are.
COMMON = (
    "--hidden", "48,40,32", "--batch-size", "60", "--epochs", "2", "--lr", "0.01", "--device", "cpu",
    "--schedule", "constant",
)  # fmt: skip
NEAR = 1e-5

# A silent host is noticed after 15 s.
SILENCE = 15

# Workers on each machine, and stages.
SHAPES = (
    ((2, 2), 2),  # every machine has all stages: only gradients travel
    ((2, 2), 4),
    ((1, 3), 2),  # a pipeline and a group across machines
    ((1, 3), 4),
    ((1, 2, 1), 2),
    ((2, 1, 1), 4),
)


def numbers(path):
    """The floats of a safetensors file, by the names of its arrays."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    found = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = array.array("f", raw[8 + length + begin : 8 + length + end])
    return found


class PipelineHosts(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = idx.write_dataset(self.tmp)
        self.cluster = netns.Cluster(self, 3)

    def start_ranks(self, shape, *args):
        """Rank 0's machine serves the store; gives the workers in rank order."""
        daemon = self.start(
            *self.cluster.nodes[0], program("ctrdzvd"), "--port", "0", "--listen", "*",
            "--allow", "10.9.1.0/24",
        )  # fmt: skip
        port = daemon.wait_for("listening on").rpartition(":")[2]
        places = [(node, local) for node, count in enumerate(shape) for local in range(count)]
        return [
            self.start(
                *self.cluster.nodes[node], program("train"), "--data", self.data, *COMMON, *args,
                env={
                    "RANK": rank, "WORLD_SIZE": len(places), "LOCAL_RANK": local,
                    "LOCAL_WORLD_SIZE": shape[node], "GROUP_RANK": node,
                    "GROUP_WORLD_SIZE": len(shape), "OMP_NUM_THREADS": 1,
                    "MASTER_ADDR": self.cluster.addresses[0], "MASTER_PORT": port,
                    "TORCHELASTIC_RUN_ID": "stages", "TORCHELASTIC_USE_AGENT_STORE": "True",
                },
            )
            for rank, (node, local) in enumerate(places)
        ]  # fmt: skip

    def train(self, shape, *args):
        """Trains to the end; the metrics' lines."""
        metrics = self.tmp / "metrics"
        metrics.unlink(missing_ok=True)
        for worker in self.start_ranks(shape, "--metrics", metrics, *args):
            result = worker.wait()
            self.assertEqual(result.code, 0, result)
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    def check_same(self, want, got):
        self.assertEqual([e["event"] for e in got], [e["event"] for e in want])
        for one, other in zip(want[:-1], got[:-1]):
            for name in ("loss", "test_loss"):
                self.assertAlmostEqual(other[name] / one[name], 1, delta=NEAR, msg=name)

    def check_model(self, want, got):
        self.assertEqual(got.keys(), want.keys())
        for name, values in want.items():
            worst = max(abs(a - b) / max(1, abs(a)) for a, b in zip(values, got[name], strict=True))
            self.assertLess(worst, NEAR, name)

    def test_losses_and_models_are_those_of_one_process(self):
        model = self.tmp / "model"
        for optimizer in (("--optimizer", "sgd"), ("--optimizer", "adamw", "--lr", "0.0005")):
            args = (*optimizer, "--checkpoint", model)
            alone = self.train((1,), *args)
            whole = numbers(model)
            # Parameters, and what the optimizer keeps of each.
            self.assertEqual(len(whole), 8 * (2 if "sgd" in optimizer else 3))
            for shape, stages in SHAPES:
                with self.subTest(shape=shape, stages=stages, optimizer=optimizer):
                    model.unlink()
                    self.check_same(alone, self.train(shape, *args, "--pipeline-stages", stages))
                    self.check_model(whole, numbers(model))

    def test_checkpoints_within_an_epoch_are_whole(self):
        whole, part = self.tmp / "whole", self.tmp / "part"
        for shape, stages in (((1, 3), 2), ((2, 2), 4)):
            with self.subTest(shape=shape, stages=stages):
                piped = ("--pipeline-stages", stages)
                self.train(
                    shape, *piped, "--checkpoint", whole,
                    "--checkpoint-dir", part, "--checkpoint-every", "7steps",
                )  # fmt: skip
                saved = sorted(part.iterdir())
                self.assertGreaterEqual(len(saved), 2)
                resume = ("--resume", saved[0])
                other = self.tmp / "other"
                self.train(shape, *piped, *resume, "--checkpoint", other)
                self.assertEqual(whole.read_bytes(), other.read_bytes())
                self.train((1,), *resume, "--checkpoint", other)
                self.check_model(numbers(whole), numbers(other))
                for path in saved:
                    path.unlink()

    def test_checkpoints_by_the_clock_are_whole(self):
        folder = self.tmp / "folder"
        workers = self.start_ranks(
            (1, 3), "--pipeline-stages", "4", "--epochs", "100000", "--checkpoint-dir", folder,
            "--checkpoint-every", "1s", "--keep-checkpoints", "1000",
        )  # fmt: skip
        testlib.wait_until(
            lambda: folder.exists() and len(list(folder.iterdir())) >= 2, "two checkpoints"
        )
        for worker in workers:
            worker.kill()
        # A part that was left behind would be what the training began with.
        first, second = (numbers(path) for path in sorted(folder.iterdir())[:2])
        for name, values in first.items():
            self.assertNotEqual(values, second[name], name)

    def start_long(self, shape, *args):
        """A training that is well under way."""
        metrics = self.tmp / "metrics"
        metrics.unlink(missing_ok=True)
        workers = self.start_ranks(shape, "--epochs", "100000", "--metrics", metrics, *args)
        testlib.wait_until(
            lambda: metrics.exists() and "epoch" in metrics.read_text(), "an epoch is over"
        )
        return workers

    def test_a_stage_that_dies_elsewhere_ends_the_others_at_once(self):
        for victim in (0, 1, 3):
            with self.subTest(victim=victim):
                workers = self.start_long((2, 2), "--pipeline-stages", "4")
                workers.pop(victim).kill()
                for worker in workers:
                    result = worker.wait()
                    self.assertEqual(result.code, 1, result)
                    self.assertRegex(result.err, r"\Atrain: [^\n]*rank \d[^\n]*\n\Z")

    def test_a_cut_cable_between_two_stages_ends_both_sides(self):
        workers = self.start_long((1, 3), "--pipeline-stages", "2")
        self.cluster.cut(1)
        for worker in workers:
            result = worker.wait(SILENCE + testlib.DEADLINE)
            self.assertEqual(result.code, 1, result)
            self.assert_one_line(result.err)

    def test_a_stage_that_dies_elsewhere_is_named_and_restarted(self):
        folder = self.tmp / "folder"
        # Rank 2 is the first of the second machine.
        worker = self.script(
            "worker",
            "#!/bin/sh\n"
            '[ "$RANK" = 2 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && {\n'
            f'    (until ls "{folder}"/*.safetensors >/dev/null 2>&1; do :; done; kill -9 $$) &\n'
            "}\n"
            'exec "$TRAIN" "$@"\n',
        )
        jobs = [
            self.start(
                *self.cluster.nodes[i], program("ctrun"), "--nnodes", "2", "--node-rank", i,
                "--nproc-per-node", "2", "--master-addr", self.cluster.addresses[0],
                "--max-restarts", "1", "--no-python", "sh", worker, "--data", self.data, *COMMON,
                "--epochs", "40", "--pipeline-stages", "4", "--checkpoint-dir", folder,
                "--resume", "auto", env={"TRAIN": program("train")},
            )
            for i in range(2)
        ]  # fmt: skip
        for job in jobs:
            result = job.wait()
            self.assertEqual(result.code, 0, result)
            self.assertRegex(result.err, r"rank 2 failed on node-2( at [0-9.]+)?: process \d+ was killed by signal 9")
        out = jobs[0].out
        self.assertEqual(len(re.findall(r"(?m)epoch 40/40", out)), 1)
        # From a checkpoint, not from the beginning.
        self.assertEqual(len(re.findall(r"(?m)epoch 1/40", out)), 1, out)


if __name__ == "__main__":
    testlib.main()
