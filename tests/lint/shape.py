# SPDX-License-Identifier: Apache-2.0
"""The outer shape of every file: licence line, head comment, size, header guard, nothing of one machine, no
loose ends."""

import re

import tree

MAX_LINES = 800
MAX_MAIN_LINES = 220
SPDX = "SPDX-License-Identifier: Apache-2.0"
# The first comment of a source in C goes on after the licence.
HEAD = re.compile(r"/\* " + re.escape(SPDX) + r"\n \*\n \* \S")
# In pieces, so that this file does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.$}>])/(?:wo" r"rk|ro" r"ot|ho" r"me/\w+)/")
LOOSE_END = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b(?!\(#\d+\): \w)")


# Installed headers live in everybody's name space under their installed name.
PUBLIC_GUARDS = {"worker/ctworker.h": "CTWORKER_H"}


def is_source(path, text):
    return tree.is_c(path) or path.suffix in (".py", ".sh") or text.startswith("#!")


def check(path, text):
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if MACHINE_PATH.search(line):
            yield number, "names a folder of one machine"
        if LOOSE_END.search(line):
            yield number, "a loose end needs an issue and words: TO" "DO(#12): what is missing"
    if text and not text.endswith("\n"):
        yield len(lines), "no newline at the end"
    if not is_source(path, text):
        return
    first = 1 if text.startswith("#!") else 0
    if len(lines) <= first or SPDX not in lines[first]:
        yield first + 1, f"the first line must hold '{SPDX}'"
    if path.suffix in (".c", ".cu") and not HEAD.match(text):
        yield 1, "the first comment must go on, after an empty line, with what the file is for"
    if len(lines) > MAX_LINES:
        yield len(lines), f"{len(lines)} lines; {MAX_LINES} is the limit: split by purpose"
    if path.name == "main.c" and len(lines) > MAX_MAIN_LINES:
        yield len(lines), f"{len(lines)} lines; a main.c has at most {MAX_MAIN_LINES}"
    if path.suffix in (".h", ".cuh"):
        guard = PUBLIC_GUARDS.get(str(path)) or "CT_" + re.sub(r"\W", "_", str(path.with_suffix(""))).upper() + "_H"
        if not re.search(rf"#ifndef {guard}\n#define {guard}\n", text):
            yield 1, f"header guard must be {guard}"


if __name__ == "__main__":
    # Inputs of fuzz targets are bytes, not text.
    tree.main(
        check,
        lambda p: p.suffix not in (".png", ".gz")
        and p.name != "LICENSE"
        and not p.match("tests/fuzz/corpus/*/*"),
    )
