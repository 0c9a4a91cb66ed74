# SPDX-License-Identifier: Apache-2.0
"""What PyTorch says of the test images of folder argv[1] with the model in file argv[2], whose layers
go into nn.Linear as they are: a line of "class probability" for each image."""

import gzip
import pathlib
import sys

import numpy
import torch
from safetensors.torch import load_file


def images(name):
    """Rows of bytes from an IDX file."""
    raw = gzip.decompress((pathlib.Path(sys.argv[1]) / f"{name}-images-idx3-ubyte.gz").read_bytes())
    count, height, width = (int.from_bytes(raw[i : i + 4], "big") for i in (4, 8, 12))
    return numpy.frombuffer(raw, numpy.uint8, offset=16).reshape(count, height * width)


train = images("train").astype(numpy.float64) / 255
mean, deviation = train.mean(), train.std()
tensors = load_file(sys.argv[2])
parts = []
while f"layers.{len(parts) // 2}.weight" in tensors:
    prefix = f"layers.{len(parts) // 2}."
    weight, bias = tensors[prefix + "weight"], tensors[prefix + "bias"]
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
    linear.load_state_dict({"weight": weight, "bias": bias})
    parts += [linear, torch.nn.ReLU()]
model = torch.nn.Sequential(*parts[:-1])
with torch.no_grad():
    x = torch.from_numpy((images("t10k") / 255.0 - mean) / deviation).float()
    probability, found = model(x).softmax(1).max(1)
for one, p in zip(found.tolist(), probability.tolist()):
    print(one, p)
