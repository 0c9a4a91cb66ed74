# SPDX-License-Identifier: Apache-2.0
"""Of a job of one machine, with a store of its own or a daemon's, anything is killed at random,
CTRUN_KILLS times (12): a worker, what a worker has started, the guard, ctrun itself, the daemon. After
each no process of the dead is left, no zombie, no descriptor more is open, and no file stays."""

import os
import pathlib
import random
import signal

import testlib
from testlib import wait_until

WORKERS = 2
LOST = 121
# With a process that is in no group and no session of the worker's.
SCRIPT = (
    '(setsid sleep 1000 & echo "child $!"); '
    'echo "up $CTRUN_GENERATION $$$$ $TORCHELASTIC_ERROR_FILE"; exec sleep 1000'
)


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Job:
    """ctrun with its workers, and the daemon that has its store, if there is one."""

    def __init__(self, case, external):
        self.case, self.daemon, endpoint = case, None, ()
        if external:
            self.daemon, port = case.start_ctrdzvd()
            # A job of one machine alone would want to have the store itself.
            endpoint = (
                "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                "--rdzv-conf", "is_host=0,last_call_timeout=0.05",
            )  # fmt: skip
        self.ctrun = case.start_ctrun(
            "-n", WORKERS, "--max-restarts", "1000000", *endpoint, "--no-python", "sh", "-c", SCRIPT
        )
        self.dead, self.settled = set(), None
        self.wait_whole()

    def words(self, begin):
        lines = (line.partition(f"{begin} ") for line in self.ctrun.out.splitlines())
        return [rest.split() for _, found, rest in lines if found]

    def workers(self):
        """Pids of the newest generation, when all are there and none of the dead is among them."""
        ups = self.words("up")
        newest = max((int(generation) for generation, *_ in ups), default=-1)
        pids = [int(pid) for generation, pid, _ in ups if int(generation) == newest]
        whole = len(pids) == WORKERS and not self.dead.intersection(pids) and all(map(testlib.pid_alive, pids))
        return pids if whole else []

    def children(self):
        """What the workers have started and is alive; a number may be a stranger's by now."""
        return {int(pid) for (pid,) in self.words("child")}.intersection(self.ctrun.family())

    def wait_whole(self):
        try:
            wait_until(self.workers, "all workers run")
        except AssertionError as why:
            raise AssertionError(f"{self.case.about}: {why}: {self.ctrun.result()}") from None

    def folder(self):
        """The temporary one, which ctrun made."""
        return pathlib.Path(self.words("up")[0][2]).parents[3]

    def guard(self):
        return next(pid for pid in self.ctrun.family() if name_of(pid) == "ctrun-guard")

    def check(self):
        """As many descriptors as when it was first looked at, no zombie, nobody but those who belong."""
        count = lambda: [testlib.descriptors_of(p.pid) for p in self.processes()]  # noqa: E731
        self.settled = self.settled or count()
        wait_until(lambda: all(a <= b for a, b in zip(count(), self.settled)), "no descriptor leaks")
        wait_until(lambda: not testlib.zombies_of(self.ctrun.pid), "no zombie")
        wait_until(lambda: not any(map(testlib.pid_alive, self.dead)), "the dead are gone")
        self.dead.clear()  # their numbers may be used again

    def processes(self):
        return [p for p in (self.ctrun, self.daemon) if p is not None]

    def restart_by(self, pid):
        self.dead.update(self.children(), self.workers())
        os.kill(pid, signal.SIGKILL)
        self.wait_whole()
        self.check()

    def assert_gone(self):
        self.ctrun.wait_no_family(testlib.DEADLINE)
        wait_until(lambda: not self.folder().exists(), f"{self.folder()} is gone")


class RandomKills(testlib.Case):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("CTRUN_KILLS_SEED", random.randrange(1 << 30)))
        self.random, self.about = random.Random(seed), f"seed {seed}"

    def new_job(self):
        return Job(self, external=self.random.random() < 0.5)

    def kill_worker(self, job):
        job.restart_by(self.random.choice(job.workers()))
        return job

    def kill_child_of_worker(self, job):
        left = sorted(job.children())
        if not left:
            return self.kill_worker(job)
        os.kill(left[0], signal.SIGKILL)
        job.dead.add(left[0])
        job.check()
        return job

    def kill_guard(self, job):
        """Which ends nothing; ctrun still cleans up after itself."""
        os.kill(job.guard(), signal.SIGKILL)
        job.restart_by(self.random.choice(job.workers()))
        job.ctrun.signal(signal.SIGTERM)
        self.assertEqual(job.ctrun.wait().code, 128 + signal.SIGTERM, self.about)
        job.assert_gone()
        return self.new_job()

    def kill_ctrun(self, job):
        job.ctrun.signal(signal.SIGKILL)
        job.ctrun.wait()
        job.assert_gone()
        return self.new_job()

    def kill_daemon(self, job):
        if job.daemon is None:
            return self.kill_ctrun(job)
        job.daemon.signal(signal.SIGKILL)
        self.assertEqual(job.ctrun.wait().code, LOST, self.about)
        job.assert_gone()
        return self.new_job()

    def test_nothing_is_left(self):
        job = self.new_job()
        kills = (self.kill_worker, self.kill_child_of_worker, self.kill_guard, self.kill_ctrun, self.kill_daemon)
        for number in range(int(os.environ.get("CTRUN_KILLS", "12"))):
            job.check()
            # Each one once, then as it comes.
            kill = kills[number] if number < len(kills) else self.random.choice(kills)
            job = kill(job)
        job.ctrun.signal(signal.SIGTERM)
        job.ctrun.wait()
        job.assert_gone()


if __name__ == "__main__":
    testlib.main()
