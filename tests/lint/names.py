# SPDX-License-Identifier: Apache-2.0
"""One name, one thing: no two source files of one name, and no two structs, unions or enums of one tag."""

import re
import sys

import tree

# Every program has one, and every folder its build file.
COMMON_NAMES = {"main.c", "meson.build", "__init__.py", "README.md"}
TAG = re.compile(r"^(?:typedef\s+)?(struct|union|enum)\s+(\w+)\s*\{", re.MULTILINE)


def files_of_one_name(paths):
    seen = {}
    for path in paths:
        if path.name in COMMON_NAMES or not (tree.is_c(path) or path.suffix == ".py"):
            continue
        other = seen.setdefault(path.name, path)
        if other != path:
            yield path, 1, f"has the name of {other}"


def tags_of_one_name(paths, read):
    """Tags in headers are everybody's; those of a .c file are its own."""
    seen = {}
    for path in paths:
        if path.suffix not in (".h", ".cuh"):
            continue
        text = tree.code_only(read(path))
        for match in TAG.finditer(text):
            other = seen.setdefault(match.group(2), path)
            if other != path:
                yield path, tree.line_of(text, match.start()), f"{match.group(1)} {match.group(2)} is in {other}, too"


def main():
    paths = tree.files()
    found = [*files_of_one_name(paths), *tags_of_one_name(paths, tree.read)]
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    print(f"{len(paths)} files checked, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
