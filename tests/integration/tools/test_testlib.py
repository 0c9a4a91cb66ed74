# SPDX-License-Identifier: Apache-2.0
"""The helpers themselves: a helper that cannot see a leak makes every other test blind."""

import os
import signal
import subprocess
import sys
from unittest import mock

import testlib


class Helpers(testlib.Case):
    def test_result_holds_code_and_both_streams(self):
        result = self.run_program("sh", "-c", "echo out; echo err >&2; exit 3")
        self.assertEqual((result.code, result.out, result.err), (3, "out\n", "err\n"))

    def test_foreign_environment_is_removed_and_own_added(self):
        code = "import os; print(os.environ.get('RANK'), os.environ.get('MINE'))"
        outer = {"RANK": "7", "PET_NNODES": "2"}
        with mock.patch.dict(os.environ, outer):
            result = self.run_program(sys.executable, "-c", code, env={"MINE": "yes"})
        self.assertEqual(result.out, "None yes\n")

    def test_reparented_grandchild_is_found_and_killed(self):
        proc = self.start("sh", "-c", "setsid sleep 600 & exit 0")
        proc.wait()
        self.assertEqual(len(proc.family()), 1, proc.family())
        with self.assertRaisesRegex(AssertionError, "no process of"):
            proc.wait_no_family(0.05)
        proc.kill()
        self.assertEqual(proc.family(), [])

    def test_zombie_is_not_alive(self):
        child = subprocess.Popen(["true"])
        testlib.wait_until(lambda: not testlib.pid_alive(child.pid), "zombie")
        child.wait()

    def test_deadline_kills_and_shows_the_output(self):
        proc = self.start("sh", "-c", "echo before; exec sleep 600")
        proc.wait_for("before")
        with self.assertRaisesRegex(AssertionError, "(?s)still running.*before"):
            proc.wait(0.05)
        self.assertEqual(proc.family(), [])

    def test_wait_for_fails_at_once_when_the_program_ends(self):
        proc = self.start("sh", "-c", "echo other")
        with self.assertRaisesRegex(AssertionError, "ended without printing 'never'"):
            proc.wait_for("never")

    def test_a_line_is_read_when_it_is_whole(self):
        # Half of a pid, read while it was written, is another process.
        proc = self.start("sh", "-c", "printf 'one\\ntw'; exec sleep 600")
        testlib.wait_until(lambda: proc.out_path.read_text() == "one\ntw", "both")
        self.assertEqual(proc.out, "one\n")
        proc.kill()
        self.assertEqual(proc.out, "one\ntw")

    def test_signal_is_a_negative_code(self):
        proc = self.start("sleep", "600")
        proc.signal(signal.SIGTERM)
        self.assertEqual(proc.wait().code, -signal.SIGTERM)


if __name__ == "__main__":
    testlib.main()
