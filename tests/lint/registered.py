# SPDX-License-Identifier: Apache-2.0
"""Nothing lies around unbuilt: every test is registered, every source is named by a meson.build."""

import re
import sys

import tree


def check(paths, read):
    meson = {p: read(p) for p in paths if p.name == "meson.build"}
    everything = "\n".join(meson.values())
    for path in paths:
        if path.match("tests/unit/*/test_*.c") or path.match("tests/unit/*/*/test_*.c"):
            entry = f"{path.parent.relative_to('tests/unit')}/{path.stem.removeprefix('test_')}"
            if f"'{entry}'" not in everything:
                yield path, f"add '{entry}' to tests/unit/{path.parts[2]}/meson.build"
        elif path.match("tests/integration/*/test_*.py"):
            entry = f"{path.parent.name}/{path.stem.removeprefix('test_')}"
            if f"'{entry}'" not in everything:
                yield path, f"add '{entry}' to tests/integration/meson.build"
        elif path.match("tests/lint/*.py") and path.name != "tree.py":
            if f"'{path.stem}'" not in everything:
                yield path, "add it to tests/lint/meson.build"
        elif tree.is_c(path) and path.suffix in (".c", ".cu"):
            # tests/fuzz names its targets without the prefix.
            target = f"'{path.stem.removeprefix('fuzz_')}':" if path.match("tests/fuzz/fuzz_*.c") else None
            if not re.search(rf"(?:'|/){re.escape(path.name)}'", everything) and not (target and target in everything):
                yield path, "no meson.build names this file"
        elif path.match("man/*.[1-8]"):
            if f"'{path.name}'" not in meson.get(path.with_name("meson.build"), ""):
                yield path, "add it to man/meson.build"


def main():
    found = list(check(tree.files(), tree.read))
    for path, message in found:
        print(f"{path}: {message}")
    print(f"{len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
