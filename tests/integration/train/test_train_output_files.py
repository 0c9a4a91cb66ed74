# SPDX-License-Identifier: Apache-2.0
"""train: what it tells of its course in files."""

import json
import os
import resource
import struct
import subprocess
import xml.etree.ElementTree

import testlib
from testlib import idx
from testlib.wait import DEADLINE


def records(raw):
    """The data of a file of TFRecords."""
    while raw:
        (length,) = struct.unpack("<Q", raw[:8])
        yield raw[12 : 12 + length]
        raw = raw[16 + length :]


class OutputFiles(testlib.Case):
    def setUp(self):
        super().setUp()
        self.metrics = self.tmp / "metrics.jsonl"
        self.argv = (
            "--data", idx.write_dataset(self.tmp), "--hidden", "24", "--batch-size", "32",
            "--device", "cpu", "--epochs", "3",
        )  # fmt: skip

    def train(self, *args):
        result = self.run_program(testlib.program("train"), *self.argv, *args)
        self.assertEqual(result.code, 0, result)
        return result

    def events(self):
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]

    def test_lines_of_steps_are_of_all_ranks(self):
        seen = []
        for count in (1, 3):
            self.metrics.unlink(missing_ok=True)
            every = (*self.argv, "--metrics", self.metrics, "--metrics-every", "5")
            for proc in testlib.start_ranks(self, count, ("train", *every)):
                result = proc.wait()
                self.assertEqual(result.code, 0, result)
            steps = [e for e in self.events() if e["event"] == "step"]
            self.assertEqual(
                list(steps[0]),
                ["event", "step", "epoch", "loss", "accuracy", "samples_per_s", "comm_share", "lr"],
            )
            # 19 steps in an epoch.
            self.assertEqual([e["step"] for e in steps], [*range(5, 57, 5)])
            self.assertEqual([e["epoch"] for e in steps], [1] * 3 + [2] * 4 + [3] * 4)
            self.assertTrue(all(0 <= e["comm_share"] <= 1 for e in steps))
            seen.append([(e["loss"], e["accuracy"]) for e in steps])
        for one, three in zip(*seen):
            self.assertAlmostEqual(one[0], three[0], delta=1e-3)
            self.assertAlmostEqual(one[1], three[1], delta=0.02)
        self.assertLess(seen[0][-1][0], seen[0][0][0])

    def on_full_disk(self, *sink, limit):
        """What is said. Through pipes, as the limit holds for every file."""
        result = subprocess.run(
            [testlib.program("train"), *self.argv, *sink],
            capture_output=True, text=True, timeout=DEADLINE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )  # fmt: skip
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("done: test accuracy", result.stdout)
        self.assert_one_line(result.stderr)
        return result.stderr

    def test_training_outlives_a_full_disk(self):
        # The very first record does not fit, a later one does not.
        board = ("--tensorboard", self.tmp / "board")
        self.assertRegex(self.on_full_disk(*board, limit=0), "going on without --tensorboard: ")
        self.assertRegex(self.on_full_disk(*board, limit=100), "going on without: File too large")
        metrics = ("--metrics", self.metrics)
        self.assertRegex(self.on_full_disk(*metrics, limit=0), "going on without: File too large")

    def test_training_outlives_a_disk_without_room_for_another_file(self):
        # Mounted in a namespace of its own: nothing is left behind.
        mounted = ("unshare", "--mount", "sh", "-c")
        small = self.tmp / "small"
        small.mkdir()
        tmpfs = f"mount -t tmpfs -o nr_inodes=1 none {small} && "
        if self.run_program(*mounted, tmpfs + "true").code != 0:
            self.skipTest("no tmpfs can be mounted")
        for sink in (("--metrics", small / "metrics"), ("--tensorboard", small / "board")):
            with self.subTest(sink=sink):
                run = (*mounted, tmpfs + 'exec "$@"', "sh", testlib.program("train"))
                result = self.run_program(*run, *self.argv, *sink)
                self.assertEqual(result.code, 0, result)
                self.assert_one_line(result.err)
                self.assertRegex(result.err, f"going on without {sink[0]}: .*No space left")

    def test_a_sink_that_cannot_be_right_is_refused_before_training(self):
        for sink in ("--metrics", "--tensorboard"):
            result = self.run_program(
                testlib.program("train"), *self.argv, sink, self.tmp / "no" / "where"
            )
            self.assertEqual((result.code, result.out), (1, ""), result)
            self.assert_one_line(result.err)

    def test_training_outlives_the_reader_of_its_metrics(self):
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "w"):
            result = self.run_program(
                testlib.program("train"), *self.argv, "--metrics", f"/proc/{os.getpid()}/fd/{writing}"
            )
        self.assertEqual(result.code, 0, result)
        self.assertIn(f"fd/{writing}, going on without: Broken pipe", result.err)

    def test_lines_of_steps_need_somewhere_to_go(self):
        result = self.run_program(testlib.program("train"), *self.argv, "--metrics-every", "5")
        self.assertEqual(result.code, 2, result)
        self.assertIn("--metrics-every needs --metrics or --tensorboard", result.err)

    def test_event_file_holds_the_metrics(self):
        board = self.tmp / "board"
        self.train("--tensorboard", board, "--metrics", self.metrics)
        (path,) = board.iterdir()
        self.assertTrue(path.name.startswith("events.out.tfevents."))
        first, *rest = records(path.read_bytes())
        self.assertIn(b"brain.Event:2", first)
        self.assertEqual(len(rest), 3)
        losses = [e["loss"] for e in self.events() if e["event"] == "epoch"]
        for number, (record, loss) in enumerate(zip(rest, losses), 1):
            self.assertEqual(record[9:11], bytes([0x10, 19 * number]))  # the step
            self.assertIn(b"\x0a\x0aloss/train\x15" + struct.pack("<f", loss), record)

    def test_plot_draws_the_metrics(self):
        self.train("--metrics", self.metrics)
        svg = self.tmp / "curve.svg"
        plot = (testlib.program("train"), "--plot", self.metrics, "-o")
        result = self.run_program(*plot, svg)
        self.assertEqual((result.code, result.out, result.err), (0, "", ""))
        root = xml.etree.ElementTree.parse(svg).getroot()
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [3] * 4)
        before = svg.read_bytes()
        self.metrics.write_text("nothing\n")
        for argv, code, message in (
            ((*plot, svg), 1, f"{self.metrics}: holds no lines of epochs"),
            ((*plot[:-1],), 2, "--plot and --output need each other"),
            ((plot[0], "--plot", "/no/such/file", "-o", svg), 1, "cannot open /no/such/file"),
        ):
            with self.subTest(message=message):
                result = self.run_program(*argv)
                self.assertEqual(result.code, code, result)
                self.assert_one_line(result.err)
                self.assertIn(message, result.err)
        self.assertEqual(svg.read_bytes(), before)

    def test_two_runs_by_step_in_one_picture(self):
        files = [self.tmp / f"{name}.jsonl" for name in ("one", "other")]
        for path, rate in zip(files, ("0.1", "0.01")):
            self.train("--metrics", path, "--metrics-every", "2", "--lr", rate)
        svg = self.tmp / "curve.svg"
        names = ",".join(map(str, files))
        result = self.run_program(testlib.program("train"), "--plot", names, "-o", svg)
        self.assertEqual((result.code, result.out, result.err), (0, "", ""))
        root = xml.etree.ElementTree.parse(svg).getroot()
        texts = [e.text for e in root.findall("{http://www.w3.org/2000/svg}text")]
        self.assertTrue(set(map(str, files)) < set(texts), texts)
        self.assertIn("step", texts)
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}polyline")), 8)
        for names, message in ((f"{files[0]},", "a name is empty"), (",".join(["x"] * 9), "more than 8 files")):
            result = self.run_program(testlib.program("train"), "--plot", names, "-o", svg)
            self.assertIn(message, result.err)


if __name__ == "__main__":
    testlib.main()
