# SPDX-License-Identifier: Apache-2.0
"""bench/model.py: its arithmetic, on cases that can be computed by hand."""

import json
import sys
import unittest

import testlib

sys.path.insert(0, str(testlib.SOURCE_ROOT / "bench"))
import model  # noqa: E402 the path comes first

SCRIPT = testlib.SOURCE_ROOT / "bench" / "model.py"
# 1000 bytes a microsecond everywhere, and nothing else costs anything.
FREE = type("Free", (model.Links,), {"PROTOCOLS": {"one": (0.0, 0.0, 1.0)}})(nvlink=1000.0, network=1000.0, hop=0.0)


class Arithmetic(unittest.TestCase):
    def test_a_ring_moves_its_share_twice(self):
        self.assertEqual(FREE.all_reduce(1, 1000), 0)
        self.assertAlmostEqual(FREE.all_reduce(2, 1000), 1.0)
        self.assertAlmostEqual(FREE.all_reduce(8, 1000), 1.75)

    def test_the_fastest_protocol_is_taken(self):
        links = model.Links()
        base, step, _ = links.PROTOCOLS["LL"]
        self.assertAlmostEqual(links.all_reduce(2, 0), base + 2 * step)
        base, step, _ = links.PROTOCOLS["Simple"]
        size = 1 << 30
        self.assertAlmostEqual(links.all_reduce(8, size), base + 14 * step + 1.75 * size / links.nvlink)

    def test_between_machines_each_gpu_carries_a_share(self):
        # Within 8: 1.75 of the bytes; between 2: each GPU its eighth, once there and once back.
        self.assertAlmostEqual(FREE.all_reduce(16, 8000), 14.0 + 1.0)
        links = model.Links(nvlink=1e12, network=1000.0, hop=3.0)
        self.assertAlmostEqual(links.all_reduce(32, 8000) - links.all_reduce(8, 8000), 2 * 2 * 3.0 + 1.5 * 1.0)

    def test_buckets_are_those_of_the_trainer(self):
        sizes = (100, 200, 50, 10)  # layers of 80,800, 40,200 and 2,040 bytes
        self.assertEqual(model.buckets_of(sizes, 25 << 20, 1), [(2040, 2), (120_000 + 1000, 0)])
        self.assertEqual(model.buckets_of(sizes, 1000, 1000), [(2040, 2), (40_200, 1), (80_800, 0)])
        self.assertEqual(model.buckets_of(sizes, 2040, 2040)[0], (2040, 2))
        self.assertEqual(model.buckets_of(sizes, 1 << 30, 1 << 30), [(123_040, 0)])

    def test_gradients_come_from_the_last_layer_to_the_first(self):
        # Two layers of equal work: 2 units forward, 2 for the last one backward, 1 for the first.
        done = model.backward_of((10, 10, 10), 50.0)
        self.assertAlmostEqual(done[1], -10.0)
        self.assertAlmostEqual(done[0], 0.0)

    def test_what_is_hidden_costs_nothing(self):
        sizes = (10, 10, 10)  # buckets of 440 bytes, one for each layer: 0.44 us on two GPUs
        # The first bucket is summed while the lower layer is computed, the second one after it.
        self.assertAlmostEqual(model.step_of(sizes, 50.0, 2, FREE, limit=1, first=1), 50.44)
        # One bucket for all is summed at the end.
        self.assertAlmostEqual(model.step_of(sizes, 50.0, 2, FREE, limit=1 << 20, first=1 << 20), 50.88)
        # A step that is too short to hide the first one: the second one waits for it.
        self.assertAlmostEqual(model.step_of(sizes, 0.5, 2, FREE, limit=1, first=1), 0.5 - 0.1 + 0.88)
        self.assertEqual(model.step_of(sizes, 50.0, 1, FREE), 50.0)

    def test_efficiency_falls_with_gpus_and_rises_with_bandwidth(self):
        cases, _ = model.measured(model.MEASURED)
        predicted = model.predict(cases, model.Links(), 25 << 20)
        faster = model.predict(cases, model.Links(nvlink=480e3, network=90e3), 25 << 20)
        for case, steps in predicted.items():
            times = [steps[gpus] for gpus in model.WORLDS]
            self.assertEqual(times, sorted(times))
            self.assertLess(faster[case][64], steps[64])


class Script(testlib.Case):
    def test_a_report_is_drawn_without_damaged_rows(self):
        row = {"program": "train", "sizes": "784,512,10", "batch": 128, "precision": "f32", "us_per_step": 30.0}
        others = [{**row, "nccl": 1, "us_per_step": 90.0}, {**row, "program": "gemm", "us_per_step": 5.0}]
        # Rows that a damaged program could print.
        others += [{**row, "us_per_step": us} for us in (0, None, "x")] + [{"program": "train", "us_per_step": 1.0}]
        path, drawing = self.tmp / "r.json", self.tmp / "m.svg"
        path.write_text(json.dumps({"device": "cuda:0 (X)", "began": "2026-11-23T", "items": [{"rows": [row, *others]}]}))
        result = self.run_program(sys.executable, SCRIPT, path, "--out", drawing)
        self.assertEqual(result.code, 0, result)
        self.assertIn("measured on cuda:0 (X), 2026-11-23", result.out)
        self.assertIn("784-512-10, batch 128 each, f32", result.out)
        self.assertIn("6.50     11.05", result.out)
        self.assertEqual(result.out.count("efficiency"), 1)
        self.assertIn("</svg>", drawing.read_text())

    def test_without_a_report_it_takes_that_of_an_h200(self):
        result = self.run_program(sys.executable, SCRIPT)
        self.assertIn("measured on cuda:0 (NVIDIA H200), 2026-11-27", result.out)
        self.assertIn("8192-8192-8192-16, batch 8192 each, bf16", result.out)

    def test_a_file_that_is_no_report(self):
        path = self.tmp / "r.json"
        for text in ("{}", "[]", "garbage", '{"items": []}', '{"items": [3]}'):
            path.write_text(text)
            result = self.run_program(sys.executable, SCRIPT, path)
            self.assertEqual(result.code, 1, result)
            self.assert_one_line(result.err)
        for word in ("0", "nan", "inf"):
            self.assertEqual(self.run_program(sys.executable, SCRIPT, "--nvlink", word).code, 2)
        result = self.run_program(sys.executable, SCRIPT, "--out", self.tmp / "none" / "m.svg")
        self.assertEqual(result.code, 1, result)
        self.assert_one_line(result.err)


if __name__ == "__main__":
    testlib.main()
