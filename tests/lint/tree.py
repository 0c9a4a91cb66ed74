# SPDX-License-Identifier: Apache-2.0
"""The source tree as the lint scripts see it, and their common main()."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("SOURCE_ROOT", pathlib.Path(__file__).parents[2]))

C_SUFFIXES = (".c", ".h", ".cu", ".cuh")


def files():
    """Relative paths of all source files: git's view where there is one (new files included), else
    everything that does not look like a build folder."""
    try:
        listed = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        names = [n for n in listed.split("\0") if n and (ROOT / n).is_file()]
    except (OSError, subprocess.CalledProcessError):
        names = [str(p.relative_to(ROOT)) for p in _walk(ROOT)]
    return sorted(pathlib.PurePosixPath(n) for n in set(names))


def _walk(folder):
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in (".git", "__pycache__") and not (entry / "meson-private").exists():
                yield from _walk(entry)
        elif entry.is_file():
            yield entry


def read(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def is_c(path):
    return path.suffix in C_SUFFIXES


_COMMENT_OR_TEXT = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL
)


def code_only(text):
    """C source with comments and literals blanked out; line numbers stay."""
    return _COMMENT_OR_TEXT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def main(check, wanted=lambda path: True, found=0):
    """Runs `check(path, text)`, which yields (line, message), over the wanted files. `found` = findings that
    were printed before."""
    paths = [p for p in files() if wanted(p)]
    for path in paths:
        for line, message in check(path, read(path)):
            print(f"{path}:{line}: {message}")
            found += 1
    print(f"{len(paths)} files checked, {found} findings")
    # A check that looked at nothing has proved nothing.
    sys.exit(1 if found or not paths else 0)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)
