# SPDX-License-Identifier: Apache-2.0
"""The package ctworker in a DDP program, and programs of JAX, with PyPI's current versions."""

import subprocess
import unittest

import testlib
from testlib import pytorch, python_package


class DDP(pytorch.Case):
    python = pytorch.CURRENT

    def test_a_hang_is_told_with_its_step(self):
        env = {**python_package.environment(), "PYTHON_EXEC": self.python}
        result = self.ctrun(
            "-n", "2", "--hang-timeout", "5", "--on-hang", "abort", pytorch.PROGRAMS / "ddp_progress.py",
            env=env, deadline=pytorch.LIMIT)  # fmt: skip
        self.assertEqual(result.code, 122, result)
        self.assertRegex(result.err, "rank 1 hangs: .* in phase compute of step 5, while others wait for it")


class JAX(testlib.Case):
    def test_a_program_with_flags_starts_without_a_wrapper(self):
        probe = [pytorch.CURRENT, "-c", "import jax"]
        try:
            subprocess.run(probe, capture_output=True, timeout=pytorch.LIMIT, check=True)
        except (OSError, subprocess.CalledProcessError):
            raise unittest.SkipTest("no JAX in the environment of tools/test --with-torch") from None
        result = self.ctrun(
            "-n", "2", pytorch.PROGRAMS / "jax_flags.py", "--coordinator", "${master_addr}:${port:jax}",
            "--processes", "${world_size}", "--process", "${rank}",
            env={"PYTHON_EXEC": pytorch.CURRENT}, deadline=pytorch.LIMIT)  # fmt: skip
        self.assertEqual(result.code, 0, result)
        for rank in range(2):
            self.assertIn(f"process {rank} of 2 sum 6.0", result.out)


if __name__ == "__main__":
    testlib.main()
