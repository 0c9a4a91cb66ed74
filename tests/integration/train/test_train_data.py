# SPDX-License-Identifier: Apache-2.0
"""train: the forms of data sets, what is done to images, and what workers share."""

import random
import struct

import testlib
from testlib import idx

PIXELS = idx.SIDE * idx.SIDE


def npy(descr, shape, data):
    shape = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


class TrainData(testlib.Case):
    def train(self, folder, *args, code=0):
        path = self.tmp / "model"
        path.unlink(missing_ok=True)
        result = self.run_program(
            testlib.program("train"), "--data", folder, "--hidden", "16", "--batch-size", "32",
            "--epochs", "3", "--device", "cpu", "--checkpoint", path, *args,
        )  # fmt: skip
        self.assertEqual(result.code, code, result)
        if code != 0:
            self.assert_one_line(result.err)
            return result.err
        return path.read_bytes()

    def folder(self, name):
        path = self.tmp / name
        path.mkdir()
        return path

    def as_arrays(self, name, images, labels):
        """The IDX set again, by functions from bytes to an array."""
        folder = self.folder(name)
        for prefix, mine in (("train", "train"), ("t10k", "test")):
            pixels = (self.idx / f"{prefix}-images-idx3-ubyte").read_bytes()[16:]
            values = (self.idx / f"{prefix}-labels-idx1-ubyte").read_bytes()[8:]
            (folder / f"{mine}-images.npy").write_bytes(images(pixels))
            (folder / f"{mine}-labels.npy").write_bytes(labels(values))
        return folder

    def setUp(self):
        super().setUp()
        self.idx = self.folder("idx")
        idx.write_dataset(self.idx, packed=False)

    def test_the_same_images_in_any_form_train_the_same_model(self):
        expected = self.train(self.idx)
        packed = self.folder("packed")
        idx.write_dataset(packed)
        self.assertEqual(self.train(packed), expected)
        side = idx.SIDE
        for name, images, labels in (
            (
                "bytes",
                lambda b: npy("|u1", (len(b) // PIXELS, side, side), b),
                lambda b: npy("|u1", (len(b),), b),
            ),
            (
                "floats",
                lambda b: npy(
                    "<f4", (len(b) // PIXELS, PIXELS), struct.pack(f"<{len(b)}f", *(v / 255 for v in b))
                ),
                lambda b: npy("<i8", (len(b), 1), struct.pack(f"<{len(b)}q", *b)),
            ),
        ):
            with self.subTest(name=name):
                self.assertEqual(self.train(self.as_arrays(name, images, labels)), expected)

    def test_wrong_arrays_are_named(self):
        good = lambda b: npy("|u1", (len(b) // PIXELS, idx.SIDE, idx.SIDE), b)
        plain = lambda b: npy("|u1", (len(b),), b)
        for number, (images, labels, message) in enumerate((
            (lambda b: b"no array", plain, "train-images.npy: not a .npy file"),
            (lambda b: npy("<f8", (1,), bytes(8)), plain, "items of type <f8"),
            (lambda b: npy("<i2", (2, 18), bytes(72)), plain, "images are uint8 or float32"),
            (lambda b: npy("<f4", (1, 1), b"\0\0\xc0\x7f"), plain, "item 0 is not a finite number"),
            (good, lambda b: plain(b[1:]), "599 labels for 600 images"),
            (good, lambda b: npy("|i1", (len(b),), b"\xff" * len(b)), "label 0 is not within"),
            (good, lambda b: npy("<f4", (len(b),), bytes(4 * len(b))), "labels must be one whole number"),
        )):  # fmt: skip
            with self.subTest(message=message):
                folder = self.as_arrays(f"wrong{number}", images, labels)
                self.assertIn(message, self.train(folder, code=1))

    def cifar(self, records):
        folder = self.folder("cifar")
        rng = random.Random(3)
        patterns = [rng.randbytes(3072) for _ in range(10)]
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            labels = [rng.randrange(10) for _ in range(records)]
            (folder / f"{name}.bin").write_bytes(
                b"".join(bytes([label]) + patterns[label] for label in labels)
            )
        return folder

    def test_cifar_folder_is_read(self):
        folder = self.cifar(40)
        result = self.run_program(
            testlib.program("train"), "--data", folder, "--hidden", "32", "--epochs", "8",
            "--batch-size", "20", "--device", "cpu", "--augment", "flip,shift",
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertIn("model 3072-32-10", result.out)
        self.assertIn("200 training and 40 test images", result.out)
        (folder / "data_batch_3.bin").write_bytes(bytes(3072))
        self.assertIn(
            "data_batch_3.bin: 3072 bytes are not a whole number of CIFAR-10 records of 3073",
            self.train(folder, code=1),
        )
        (folder / "data_batch_3.bin").unlink()
        self.assertIn("data_batch_3.bin", self.train(folder, code=1))

    def test_augmentation_changes_training_and_survives_an_interruption(self):
        plain = self.train(self.idx)
        both = self.train(self.idx, "--augment", "flip,shift")
        self.assertNotEqual(both, plain)
        self.assertEqual(both, self.train(self.idx, "--augment", "shift,flip"))
        folder = self.tmp / "steps"
        args = ("--augment", "flip,shift", "--checkpoint-dir", folder, "--checkpoint-every", "13")
        self.train(self.idx, *args, "--keep-checkpoints", "100")
        again = self.train(
            self.idx, "--augment", "flip,shift", "--resume", folder / "step-000000000013.safetensors"
        )
        self.assertEqual(again, both)
        self.assertIn("'x' is not one of flip, shift", self.train(self.idx, "--augment", "flip,x", code=2))

    def test_predictions_are_those_that_the_accuracy_counts(self):
        self.train(self.idx)
        out = self.tmp / "predictions.csv"
        procs = testlib.start_ranks(
            self, 2, ("train", "--data", self.idx, "--hidden", "16", "--device", "cpu", "--eval-only",
                      "--resume", self.tmp / "model", "--predict", out),
        )  # fmt: skip
        results = [proc.wait() for proc in procs]
        self.assertEqual([result.code for result in results], [0, 0], results)
        head, *rows = [line.split(",") for line in out.read_text().splitlines()]
        self.assertEqual(head, ["index", "class", "probability"])
        self.assertEqual([int(row[0]) for row in rows], list(range(200)))
        self.assertTrue(all(0.1 <= float(row[2]) <= 1 for row in rows))
        labels = (self.idx / "t10k-labels-idx1-ubyte").read_bytes()[8:]
        right = sum(int(row[1]) == label for row, label in zip(rows, labels)) / 200
        self.assertIn(f"done: test accuracy {right:.4f}", results[0].out)
        self.assertNotIn("epoch 1/", results[0].out)
        empty = self.folder("empty")
        self.assertIn(
            f"{empty} holds no whole checkpoint that --eval-only could test",
            self.train(
                self.idx, "--eval-only", "--resume", "auto", "--checkpoint-dir", empty, code=1
            ),
        )
        self.assertIn("--eval-only needs --resume", self.train(self.idx, "--eval-only", code=2))
        self.assertIn(
            "/no/such/p", self.train(self.idx, "--epochs", "100000", "--predict", "/no/such/p", code=1)
        )

    def test_workers_of_a_host_share_one_copy(self):
        packed = self.folder("packed")
        idx.write_dataset(packed)
        procs = testlib.start_ranks(
            self, 3, ("train", "--data", packed, "--hidden", "16", "--device", "cpu",
                      "--epochs", "1000000"),
        )  # fmt: skip
        procs[0].wait_for("epoch 1/")
        for proc in procs:
            with open(f"/proc/{proc.pid}/maps") as maps:
                self.assertIn("/memfd:ctrun-dataset", maps.read(), proc)
        for proc in procs:
            proc.kill()

    def test_a_worker_that_cannot_load_tells_the_others_why(self):
        procs = testlib.start_ranks(self, 2, ("train", "--data", "/no/such/folder"))
        for proc in procs:
            result = proc.wait()
            self.assertEqual(result.code, 1, result)
            self.assertIn("data folder /no/such/folder: No such file", result.err)


if __name__ == "__main__":
    testlib.main()
