# SPDX-License-Identifier: Apache-2.0
"""train --consistent: the same bits for any number of workers, threads and interruptions."""

import json

import testlib
from testlib import idx

# 600 samples in batches of 36: five rows a shard, one row in the last, and a last batch that leaves
# shards empty.
ARGS = ("--hidden", "24,16", "--batch-size", "36", "--device", "cpu", "--consistent")


class Consistent(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = idx.write_dataset(self.tmp)
        self.runs = 0

    def hashes(self, world, *args, env=None):
        """Trains with `world` workers; the hash after each epoch."""
        self.runs += 1
        metrics = self.tmp / f"metrics{self.runs}"
        argv = ("train", "--data", self.data, *ARGS, "--metrics", metrics, *args)
        for result in [proc.wait() for proc in testlib.start_ranks(self, world, argv, env)]:
            if "no instructions for bfloat16" in result.err or "needs oneDNN" in result.err:
                self.skipTest(result.err)
            self.assertEqual(result.code, 0, result)
        events = [json.loads(line) for line in metrics.read_text().splitlines()]
        self.assertEqual(events[-1]["param_hash"], events[-2]["param_hash"])
        return [e["param_hash"] for e in events if e["event"] == "epoch"]

    def test_any_number_of_workers(self):
        for optimizer in ("sgd", "adamw"):
            args = ("--epochs", "2", "--optimizer", optimizer)
            one = self.hashes(1, *args)
            self.assertEqual(len(set(one)), 2)
            for world in (2, 4, 8):
                self.assertEqual(self.hashes(world, *args), one, (optimizer, world))
            self.assertNotEqual(self.hashes(1, *args, "--seed", "2"), one)

    def test_bf16_has_the_same_bits_for_any_number_of_workers(self):
        bf16 = ("--epochs", "1", "--precision", "bf16")
        one = self.hashes(1, *bf16)
        for world in (2, 4, 8):
            self.assertEqual(self.hashes(world, *bf16), one, world)
        self.assertNotEqual(self.hashes(1, "--epochs", "1"), one)
        # In two parts, on other numbers of workers.
        path = self.tmp / "m.safetensors"
        args = ("--schedule", "constant", "--precision", "bf16")
        whole = self.hashes(2, "--epochs", "2", *args)
        self.hashes(4, "--epochs", "1", *args, "--checkpoint", path)
        self.assertEqual(self.hashes(1, "--epochs", "2", *args, "--resume", path), whole[1:])

    def test_any_number_of_threads(self):
        wide = ("--epochs", "1", "--hidden", "512")
        one = self.hashes(2, *wide, env={"OMP_NUM_THREADS": 1})
        self.assertEqual(self.hashes(2, *wide, env={"OMP_NUM_THREADS": 2}), one)

    def test_other_number_of_workers_after_a_restart(self):
        path = self.tmp / "m.safetensors"
        # Constant, since another schedule spans all epochs and stopping early would change it.
        args = ("--schedule", "constant", "--checkpoint", path)
        whole = self.hashes(4, "--epochs", "3", *args)
        self.hashes(2, "--epochs", "1", *args)
        args += ("--resume", path)
        self.assertEqual(self.hashes(1, "--epochs", "2", *args), whole[1:2])
        self.assertEqual(self.hashes(8, "--epochs", "3", *args), whole[2:])

    def test_number_of_shards_is_part_of_the_result(self):
        two = self.hashes(1, "--epochs", "1", "--consistent=2")
        self.assertEqual(self.hashes(2, "--epochs", "1", "--consistent=2"), two)
        self.assertNotEqual(self.hashes(1, "--epochs", "1", "--consistent=16"), two)

    def test_workers_that_do_not_divide_the_shards(self):
        for proc in testlib.start_ranks(self, 3, ("train", "--data", self.data, *ARGS)):
            result = proc.wait()
            self.assertEqual(result.code, 2, result)
            self.assert_one_line(result.err)
            self.assertIn("--consistent: 3 workers cannot share 8 shards", result.err)


if __name__ == "__main__":
    testlib.main()
