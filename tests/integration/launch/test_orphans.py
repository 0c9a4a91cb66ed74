# SPDX-License-Identifier: Apache-2.0
"""Nothing of a job outlives it, whatever ends it: also grandchildren that have made a session of
their own, ignore every signal they can, and have lost their parent."""

import fcntl
import os
import pathlib
import signal
import struct
import subprocess
import termios

import testlib

# Per worker: one grandchild in the worker's group, one in a session of its own, one that is an
# orphan as well, one that has cleared its environment. $1 is the test's folder.
WORKER = """
G='trap "" TERM INT HUP QUIT; : > "$0/$1.$$"; while :; do sleep 1; done'
sh -c "$G" "$1" group &
setsid sh -c "$G" "$1" session &
(setsid sh -c "$G" "$1" orphan &)
env -i PATH="$PATH" sh -c "$G" "$1" bare &
"""
STAY = WORKER + "while :; do sleep 1; done"
KINDS = ("group", "session", "orphan", "bare")


class Orphans(testlib.Case):
    def grandchildren(self):
        """Their pids, as their files say."""
        return [int(p.suffix[1:]) for p in self.tmp.iterdir() if p.stem in KINDS]

    def start_job(self, script, *args, workers=2, **kwargs):
        job = self.start_ctrun(
            "-n", workers, "--shutdown-timeout", "1", *args,
            "sh", self.script("worker.sh", script), self.tmp, **kwargs,
        )  # fmt: skip
        self.addCleanup(self.kill_grandchildren)
        return job

    def kill_grandchildren(self):
        """What a failing test has left; those without environment carry no cookie of the test."""
        for pid in self.grandchildren():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def guard_of(self, job):
        """Pid of the job's guard."""

        def found():
            for pid in job.family():
                try:
                    if pathlib.Path(f"/proc/{pid}/comm").read_text() == "ctrun-guard\n":
                        return pid
                except OSError:
                    pass  # has ended since it was listed
            return None

        return testlib.wait_until(found, "the guard process")

    def wait_started(self, count=2 * len(KINDS)):
        testlib.wait_until(lambda: len(self.grandchildren()) == count, f"{count} grandchildren")

    def alive(self, job):
        return [pid for pid in self.grandchildren() if testlib.pid_alive(pid)] + job.family()

    def assert_gone(self, job):
        self.assertEqual(self.alive(job), [])

    def test_after_sigkill_to_ctrun(self):
        stranger = self.start("sleep", "1000")
        job = self.start_job(STAY)
        self.wait_started()
        job.signal(signal.SIGKILL)
        job.wait()
        testlib.wait_until(lambda: not self.alive(job), "nothing of the job is left")
        self.assertTrue(stranger.running())

    def cgroup_of(self, job, pid):
        """The folder of the job's cgroup; skips where there can be none."""
        own = [x[3:] for x in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if x.startswith("0::")]
        if not own or f"/ctrun-{job.pid}-" not in own[0]:
            self.skipTest("ctrun cannot make a cgroup here (see ctrun(1), Failure)")
        found = [p for m in ("", "/unified") if (p := pathlib.Path(f"/sys/fs/cgroup{m}{own[0]}")).exists()]
        self.assertEqual(len(found), 1, own)
        return found[0]

    def start_hidden(self, *args):
        """A job with a process that has its own session, no environment and no parent in the job."""
        job = self.start_job("(env -i setsid sh -c ': > \"$0/hidden.$$\"; exec sleep 1000' \"$1\" &); exec sleep 1000",
                             *args, workers=1)  # fmt: skip
        hidden = testlib.wait_until(lambda: [p for p in self.tmp.iterdir() if p.stem == "hidden"], "it")
        pid = int(hidden[0].suffix[1:])
        self.addCleanup(lambda: testlib.pid_alive(pid) and os.kill(pid, signal.SIGKILL))
        return job, pid, self.cgroup_of(job, pid)

    def test_who_hides_is_found_by_the_cgroup(self):
        job, pid, cgroup = self.start_hidden()
        job.signal(signal.SIGKILL)
        job.wait()
        testlib.wait_until(lambda: not testlib.pid_alive(pid), "the hidden process is gone")
        testlib.wait_until(lambda: not cgroup.exists(), "its cgroup is gone, too")

    def test_no_cgroup_is_left_after_a_job(self):
        job, pid, cgroup = self.start_hidden()
        (cgroup / "below").mkdir()  # as by a worker that is a launcher
        job.signal(signal.SIGTERM)
        job.wait()
        self.assertFalse(testlib.pid_alive(pid))
        self.assertFalse(cgroup.exists())

    def test_a_nested_job_runs_in_the_cgroup(self):
        done = self.ctrun("-n", "2", testlib.program("ctrun"), "-n", "2", "sh", "-c", "grep ^0: /proc/self/cgroup")
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertEqual(len(done.out.splitlines()), 4)

    def test_a_job_runs_where_no_cgroup_can_be_made(self):
        for setup in ("mount -t tmpfs none /sys/fs/cgroup",
                      "mount -t cgroup2 -o ro none /sys/fs/cgroup"):  # fmt: skip
            with self.subTest(setup=setup):
                done = self.run_program("unshare", "--mount", "sh", "-c", f'{setup} || exit 77; exec "$0" "$@"',
                                        testlib.program("ctrun"), "-n", "2", "sh", "-c", "grep -c /ctrun- /proc/self/cgroup; :")  # fmt: skip
                if done.code in (1, 77) and "mount" in done.err + done.out:
                    self.skipTest(f"no namespace of mounts here: {done.err}")
                self.assertEqual((done.code, done.err), (0, ""))
                self.assertEqual([x[-1] for x in done.out.splitlines()], ["0", "0"])

    def test_no_folder_is_left_after_sigkill_to_ctrun(self):
        for env, args, left in (
            ({}, (), 0), ({"TMPDIR": self.tmp / "t"}, (), 0), ({"TMPDIR": self.tmp / "t"}, ("--tee", "3"), 1),
        ):  # fmt: skip
            with self.subTest(env=env, args=args):
                (self.tmp / "t").mkdir(exist_ok=True)
                job = self.start_ctrun("-n", "1", *args, "sh", "-c", "echo $TORCHELASTIC_ERROR_FILE; sleep 100", env=env)
                base = pathlib.Path(job.wait_for("error.json").split()[-1]).parents[3]
                self.assertTrue(base.name.startswith("ctrun_"), base)
                job.signal(signal.SIGKILL)
                job.wait()
                job.wait_no_family(10)
                self.assertEqual(base.exists(), left == 1)

    def test_after_sigkill_to_ctrun_with_stopped_grandchildren(self):
        job = self.start_job(STAY)
        self.wait_started()
        for pid in self.grandchildren():
            os.kill(pid, signal.SIGSTOP)
        job.signal(signal.SIGKILL)
        job.wait()
        testlib.wait_until(lambda: not self.alive(job), "nothing of the job is left")

    def test_after_a_signal_to_ctrun(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number):
                self.kill_grandchildren()
                for path in self.tmp.iterdir():
                    if path.stem in KINDS:
                        path.unlink()
                job = self.start_job(STAY)
                self.wait_started()
                job.signal(number)
                result = job.wait()
                self.assertEqual(result.code, 128 + number, result)
                self.assert_gone(job)

    def test_after_a_signal_while_nobody_reads_the_output(self):
        with subprocess.Popen(
            [testlib.program("ctrun"), "-n", "2", "yes"], stdout=subprocess.PIPE
        ) as ctrun:

            def waiting():
                count = fcntl.ioctl(ctrun.stdout, termios.FIONREAD, struct.pack("i", 0))
                return struct.unpack("i", count)[0]

            testlib.wait_until(lambda: waiting() > 60000, "a full pipe")
            ctrun.send_signal(signal.SIGTERM)
            self.assertEqual(ctrun.wait(testlib.DEADLINE), 143)
            # With ctrun gone and nobody else holding the pipe, its end comes.
            text = ctrun.stdout.read().decode()
        self.assertLessEqual(set(text[: text.rindex("\n")].split("\n")), {"[0] y", "[1] y"})

    def test_after_a_worker_was_killed(self):
        job = self.start_job(STAY + " & echo $$ > $1/pid.$RANK; wait")
        self.wait_started()
        path = self.tmp / "pid.1"
        testlib.wait_until(lambda: path.exists() and path.read_text().strip(), "rank 1's pid")
        os.kill(int(path.read_text()), signal.SIGKILL)
        result = job.wait()
        self.assertEqual(result.code, 137, result)
        self.assert_gone(job)

    def test_after_a_good_end(self):
        # The workers wait until their grandchildren are there, then leave them behind.
        job = self.start_job(
            WORKER + "while [ $(ls $1 | grep -cE '^(group|session|orphan|bare)') -lt 8 ];"
            "do sleep 0.02; done; exit 0"
        )
        result = job.wait()
        self.assertEqual(result.code, 0, result)
        self.assert_gone(job)
        self.assertEqual(len(self.grandchildren()), 8)

    def test_orphans_are_ended_before_a_restart(self):
        job = self.start_job(
            "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then " + WORKER +
            "while [ $(ls $1 | grep -cE '^(group|session|orphan|bare)') -lt 4 ];"
            "do sleep 0.02; done; exit 3; fi;"
            "for f in $1/group.* $1/session.* $1/orphan.* $1/bare.*;"
            "do kill -0 ${f##*.} 2> /dev/null && echo alive $f; done; echo looked",
            "--max-restarts", "1", workers=1,
        )  # fmt: skip
        result = job.wait()
        self.assertEqual((result.code, result.out), (0, "looked\n"), result)
        self.assert_gone(job)

    def test_orphans_are_reaped_while_the_job_runs(self):
        job = self.start_ctrun(
            "-n", "1", "sh", "-c",
            "for i in 1 2 3 4 5; do (sleep 0.0$i &); done; while [ ! -e $0/go ]; do sleep 0.01; done",
            self.tmp,
        )  # fmt: skip

        def children(state):
            stats = []
            for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
                try:
                    stats.append(path.read_text(errors="replace").rpartition(")")[2].split())
                except OSError:
                    pass
            return [s for s in stats if int(s[1]) == job.pid and (s[0] == "Z") == state]

        testlib.wait_until(lambda: len(children(False)) == 2, "worker and guard alone are left")
        testlib.wait_until(lambda: not children(True), "no zombie is left")
        (self.tmp / "go").touch()
        self.assertEqual(job.wait().code, 0)

    def test_a_killed_guard_ends_nothing(self):
        job = self.start_job("echo up; while [ ! -e $1/go ]; do sleep 0.01; done; exit 5")
        job.wait_for("up")
        guard = self.guard_of(job)
        os.kill(guard, signal.SIGKILL)
        testlib.wait_until(lambda: not testlib.pid_alive(guard), "the guard is gone")
        (self.tmp / "go").touch()
        self.assertEqual(job.wait().code, 5)

    def test_guard_does_not_heed_the_terminal(self):
        job = self.start_job(STAY)
        self.wait_started()
        guard = self.guard_of(job)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(guard, number)
        job.signal(signal.SIGKILL)
        job.wait()
        testlib.wait_until(lambda: not self.alive(job), "nothing of the job is left")

    def test_orphans_are_reaped_by_pid_1(self):
        probe = subprocess.run(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "true"], check=False, capture_output=True
        )
        if probe.returncode != 0:
            self.skipTest(f"no pid namespace here: {probe.stderr.decode().strip()}")
        # Waits until the orphaned sleep has been reaped, then ends by a signal to itself.
        result = self.run_program(
            "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", testlib.program("ctrun"), "-n", "1",
            "--shutdown-timeout", "1", "sh", self.script(
                "worker.sh",
                STAY + " & (sleep 0.01 &);"
                "while [ $(ls $1 | grep -cE '^(group|session|orphan|bare)') -lt 4 ];"
                "do sleep 0.02; done;"
                "while grep -q '(sleep) Z' /proc/[0-9]*/stat; do sleep 0.02; done;"
                "echo ctrun is $PPID; kill -TERM 1; wait",
            ), self.tmp,
        )  # fmt: skip
        self.assertEqual(result.code, 143, result)
        self.assertEqual(result.out, "ctrun is 1\n")


if __name__ == "__main__":
    testlib.main()
