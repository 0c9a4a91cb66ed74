# SPDX-License-Identifier: Apache-2.0
"""What is installed bears the marks of the compiler's and the linker's protections: every program and
library of ours, read by readelf."""

import os
import pathlib
import platform
import re
import shutil
import subprocess

import testlib

COMPILER = os.environ["CC"].split()
# Functions of the C library that the compiler replaces by a kind that knows the size of the target.
CHECKED = re.compile(r" __(?!stack_)\w+_chk\b")


def readelf(*args):
    done = subprocess.run(
        ["readelf", "--wide", *map(str, args)], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    return done.stdout


def is_elf(path):
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def takes_indirect_branches(path):
    """Whether every indirect jump in it lands on an instruction made for it (x86)."""
    return re.search(r"x86 feature: [^\n]*\bIBT\b", readelf("--notes", path)) is not None


class Hardened(testlib.Case):
    def setUp(self):
        super().setUp()
        if shutil.which("readelf") is None:
            self.skipTest("readelf is not in PATH")
        files = [p for p in self.install_build().rglob("*") if p.is_file() and not p.is_symlink()]
        self.installed = [path for path in files if is_elf(path)]
        names = {path.name for path in self.installed}
        self.assertLessEqual({"ctrun", "ctrdzvd", "ctrun-stat"}, names)
        self.assertTrue(any(".so" in name for name in names), "no library is installed")

    def each(self):
        for path in self.installed:
            with self.subTest(path.name):
                yield path

    def test_addresses_are_random(self):
        for path in self.each():
            self.assertRegex(readelf("--file-header", path), r"Type: +DYN ")
            if ".so" not in path.name:
                self.assertRegex(readelf("--dynamic", path), r"FLAGS_1\b.*\bPIE\b")

    def test_function_addresses_are_read_only(self):
        for path in self.each():
            self.assertIn("GNU_RELRO", readelf("--segments", path))
            self.assertRegex(readelf("--dynamic", path), r"FLAGS_1\b.*\bNOW\b")

    def test_nothing_runs_on_the_stack(self):
        for path in self.each():
            (flags,) = re.findall(
                r"GNU_STACK +(?:0x[0-9a-f]+ +){5}([RWE ]+?) +0x", readelf("--segments", path)
            )
            self.assertEqual(flags, "RW")

    def test_overflown_buffers_are_seen(self):
        if os.environ["HARDENED"] != "1":
            self.skipTest("not an optimised build")
        for path in self.each():
            symbols = readelf("--dyn-syms", path)
            self.assertIn("__stack_chk_fail", symbols)
            if os.environ["FORTIFIED"] == "1":
                self.assertRegex(symbols, CHECKED)

    def test_jumps_land_where_they_may(self):
        if os.environ["HARDENED"] != "1" or platform.machine() != "x86_64":
            self.skipTest("not an optimised build for x86-64")
        objects = [
            next(testlib.BUILD_ROOT.glob(f"{program}.p/**/*.o"))
            for program in ("ctrun", "ctrdzvd", "ctrun-stat")
        ]
        for path in objects:
            with self.subTest(path.name):
                self.assertTrue(takes_indirect_branches(path))
        # The linker marks a file only if all in it is so: Debian 12's start files and archives are not.
        start = [
            subprocess.run([*COMPILER, f"-print-file-name={name}"], capture_output=True, text=True,
                           timeout=60, check=True).stdout.strip()
            for name in ("Scrt1.o", "crti.o")
        ]  # fmt: skip
        if not all(takes_indirect_branches(pathlib.Path(path)) for path in start):
            self.skipTest("our objects are marked; the C library's start files are not")
        for path in self.each():
            self.assertTrue(takes_indirect_branches(path))


if __name__ == "__main__":
    testlib.main()
