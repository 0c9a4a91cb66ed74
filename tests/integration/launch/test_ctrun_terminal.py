# SPDX-License-Identifier: Apache-2.0
"""What a person sees whose terminal shows the output of many workers."""

import re

import testlib


class OnATerminal(testlib.Case):
    def terminal(self, *args, env=None):
        """ctrun on a terminal."""
        terminal = testlib.Terminal(
            testlib.program("ctrun"), *args, env={"NO_COLOR": "1", "TERM": "xterm", **(env or {})}
        )
        self.addCleanup(terminal.close)
        return terminal

    def test_a_stopped_terminal_does_not_stop_the_workers(self):
        script = f'[ $RANK = 1 ] || seq -f "line %06g of many" 100000; : >{self.tmp}/done.$RANK'
        logs = self.tmp / "logs"
        args = ["-n", 2, "--log-dir", logs, "-t", "1", "--no-python", "sh", "-c", script]
        terminal = self.terminal(*args)
        testlib.wait_until(lambda: len(list(self.tmp.glob("done.*"))) == 2, "the workers' end")
        text = terminal.read_all()
        self.assertEqual(terminal.proc.wait(testlib.DEADLINE), 0, text[-500:])
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
        terminal = self.terminal("-n", 2, "--slow-output", "wait", "--fold", "off", "sh", "-c", script)
        text = terminal.read_all()
        self.assertEqual(terminal.proc.wait(testlib.DEADLINE), 0, text[-500:])
        self.assertEqual(len(re.findall(r"line \d+ of many$", text, re.M)), 60000)
        self.assertNotIn("ctrun:", text)

    def test_equal_lines_become_one(self):
        script = "echo hello; echo only $RANK; echo error >&2; echo bye"
        terminal = self.terminal("-n", 8, "sh", "-c", script)
        text = terminal.read_all()
        self.assertEqual(terminal.proc.wait(testlib.DEADLINE), 0, text)
        # The machine may be slow: then an equal line comes too late for the others.
        said = {rank: [] for rank in range(8)}
        lines = text.splitlines()
        for ranks, line in (re.fullmatch(r"\[([\d,-]+)\] (.*)", x).groups() for x in lines):
            for part in ranks.split(","):
                first, _, last = part.partition("-")
                for rank in range(int(first), int(last or first) + 1):
                    said[rank].append(line)
        for rank, seen in said.items():
            self.assertEqual(sorted(seen), sorted(["hello", f"only {rank}", "error", "bye"]), text)
            self.assertEqual([x for x in seen if x != "error"], ["hello", f"only {rank}", "bye"])
        self.assertLess(len(lines), 32, text)

    def test_equal_lines_stay_when_told_so_and_elsewhere(self):
        for how in (["--fold", "off"], ["--log-line-prefix-template", "[${rank}] "]):
            terminal = self.terminal("-n", 4, *how, "echo", "hello")
            lines = sorted(terminal.read_all().splitlines())
            self.assertEqual(lines, [f"[{rank}] hello" for rank in range(4)])
        self.assertEqual(self.ctrun("-n", 4, "echo", "hello").out.count("hello"), 4)

    def test_a_failure_comes_behind_what_waits(self):
        script = "echo last words $RANK >&2; [ $RANK = 0 ] || sleep 60; exit 3"
        terminal = self.terminal("-n", 4, "sh", "-c", script)
        text = terminal.read_all()
        self.assertLess(text.index("[0] last words 0"), text.index("ctrun: rank 0 failed"), text)


if __name__ == "__main__":
    testlib.main()
