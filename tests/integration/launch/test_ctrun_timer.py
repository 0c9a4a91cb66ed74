# SPDX-License-Identifier: Apache-2.0
"""What torchrun ends a worker for besides its own failures: a timer that it set and let expire
(TORCHELASTIC_ENABLE_FILE_TIMER), and a long uninterruptible sleep."""

import os
import pathlib
import re

import testlib

# Writes as PyTorch's FileTimerClient does. Rank 1 does as it is told, then all wait for a signal.
WORKER = """
import json, os, signal, sys, time
FILE = os.environ["TORCHELASTIC_TIMER_FILE"]
def request(scope, after, signo=signal.SIGKILL, pid=None, flags=os.O_NONBLOCK):
    fd = os.open(FILE, os.O_WRONLY | flags)
    with os.fdopen(fd, "wt") as file:
        expires = -1 if after is None else time.time() + after
        file.write(json.dumps({"version": 1, "pid": pid or os.getpid(), "scope_id": scope,
                               "expiration_time": expires, "signal": signo}) + "\\n")
def wait():
    while True:
        signal.pause()
if os.environ["RANK"] == "1" and os.environ["CTRUN_GENERATION"] == "0":
    exec(sys.argv[1])
"""

EXPIRED = "was ended with signal 9 (SIGKILL): its timer 'late ?[31m' had expired"


class Timer(testlib.Case):
    def run_worker(self, what, *args, env=None):
        script = self.script("worker.py", WORKER)
        return self.ctrun(
            "-n", "2", *args, script, what,
            env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1", **(env or {})},
        )  # fmt: skip

    def test_the_scope_of_an_expired_timer_is_named(self):
        report = self.tmp / "report.json"
        result = self.run_worker(
            "request('early', 0.1); request('early', None); request('late \\x1b[31m', 0.2); wait()",
            "--report", report,
        )  # fmt: skip
        self.assertEqual(result.code, 128 + 9, result)
        self.assertRegex(result.err, rf"rank 1 failed on .*: process \d+ {re.escape(EXPIRED)}\n")
        self.assertEqual(result.err.count("late"), 1, result)
        self.assertNotIn("early", result.err)
        self.assertIn(EXPIRED, report.read_text())

    def test_a_restart_forgets_timers(self):
        result = self.run_worker("request('late \\x1b[31m', 0.2); wait()", "--max-restarts", "1")
        self.assertEqual(result.code, 0, result)
        self.assertIn(EXPIRED, result.err)
        self.assertIn("restarting the job (restart 1 of 1)", result.err)

    def test_a_child_of_a_worker_may_have_one(self):
        result = self.run_worker(
            "if os.fork() == 0:\n  request('child', 0.1, signal.SIGTERM); wait()\nwait()"
        )
        self.assertEqual(result.code, 128 + 15, result)
        self.assertRegex(result.err, r"the timer 'child' of process \d+ expired.*SIGTERM")

    def test_a_signal_that_ends_nobody_is_followed(self):
        result = self.run_worker(
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nrequest('deaf', 0.1, 15); wait()",
            "--shutdown-timeout", "1",
        )  # fmt: skip
        self.assertEqual(result.code, 128 + 15, result)
        self.assertIn("rank 1 did not end by that signal: SIGKILL", result.err)

    def test_what_is_hostile_has_no_effect(self):
        result = self.run_worker(
            "fd = os.open(FILE, os.O_WRONLY)\n"
            "os.write(fd, b'x' * 100000 + b'\\n{\\n\\0\\n[1]\\n')\n"
            "os.write(fd, b'{\"pid\": -1, \"scope_id\": \"a\", \"expiration_time\": 1}\\n')\n"
            "for pid in (1, os.getppid()):\n  request('stranger', 0, pid=pid)\n"
            # More than a pipe holds: these wait until there is room.
            "for i in range(1000):\n  request(f's{i}', 1000, flags=0)\n"
            "request('mute', 0, 0)\n"
        )
        self.assertEqual(result.code, 0, result)
        self.assertIn("a line is not a timer request", result.err)
        self.assertIn("because the process is none of this job's workers", result.err)
        self.assertIn("rank 1 has 256 timers", result.err)
        self.assertNotIn("failed", result.err)
        self.assertEqual(result.err.count("(not repeated)"), 3, result)

    def test_the_pipe_may_be_named(self):
        path = self.tmp / "pipe"
        env = {"TORCHELASTIC_TIMER_FILE": str(path)}
        os.mkfifo(path)  # left by another
        result = self.run_worker("print(FILE, os.stat(FILE).st_mode & 0o777)", env=env)
        self.assertEqual((result.code, result.out), (0, f"[1] {path} {0o600}\n"), result)
        self.assertFalse(path.exists())
        path.write_text("precious")
        result = self.run_worker("", env=env)
        self.assertEqual(result.code, 1, result)
        self.assertIn("is no named pipe", result.err)
        self.assertEqual(path.read_text(), "precious")
        result = self.run_worker("print(FILE)", env={**env, "TORCHELASTIC_ENABLE_FILE_TIMER": "0"})
        self.assertEqual((result.code, result.out), (0, f"[1] {path}\n"), result)

    def test_a_launcher_below_another_has_a_pipe_of_its_own(self):
        inner = (
            "import subprocess\n"
            f"subprocess.run([{testlib.program('ctrun')!r}, '--no-python', 'sh', '-c',"
            " 'test -p $TORCHELASTIC_TIMER_FILE && echo $TORCHELASTIC_TIMER_FILE'], check=True)\n"
            "print(FILE)\n"
            "assert os.path.exists(FILE)"
        )
        result = self.run_worker(inner)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(len(set(result.out.split())), 3, result)

    def test_the_pipe_needs_no_log_folder(self):
        result = self.run_worker(
            "print(FILE)", "--log-dir", "/dev/null", env={"TMPDIR": str(self.tmp)}
        )
        self.assertEqual(result.code, 0, result)
        self.assertEqual(pathlib.Path(result.out.split()[1]).parent, self.tmp)
        self.assertEqual([p for p in self.tmp.iterdir() if p.is_fifo()], [])


# The parent of a vfork(2) sleeps like a process that waits for a dead disk, but can be killed.
STUCK = """
import ctypes, os, socket
if os.environ["RANK"] == "1":
    libc = ctypes.CDLL(None)
    if libc.vfork() == 0:
        libc.pause()
with socket.create_server(("127.0.0.1", 0)) as peer:
    peer.accept()
"""


class Stuck(testlib.Case):
    def test_a_worker_that_is_stuck_in_the_kernel_ends_the_job(self):
        result = self.ctrun(
            "-n", "2", "--max-restarts", "3", self.script("stuck.py", STUCK),
            env={"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": " 1.0 "},
        )  # fmt: skip
        self.assertEqual(result.code, 122, result)
        self.assertRegex(
            result.err, r"rank 1 failed on .*: process \d+ is stuck in the kernel: .* for [1-9]\d* s"
        )
        self.assertIn("stopping rank 0 because of it", result.err)
        self.assertNotIn("restarting", result.err)


if __name__ == "__main__":
    testlib.main()
