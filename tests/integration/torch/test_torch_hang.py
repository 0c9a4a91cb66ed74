# SPDX-License-Identifier: Apache-2.0
"""A hang of a PyTorch program is explained down to the line of Python: by py-spy, which the virtual
environment of `tools/test --with-torch` has, or by PyTorch's own worker server."""

import os
import pathlib
import socket
import unittest

from testlib import main, pytorch
from testlib.pytorch import PROGRAMS

PROGRAM = PROGRAMS / "hang.py"
SUSPECT = 2
RANKS = os.environ.get("HANG_RANKS", "4")


def lines():
    """By the name of a hang: the number of the line that holds the job up."""
    found, name = {}, None
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1):
        if line.startswith("def "):
            name = line[4:].partition("(")[0]
        if line.endswith("# here"):
            found[name] = number
    return found


LINES = lines()


class Hang(pytorch.Case):
    python = pytorch.CURRENT

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not (pathlib.Path(cls.python).parent / "py-spy").exists():
            raise unittest.SkipTest("no py-spy beside PyTorch")

    def hang(self, how, *words):
        return self.ctrun(
            "--nproc-per-node", RANKS, "--hang-timeout", "4", "--on-hang", "abort", "--shutdown-timeout", "2",
            str(PROGRAM), how, *words, env={"PYTHON_EXEC": self.python, "OMP_NUM_THREADS": "1"}, deadline=pytorch.LIMIT,
        )  # fmt: skip

    def assert_explained(self, how, *words):
        result = self.hang(how, *words)
        self.assertEqual(result.code, 122, result)
        where = f"hang.py:{LINES[how]} in {how}"
        self.assertIn(f"ctrun: rank {SUSPECT} is at {where}", result.err)
        self.assertRegex(result.err, rf"ctrun: rank {SUSPECT} failed on \S+: process \d+ hung: .* at {where}")
        return result

    def test_an_all_reduce_that_is_skipped(self):
        self.assert_explained("skip")

    def test_a_stopped_process_is_explained(self):
        self.assert_explained("stop")

    def test_a_sleep_that_holds_the_lock_of_python(self):
        self.assert_explained("hold_gil")

    def test_an_endless_loop_in_c(self):
        result = self.assert_explained("loop_in_c")
        self.assertIn("it uses the CPU, but does not leave one place of its program", result.err)

    def test_a_lock_that_nobody_gives_back(self):
        self.assert_explained("lock")

    def test_a_data_loader_that_is_stuck(self):
        self.assert_explained("data_loader")

    def test_another_operation_is_explained(self):
        self.assert_explained("operation")

    def test_another_size_is_in_the_recordings(self):
        result = self.hang("shape", "worker")
        self.assertEqual(result.code, 122, result)
        self.assertIn(
            f"ctrun: rank {SUSPECT} came to number 4 of group default_pg with all_reduce of Float [3], "
            "the others with all_reduce of Float [5]\n", result.err,
        )  # fmt: skip
        self.assertRegex(result.err, rf"ctrun: rank {SUSPECT} failed on ")

    def test_the_worker_server_answers_without_py_spy(self):
        result = self.assert_explained("lock", "worker")
        self.assertIn(f"ctrun: rank {SUSPECT} did not come to all_reduce 4 of group default_pg", result.err)
        self.assertIn(f"ctrun: stack of rank {SUSPECT}, from PyTorch's worker server:\n", result.err)

    def test_the_debug_server_answers_too(self):
        result = self.assert_explained("lock", "debug")
        self.assertIn(f"ctrun: rank {SUSPECT} did not come to all_reduce 4 of group default_pg", result.err)
        self.assertIn(f"ctrun: stack of rank {SUSPECT}, from PyTorch's worker server:\n", result.err)

    def test_machines_find_together_who_did_not_come(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        jobs = [
            self.start_ctrun(
                "--nproc-per-node", "2", "--nnodes", "2", "--node-rank", node, "--master-addr", "127.0.0.1",
                "--master-port", port, "--hang-timeout", "4", "--on-hang", "abort", "--shutdown-timeout", "2",
                str(PROGRAM), "lock", "worker", env={"PYTHON_EXEC": self.python, "OMP_NUM_THREADS": "1"},
            )
            for node in range(2)
        ]  # fmt: skip
        for job in jobs:
            result = job.wait(pytorch.LIMIT)
            self.assertEqual(result.code, 122, result)
            self.assertRegex(
                result.err, rf"ctrun: rank {SUSPECT} did not come to all_reduce 4 of group default_pg \(Float \[5\]\); "
                rf"3 ranks wait there; it runs on \S+, at \S+/hang\.py:{LINES['lock']} lock\n",
            )  # fmt: skip


if __name__ == "__main__":
    main()
