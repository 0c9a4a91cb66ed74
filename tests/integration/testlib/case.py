# SPDX-License-Identifier: Apache-2.0
"""The base class of the end-to-end tests and their main()."""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from .paths import BUILD_ROOT, program
from .proc import Proc
from .wait import DEADLINE


class Case(unittest.TestCase):
    """Gives each test a private folder `self.tmp`, and ends whatever the test started."""

    maxDiff = None

    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="ctrun-test-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)

    def start(self, *argv, **kwargs):
        """Starts any program; keywords as in Proc."""
        proc = Proc(argv, self.tmp, **kwargs)
        self.addCleanup(proc.kill)
        return proc

    def run_program(self, *argv, deadline=DEADLINE, **kwargs):
        return self.start(*argv, **kwargs).wait(deadline)

    def start_ctrun(self, *args, **kwargs):
        return self.start(program("ctrun"), *args, **kwargs)

    def ctrun(self, *args, deadline=DEADLINE, **kwargs):
        return self.start_ctrun(*args, **kwargs).wait(deadline)

    def start_ctrdzvd(self, *args, **kwargs):
        """Starts the daemon on a port of the kernel's choice; returns (proc, port)."""
        proc = self.start(program("ctrdzvd"), "--port", "0", *args, **kwargs)
        line = proc.wait_for("listening on")
        return proc, int(re.search(r":(\d+)$", line.partition("listening on")[2]).group(1))

    def install_build(self):
        """Installs the build; returns the folder that stands for the root of a system."""
        if shutil.which("meson") is None:
            self.skipTest("meson is not in PATH")
        root = self.tmp / "root"
        done = self.run_program(
            "meson", "install", "-C", str(BUILD_ROOT), "--no-rebuild", "--quiet", "--destdir", str(root),
        )  # fmt: skip
        self.assertEqual(done.code, 0, done)
        return root

    def script(self, name, text):
        """Writes a file into the test's folder and returns its path as a string."""
        path = self.tmp / name
        path.write_text(text)
        return str(path)

    def assert_one_line(self, text):
        """An error message for a person: exactly one line."""
        self.assertRegex(text, r"\A[^\n]+\n\Z")


def main():
    """As unittest.main(), but a run in which every test was skipped says so to meson (77)."""
    program_run = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program_run.result
    if not result.wasSuccessful():
        sys.exit(1)
    # A class skipped as a whole stands among the skipped, and none of its tests among those run.
    skipped_tests = sum(isinstance(test, unittest.TestCase) for test, _ in result.skipped)
    if result.skipped and result.testsRun == skipped_tests:
        sys.exit(77)
    sys.exit(0 if result.testsRun > 0 else 1)
