# SPDX-License-Identifier: Apache-2.0
"""Unmodified PyTorch programs under ctrun, with Debian's PyTorch (whose clients speak the legacy
dialect of the store) and with PyPI's current one. `tools/test --with-torch` installs both."""

import os
import pathlib
import subprocess
import unittest

import testlib

PROGRAMS = testlib.SOURCE_ROOT / "tests" / "torch"
# Importing torch takes seconds; a loaded machine takes many.
LIMIT = 180


def venv_python():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    venv = os.environ.get("CTRUN_TORCH_VENV") or pathlib.Path(cache) / "ctrun" / "torch-venv"
    return str(pathlib.Path(venv) / "bin" / "python")


class Programs:
    """The tests; the classes below say with which interpreter."""

    python = None

    @classmethod
    def setUpClass(cls):
        probe = "import torch, torch.distributed as d; assert d.is_available(); print(torch.__version__)"
        try:
            found = subprocess.run(
                [cls.python, "-c", probe], capture_output=True, text=True, timeout=LIMIT,
                check=True,
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError) as error:
            raise unittest.SkipTest(f"no PyTorch under {cls.python}: {error}") from None
        print(f"{cls.python} has PyTorch {found.stdout.strip()}")

    def run_under_ctrun(self, name, *options):
        return self.ctrun(
            *options, "--nproc-per-node", "2", str(PROGRAMS / name),
            env={"PYTHON_EXEC": self.python}, deadline=LIMIT,
        )  # fmt: skip

    def test_gloo_five_times_in_a_row(self):
        for turn in range(5):
            result = self.run_under_ctrun("gloo.py")
            self.assertEqual(result.code, 0, f"turn {turn}: {result}")
            for rank in range(2):
                self.assertIn(f"rank {rank} of 2 done under torch", result.out)

    def test_gloo_after_a_restart(self):
        result = self.run_under_ctrun("gloo_restart.py", "--max-restarts", "1")
        self.assertEqual(result.code, 0, result)
        for rank in range(2):
            self.assertIn(f"rank {rank} done after 1 restarts", result.out)

    def test_failure_without_restarts_is_the_workers_code(self):
        result = self.run_under_ctrun("gloo_restart.py")
        self.assertEqual(result.code, 17, result)

    def test_store_client(self):
        _, port = self.start_ctrdzvd()
        result = self.run_program(
            self.python, str(PROGRAMS / "store_api.py"), str(port), deadline=LIMIT
        )
        self.assertEqual(result.code, 0, result)
        self.assertIn("store ok", result.out)


class DebianTorch(Programs, testlib.Case):
    python = "/usr/bin/python3"


class CurrentTorch(Programs, testlib.Case):
    python = venv_python()


if __name__ == "__main__":
    testlib.main()
