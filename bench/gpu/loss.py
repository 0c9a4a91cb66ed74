# SPDX-License-Identifier: Apache-2.0
"""Whether train's losses are PyTorch's, on the same data from the same parameters.

usage: loss.py --build DIR [--small]

Each step takes the whole training set, so that the order of the samples does not matter, and each is an
epoch, whose loss train writes down. Prints TAP and a row for each precision; exit code 77 without PyTorch.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from gpu import data, process  # noqa: E402 the path comes first

SKIP = 77
RATE, DECAY = 1e-3, 0.01
# Relative, of the loss of any step; f32 sums in another order, the others also round.
TOLERANCES = {"f32": 2e-3, "tf32": 5e-3, "bf16": 3e-2, "fp8": 0.1}


def reference(folder, model, steps):
    """Losses of so many steps, by PyTorch in float64."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels, pixels = data.read(folder, "train")
    raw = torch.frombuffer(bytearray(images), dtype=torch.uint8).reshape(-1, pixels).double() / 255
    x = ((raw - raw.mean()) / raw.std(unbiased=False)).to(device)
    y = torch.frombuffer(bytearray(labels), dtype=torch.uint8).long().to(device)
    stored, parts = data.tensors(model), []
    while f"layers.{len(parts) // 2}.weight" in stored:
        found = []
        for kind in ("weight", "bias"):
            shape, content = stored[f"layers.{len(parts) // 2}.{kind}"]
            found.append(torch.frombuffer(bytearray(content), dtype=torch.float32).reshape(shape).double())
        linear = torch.nn.Linear(found[0].shape[1], found[0].shape[0], dtype=torch.float64)
        linear.load_state_dict({"weight": found[0], "bias": found[1]})
        parts += [linear, torch.nn.ReLU()]
    net = torch.nn.Sequential(*parts[:-1]).to(device)
    optimizer, losses = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=DECAY), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(args, folder, tmp, *options):
    """Losses of the epochs; the data are one batch."""
    metrics, count = tmp / "m.jsonl", len(data.read(folder, "train")[1])
    metrics.unlink(missing_ok=True)
    argv = [args.build / "train", "--device", args.device, "--data", folder, "--batch-size", count, "--schedule", "constant",
            "--optimizer", "adamw", "--metrics", metrics, "--hidden", "24,16" if args.small else "256,128", *options]  # fmt: skip
    done = subprocess.run(process.tied(argv), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.strip()
    return [line["loss"] for line in data.epochs(metrics)], ""


def compare(args, tmp):
    """Yields (name, whether it is right, words)."""
    folder, model, steps = tmp / "data", tmp / "start.safetensors", 10 if args.small else 30
    data.write(folder, *((96, 40, 6) if args.small else (4096, 512, 28)))
    # The smallest rate that there is leaves the parameters as they were drawn.
    _, why = train(args, folder, tmp, "--epochs", 1, "--lr", 1e-12, "--weight-decay", 0, "--checkpoint", model)
    if why:
        yield "the parameters at the start", False, why
        return
    expected = reference(folder, model, steps)
    for precision, tolerance in TOLERANCES.items():
        got, why = train(args, folder, tmp, "--epochs", steps, "--lr", RATE, "--weight-decay", DECAY, "--precision", precision)
        if got is None:
            can_not = "capability" in why or "CPUs do not" in why
            yield precision, can_not, f"not run: {why}"
            continue
        worst = max(abs(a - b) / b for a, b in zip(got, expected))
        print(json.dumps({"what": f"loss_against_torch_{precision}", "value": worst, "last": got[-1], "torch": expected[-1]}))
        yield precision, len(got) == steps and worst <= tolerance, f"{worst:.2e} apart, {tolerance} is allowed; {got}, {expected}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a rehearsal without a GPU")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    try:
        import torch.nn  # noqa: F401 only whether it is there; a folder of the name torch is not it
    except ImportError as why:
        print(f"1..0 # SKIP {why}")
        return SKIP
    tmp, bad, number = pathlib.Path(tempfile.mkdtemp(prefix="gpu-loss.")), 0, 0
    try:
        for name, good, words in compare(args, tmp):
            number += 1
            bad += not good
            if not good:
                print(f"# {words}")
            print(f"{'ok' if good else 'not ok'} {number} - the losses of PyTorch: {name}", flush=True)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    print(f"1..{number}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
