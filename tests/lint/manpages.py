# SPDX-License-Identifier: Apache-2.0
"""Man pages: mandoc has nothing to say, and each page lists exactly the options of its program."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import tree

PROGRAMS = {"ctrun": "ctrun.1", "ctrdzvd": "ctrdzvd.8", "ctrun-stat": "ctrun-stat.1", "train": "train.1"}
# Where --help alone shows the usual options.
HELP = {"ctrun": ["--help", "all"]}
BUILD_ROOT = pathlib.Path(os.environ.get("BUILD_ROOT", "build"))


def page_options(text):
    """Options of the `.It Fl` lines: `.It Fl r , Fl -redirects Ar N` gives -r and --redirects."""
    options = set()
    for line in text.splitlines():
        if not line.startswith(".It Fl "):
            continue
        words = line.split()[1:]
        flag = False
        for word in words:
            if word == "Fl":
                flag = True
            elif re.fullmatch(r"[A-Z][a-z]", word):
                flag = False
            elif flag and re.match(r"-?\w", word):
                options.add("-" + re.split(r"[=,]", word)[0])
    return options


def help_options(text):
    """Options of a --help text: the lines that begin with a dash, up to the description."""
    options = set()
    for line in text.splitlines():
        match = re.match(r"\s+(-.*)", line)
        if match:
            head = re.split(r"\s{2,}", match.group(1))[0]
            options.update(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", head))
    return options


def compare(program, page, help_text):
    ours, theirs = page_options(page), help_options(help_text)
    if not ours or not theirs:
        yield f"{program}: no options found (page {len(ours)}, --help {len(theirs)})"
    for option in sorted(theirs - ours):
        yield f"{program}: the man page does not list {option}"
    for option in sorted(ours - theirs):
        yield f"{program}: the man page lists {option}, which --help does not"


def check_options():
    for program, name in PROGRAMS.items():
        page, binary = tree.ROOT / "man" / name, BUILD_ROOT / program
        if not binary.exists():
            print(f"note: {program} is not part of this build")
        elif not page.exists():
            yield f"man/{name} is missing"
        else:
            answer = subprocess.run(
                [binary, *HELP.get(program, ["--help"])],
                capture_output=True, text=True, timeout=20, check=False,
            )  # fmt: skip
            if answer.returncode != 0:
                yield f"{program} --help exits {answer.returncode}: {answer.stderr.strip()}"
            yield from compare(program, page.read_text(), answer.stdout)


def main():
    findings = list(check_options())
    pages = [p for p in tree.files() if p.match("man/*.[1-8]")]
    mandoc = shutil.which("mandoc")
    if mandoc and pages:
        lint = subprocess.run(
            [mandoc, "-Tlint", "-Wwarning", *map(str, pages)],
            cwd=tree.ROOT, capture_output=True, text=True,
        )  # fmt: skip
        findings += lint.stdout.splitlines() + lint.stderr.splitlines()
    for finding in findings:
        print(finding)
    print(f"{len(pages)} pages checked, {len(findings)} findings")
    if findings:
        sys.exit(1)
    if not mandoc:
        tree.skip("mandoc is not installed; only the options were compared")
    if not pages:
        tree.skip("there are no man pages yet")


if __name__ == "__main__":
    main()
