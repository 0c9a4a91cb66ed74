# SPDX-License-Identifier: Apache-2.0
"""Calls go down the floors and rooms, too: an object may use a symbol of its own room, of one below it, or of
a floor that its own floor may include. The objects of the build tell, which knows more than the includes: a
prototype can be in one room and the function in another. A call through a pointer uses no symbol."""

import os
import pathlib
import re
import subprocess
import sys

import layers
import tree

# Where Meson puts the object of floor/room/name.c: floor/libX.a.p/room_name.c.o
OBJECT = re.compile(r"(?P<floor>\w+)/(?:[\w-]+/)*lib\w+\.a\.p/(?P<file>.+)\.c\.o")


def source_of(match, sources):
    """The source whose path Meson has turned into this object's name."""
    name = match["file"]
    for source in sources:
        parts = source.parts[1:]
        if "_".join(parts).removesuffix(".c") == name or parts[-1] == name + ".c":
            return source
    return None


def symbols(objects):
    """(defined, used) names of each object, from one run of nm."""
    found = {path: (set(), set()) for path in objects}
    out = subprocess.run(["nm", "-A", "-g", *map(str, objects)], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        place, _, rest = line.rpartition(".o:")
        words = rest.split()
        defined, used = found[pathlib.Path(place + ".o")]
        (used if words[-2] == "U" else defined).add(words[-1])
    return found


def upward(uses, rooms):
    """Calls that go up, of {source: (defined, used)}."""
    home = {}
    for source, (defined, _) in uses.items():
        for symbol in defined:
            home.setdefault(symbol, source)
    for source, (_, used) in sorted(uses.items()):
        for symbol in sorted(used):
            target = home.get(symbol)
            if target is None:
                continue
            if target.parts[0] not in layers.MAY_INCLUDE[source.parts[0]]:
                yield source, f"calls {symbol} of {target}, but {source.parts[0]}/ must not include that floor"
            elif target.parts[0] == source.parts[0]:
                here, there = layers.height(source.parts, rooms), layers.height(target.parts, rooms)
                if here is not None and there is not None and there > here:
                    yield source, f"calls {symbol} of {target}, a higher room"


def twice(uses):
    """External functions and variables that two sources define. A fallback takes the place of another file."""
    home = {}
    for source, (defined, _) in sorted(uses.items()):
        for symbol in sorted(defined):
            other = home.setdefault(symbol, source)
            if other != source and not (other.stem.endswith("_fallback") or source.stem.endswith("_fallback")):
                yield source, f"defines {symbol}, and so does {other}"


def main():
    build = pathlib.Path(os.environ["BUILD_ROOT"])
    sources = [p for p in tree.files() if p.suffix == ".c" and layers.floor(p)]
    found = {}
    for path in build.glob("*/**/*.c.o"):
        match = OBJECT.fullmatch(str(path.relative_to(build)))
        source = match and source_of(match, [s for s in sources if s.parts[0] == match["floor"]])
        if source:
            found[path] = source
    if not found:
        tree.skip("the build folder has no objects")
    uses = {}
    for path, (defined, used) in symbols(list(found)).items():
        known = uses.setdefault(found[path], (set(), set()))
        known[0].update(defined)
        known[1].update(used)
    problems = [*upward(uses, layers.rooms_of(tree.read)), *twice(uses)]
    for source, message in problems:
        print(f"{source}: {message}")
    print(f"{len(uses)} objects checked, {len(problems)} findings")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
