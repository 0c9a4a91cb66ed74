#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The steps that bench/programs/gpu.c times, by PyTorch or JAX.

usage: gpu_peers.py WAY SECONDS BATCH:PRECISION:FEATURES:HIDDEN[,HIDDEN...]:CLASSES...

WAY is one of torch-eager, torch-graph (the whole step as a CUDA graph), torch-compiled (with the fused
AdamW), torch-compiled-graph (that as a CUDA graph), jax-scan (lax.scan over the steps of an epoch). One
process for each way: what one of them allocates or breaks is gone with it. Prints a line of JSON for
each case as soon as it is known. Data, order and shapes are as in gpu.c. What cannot run says so on
stderr; exit code 77 if the package or a GPU is missing, 1 if no case could run.
"""

import json
import sys
import time

SKIP = 77
NAMES = {
    "torch-eager": "torch eager", "torch-graph": "torch graph", "torch-compiled": "torch compiled",
    "torch-compiled-graph": "torch compiled graph", "jax-scan": "jax scan",
}  # fmt: skip


class Case:
    def __init__(self, text, seconds):
        batch, self.precision, features, self.hidden_text, classes = text.split(":")
        self.batch, self.features, self.classes, self.seconds = int(batch), int(features), int(classes), seconds
        self.hidden = [int(size) for size in self.hidden_text.split(",")]
        self.samples = 60000
        while self.samples * self.features > 1 << 30 and self.samples > 4 * self.batch:
            self.samples //= 2
        self.steps = max(1, self.samples // self.batch)

    def best_of(self, run_epoch):
        """Microseconds of a step in the fastest epoch, and on average."""
        run_epoch()
        times, until = [], time.monotonic() + self.seconds
        while len(times) < 3 or time.monotonic() < until:
            start = time.perf_counter()
            run_epoch()
            times.append((time.perf_counter() - start) * 1e6 / self.steps)
        return min(times), sum(times) / len(times)

    def tell(self, program, figures):
        best, mean = figures
        print(json.dumps({
            "program": program, "features": self.features, "hidden": self.hidden_text, "classes": self.classes,
            "batch": self.batch, "precision": self.precision, "us_per_step": round(best, 3),
            "us_mean": round(mean, 3), "samples_per_s": round(self.batch * 1e6 / best),
        }), flush=True)  # fmt: skip


def torch_step(case, way):
    """A function that takes the indices of a batch and does its step."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.backends.cuda.matmul.allow_tf32 = case.precision == "tf32"
    cuda = torch.device("cuda", 0)
    images = torch.randint(0, 256, (case.samples, case.features), dtype=torch.uint8, device=cuda)
    labels = torch.randint(0, case.classes, (case.samples,), device=cuda)
    graph, compiled = way.endswith("graph"), "compiled" in way
    layers, size = [], case.features
    for width in case.hidden:
        layers += [nn.Linear(size, width), nn.ReLU()]
        size = width
    model = nn.Sequential(*layers, nn.Linear(size, case.classes)).to(cuda)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=graph or compiled, capturable=graph)

    def loss_of(index):
        x = (images[index].float() / 255 - 0.5) / 0.3
        with torch.autocast("cuda", torch.bfloat16, enabled=case.precision == "bf16"):
            y = model(x)
        return functional.cross_entropy(y.float(), labels[index])

    if compiled:
        loss_of = torch.compile(loss_of)

    def step(index):
        optimizer.zero_grad(set_to_none=not graph)
        loss_of(index).backward()
        optimizer.step()

    if not graph:
        return step
    index = torch.zeros(case.batch, dtype=torch.long, device=cuda)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(index)
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        step(index)

    def replay(chosen):
        index.copy_(chosen)
        recorded.replay()

    # A recording knows addresses and keeps nothing alive that is there. `step` holds the data, the model
    # and the optimizer, without which the recorded kernels would read memory that is somebody else's by then.
    replay.step = step
    return replay


def run_torch(case, way):
    import torch

    step = torch_step(case, way)

    def epoch():
        order = torch.randperm(case.samples, device="cuda")
        for i in range(case.steps):
            step(order[i * case.batch : (i + 1) * case.batch])
        torch.cuda.synchronize()

    case.tell(NAMES[way], case.best_of(epoch))
    del step
    torch.cuda.empty_cache()


def jax_epoch(case):
    """A compiled function of the state, the data and a key, which gives the new state."""
    import jax
    import jax.numpy as jnp

    kind = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    jax.config.update("jax_default_matmul_precision", "highest" if case.precision == "f32" else "tensorfloat32")

    def loss_of(params, x, y):
        for i, (w, b) in enumerate(params):
            x = x @ w.astype(kind) + b.astype(kind)
            x = jax.nn.relu(x) if i + 1 < len(params) else x.astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    # The data is an argument: what a jitted function closes over becomes a constant of the program.
    def epoch(state, images, labels, key):
        def step(state, index):
            params, m, v, t = state
            x = ((images[index].astype(jnp.float32) / 255 - 0.5) / 0.3).astype(kind)
            loss, grads = jax.value_and_grad(loss_of)(params, x, labels[index])
            t = t + 1
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
            rate = 1e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            params = jax.tree.map(lambda p, m, v: p * (1 - 1e-5) - rate * m / (jnp.sqrt(v) + 1e-8), params, m, v)
            return (params, m, v, t), loss

        order = jax.random.permutation(key, case.samples)[: case.steps * case.batch]
        return jax.lax.scan(step, state, order.reshape(case.steps, case.batch))

    return jax.jit(epoch, donate_argnums=0)


def run_jax(case, way):
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    images = jax.random.randint(key, (case.samples, case.features), 0, 256, jnp.int32).astype(jnp.uint8)
    labels = jax.random.randint(key, (case.samples,), 0, case.classes, jnp.int32)
    sizes = [case.features, *case.hidden, case.classes]
    params = [(jax.random.normal(key, (a, b)) * 0.02, jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])]
    state = [(params, jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params), jnp.float32(0))]
    epoch = jax_epoch(case)

    def run():
        state[0], losses = epoch(state[0], images, labels, key)
        losses.block_until_ready()

    case.tell(NAMES[way], case.best_of(run))


def missing(way):
    """Why this way cannot be tried at all, or None."""
    try:
        if way.startswith("torch"):
            import torch.cuda  # a folder of the name torch is not it

            return None if torch.cuda.is_available() else "PyTorch sees no GPU"
        import jax.numpy

        return None if jax.default_backend() == "gpu" else "JAX sees no GPU"
    except ImportError as why:
        return str(why)


def main(argv):
    if len(argv) < 3 or argv[0] not in NAMES:
        print(__doc__, file=sys.stderr)
        return 2
    way, worked = argv[0], 0
    why = missing(way)
    if why is not None:
        print(f"1..0 # SKIP {why}")
        return SKIP
    for text in argv[2:]:
        try:
            (run_jax if way.startswith("jax") else run_torch)(Case(text, float(argv[1])), way)
            worked += 1
        except Exception as error:  # what one case cannot do, another may
            words = str(error).splitlines() or [type(error).__name__]
            print(f"gpu_peers: {way} {text}: {words[0]}", file=sys.stderr, flush=True)
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
