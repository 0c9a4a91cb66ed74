# SPDX-License-Identifier: Apache-2.0
"""train: learning, independence of the number of workers, checkpoints, metrics."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess

import testlib
from testlib import idx

SMALL = ("--hidden", "24", "--batch-size", "32", "--device", "cpu")


def read_metrics(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_safetensors(path):
    """Header and data by hand, as the format's description says."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    return header, raw[8 + length :]


class Train(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = idx.write_dataset(self.tmp)

    def train(self, *args):
        result = self.run_program(
            testlib.program("train"), "--data", self.data, *SMALL, *args
        )
        self.assertEqual(result.code, 0, result)
        return result

    def ranks(self, count, *args):
        return testlib.start_ranks(self, count, ("train", "--data", self.data, *SMALL, *args))

    def test_learns_alone_and_says_so(self):
        result = self.train("--epochs", "8", "--lr", "0.05")
        self.assertEqual(result.err, "")
        self.assertIn("model 36-24-10 (1138 parameters), sgd, 600 training and 200 test", result.out)
        self.assertIn("1 worker on cpu", result.out)
        self.assertEqual(len(re.findall(r"(?m)^epoch \d/8: loss ", result.out)), 8)
        last = result.out.splitlines()[-1]
        accuracy = float(re.fullmatch(r"done: test accuracy (\d\.\d+) in .* samples/s", last)[1])
        self.assertGreater(accuracy, 0.9, result)
        self.assertNotIn("\r", result.out)

    def test_result_does_not_depend_on_the_number_of_workers(self):
        losses, accuracies = {}, {}
        for count in (1, 2, 4, 5):
            metrics = self.tmp / f"metrics{count}"
            args = ("--epochs", "3", "--batch-size", "30", "--metrics", str(metrics))
            for proc in self.ranks(count, *args):
                result = proc.wait()
                self.assertEqual(result.code, 0, result)
            events = read_metrics(metrics)
            self.assertEqual([e["event"] for e in events], ["epoch"] * 3 + ["done"])
            self.assertEqual({e["world_size"] for e in events[:3]}, {count})
            losses[count] = [e["loss"] for e in events[:3]]
            accuracies[count] = events[-1]["test_accuracy"]
        for count in (2, 4, 5):
            for one, other in zip(losses[1], losses[count]):
                self.assertAlmostEqual(other / one, 1, delta=1e-3, msg=losses)
            self.assertAlmostEqual(accuracies[count], accuracies[1], delta=0.02)

    def test_bf16_learns_like_f32(self):
        last = {}
        for count, precision in ((1, "f32"), (1, "bf16"), (2, "bf16")):
            metrics = self.tmp / f"metrics-{precision}-{count}"
            args = ("--epochs", "4", "--hidden", "48,24", "--precision", precision)
            for proc in self.ranks(count, *args, "--metrics", str(metrics)):
                result = proc.wait()
                if "no instructions for bfloat16" in result.err or "needs oneDNN" in result.err:
                    self.skipTest(result.err)
                self.assertEqual(result.code, 0, result)
            last[count, precision] = read_metrics(metrics)[3]
        f32 = last.pop((1, "f32"))
        for bf16 in last.values():
            self.assertAlmostEqual(bf16["loss"] / f32["loss"], 1, delta=0.01)
            self.assertNotEqual(bf16["loss"], f32["loss"])
            self.assertAlmostEqual(bf16["test_accuracy"], f32["test_accuracy"], delta=0.02)

    def test_bf16_is_refused_in_one_line_where_it_would_be_slow(self):
        result = self.run_program(
            testlib.program("train"), "--data", self.data, *SMALL, "--precision", "bf16",
            env={"ONEDNN_MAX_CPU_ISA": "AVX2"},
        )  # fmt: skip
        self.assertEqual(result.code, 1, result)
        self.assertRegex(result.err, r"\Atrain: --precision bf16: [^\n]*bfloat16[^\n]*\n\Z")

    def test_more_workers_than_samples_in_the_last_batch(self):
        # 600 samples in batches of 149 leave 4 for the last one; of 6 workers some get none.
        metrics = self.tmp / "metrics"
        for proc in self.ranks(6, "--epochs", "1", "--batch-size", "149", "--metrics", str(metrics)):
            result = proc.wait()
            self.assertEqual(result.code, 0, result)
        self.train("--epochs", "1", "--batch-size", "149", "--metrics", str(metrics))
        six, _, one, _ = read_metrics(metrics)
        self.assertAlmostEqual(six["loss"] / one["loss"], 1, delta=1e-5)
        # The last step must not count old gradients of a rank without samples.
        self.assertAlmostEqual(six["test_loss"] / one["test_loss"], 1, delta=1e-5)

    def test_metrics_are_as_documented(self):
        metrics = self.tmp / "metrics"
        metrics.write_text('{"event":"other"}\n')
        self.train("--epochs", "2", "--metrics", str(metrics))
        kept, first, second, done = read_metrics(metrics)
        self.assertEqual(kept, {"event": "other"})
        self.assertEqual(
            list(first),
            ["event", "epoch", "step", "loss", "test_loss", "test_accuracy", "samples_per_s", "world_size",
             "param_hash"],  # fmt: skip
        )
        self.assertEqual((first["epoch"], second["epoch"]), (1, 2))
        self.assertEqual((first["step"], second["step"]), (19, 38))
        self.assertEqual(list(done), ["event", "test_accuracy", "seconds", "samples_per_s", "param_hash"])
        self.assertEqual(done["test_accuracy"], second["test_accuracy"])

    def test_full_disk_costs_the_metrics_not_the_training(self):
        result = self.train("--epochs", "3", "--metrics", "/dev/full")
        self.assertEqual(
            result.err,
            "train: cannot write metrics to /dev/full, going on without: "
            "No space left on device\n",
        )

    def test_checkpoint_opens_anywhere(self):
        path = self.tmp / "m.safetensors"
        self.train("--epochs", "2", "--checkpoint", str(path), "--seed", "9")
        header, data = read_safetensors(path)
        metadata = header.pop("__metadata__")
        self.assertEqual(metadata["epoch"], "2")
        self.assertEqual(metadata["step"], str(2 * 19))
        self.assertEqual(metadata["seed"], "9")
        self.assertEqual(metadata["optimizer"], "sgd")
        names = [f"layers.{n}.{p}" for n in (0, 1) for p in ("weight", "bias")]
        self.assertEqual(set(header), set(names) | {f"optim.momentum.{n}" for n in names})
        self.assertEqual(header["layers.0.weight"]["shape"], [24, 36])
        self.assertEqual(header["layers.1.bias"]["shape"], [10])
        end = max(t["data_offsets"][1] for t in header.values())
        self.assertEqual(end, len(data))
        begin, end = header["layers.0.weight"]["data_offsets"]
        weights = struct.unpack(f"<{24 * 36}f", data[begin:end])
        self.assertTrue(all(abs(w) < 10 for w in weights) and any(weights))
        self.assertEqual(list(path.parent.glob("*.tmp")), [])

    def check_resume(self, count, *options):
        """Stops a run after its second epoch and resumes it: the same bits as without a stop."""
        whole, part = self.tmp / "whole", self.tmp / "part"
        for proc in self.ranks(count, "--epochs", "4", "--checkpoint", str(whole), *options):
            self.assertEqual(proc.wait().code, 0, proc.result())
        # Stopped: a run over more epochs at a constant rate is the same up to any of them.
        for proc in self.ranks(count, "--epochs", "2", "--checkpoint", str(part), *options):
            self.assertEqual(proc.wait().code, 0, proc.result())
        resume = ("--epochs", "4", "--checkpoint", str(part), "--resume", str(part))
        for proc in self.ranks(count, *resume, *options):
            result = proc.wait()
            self.assertEqual(result.code, 0, result)
            self.assertNotIn("epoch 2/4", result.out)
        self.assertEqual(whole.read_bytes(), part.read_bytes())

    def test_resume_goes_on_bit_by_bit(self):
        for options in (("--optimizer", "sgd"), ("--optimizer", "adamw", "--batch-size", "50")):
            with self.subTest(options=options):
                self.check_resume(2, "--schedule", "constant", *options)

    def test_resume_after_a_kill_goes_on_bit_by_bit(self):
        whole, part = self.tmp / "whole", self.tmp / "part"
        args = ("--epochs", "300", "--hidden", "64")
        self.train(*args, "--checkpoint", str(whole))
        # A metrics file that nobody empties stops the victim long before its last epoch.
        fifo = self.tmp / "fifo"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        victim = self.start(
            testlib.program("train"), "--data", self.data, *SMALL, *args,
            "--checkpoint", part, "--metrics", fifo,
        )  # fmt: skip
        victim.wait_for("epoch 3/300")
        victim.signal(signal.SIGKILL)
        self.assertEqual(victim.wait().code, -signal.SIGKILL)
        self.train(*args, "--checkpoint", str(part), "--resume", str(part))
        self.assertEqual(whole.read_bytes(), part.read_bytes())

    def test_resume_at_the_end_only_evaluates(self):
        path, metrics = self.tmp / "m", self.tmp / "metrics"
        self.train("--epochs", "2", "--checkpoint", str(path), "--metrics", str(metrics))
        again = self.train("--epochs", "2", "--resume", str(path), "--metrics", str(metrics))
        self.assertNotIn("samples/s", again.out)
        _, _, before, after = read_metrics(metrics)
        self.assertEqual(before["test_accuracy"], after["test_accuracy"])

    def test_dead_peer_ends_the_others_at_once(self):
        procs = self.ranks(3, "--epochs", "100000")
        procs[0].wait_for("epoch 1/")
        procs[2].signal(signal.SIGKILL)
        for proc in procs[:2]:
            result = proc.wait()
            self.assertEqual(result.code, 1, result)
            self.assertRegex(result.err, r"\Atrain: [^\n]*rank 2[^\n]*\n\Z")

    def test_terminal_shows_one_rewritten_line(self):
        terminal, inside = pty.openpty()
        proc = subprocess.Popen(
            [testlib.program("train"), "--data", "synthetic", "--device", "cpu", "--epochs", "2",
             "--hidden", "2048"],
            stdin=subprocess.DEVNULL, stdout=inside, env={"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        os.close(inside)
        seen = b""
        try:
            while True:
                try:
                    piece = os.read(terminal, 65536)
                except OSError:  # the last one has closed the other end
                    break
                seen += piece
        finally:
            os.close(terminal)
            proc.kill()
        self.assertEqual(proc.wait(testlib.DEADLINE), 0, seen)
        self.assertRegex(seen, rb"\r\x1b\[Kepoch 1/2: step \d+/\d+, loss \d+\.\d+, ")
        self.assertRegex(seen, rb"accuracy \d\.\d+, \d+ samples/s, all-reduce \d+ %, \d+ s left")
        self.assertRegex(seen, rb"\r\x1b\[Kepoch 2/2: loss [^\n]*\n")
        self.assertRegex(seen, rb"\ndone: test accuracy [^\n\r]*\r\n\Z")

    def test_error_file_names_the_reason(self):
        error = self.tmp / "error.json"
        result = self.run_program(
            testlib.program("train"), "--data", "/no/such/folder",
            env={"TORCHELASTIC_ERROR_FILE": error},
        )  # fmt: skip
        self.assertEqual(result.code, 1, result)
        self.assertIn("/no/such/folder", error.read_text())
        result = self.run_program(
            testlib.program("train"), "--data", self.tmp,
            env={"TORCHELASTIC_ERROR_FILE": error, "RANK": "0", "WORLD_SIZE": "x"},
        )  # fmt: skip
        self.assertEqual(result.code, 1, result)
        self.assertIn("WORLD_SIZE", error.read_text())


if __name__ == "__main__":
    testlib.main()
