# SPDX-License-Identifier: Apache-2.0
"""Functions and phrases that have no place here. A line that must be an exception says why in a comment:
`lint-ok: memory of getline()`."""

import re

import tree

EXEMPT = "lint-ok:"


def calls(*names):
    return re.compile(r"(?<![\w.>])(?:%s)\s*\(" % "|".join(names))


UNBOUNDED = calls("sprintf", "vsprintf", "strcpy", "stpcpy", "strcat", "gets", "alloca")
LENIENT = calls("atoi", "atol", "atoll", "atof", "strtol", "strtoul", "strtoll", "strtoull")
STATEFUL = calls("strtok", "rand", "srand", "random", "srandom", "strerror_l", "setenv", "putenv")
SHELL = calls("system", "popen")
HEAP = calls("malloc", "calloc", "realloc", "reallocarray", "free", "strdup", "strndup", "asprintf", "vasprintf")
OUTPUT = re.compile(r"(?<![\w.>])(?:(?:printf|puts|perror|putchar|vprintf|exit|abort)\s*\(|fprintf\s*\(\s*std(?:err|out)\b)")
# A failure that is carried past calls which are then not made. It may go on over several lines.
CARRIED_ON = re.compile(r"\b(\w*rc)\s*=\s*\1\s*[!=]=\s*0\b[^;?]*\?")

LIBRARIES = {"common", "rendezvous", "worker", "kernels", "trainer", "launcher"}


def check(path, text):
    lines = text.splitlines()
    library = path.parts[0] in LIBRARIES
    rules = [
        (UNBOUNDED, "writes without a bound"),
        (SHELL, "runs a shell"),
    ]
    if library:
        rules.append((LENIENT, "accepts what is no number; use common/num.h"))
        rules.append((CARRIED_ON, "return at the first failure, or go to the label that undoes things"))
        if str(path) != "common/alloc.c":
            rules.append((HEAP, "bypasses common/alloc.h"))
        # err.c holds the one assertion that may end the process.
        if path.name != "main.c" and str(path) != "common/err.c":
            rules.append((OUTPUT, "prints or exits from a library; only main.c may"))
        if path.name != "main.c":
            rules.append((STATEFUL, "changes process-wide state; only main.c may"))
    code = tree.code_only(text)
    for rule, why in rules:
        for match in rule.finditer(code):
            line = tree.line_of(code, match.start())
            if EXEMPT not in lines[line - 1]:
                yield line, f"{match.group().rstrip('( ')}: {why}"


if __name__ == "__main__":
    tree.main(check, tree.is_c)
