# SPDX-License-Identifier: Apache-2.0
"""A data set that a small model learns within seconds, as files that train reads, and what train says."""

import json
import random

CLASSES = 10
WRONG = 0.2


def _idx(path, shape, content):
    header = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    path.write_bytes(header + content)


def write(folder, train, test, side, seed=1):
    """Images of a pattern for each class under noise that hides it in a single pixel. Some labels are wrong,
    so that losses do not fall to zero, where they could not be compared."""
    rng = random.Random(seed)
    pixels = side * side
    patterns = [int.from_bytes(bytes(rng.choice((0, 64)) for _ in range(pixels)), "little") for _ in range(CLASSES)]
    low = int.from_bytes(b"\x7f" * pixels, "little")
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("t10k", test)):
        classes = [rng.randrange(CLASSES) for _ in range(count)]
        images = b"".join(
            ((int.from_bytes(rng.randbytes(pixels), "little") & low) + patterns[one]).to_bytes(pixels, "little")
            for one in classes
        )
        labels = bytes(rng.randrange(CLASSES) if rng.random() < WRONG else one for one in classes)
        _idx(folder / f"{name}-images-idx3-ubyte", (count, side, side), images)
        _idx(folder / f"{name}-labels-idx1-ubyte", (count,), labels)


def read(folder, name):
    """(images as bytes, labels as bytes, pixels of an image)"""
    images = (folder / f"{name}-images-idx3-ubyte").read_bytes()
    side = int.from_bytes(images[8:12], "big")
    return images[16:], (folder / f"{name}-labels-idx1-ubyte").read_bytes()[8:], side * side


def metrics(path):
    """The lines of --metrics, but for one that is being written."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def epochs(path):
    return [line for line in metrics(path) if "test_loss" in line]


def last_step(path):
    return max((line["step"] for line in metrics(path) if "step" in line), default=0)


def tensors(path):
    """name: (shape, bytes) of a safetensors file of float32."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, found = json.loads(content[8 : 8 + length]), {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = entry["shape"], content[8 + length + begin : 8 + length + end]
    return found
