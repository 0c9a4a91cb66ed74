# SPDX-License-Identifier: Apache-2.0
"""An outside program sees the installed library through pkg-config alone. The program is the one in
the man page, so the page's example is known to compile and to print what the page says."""

import os
import re
import shlex
import shutil
import subprocess
import unittest

import testlib

FUNCTION = re.compile(r"\b(ctw_\w+)\(")


def examples_of(page):
    """The last two literal displays of the page, as text: a program, and a function for it."""
    displays = re.findall(r"^\.Bd -literal$\n(.*?)^\.Ed$", page, re.M | re.S)[-2:]
    return [display.replace("\\en", "\\n") for display in displays]


class Install(testlib.Case):
    @classmethod
    def setUpClass(cls):
        for tool in ("meson", "pkg-config", "nm"):
            if shutil.which(tool) is None:
                raise unittest.SkipTest(f"{tool} is not installed")

    def setUp(self):
        super().setUp()
        self.root = self.tmp / "root"
        subprocess.run(
            ["meson", "install", "-C", testlib.BUILD_ROOT, "--no-rebuild", "--destdir", self.root],
            check=True,
            capture_output=True,
        )
        (pc,) = self.root.rglob("ctworker.pc")
        self.env = dict(
            os.environ,
            PKG_CONFIG_PATH=str(pc.parent),
            PKG_CONFIG_SYSROOT_DIR=str(self.root),
            LD_LIBRARY_PATH=str(pc.parent.parent),
        )
        self.library = pc.parent.parent / "libctworker.so"

    def compile(self, source, *more):
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "ctworker"],
            env=self.env, check=True, capture_output=True, text=True,
        ).stdout.split()  # fmt: skip
        sanitize = os.environ["SANITIZE"]
        if sanitize != "none":
            flags.append(f"-fsanitize={sanitize}")
        output = self.tmp / "prog"
        command = [*shlex.split(os.environ["CC"]), *more, source, *flags, "-o", output]
        subprocess.run(command, env=self.env, check=True)
        return str(output)

    def test_program_of_the_man_page(self):
        page = (testlib.SOURCE_ROOT / "man" / "ctworker.3").read_text()
        program, function = examples_of(page)
        self.compile_and_run(page, self.script("prog.c", program))
        before, _, main = program.partition("int main(void)")
        main = main.replace("run(job, &err)", "run_all(job, &err)")
        self.compile_and_run(page, self.script("stays.c", f"{before}{function}\nint main(void){main}"))

    def compile_and_run(self, page, source):
        prog = self.compile(source, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
        path = {"LD_LIBRARY_PATH": self.env["LD_LIBRARY_PATH"]}
        alone = self.run_program(prog, env=path)
        self.assertEqual(alone.code, 0, alone)
        self.assertEqual(alone.out, "1 ranks, sum of their numbers 0\n")

        job = self.ctrun("--nproc-per-node", "4", prog, env=path)
        self.assertEqual(job.code, 0, job)
        said = "4 ranks, sum of their numbers 6"
        self.assertIn(said, job.out)
        self.assertIn(said, page)

    def test_only_the_header_leaves_the_library(self):
        nm = subprocess.run(
            ["nm", "-D", "--defined-only", self.library],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        symbols = {line.split()[-1] for line in nm.splitlines()}
        (header,) = self.root.rglob("ctworker.h")
        declared = {
            name
            for line in re.findall(r"^CTW_API[^;]*;", header.read_text(), re.M)
            for name in FUNCTION.findall(line)[:1]
        }
        self.assertGreater(len(declared), 15)
        # A sanitizer adds symbols of its own.
        self.assertEqual({s for s in symbols if not s.startswith("__")}, declared)

    def test_header_is_for_cplusplus_too(self):
        compiler = shutil.which("c++")
        if compiler is None:
            self.skipTest("no C++ compiler")
        (header,) = self.root.rglob("ctworker.h")
        source = self.script("use.cc", "#include <ctworker.h>\nint main() { return 0; }\n")
        subprocess.run(
            [compiler, "-fsyntax-only", "-Wall", "-Werror", f"-I{header.parent}", source],
            check=True,
        )

    def test_man_page_lists_every_function(self):
        (header,) = self.root.rglob("ctworker.h")
        page = (testlib.SOURCE_ROOT / "man" / "ctworker.3").read_text()
        for name in set(FUNCTION.findall(header.read_text())):
            self.assertIn(f".Fn {name} ", page)


if __name__ == "__main__":
    testlib.main()
