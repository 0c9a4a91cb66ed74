# SPDX-License-Identifier: Apache-2.0
"""README's commands work. Every fenced shell block says how that is held:

    ```sh run        this test runs it, in an empty folder, with the build folder first in PATH
    ```sh ci         .ci/run runs exactly these commands (too long for one test)
    ```sh example    for the reader to adapt; not run

Each row of the table of messages begins as a message does in the C sources.

The table in CONTRIBUTING.md names every folder of the top level, that in docs/ARCHITECTURE.md every room,
and neither names one that does not exist. The drawing in docs/ARCHITECTURE.md has a box for each floor, with
its rooms in their order, the highest first."""

import os
import re
import subprocess
import sys
import tempfile

import layers
import tree

DRAWING = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BOX_NAME = re.compile(r"\| (\w+)/ ")
FENCE = re.compile(r"^```(\w+)?[ \t]*(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = ("run", "ci", "example")
MESSAGES = re.compile(r"^\| message \|[^\n]*\n\|[-| ]+\n((?:\|[^\n]*\n)+)", re.MULTILINE)
# What may hold quotes but is no string, or string literals with only blanks between them.
LITERAL = re.compile(r"""/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])*'|((?:"(?:\\.|[^"\\\n])*"\s*)+)""", re.DOTALL)
CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")


def shell_blocks(text):
    for match in FENCE.finditer(text):
        language, kind, body = match.groups()
        if language in ("sh", "bash", "console", "shell"):
            yield tree.line_of(text, match.start()), kind, body


def commands(body):
    return [line.split(" #")[0].strip() for line in body.splitlines() if line.strip()]


def check_static(text, ci):
    kinds = set()
    for line, kind, body in shell_blocks(text):
        kinds.add(kind)
        if kind not in KINDS:
            yield f"README.md:{line}: shell block must be marked {', '.join(KINDS)}"
        if kind == "ci":
            for command in commands(body):
                if not re.search(rf"(?:^|\s){re.escape(command)}(?:\s|$)", ci, re.MULTILINE):
                    yield f"README.md:{line}: .ci/run does not run '{command}'"
    if not {"run", "ci"} <= kinds:
        yield "README.md: no block is marked run or none is marked ci"


def check_map(page, text, folders):
    named = set(re.findall(r"^\| `([\w./-]+)/` \|", text, re.MULTILINE))
    for folder in sorted(folders - named):
        yield f"{page}: the table of folders lacks {folder}/"
    for folder in sorted(named - folders):
        yield f"{page}: the table names {folder}/, which does not exist"


def drawn_boxes(text):
    """{floor: rooms} of the first drawing. A box begins with an edge +---+ above its name, and ends
    where the next edge begins below the left corner."""
    match = DRAWING.search(text)
    lines = match[1].splitlines() if match else []
    boxes = {}
    for number, line in enumerate(lines[1:], 1):
        for name in BOX_NAME.finditer(line):
            left, edge = name.start(), lines[number - 1]
            right = edge.find("+", left + 1)
            rooms = boxes.setdefault(name[1], [])
            for inside in lines[number + 1 :]:
                if inside[left : left + 2] == "+-":
                    break
                rooms += re.findall(r"[\w-]+", inside[left:right])
    return boxes


def check_drawing(page, text, rooms):
    drawn = drawn_boxes(text)
    for floor in sorted(rooms.keys() | drawn.keys()):
        wanted = list(reversed(rooms.get(floor, [])))
        if floor not in drawn or drawn[floor] != wanted:
            yield f"{page}: the box {floor}/ of the drawing must have these rooms in this order: {' '.join(wanted)}"


def head(message):
    """What a message begins with."""
    return re.split(r"[:;]|\.\.\.", message)[0].strip()


def literals(source):
    """The string literals of C source, adjacent ones joined."""
    for match in LITERAL.finditer(source):
        if match[1]:
            yield re.sub(r'"\s*"', "", match[1].strip())[1:-1]


def heads(sources):
    """What the messages of these C sources begin with, as patterns; those with two words or more, because others
    would fit too much."""
    found = set()
    for source in sources:
        for literal in map(head, literals(source)):
            words = re.findall(r"[A-Za-z]{2,}", CONVERSION.sub(" ", literal))
            if len(words) >= 2:
                numbers = [".*".join(map(re.escape, CONVERSION.split(part))) for part in literal.split("%d")]
                found.add((tuple(words), re.sub(r"(?:\.\*)+", ".*", r"\d+".join(numbers))))
    return found


def check_messages(text, sources):
    """The head of a row is a literal's head. In front of one that begins with punctuation, such as ") is lost", there
    may be what the C code has added before it."""
    table = MESSAGES.search(text)
    if table is None:
        yield "README.md: there is no table of messages"
        return
    known = heads(sources)
    for offset, row in enumerate(table[1].splitlines()):
        line = tree.line_of(text, table.start(1)) + offset
        message = re.match(r"\| `([^`]+)` \|", row)
        if message is None:
            yield f"README.md:{line}: this row of the messages does not begin with one in backticks"
            continue
        begun = head(message[1])
        fitting = (pattern for words, pattern in known if all(word in begun for word in words))
        if not any(re.fullmatch(rf"(?:.*(?=\W))?{pattern}", begun) for pattern in fitting):
            yield f"README.md:{line}: no message of the C sources begins with '{begun}'"


def run_blocks(text):
    build = os.environ["BUILD_ROOT"]
    environment = dict(os.environ, PATH=build + os.pathsep + os.environ["PATH"])
    for line, kind, body in shell_blocks(text):
        if kind != "run":
            continue
        with tempfile.TemporaryDirectory(prefix="ctrun-readme-") as folder:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", body], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=120, check=False,
            )  # fmt: skip
        if done.returncode != 0:
            yield f"README.md:{line}: exit {done.returncode}\n{body}{done.stdout}"


def main():
    text = tree.read("README.md")
    folders = {p.parts[0] for p in tree.files() if len(p.parts) > 1}
    findings = list(check_static(text, tree.read(".ci/run")))
    top = {f for f in folders if not f.startswith(".")}
    rooms_of = layers.rooms_of(tree.read)
    rooms = {f"{floor}/{room}" for floor, names in rooms_of.items() for room in names}
    for page, wanted in (("CONTRIBUTING.md", top), ("docs/ARCHITECTURE.md", rooms)):
        findings += check_map(page, tree.read(page), wanted)
    findings += check_drawing("docs/ARCHITECTURE.md", tree.read("docs/ARCHITECTURE.md"), rooms_of)
    findings += check_messages(text, (tree.read(p) for p in tree.files() if tree.is_c(p) and p.parts[0] != "tests"))
    findings += run_blocks(text)
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
