# SPDX-License-Identifier: Apache-2.0
"""Signals to ctrun."""

import os
import signal
import subprocess
import time

import testlib

# Says which signal came and ends with 0, as a training script does after its checkpoint.
POLITE = """
import os, signal, sys, threading
def handler(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(0)
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(s, handler)
print("up", flush=True)
while True:
    signal.pause()
"""
PREEMPTED = 123

STUBBORN = "trap '' TERM INT; echo up; while :; do sleep 0.05; done"


class Signals(testlib.Case):
    def start_up(self, workers, *args, **kwargs):
        job = self.start_ctrun("-n", workers, *args, **kwargs)
        testlib.wait_until(lambda: job.out.count("up") == workers, f"{workers} workers")
        return job

    def test_each_is_passed_on(self):
        script = self.script("polite.py", POLITE)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number=number):
                job = self.start_up(2, "--max-restarts", "5", script)
                job.signal(number)
                result = job.wait()
                # All have ended in order: whoever asked may count on what they have saved.
                code = 130 if number == signal.SIGINT else PREEMPTED
                self.assertEqual(result.code, code, result)
                self.assertEqual(result.out.count(f"got {number.name}"), 2, result)
                self.assertIn(f"received {number.name}", result.err)
                self.assertNotIn("failed", result.err)
                self.assertEqual(job.family(), [])

    def test_chosen_signals_stop_the_job(self):
        script = self.script("polite.py", POLITE)
        job = self.start_up(2, "--signals-to-handle", "SIGUSR1, SIGNOPE,SIGKILL", script)
        job.signal(signal.SIGUSR1)
        result = job.wait()
        self.assertEqual(result.code, PREEMPTED, result)
        self.assertEqual(result.out.count("got SIGUSR1"), 2, result)
        self.assertIn("SIGNOPE is no signal", result.err)
        self.assertIn("SIGKILL cannot be handled", result.err)
        # What is not listed has its default action: it ends ctrun, and the guard the workers.
        job = self.start_up(2, "--signals-to-handle", "SIGUSR1", script)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait().code, -signal.SIGTERM)
        testlib.wait_until(lambda: job.family() == [], "no worker is left")

    def test_slurm_line_of_the_manual(self):
        page = (testlib.SOURCE_ROOT / "man" / "ctrun.1").read_text()
        section = page.partition(".Ss Signals\n")[2].partition("\n.Sh ")[0]
        self.assertIn("#SBATCH --signal=USR1@", section)
        options = section.partition("srun ctrun ")[2].partition("\\e")[0].split()
        script = self.script("polite.py", POLITE)
        for args, code in ((["--preempt-signal", "SIGUSR1"], -signal.SIGUSR1), (options, PREEMPTED)):
            with self.subTest(args=args):
                job = self.start_up(1, *args, script)
                job.signal(signal.SIGUSR1)
                self.assertEqual(job.wait().code, code)
                testlib.wait_until(lambda: job.family() == [], "no worker is left")

    def test_an_end_of_the_allocation_that_has_come_limits_nothing(self):
        """Slurm sends SIGTERM at the end and kills later, but ctrun killed its workers at once."""
        script = self.script("polite.py", POLITE)
        for end in (1, int(time.time()) + 2):
            with self.subTest(end=end):
                job = self.start_up(1, script, env={"SLURM_JOB_END_TIME": str(end)})
                job.signal(signal.SIGTERM)
                result = job.wait()
                self.assertEqual((result.code, result.out.count("got SIGTERM")), (PREEMPTED, 1), result)

    def test_children_of_a_worker_hear_it_after_the_worker(self):
        # The worker's handler finds its child alive, as a data loader must be during a checkpoint.
        script = self.script(
            "parent.py",
            "import signal, subprocess, sys\n"
            "child = subprocess.Popen(['sleep', '1000'])\n"
            "def handler(*_):\n"
            "    print('child', child.poll(), flush=True)\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, handler)\n"
            "print('up', flush=True)\n"
            "while True: signal.pause()\n",
        )
        job = self.start_up(1, script)
        job.signal(signal.SIGTERM)
        result = job.wait()
        self.assertIn("child None", result.out)
        self.assertEqual(job.family(), [])

    def test_shell_that_waits_for_its_child_ends_at_once(self):
        # It passes no signal on: a terminal would send SIGINT to the whole group.
        wrapper = self.script("wrapper", "#!/bin/bash\npython3 -c 'import time; print(\"up\", flush=True);"
                              " time.sleep(600)'\necho over\n")  # fmt: skip
        os.chmod(wrapper, 0o755)
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number=number):
                job = self.start_up(2, "--shutdown-timeout", "600", "--no-python", wrapper)
                job.signal(number)
                result = job.wait()
                self.assertEqual(result.code, code, result)
                self.assertNotIn("over", result.out)
                self.assertEqual(job.family(), [])

    def test_grace_time_then_kill(self):
        job = self.start_up(2, "--shutdown-timeout", "1", "sh", "-c", STUBBORN)
        job.signal(signal.SIGTERM)
        result = job.wait()
        self.assertEqual(result.code, 143, result)
        self.assertIn("ctrun: ranks 0-1 did not stop in time and were killed\n", result.err)
        self.assertEqual(job.family(), [])

    def test_second_interrupt_kills_at_once(self):
        job = self.start_up(2, "--shutdown-timeout", "600", "sh", "-c", STUBBORN)
        job.signal(signal.SIGINT)
        job.wait_for("received SIGINT")
        job.signal(signal.SIGINT)
        result = job.wait()
        self.assertEqual(result.code, 130, result)
        self.assertIn("received SIGINT again: killing 2 workers", result.err)
        self.assertNotIn("did not stop in time", result.err)  # they were given no time
        self.assertEqual(job.family(), [])

    def test_signal_during_the_stop_after_a_failure_ends_the_restarts(self):
        job = self.start_ctrun(
            "-n", "2", "--max-restarts", "9", "--shutdown-timeout", "2", "sh", "-c",
            "trap '' TERM; : > $0/$RANK; [ $RANK = 0 ] && while :; do sleep 0.05; done;"
            "while [ ! -e $0/0 ]; do sleep 0.01; done; exit 4", self.tmp,
        )  # fmt: skip
        job.wait_for("stopping rank 0")
        job.signal(signal.SIGTERM)
        result = job.wait()
        self.assertEqual(result.code, 143, result)
        self.assertEqual(result.err.count("failed on"), 1, result)

    def test_ignored_hangup_stays_ignored(self):
        job = self.start_up(
            1, "sh", "-c", "echo up; while [ ! -e $0/go ]; do sleep 0.01; done; echo done", self.tmp,
            preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )  # fmt: skip
        job.signal(signal.SIGHUP)
        (self.tmp / "go").touch()
        result = job.wait()
        self.assertEqual((result.code, result.out), (0, "up\ndone\n"), result)

    def test_blocked_signals_are_heard(self):
        # As they are in what a thread starts that leaves signals to another thread.
        blocked = {signal.SIGTERM, signal.SIGCHLD}
        job = self.start_up(1, "sh", "-c", "echo up; exec sleep 60",
                            preexec=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, blocked))  # fmt: skip
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait().code, 143)

    def test_reader_that_goes_away_does_not_end_the_job(self):
        ctrun = subprocess.Popen(
            [testlib.program("ctrun"), "-n", "2", "sh", "-c",
             "echo x; while [ ! -e $0/go ]; do sleep 0.01; done; echo y; echo z; : > $0/$RANK",
             self.tmp],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.addCleanup(ctrun.kill)
        ctrun.stdout.read(1)
        ctrun.stdout.close()
        (self.tmp / "go").touch()
        self.assertEqual(ctrun.wait(testlib.DEADLINE), 0)
        self.assertTrue((self.tmp / "0").exists() and (self.tmp / "1").exists())

    def test_works_as_pid_1(self):
        probe = subprocess.run(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "true"], check=False)
        if probe.returncode != 0:
            self.skipTest("no permission to make a pid namespace")
        started = time.monotonic()
        result = self.run_program(
            "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", testlib.program("ctrun"), "-n", "2",
            "sh", "-c", "(sleep 1000 &) ; (exit 0 &) ; echo $PPID; [ $RANK = 0 ] || exit 6",
        )  # fmt: skip
        self.assertEqual(result.code, 6, result)
        self.assertIn("] 1\n", result.out)
        self.assertLess(time.monotonic() - started, 20)
        # With the /proc of another namespace the processes that have our pids there are strangers.
        result = self.run_program(
            "unshare", "--pid", "--fork", "--kill-child", testlib.program("ctrun"), "-n", "2",
            "sh", "-c", "(setsid sleep 1000 &) ; exit 6",
        )  # fmt: skip
        self.assertEqual(result.code, 6, result)
        self.assertIn("/proc is that of another PID namespace", result.err)
        self.assertNotIn("left behind, now ended", result.err)


if __name__ == "__main__":
    testlib.main()
