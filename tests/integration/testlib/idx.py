# SPDX-License-Identifier: Apache-2.0
"""Small data sets in IDX files, as `train --data` reads them."""

import gzip
import random
import struct

SIDE = 6
CLASSES = 10


def images(count, pixels, side=SIDE):
    return struct.pack(">IIII", 0x803, count, side, side) + bytes(pixels)


def labels(values):
    return struct.pack(">II", 0x801, len(values)) + bytes(values)


def read_labels(path):
    """The labels in a gzipped file."""
    return list(gzip.decompress(path.read_bytes())[8:])


def write_dataset(folder, train=600, test=200, packed=True):
    """Ten noisy patterns that an MLP learns in a few epochs; the same bytes each time."""
    rng = random.Random(5)
    patterns = [[rng.randrange(256) for _ in range(SIDE * SIDE)] for _ in range(CLASSES)]
    for prefix, count in (("train", train), ("t10k", test)):
        values = [rng.randrange(CLASSES) for _ in range(count)]
        pixels = [
            (p * 2 + rng.randrange(256) * 3) // 5 for value in values for p in patterns[value]
        ]
        for kind, content in (
            ("images-idx3", images(count, pixels)),
            ("labels-idx1", labels(values)),
        ):
            write(folder, f"{prefix}-{kind}-ubyte", content, packed)
    return str(folder)


def write(folder, name, content, packed=False):
    """Writes one file, plain or gzipped, and removes the other form of it."""
    plain, gz = folder / name, folder / (name + ".gz")
    for old in (plain, gz):
        old.unlink(missing_ok=True)
    if packed:
        gz.write_bytes(gzip.compress(content, 1))
    else:
        plain.write_bytes(content)
