# SPDX-License-Identifier: Apache-2.0
"""Folders are layers: who may include whom, and who may know libuv, CUDA and NCCL."""

import re

import tree

# Arrows only downwards. tests/ and bench/ stand above everything.
MAY_INCLUDE = {
    "common": {"common"},
    "rendezvous": {"common", "rendezvous"},
    "worker": {"common", "rendezvous", "worker"},
    "kernels": {"common", "kernels"},
    "trainer": {"common", "kernels", "worker", "trainer"},
    "launcher": {"common", "rendezvous", "launcher"},
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
GPU_HEADER = re.compile(r"(nccl|cuda|cublas|cuda_|device_launch)[\w/]*\.h")


def layer(path):
    return path.parts[0] if path.parts[0] in MAY_INCLUDE else None


def check(path, text):
    own = layer(path)
    quoted = []
    for match in INCLUDE.finditer(text):
        kind, name = match.groups()
        line = tree.line_of(text, match.start(2))
        if name.endswith((".c", ".cu")):
            yield line, f"includes the source file {name}"
        if kind == '"':
            quoted.append(name)
            target = name.split("/")[0]
            if "/" not in name or target.startswith("."):
                yield line, f'"{name}" is not written from the source root'
            elif own and target not in MAY_INCLUDE[own]:
                yield line, f"{own}/ must not include {name}"
            continue
        if own is None:
            continue
        if name == "uv.h" and not (path.stem.endswith("_uv") or path.name == "main.c"):
            yield line, "uv.h belongs into *_uv.[ch] and main.c only"
        if GPU_HEADER.fullmatch(name) and own != "kernels" and not str(path).startswith("worker/comm_nccl"):
            yield line, f"{name} belongs into kernels/ and worker/comm_nccl* only"
    if own and path.suffix == ".c":
        header = str(path.with_suffix(".h"))
        if header in quoted and quoted[0] != header:
            yield 1, f'"{header}" must be the first include: it proves to be self-contained'


if __name__ == "__main__":
    tree.main(check, tree.is_c)
