# SPDX-License-Identifier: Apache-2.0
"""Unmodified PyTorch programs under ctrun, with Debian's PyTorch (whose clients speak the legacy
dialect of the store) and with PyPI's current one. `tools/test --with-torch` installs both."""

import testlib
from testlib import pytorch
from testlib.pytorch import LIMIT, PROGRAMS


class Programs:
    """The tests; the classes below say with which interpreter."""

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


class DebianTorch(Programs, pytorch.Case):
    python = pytorch.DEBIAN


class CurrentTorch(Programs, pytorch.Case):
    python = pytorch.CURRENT

    def test_a_timer_that_expires(self):
        result = self.ctrun(
            "--nproc-per-node", "2", "--shutdown-timeout", "1", str(PROGRAMS / "file_timer.py"),
            env={"PYTHON_EXEC": self.python, "TORCHELASTIC_ENABLE_FILE_TIMER": "1"}, deadline=LIMIT,
        )  # fmt: skip
        self.assertEqual(result.code, 128 + 9, result)
        self.assertIn("rank 1 has left a scope", result.out)
        self.assertRegex(result.err, r"rank 1 failed on .*its timer 'too long' had expired")
        self.assertNotIn("in time", result.err)


if __name__ == "__main__":
    testlib.main()
