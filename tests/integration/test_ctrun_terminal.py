# SPDX-License-Identifier: Apache-2.0
"""What a person sees whose terminal shows the output of many workers."""

import os
import pty
import re
import subprocess

import testlib


class Terminal(testlib.Case):
    def start(self, *args, env=None):
        """ctrun with a terminal for stdout and stderr, and the other end of that."""
        terminal, inside = pty.openpty()
        self.addCleanup(os.close, terminal)
        proc = subprocess.Popen(
            [testlib.program("ctrun"), *map(str, args)],
            stdin=subprocess.DEVNULL, stdout=inside, stderr=inside,
            env={**os.environ, "NO_COLOR": "1", "TERM": "xterm", **(env or {})},
        )  # fmt: skip
        os.close(inside)
        self.addCleanup(proc.kill)
        return proc, terminal

    def read(self, terminal):
        """All that the terminal was given, up to its end."""
        seen = b""
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the last one has closed the other end
                return seen.decode().replace("\r\n", "\n")
            seen += piece

    def test_a_stopped_terminal_does_not_stop_the_workers(self):
        script = f'[ $RANK = 1 ] || seq -f "line %06g of many" 100000; : >{self.tmp}/done.$RANK'
        logs = self.tmp / "logs"
        args = ["-n", 2, "--log-dir", logs, "-t", "1", "--no-python", "sh", "-c", script]
        proc, terminal = self.start(*args)
        testlib.wait_until(lambda: len(list(self.tmp.glob("done.*"))) == 2, "the workers' end")
        text = self.read(terminal)
        self.assertEqual(proc.wait(testlib.DEADLINE), 0, text[-500:])
        said = re.findall(r"^ctrun: ([\d,]+) lines of rank 0 were dropped: .*$", text, re.M)
        shown = re.findall(r"^\[0\] line (\d+) of many$", text, re.M)
        self.assertGreater(len(said), 0, text[-500:])
        dropped = sum(int(number.replace(",", "")) for number in said)
        self.assertEqual(len(shown) + dropped, 100000, text[-500:])
        self.assertEqual(shown, sorted(shown))
        (file,) = logs.glob("*/attempt_0/0/stdout.log")
        self.assertEqual(file.read_text().count("\n"), 100000)

    def test_workers_wait_for_a_terminal_when_told_so(self):
        script = 'seq -f "line %06g of many" 30000'
        proc, terminal = self.start("-n", 2, "--slow-output", "wait", "sh", "-c", script)
        text = self.read(terminal)
        self.assertEqual(proc.wait(testlib.DEADLINE), 0, text[-500:])
        self.assertEqual(len(re.findall(r"line \d+ of many$", text, re.M)), 60000)
        self.assertNotIn("ctrun:", text)


if __name__ == "__main__":
    testlib.main()
