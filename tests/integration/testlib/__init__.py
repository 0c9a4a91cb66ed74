# SPDX-License-Identifier: Apache-2.0
"""Shared helpers of the end-to-end tests.

A test file is short:

    import testlib

    class ExitCodes(testlib.Case):
        def test_code_of_worker_is_ours(self):
            result = self.ctrun("--no-python", "sh", "-c", "exit 7")
            self.assertEqual(result.code, 7, result)

    if __name__ == "__main__":
        testlib.main()
"""

from .case import Case, main
from .debian_roots import DebianRoots
from .paths import BUILD_ROOT, SOURCE_ROOT, program
from .proc import Proc, Result, anonymous_bytes, cookie_pids, descriptors_of, pid_alive, zombies_of
from .ranks import start_ranks
from .terminal import Terminal
from .wait import DEADLINE, wait_until

__all__ = [
    "BUILD_ROOT",
    "Case",
    "DEADLINE",
    "DebianRoots",
    "Proc",
    "Result",
    "SOURCE_ROOT",
    "Terminal",
    "anonymous_bytes",
    "cookie_pids",
    "descriptors_of",
    "main",
    "pid_alive",
    "program",
    "start_ranks",
    "wait_until",
    "zombies_of",
]
