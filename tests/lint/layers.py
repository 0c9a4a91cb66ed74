# SPDX-License-Identifier: Apache-2.0
"""Folders are layers and their sub-folders are rooms: who may include whom, and who may know libuv, CUDA
and NCCL. A floor's meson.build lists its rooms by subdir(), lowest first; that order is the rule."""

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
SUBDIR = re.compile(r"^subdir\('([\w-]+)'\)", re.MULTILINE)
GPU_HEADER = re.compile(r"(nccl|cuda|cublas|cuda_|device_launch)[\w/]*\.h")
MAX_SOURCES = 25


def floor(path):
    return path.parts[0] if path.parts[0] in MAY_INCLUDE else None


def rooms_of(read):
    """The rooms of each floor, lowest first."""
    return {name: SUBDIR.findall(read(f"{name}/meson.build")) for name in MAY_INCLUDE}


def height(parts, rooms):
    """How high a file stands on its floor. A header of the floor itself is below all rooms, a source of it
    above them; None = its folder is no room."""
    if len(parts) == 2:
        return -1 if parts[1].endswith((".h", ".cuh")) else len(rooms[parts[0]])
    room = parts[1]
    return rooms[parts[0]].index(room) if room in rooms[parts[0]] else None


class Layers:
    def __init__(self, rooms):
        self.rooms = rooms

    def check(self, path, text):
        own = floor(path)
        own_height = height(path.parts, self.rooms) if own else None
        if own and own_height is None:
            yield 1, f"{path.parent} is no room: {own}/meson.build has no subdir('{path.parts[1]}')"
        quoted = []
        for match in INCLUDE.finditer(text):
            kind, name = match.groups()
            line = tree.line_of(text, match.start(2))
            if name.endswith((".c", ".cu")):
                yield line, f"includes the source file {name}"
            if kind == '"':
                quoted.append(name)
                yield from self.arrow(own, own_height, name, line)
                continue
            if own is None:
                continue
            if name == "uv.h" and not (path.stem.endswith("_uv") or path.name == "main.c"):
                yield line, "uv.h belongs into *_uv.[ch] and main.c only"
            if GPU_HEADER.fullmatch(name) and own != "kernels" and path.parts[:2] != ("worker", "nccl"):
                yield line, f"{name} belongs into kernels/ and worker/nccl/ only"
        if own and path.suffix == ".c":
            header = str(path.with_suffix(".h"))
            if header in quoted and quoted[0] != header:
                yield 1, f'"{header}" must be the first include: it proves to be self-contained'

    def arrow(self, own, own_height, name, line):
        parts = name.split("/")
        if len(parts) == 1 or parts[0].startswith("."):
            yield line, f'"{name}" is not written from the source root'
        elif own and parts[0] not in MAY_INCLUDE[own]:
            yield line, f"{own}/ must not include {name}"
        elif own == parts[0] and own_height is not None:
            target = height(parts, self.rooms)
            if target is not None and target > own_height:
                yield line, f"{name} stands in a higher room of {own}/: see the order in {own}/meson.build"


def crowded(paths):
    """Folders in which nobody finds anything any more."""
    count = {}
    for path in paths:
        if path.suffix in (".c", ".cu", ".py"):
            count[path.parent] = count.get(path.parent, 0) + 1
    for folder, sources in sorted(count.items()):
        if sources > MAX_SOURCES:
            yield folder, f"{sources} sources; a folder has at most {MAX_SOURCES}"


def unnamed(paths, read):
    """Folders whose meson.build does not begin by saying what they are. That of the whole project has no such
    line."""
    for path in paths:
        if path.name == "meson.build" and len(path.parts) > 1:
            if not read(path).startswith(f"# {path.parent}: "):
                yield path, f"the first line must say what the folder is: # {path.parent}: ..."


if __name__ == "__main__":
    everything = tree.files()
    before = [*crowded(everything), *unnamed(everything, tree.read)]
    for place, message in before:
        print(f"{place}: {message}")
    tree.main(Layers(rooms_of(tree.read)).check, tree.is_c, len(before))
