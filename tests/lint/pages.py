# SPDX-License-Identifier: Apache-2.0
"""Pages name only what is there. A word in backticks is a path if its first part is a folder of the top
level, or if it has a source file's suffix and no folder. It may hold '*', lists like {a,b}.c, and the
placeholders below, which stand for any name. A word like `name()` is a function of the C sources or of the Python
packages, and in a step of a numbered list that begins with "`file`: `name()`" it is one of that file. A link goes to
a file, relative to its page."""

import functools
import itertools
import pathlib
import re

import tree

PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "bench/README.md")
PLACEHOLDERS = ("FLOOR", "ROOM", "AREA", "NAME")

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
FUNCTION = re.compile(r"(\w+_\w+)\(\)")
STEP = re.compile(r"^\d+\. `([\w./-]+)`: `(\w+)\(\)`", re.MULTILINE)
# Of other projects.
ELSEWHERE = ("init_process_group",)
CALL = re.compile(r"\b(\w+)\(")
PATH = re.compile(r"[\w.*+/{},-]+")
LISTS = re.compile(r"\{([^{}]*,[^{}]*)\}")
# Of a file that is named without its folder, which then is the top level's.
SUFFIXES = (".md", ".build", ".txt", ".sh")


def is_page(path):
    return any(len(path.parts) == page.count("/") + 1 and path.match(page) for page in PAGES)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def expand(word):
    """`a{b,c}` is ab and ac."""
    match = LISTS.search(word)
    if match is None:
        return [word]
    before, after = word[: match.start()], word[match.end() :]
    return [w for part in match.group(1).split(",") for w in expand(before + part + after)]


class Pages:
    def __init__(self, paths, read=tree.read):
        self.paths, self.read = paths, read
        self.files = {str(path) for path in paths}
        self.folders = {str(folder) for path in paths for folder in path.parents if folder.name}
        self.top = {folder for folder in self.folders if "/" not in folder}

    @functools.cached_property
    def functions(self):
        """All that is called or defined anywhere in the C sources and in the Python packages."""
        sources = (p for p in self.paths if tree.is_c(p) or p.match("worker/python/*/*.py"))
        return {name for path in sources for name in CALL.findall(self.read(path))}

    def exists(self, name):
        folder = name.endswith("/")
        pattern = name.rstrip("/")
        for placeholder in PLACEHOLDERS:
            pattern = pattern.replace(placeholder, "*")
        names = self.folders if folder else self.files | self.folders
        if "*" not in pattern:
            return pattern in names
        parts = pattern.count("/") + 1
        return any(n.count("/") + 1 == parts and pathlib.PurePosixPath(n).match(pattern) for n in names)

    def is_path(self, word):
        if "/" in word:
            return word.split("/")[0] in self.top
        return word.endswith(SUFFIXES) and PATH.fullmatch(word) is not None

    def check(self, path, text):
        text = FENCE.sub(blank, text)
        for match in QUOTED.finditer(text):
            line = tree.line_of(text, match.start())
            words = (w.rstrip(".,:;") for w in match.group(1).split())
            for word in itertools.chain.from_iterable(expand(w) for w in words if PATH.fullmatch(w)):
                if self.is_path(word) and not self.exists(word):
                    yield line, f"there is no {word}"
            for name in FUNCTION.findall(match.group(1)):
                if name not in self.functions and name not in ELSEWHERE:
                    yield line, f"there is no function {name}()"
        for match in STEP.finditer(text):
            file, name = match.groups()
            if file in self.files and name not in CALL.findall(self.read(pathlib.PurePosixPath(file))):
                yield tree.line_of(text, match.start()), f"{file} has no {name}()"
        for match in LINK.finditer(text):
            # By hand: a page has no link out of the tree.
            parts = []
            for part in (path.parent / match.group(1)).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            if not self.exists("/".join(parts)):
                yield tree.line_of(text, match.start()), f"the link goes to {match.group(1)}, which does not exist"


if __name__ == "__main__":
    tree.main(Pages(tree.files()).check, is_page)
