# SPDX-License-Identifier: Apache-2.0
"""train: bad input gets one clear line and its exit code, before anything is lost."""

import gzip
import struct

import testlib
from testlib import idx

LABELS = "train-labels-idx1-ubyte"
IMAGES = "train-images-idx3-ubyte"


class TrainInput(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = idx.write_dataset(self.tmp, train=40, test=10)
        self.base = ("--data", self.data, "--hidden", "8", "--epochs", "1", "--device", "cpu")

    def refused(self, code, message, *args):
        result = self.run_program(testlib.program("train"), *args)
        self.assertEqual(result.code, code, result)
        self.assert_one_line(result.err)
        self.assertTrue(result.err.startswith("train: "), result)
        self.assertIn(message, result.err)
        self.assertEqual(result.out, "")

    def test_wrong_options_are_refused(self):
        for args, message in (
            (("--nope",), "unknown option --nope"),
            (("--epochs", "x"), "--epochs: 'x' is not a whole number"),
            (("--hidden", "0"), "'0' in '0' is not a layer size within"),
            (("--hidden", "8,99999999999999999999"), "is not a layer size"),
            (("--batch_size=0",), "--batch-size: 0 is not within"),
            (("--device", "tpu"), "'tpu' is not one of auto|cpu|cuda"),
            (("what",), "unexpected argument 'what'"),
            (("--a\nb\x1b[31m",), "unknown option --a?b?[31m"),
        ):
            with self.subTest(args=args):
                self.refused(2, message, *args)

    def test_no_restart_for_what_it_cannot_help(self):
        for code, message, args in (
            (2, "unknown option --nope", ("--nope",)),
            (1, "nowhere", ("--data", self.tmp / "nowhere")),
            (1, "nowhere", (*self.base, "--resume", self.tmp / "nowhere")),
            (2, "2 workers cannot share 1 shards", (*self.base, "--consistent=1")),
        ):
            with self.subTest(args=args):
                result = self.ctrun(
                    "-n", "2", "--max-restarts", "1000", testlib.program("train"), *args
                )
                self.assertEqual(result.code, code, result)
                self.assertIn(message, result.err)
                self.assertNotIn("restarting", result.err)
                self.assertRegex(result.err, r"ctrun: rank \d says that a restart cannot help")
        # Without that word an exit code has no such meaning.
        script = ("--no-python", "sh", "-c", "exit 2")
        other = self.ctrun("-n", "2", "--max-restarts", "2", *script)
        self.assertEqual((other.code, other.err.count("restarting")), (2, 2), other)

    def test_ranks_that_disagree_end_at_once(self):
        train = f"exec {testlib.program('train')} --data {self.data} --device cpu --hidden"
        result = self.ctrun(
            "-n", "2", "--max-restarts", "1000", "--no-python",
            "sh", "-c", f"{train} $((8 + RANK))".replace("$", "$$"),
        )  # fmt: skip
        self.assertEqual(result.code, 1, result)
        self.assertIn("rank 1 has other options, data or checkpoint than rank 0", result.err)
        self.assertNotIn("restarting", result.err)

    def test_a_model_beyond_the_memory_is_refused(self):
        self.refused(
            1, "layer 1 (1048576 to 1048576)", *self.base, "--hidden", "1048576,1048576"
        )

    def test_damaged_data_files_are_refused(self):
        good = gzip.decompress((self.tmp / (IMAGES + ".gz")).read_bytes())
        for name, content, packed, message in (
            (IMAGES, good[:-1], False, IMAGES + ": truncated: 1455 of the 1456 bytes"),
            (IMAGES, good + b"x", True, IMAGES + ".gz: oversized"),
            (IMAGES, b"\0\0\x08\x01" + good[4:], True, IMAGES + ".gz: wrong magic 0x00000801"),
            (IMAGES, good[:4] + b"\xff" * 12, True, "promises more than"),
            (IMAGES, b"", False, IMAGES + ": truncated: 0 bytes"),
            (LABELS, idx.labels([1] * 39), True, "40 images but 39 labels"),
            (LABELS, idx.labels([1] * 39 + [222]), True, "label 222 of the training set is out of"),
        ):
            with self.subTest(message=message):
                idx.write_dataset(self.tmp, train=40, test=10)
                idx.write(self.tmp, name, content, packed)
                self.refused(1, message, *self.base)

    def test_damaged_gzip_and_bomb(self):
        path = self.tmp / (LABELS + ".gz")
        whole = path.read_bytes()
        path.write_bytes(whole[:-9])
        self.refused(1, LABELS + ".gz: truncated gzip data", *self.base)
        path.write_bytes(whole[:12] + bytes(b ^ 255 for b in whole[12:]))
        self.refused(1, LABELS + ".gz: damaged gzip data", *self.base)
        path.write_bytes(gzip.compress(idx.labels([1] * 40) + bytes(1 << 26)))
        self.refused(1, LABELS + ".gz: oversized: inflates to more than the 48", *self.base)

    def test_missing_data_files_are_named(self):
        (self.tmp / (LABELS + ".gz")).unlink()
        self.refused(1, f"{self.data}: holds neither {LABELS} nor {LABELS}.gz", *self.base)
        self.refused(
            1, "data folder /no/such: No such file or directory", *self.base, "--data", "/no/such"
        )
        (self.tmp / "empty").mkdir()
        self.refused(1, "nor train-images.npy", *self.base, "--data", str(self.tmp / "empty"))
        file = str(self.tmp / (IMAGES + ".gz"))
        self.refused(1, f"{file} is a file: --data names the folder", *self.base, "--data", file)

    def test_paths_are_checked_before_training(self):
        for option, path, message in (
            ("--checkpoint", "/no/such/c", "cannot write checkpoint /no/such/c"),
            ("--checkpoint", str(self.tmp), "it is a folder"),
            ("--checkpoint", "/dev/null", "not a regular file"),
            ("--metrics", "/no/such/m", "cannot write metrics to /no/such/m"),
            ("--metrics", str(self.tmp), "Is a directory"),
            ("--resume", "/no/such/r", "cannot open /no/such/r"),
            ("--predict", "/no/such/p", "--predict: cannot write /no/such/p"),
        ):
            with self.subTest(option=option, path=path):
                self.refused(1, message, *self.base, option, path)

    def test_unfit_checkpoints_are_refused(self):
        path = self.tmp / "c"
        result = self.run_program(
            testlib.program("train"), *self.base, "--checkpoint", str(path)
        )
        self.assertEqual(result.code, 0, result)
        whole = path.read_bytes()
        resume = (*self.base, "--resume", str(path))
        self.refused(
            1, "another shape: tensor layers.0.weight is [8, 36] there but [9, 36]",
            *resume, "--hidden", "9",
        )  # fmt: skip
        self.refused(1, "holds no tensor layers.2.weight", *resume, "--hidden", "8,10")
        self.refused(1, "was trained with --optimizer sgd", *resume, "--optimizer", "adamw")
        self.refused(1, "was trained with --seed 1, not 2", *resume, "--seed", "2")
        for content, message in (
            (whole[:-1], "truncated"),
            (whole[:100], "does not fit into 100"),
            (whole[:5], "truncated: 5 bytes"),
            (struct.pack("<Q", 2**63) + whole[8:], "a header of 9223372036854775808 bytes"),
            (whole + b"x", "bytes follow the last tensor"),
            (struct.pack("<Q", 2) + b"{}", "no optimizer"),
            (b"PK\3\4" + bytes(100), "not a safetensors file"),
        ):
            with self.subTest(message=message):
                path.write_bytes(content)
                self.refused(1, message, *resume)
                # A file that was refused is left as it was.
                self.assertEqual(path.read_bytes(), content)

    def test_divergence_is_named_and_keeps_the_checkpoint(self):
        path = self.tmp / "c"
        args = (*self.base, "--checkpoint", str(path))
        self.assertEqual(self.run_program(testlib.program("train"), *args).code, 0)
        before = path.read_bytes()
        result = self.run_program(
            testlib.program("train"), *args, "--lr", "1e6", "--epochs", "50", "--batch-size", "4"
        )
        self.assertEqual(result.code, 1, result)
        self.assert_one_line(result.err)
        self.assertIn("training diverged, try a smaller --lr than 1e+06", result.err)
        self.assertIn("epoch 1", result.err)
        self.assertEqual(path.read_bytes(), before)

    def test_broken_environment_is_refused(self):
        for env, message in (
            ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK"),
            ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK"),
        ):
            with self.subTest(env=env):
                env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", **env}
                result = self.run_program(testlib.program("train"), *self.base, env=env)
                self.assertEqual(result.code, 1, result)
                self.assert_one_line(result.err)
                self.assertIn(message, result.err)

    def test_ranks_must_agree(self):
        _, port = self.start_ctrdzvd()
        procs = [
            self.start(
                testlib.program("train"), *self.base, "--lr", f"0.{rank + 1}",
                env={
                    "RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                    "TORCHELASTIC_USE_AGENT_STORE": "True",
                },
            )
            for rank in range(2)
        ]  # fmt: skip
        for proc in procs:
            result = proc.wait()
            self.assertEqual(result.code, 1, result)
            self.assertIn("rank 1 has other options, data or checkpoint than rank 0", result.err)


if __name__ == "__main__":
    testlib.main()
