# SPDX-License-Identifier: Apache-2.0
"""What a person sees whose terminal shows the output of many workers."""

import re
import signal

import testlib


def lines_of_workers(text):
    return [line for line in text.splitlines() if not line.startswith("ctrun: live page: ")]


class OnATerminal(testlib.Case):
    def terminal(self, *args, env=None, live=False, **how):
        """ctrun on a terminal, without the live line unless `live`."""
        args = args if live else ["--no-progress", *args]
        terminal = testlib.Terminal(
            testlib.program("ctrun"), *args,
            env={"NO_COLOR": "1", "TERM": "xterm", **(env or {})}, **how,
        )  # fmt: skip
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
        self.assertEqual(re.findall("^ctrun: (?!live page)", text, re.M), [])

    def test_equal_lines_become_one(self):
        script = "echo hello; echo only $RANK; echo error >&2; echo bye"
        terminal = self.terminal("-n", 8, "sh", "-c", script)
        text = terminal.read_all()
        self.assertEqual(terminal.proc.wait(testlib.DEADLINE), 0, text)
        # The machine may be slow: then an equal line comes too late for the others.
        said = {rank: [] for rank in range(8)}
        lines = lines_of_workers(text)
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
            lines = sorted(lines_of_workers(terminal.read_all()))
            self.assertEqual(lines, [f"[{rank}] hello" for rank in range(4)])
        self.assertEqual(self.ctrun("-n", 4, "echo", "hello").out.count("hello"), 4)

    def test_a_failure_comes_behind_what_waits(self):
        script = "echo last words $RANK >&2; [ $RANK = 0 ] || sleep 60; exit 3"
        terminal = self.terminal("-n", 4, "sh", "-c", script)
        text = terminal.read_all()
        self.assertLess(text.index("[0] last words 0"), text.index("ctrun: rank 0 failed"), text)

    # ---- the live line -----------------------------------------------------------------------

    def waiting_workers(self):
        """A script of workers that wait for self.go()."""
        return f"while ! [ -e {self.tmp}/go ]; do sleep 0.1; done; echo bye"

    def go(self):
        (self.tmp / "go").touch()

    def test_a_quiet_terminal_shows_the_live_line_until_the_next_output(self):
        terminal = self.terminal("-n", 2, "sh", "-c", self.waiting_workers(), live=True)
        terminal.read_until("ctrun: 2 workers running for ")
        self.go()
        text = terminal.read_all()
        self.assertEqual(terminal.proc.wait(testlib.DEADLINE), 0, text)
        # The line is erased before the output, and none is left at the end.
        self.assertRegex(text, r"running for \d+ s\r\x1b\[J\[[01](-1)?\] bye\n")
        self.assertTrue(text.endswith(("\n", "\x1b[J")), text[-200:])

    def test_train_tells_the_live_line_how_long_it_lasts(self):
        # An epoch takes seconds, so that the terminal is quiet in between.
        train = ["train", "--data", "synthetic", "--hidden", "1024,1024", "--device", "cpu", "--epochs", 100000]
        terminal = self.terminal("-n", 2, *train, live=True)
        while not re.search(r"ctrun: step [\d,]+ of [\d,]+, loss \S+, \S+ samples/s, \S+ \S+ left",
                            terminal.text()):  # fmt: skip
            self.assertIsNone(terminal.proc.poll(), terminal.text()[-2000:])
            terminal.read_until_more()
        terminal.proc.terminate()
        terminal.read_all()

    def test_no_live_line_where_it_is_not_wanted(self):
        script = "sleep 2; echo bye"
        for args, env in ((["--no-progress"], {}), ([], {"TERM": "dumb"})):
            terminal = self.terminal("-n", 2, *args, "sh", "-c", script, live=True, env=env)
            self.assertNotRegex(terminal.read_all(), r"ctrun: (\d+ workers|step)")
        # A pipe: whoever reads it may write to the terminal.
        terminal = testlib.Terminal(
            "sh", "-c", f"{testlib.program('ctrun')} -n 2 sh -c '{script}' | cat", env={"TERM": "xterm"}
        )
        self.addCleanup(terminal.close)
        self.assertNotRegex(terminal.read_all(), r"ctrun: (\d+ workers|step)")
        self.assertEqual(self.ctrun("-n", 2, "sh", "-c", script).err, "")

    def test_the_live_line_leaves_before_ctrun_is_suspended_and_comes_back(self):
        # The shell gives ctrun a process group of its own, as one that a person types into.
        ctrun = f"{testlib.program('ctrun')} -n 2 sh -c '{self.waiting_workers()}'"
        script = f"set -m; {ctrun}; echo suspended; fg >/dev/null; echo code $?"
        terminal = testlib.Terminal(
            "bash", "-c", script, env={"TERM": "xterm", "NO_COLOR": "1"}, interactive=True
        )
        self.addCleanup(terminal.close)
        terminal.read_until("ctrun: 2 workers running for ")
        terminal.write("\x1a")
        text = terminal.read_until("suspended")
        self.assertNotIn("running", text[text.rindex("\x1b[J") :], text)
        shown = text.count("running for")
        while terminal.text().count("running for") <= shown:
            terminal.read_until_more()
        self.go()
        self.assertIn("code 0", terminal.read_all())

    def test_a_narrow_terminal_gets_a_narrow_live_line(self):
        terminal = self.terminal("-n", 2, "sh", "-c", self.waiting_workers(), live=True)
        terminal.resize(rows=24, columns=20)
        terminal.proc.send_signal(signal.SIGWINCH)
        while "ctrun: 2 workers ru\r" not in terminal.text():
            terminal.read_until_more()
        self.go()
        terminal.read_all()


if __name__ == "__main__":
    testlib.main()
