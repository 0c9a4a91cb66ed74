# SPDX-License-Identifier: Apache-2.0
"""What is run, most valuable first. The seconds are what an H200 took, rounded up, and guesses where it
was not reached: torch-graph, the compiled ones, synccheck and initcheck."""

import re
import sys

from .build import TOP

# features, hidden layers, classes
SMALL, WIDE = ("784", "512", "10"), ("8192", "8192,8192", "16")
SMALL_CASES = [("32", "f32"), ("128", "f32"), ("1024", "f32"), ("1024", "bf16"), ("1024", "tf32"),
               ("32", "bf16"), ("128", "bf16"), ("1024", "fp8")]  # fmt: skip
# What PyTorch and JAX run, in this order.
PEER_CASES = [("8192", "bf16", WIDE), ("1024", "f32", SMALL), ("1024", "bf16", SMALL), ("32", "f32", SMALL),
              ("128", "f32", SMALL), ("32", "bf16", SMALL), ("128", "bf16", SMALL)]  # fmt: skip
# In a rehearsal a processor does the work of the GPU: a batch and sizes with which it is soon done.
TINY_BATCH, TINY = "64", ("30", "40", "10")
PEERS = {
    # way: (group, seconds, limit)
    "jax-scan": ("jax", 63, 120),
    "torch-graph": ("torch", 45, 90),
    "torch-eager": ("torch", 54, 90),
    "torch-compiled-graph": ("torch", 70, 120),
    "torch-compiled": ("torch", 70, 120),
}
GROUPS = ("ceilings", "kernels", "wide", "small", "nccl", "train", "jax", "torch", "loss", "worlds", "sanitizer")
# Groups that are timings and nothing else.
TIMINGS = ("ceilings", "wide", "small", "nccl", "jax", "torch")


def own_kernels():
    """Names of the kernels in kernels/cuda, mangled as far as a name without its parameters goes."""
    names = set()
    for source in sorted((TOP / "kernels/cuda").glob("*.cu")):
        # The bounds of a launch have parentheses, too, and stand in front of the name.
        text = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", "", source.read_text(encoding="utf-8"))
        names |= set(re.findall(r"__global__\s[^;{(]*?(\w+)\s*\(", text))
    return sorted(f"{len(name)}{name}" for name in names)


def _item(name, group, seconds, limit, argv, *, needs=(), kind="rows", **more):
    return {"name": name, "group": group, "estimate_s": seconds, "limit_s": limit, "argv": argv, "needs": list(needs),
            "kind": kind, **more}  # fmt: skip


GPU = ("bench-gpu", "ctrun-cuda.so")


class Plan:
    """The items, for a GPU or for a rehearsal of all of it without one."""

    def __init__(self, sanitizer, tiny):
        self.sanitizer, self.tiny = sanitizer, tiny

    def mlp(self, batch, precision, shape, seconds, *words):
        if self.tiny:
            batch, shape, seconds, words = TINY_BATCH, TINY, 0.01, (*words, "short")
        return ["{build}/bench-gpu", "mlp", batch, precision, *shape, str(seconds), *words]

    def gemm(self, batch, precision, shape, seconds):
        if self.tiny:
            batch, shape, seconds = "16", TINY, 0
        return ["{build}/bench-gpu-gemm", batch, precision, ",".join(shape), str(seconds)]

    def script(self, name):
        return [sys.executable, str(TOP / "bench/gpu" / name), "--build", "{build}", *(["--small"] if self.tiny else [])]

    def wide(self):
        batch = "8192"
        # In turn: the chip lowers its clock under load, and both must have the same.
        for turn in "12":
            yield _item(f"wide-gemm-{turn}", "wide", 8, 45, self.gemm(batch, "bf16", WIDE, 4), needs=["bench-gpu-gemm"])
            yield _item(f"wide-{turn}", "wide", 8, 60, self.mlp(batch, "bf16", WIDE, 4, "plan"), needs=GPU)
        yield _item("wide-fp8", "wide", 8, 60, self.mlp(batch, "fp8", WIDE, 4, "plan"), needs=GPU)
        yield _item("wide-consistent", "wide", 8, 60, self.mlp(batch, "bf16", WIDE, 4, "consistent", "plan"), needs=GPU)
        yield _item("wide-nccl", "wide", 8, 60, self.mlp(batch, "bf16", WIDE, 4, "nccl"), needs=[*GPU, "ctworker-nccl.so"])

    def small(self):
        for batch, precision in SMALL_CASES:
            name = f"small-{batch}-{precision}"
            yield _item(name, "small", 4, 30, self.mlp(batch, precision, SMALL, 2, "plan"), needs=GPU)
            if precision != "fp8":
                yield _item(f"{name}-gemm", "small", 4, 30, self.gemm(batch, precision, SMALL, 1), needs=["bench-gpu-gemm"])
        for batch, precision in SMALL_CASES[:4]:
            name = f"small-{batch}-{precision}"
            for way in ("whole", "fused", "apart") if batch != "1024" else ("fused", "apart"):
                yield _item(f"{name}-{way}", "small", 4, 30, self.mlp(batch, precision, SMALL, 1, way), needs=GPU)
            yield _item(f"{name}-nccl", "small", 4, 30, self.mlp(batch, precision, SMALL, 1, "nccl"),
                        needs=[*GPU, "ctworker-nccl.so"])  # fmt: skip
        yield _item("small-1024-bf16-consistent", "small", 3, 30, self.mlp("1024", "bf16", SMALL, 1, "consistent", "plan"), needs=GPU)

    def scenarios(self):
        one = ["train", "ctrun-cuda.so"]
        two = [*one, "ctrun", "ctworker-nccl.so"]
        for name, seconds, limit, needs in (
            ("learn", 2, 40, one), ("consistent", 5, 40, one), ("resume", 6, 40, one), ("evaluate", 4, 40, one),
            ("killed", 6, 40, [*one, "ctrun"]), ("precisions", 7, 40, one), ("start", 2, 40, one),
            ("two-ranks", 20, 60, two), ("stages", 19, 60, two), ("peer-killed", 28, 60, two),
        ):  # fmt: skip
            yield _item(f"train-{name}", "train", seconds, limit, [*self.script("scenario.py"), name], needs=needs, kind="tap")

    def peers(self):
        cases = [(batch, precision, TINY if self.tiny else shape) for batch, precision, shape in PEER_CASES]
        words = [":".join([batch, precision, *shape]) for batch, precision, shape in cases]
        for way, (group, seconds, limit) in PEERS.items():
            yield _item(way, group, seconds, limit, [sys.executable, str(TOP / "bench/gpu_peers.py"), way, "2", *words])

    def sanitizers(self):
        filters = [word for name in own_kernels() for word in ("--kernel-name", f"kns={name}")]
        common = [str(self.sanitizer or "compute-sanitizer"), "--error-exitcode", "9", "--print-limit", "20"]
        for tool, extra, seconds, limit in (
            # Products are cuBLAS's business, and there are tens of thousands of them in timing alone.
            ("memcheck", ["--leak-check", "no", "--report-api-errors", "no", *filters], 20, 120),
            ("racecheck", filters, 40, 120),
            ("synccheck", filters, 30, 120),
            # This one must see what cuBLAS writes, too: it is read by the kernels here.
            ("initcheck", [], 60, 180),
        ):
            yield _item(tool, "sanitizer", seconds, limit, [*common, "--tool", tool, *extra, "{build}/test_cuda"],
                        needs=["test_cuda", "ctrun-cuda.so", "compute-sanitizer"], kind="tap", each_s=5)  # fmt: skip

    def items(self):
        """All that can be run, in the order of its worth."""
        tiny = self.tiny
        return [
            _item("ceilings", "ceilings", 3, 45, ["{build}/bench-gpu-ceiling", *(["16", "1"] if tiny else [])],
                  needs=["bench-gpu-ceiling"]),
            # Stands for each of its checks, which the program names when it is built: `each_s` seconds for one.
            _item("kernels", "kernels", 8, 60, ["{build}/test_cuda", *([] if tiny else ["--repeat", "1000"])], needs=["test_cuda", "ctrun-cuda.so"], kind="tap", each_s=2),
            *self.wide(),
            *self.small(),
            _item("nccl", "nccl", 3, 60, ["{build}/bench-gpu-nccl"], needs=["bench-gpu-nccl"], kind="tap"),
            *self.scenarios(),
            *self.peers(),
            _item("loss", "loss", 19, 90, self.script("loss.py"), needs=["train", "ctrun-cuda.so"], kind="tap"),
            _item("worlds", "worlds", 2, 120, ["{build}/gpu-world-sizes", *(["small"] if tiny else [])],
                  needs=["gpu-world-sizes", "ctrun-cuda.so"], kind="tap"),
            *self.sanitizers(),
        ]  # fmt: skip


def chosen(all_items, only, timings_only, checks_only):
    """Those of the items that the command line asks for. ValueError for a name that there is not."""
    known = {item["name"] for item in all_items} | {item["group"] for item in all_items} | set(GROUPS)
    for name in only:
        if name not in known:
            raise ValueError(f"--only {name}: there is no such item or group; --list names them")
    return [
        item for item in all_items
        if (not only or item["name"] in only or item["group"] in only)
        and not (timings_only and item["group"] not in TIMINGS)
        and not (checks_only and item["group"] in TIMINGS)
    ]  # fmt: skip
