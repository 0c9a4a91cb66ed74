# SPDX-License-Identifier: Apache-2.0
"""Turns a .cu file into C++ for the host's compiler: fake_nvcc.py ROOT FROM TO.

Three things in CUDA are not C++, and macros (tests/lib/fake_gpu/fake_device.h) cannot translate them: a
launch with <<<>>>, shared memory, and dynamic shared memory. Text that this program does not understand is
an error. All other text must compile as it is. Kernels that may be launched early must wait before they do
anything else, which is checked here. Headers of device code (.cuh), whose names are relative to ROOT, are
inserted where they are included. Line numbers stay the same.
"""

import os
import re
import sys

UNKNOWN = re.compile(
    r"\b(?:__constant__|__managed__|__cluster_dims__|asm|__asm__|cooperative_groups|printf|assert|clock64)\b")
KERNEL = re.compile(r"\b([A-Za-z_]\w*(?:<[\w\s,]*>)?)\s*$")
SHARED = re.compile(r"(extern\s+)?__shared__\s+([^;=(){},\[\]]*?)\b([A-Za-z_]\w*)((?:\s*\[[^\];]*\])*)\s*;")
DEFINITION = re.compile(r"__global__\s[^;{]*\{\s*")
INCLUDE = re.compile(r'^#include "([^"]+\.cuh)"$', re.M)
CLOSING = {"(": ")", "[": "]", "{": "}"}


class Unclear(Exception):
    pass


def blank(text):
    """The text with comments and the insides of strings blanked out, of the same length."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'", re.S)
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def parts(code, at, end):
    """Splits code[at:] at its outer commas until `end`. Returns (first, last) of each part, and the place
    after `end`."""
    found, stack, first = [], [], at
    while at < len(code):
        if not stack and code.startswith(end, at):
            found.append((first, at))
            return found, at + len(end)
        c = code[at]
        if c in CLOSING:
            stack.append(CLOSING[c])
        elif c in ")]}":
            if not stack or stack.pop() != c:
                break
        elif c == "," and not stack:
            found.append((first, at))
            first = at + 1
        elif c == ";":
            break
        at += 1
    raise Unclear(f"no {end} is found")


def launch(text, code, at):
    """Returns (first, last, replacement) of the launch whose <<< is at `at`."""
    kernel = KERNEL.search(code, 0, at)
    if kernel is None:
        raise Unclear("the kernel of a launch has no plain name")
    how, after = parts(code, at + 3, ">>>")
    if len(how) != 4:
        raise Unclear("a launch must give blocks, threads, shared memory and stream")
    given = re.compile(r"\s*\(").match(code, after)
    if given is None:
        raise Unclear("a launch without arguments")
    args, last = parts(code, given.end(), ")")
    if not re.compile(r"\s*;").match(code, last):
        raise Unclear("a launch must be a statement of its own")
    name = kernel.group(1)
    call = f'fake_launch_by("{name}", [](auto... p) {{ {name}(p...); }}'
    for first, end in how + args:
        call += ", " + text[first:end].lstrip(" ")
    return kernel.start(1), last, call + ")"


def shared(match):
    dynamic, kind, name, size = match.groups()
    if dynamic:
        if re.sub(r"\s", "", size) != "[]":
            raise Unclear("dynamic shared memory must be an array without a size")
        return f"{kind.strip()} *{name} = static_cast<{kind.strip()} *>(fake_dynamic_shared());"
    return f"static {kind}{name}{size}; fake_shared(static_cast<void *>(&{name}), sizeof {name});"


def translate(text):
    code = blank(text)
    changes = []
    at = 0
    try:
        for match in UNKNOWN.finditer(code):
            at = match.start()
            raise Unclear(f"{match.group()} is not emulated")
        for match in re.finditer("__shared__", code):
            at = match.start()
            whole = [m for m in SHARED.finditer(code) if m.start() <= at < m.end()]
            if len(whole) != 1:
                raise Unclear("shared memory must be declared in a plain line of its own")
            changes.append((whole[0].start(), whole[0].end(), shared(whole[0])))
        for match in DEFINITION.finditer(code) if "ct_launch<" in code else ():
            at = match.start()
            if not code.startswith("ct_begin();", match.end()):
                raise Unclear("a kernel that ct_launch() may launch early must begin with ct_begin()")
        for match in re.finditer("<<<", code):
            at = match.start()
            changes.append(launch(text, code, at))
    except Unclear as e:
        raise Unclear(f"line {code.count(chr(10), 0, at) + 1}: {e}") from None
    for first, last, new in sorted(changes, reverse=True):
        missing = text.count("\n", first, last) - new.count("\n")
        text = text[:first] + new + "\n" * missing + text[last:]
    return text


def whole(root, path):
    """Returns the translation of a file with all files that it includes. Header guards skip a file that is
    included twice."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    try:
        made = translate(text)
    except Unclear as e:
        sys.exit(f"{path}: {e}")
    lines = [f'#line 1 "{path}"']
    for number, line in enumerate(made.splitlines(), 1):
        header = INCLUDE.match(line)
        if header:
            lines += whole(root, os.path.join(root, header.group(1))) + [f'#line {number + 1} "{path}"']
        else:
            lines.append(line)
    return lines


def main(root, source, target):
    made = whole(root, source)
    with open(target, "w", encoding="utf-8") as f:
        f.write("\n".join(made) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
