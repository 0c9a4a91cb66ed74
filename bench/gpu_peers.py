#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The steps that bench/programs/gpu.c times, by PyTorch and JAX where they can be imported.

usage: gpu_peers.py BATCH PRECISION FEATURES HIDDEN[,HIDDEN...] CLASSES SECONDS

Prints one line of JSON for each way: PyTorch eager, a whole step as a CUDA graph, compiled with the
fused AdamW, and JAX's lax.scan over the steps of an epoch. Data, order and shapes are as there; what
cannot run says so on stderr and is left out.
"""

import json
import sys
import time

BATCH, PRECISION, FEATURES = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
HIDDEN = [int(size) for size in sys.argv[4].split(",")]
CLASSES, SECONDS = int(sys.argv[5]), float(sys.argv[6])
SAMPLES = 60000
while SAMPLES * FEATURES > 1 << 30 and SAMPLES > 4 * BATCH:
    SAMPLES //= 2
STEPS = max(1, SAMPLES // BATCH)


def best_of(run_epoch):
    """Microseconds of a step in the fastest epoch."""
    run_epoch()
    best, until, rounds = None, time.monotonic() + SECONDS, 0
    while rounds < 3 or time.monotonic() < until:
        start = time.perf_counter()
        run_epoch()
        us = (time.perf_counter() - start) * 1e6 / STEPS
        best = us if best is None else min(best, us)
        rounds += 1
    return best


def tell(program, us):
    print(json.dumps({
        "program": program, "features": FEATURES, "hidden": sys.argv[4], "batch": BATCH,
        "precision": PRECISION, "us_per_step": round(us, 3),
        "samples_per_s": round(BATCH * 1e6 / us),
    }), flush=True)  # fmt: skip


def torch_ways():
    import torch
    from torch import nn
    from torch.nn import functional

    torch.backends.cuda.matmul.allow_tf32 = PRECISION == "tf32"
    cuda = torch.device("cuda", 0)
    images = torch.randint(0, 256, (SAMPLES, FEATURES), dtype=torch.uint8, device=cuda)
    labels = torch.randint(0, CLASSES, (SAMPLES,), device=cuda)
    narrow = PRECISION == "bf16"

    def new_step(fused, compiled=False, capturable=False):
        layers, size = [], FEATURES
        for width in HIDDEN:
            layers += [nn.Linear(size, width), nn.ReLU()]
            size = width
        model = nn.Sequential(*layers, nn.Linear(size, CLASSES)).to(cuda)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-3, fused=fused, capturable=capturable
        )

        def loss_of(index):
            x = (images[index].float() / 255 - 0.5) / 0.3
            with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
                y = model(x)
            return functional.cross_entropy(y.float(), labels[index])

        if compiled:
            loss_of = torch.compile(loss_of)

        def step(index):
            optimizer.zero_grad(set_to_none=not capturable)
            loss_of(index).backward()
            optimizer.step()

        return step

    def epoch_of(step):
        def run():
            order = torch.randperm(SAMPLES, device=cuda)
            for i in range(STEPS):
                step(order[i * BATCH : (i + 1) * BATCH])
            torch.cuda.synchronize()

        return run

    def graph_step():
        step = new_step(fused=True, capturable=True)
        index = torch.zeros(BATCH, dtype=torch.long, device=cuda)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(index)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(index)

        def run(chosen):
            index.copy_(chosen)
            graph.replay()

        return run

    ways = {
        "torch eager": lambda: new_step(fused=False),
        "torch graph": graph_step,
        "torch compiled": lambda: new_step(fused=True, compiled=True),
    }
    for name, make in ways.items():
        try:
            tell(name, best_of(epoch_of(make())))
        except Exception as error:  # what one way cannot do, another may
            print(f"gpu_peers: {name}: {str(error).splitlines()[:1]}", file=sys.stderr)


def jax_scan():
    import jax
    import jax.numpy as jnp

    kind = jnp.bfloat16 if PRECISION == "bf16" else jnp.float32
    jax.config.update(
        "jax_default_matmul_precision", "highest" if PRECISION == "f32" else "tensorfloat32"
    )
    key = jax.random.key(0)
    images = jax.random.randint(key, (SAMPLES, FEATURES), 0, 256, jnp.int32).astype(jnp.uint8)
    labels = jax.random.randint(key, (SAMPLES,), 0, CLASSES, jnp.int32)
    sizes = [FEATURES, *HIDDEN, CLASSES]
    params = [
        (jax.random.normal(key, (a, b)) * 0.02, jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])
    ]
    zeros = jax.tree.map(jnp.zeros_like, params)

    def loss_of(params, x, y):
        for i, (w, b) in enumerate(params):
            x = x @ w.astype(kind) + b.astype(kind)
            x = jax.nn.relu(x) if i + 1 < len(params) else x.astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    def step(state, index):
        params, m, v, t = state
        x = ((images[index].astype(jnp.float32) / 255 - 0.5) / 0.3).astype(kind)
        loss, grads = jax.value_and_grad(loss_of)(params, x, labels[index])
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        rate = 1e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        params = jax.tree.map(
            lambda p, m, v: p * (1 - 1e-5) - rate * m / (jnp.sqrt(v) + 1e-8), params, m, v
        )
        return (params, m, v, t), loss

    @jax.jit
    def epoch(state, key):
        order = jax.random.permutation(key, SAMPLES)[: STEPS * BATCH].reshape(STEPS, BATCH)
        return jax.lax.scan(step, state, order)

    state = [(params, zeros, zeros, jnp.float32(0))]

    def run():
        state[0], losses = epoch(state[0], key)
        losses.block_until_ready()

    tell("jax scan", best_of(run))


def main():
    for name, run in (("PyTorch", torch_ways), ("JAX", jax_scan)):
        try:
            run()
        except Exception as error:
            words = str(error).splitlines() or [type(error).__name__]
            print(f"gpu_peers: no {name}: {words[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()
