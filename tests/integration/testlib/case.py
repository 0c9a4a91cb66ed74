# SPDX-License-Identifier: Apache-2.0
"""The base class of the end-to-end tests and their main()."""

import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import unittest

from .paths import BUILD_ROOT, program
from .proc import Proc, pid_alive
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


# Says that it is up, and ends when the file is there, with the code in it.
WAITS = 'echo rank $RANK up; while [ ! -e "$0" ]; do sleep 0.05; done; echo rank $RANK ends; exit $(cat "$0")'


class DetachedCase(Case):
    """Ends the detached jobs of the test, which are no children of it. `self.states` are the state folders
    in which they may be."""

    def setUp(self):
        super().setUp()
        self.states = [self.tmp / "state"]
        self.go = self.tmp / "go"
        self.addCleanup(self.kill_jobs)

    def records(self):
        """The fields of each job, by its id."""
        return {
            path.parent.name: dict(line.split(" ", 1) for line in path.read_text().splitlines())
            for state in self.states
            for path in (state / "ctrun").glob("*/job")
        }

    def kill_jobs(self):
        for job in self.records().values():
            if pid_alive(int(job["pid"])):
                os.kill(int(job["pid"]), signal.SIGKILL)

    def end(self, code):
        """The workers end with this code."""
        draft = self.tmp / "draft"
        draft.write_text(str(code))
        draft.rename(self.go)


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
