# SPDX-License-Identifier: Apache-2.0
"""The Python packages ctworker and ctrun, from the source tree, with the library of this build."""

import os
import subprocess
import sys
import unittest

from .case import Case as BaseCase
from .paths import BUILD_ROOT, SOURCE_ROOT, program

FOLDER = SOURCE_ROOT / "worker" / "python"
LIBRARY = BUILD_ROOT / "worker" / "libctworker.so.0"


def environment():
    return {
        "PYTHONPATH": str(FOLDER),
        "CTWORKER_LIBRARY": str(LIBRARY),
        "CTRUN_PROGRAM": program("ctrun"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def python_with(*modules):
    """An interpreter that has these modules: the one of the tests, or Debian's. Skips without one."""
    for python in (sys.executable, "/usr/bin/python3"):
        probe = [python, "-c", "import " + ", ".join(modules)]
        try:
            if subprocess.run(probe, capture_output=True, timeout=60, check=False).returncode == 0:
                return python
        except OSError:
            pass
    raise unittest.SkipTest(f"no Python here has {' and '.join(modules)}")


def folder_with_ctrun(case):
    """A folder with ctrun and nothing else, for alias_command()."""
    folder = case.tmp / "bin"
    folder.mkdir()
    (folder / "ctrun").symlink_to(program("ctrun"))
    return folder


def alias_command(case, folder, word):
    """Puts a torchrun beside the ctrun in this folder (install-torchrun), or takes it away (remove-torchrun); returns
    what is said about it."""
    env = {**environment(), "CTRUN_PROGRAM": str(folder / "ctrun")}
    result = case.run_program(sys.executable, "-m", "ctrun", word, env=env)
    case.assertEqual((result.code, result.err), (0, ""), result)
    return result.out


class Case(BaseCase):
    def setUp(self):
        super().setUp()
        if os.environ["SANITIZE"] != "none":
            self.skipTest("Python cannot load a library with a sanitizer")
        if not LIBRARY.exists():
            self.skipTest("this build has no libctworker")

    def python_job(self, workers, text, *options, python=None, arguments=(), **kwargs):
        """Starts workers that run `text`."""
        env = {**environment(), **kwargs.pop("env", {})}
        script = self.script("worker.py", text)
        return self.start_ctrun(
            "-n", workers, *options, "--no-python", python or sys.executable, "-u", script, *arguments,
            env=env, **kwargs)  # fmt: skip
