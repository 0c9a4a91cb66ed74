# SPDX-License-Identifier: Apache-2.0
"""Restarts that know when to stop: which ends are not retried, how often, and with what pauses."""

import testlib


class NotRetried(testlib.Case):
    def test_a_code_that_is_named_ends_the_job_at_once(self):
        result = self.ctrun("--max-restarts", "5", "--no-restart-on", "7,SIGSEGV", "sh", "-c", "exit 7")
        self.assertEqual(result.code, 119, result)
        self.assertIn("exited with code 7", result.err)
        self.assertIn("--no-restart-on excludes a restart", result.err)
        self.assertNotIn("restarting", result.err)

    def test_a_signal_is_named_or_its_shells_code(self):
        for script in ("kill -SEGV $$$$", "exit 139"):
            result = self.ctrun("--max-restarts", "5", "--no-restart-on", "SIGSEGV", "sh", "-c", script)
            self.assertEqual(result.code, 119, result)

    def test_others_are_retried(self):
        result = self.ctrun(
            "--max-restarts", "1", "--no-restart-on", "7", "sh", "-c", "[ $CTRUN_GENERATION = 1 ] || exit 8"
        )
        self.assertEqual(result.code, 0, result)

    def test_garbage_is_one_clear_line(self):
        for value in ("", "0", "300", "SIGNOPE", "1,,2", "7-3", "x" * 100000):
            result = self.ctrun("--no-restart-on", value, "true")
            self.assertEqual((result.code, result.out), (2, ""), result)
            self.assert_one_line(result.err)
            self.assertIn("--no-restart-on", result.err)


if __name__ == "__main__":
    testlib.main()
