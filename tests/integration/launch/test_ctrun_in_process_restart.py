# SPDX-License-Identifier: Apache-2.0
"""Workers that go on in the next generation in the same process (tests/restart_worker/restart_worker.c)."""

import os
import re
import signal

import testlib
from testlib import netns, wait_until

RESTART_WORKER = os.environ["RESTART_WORKER"]

# Takes its time to end, and so keeps the others waiting.
SLOW = "trap '' TERM; while :; do sleep 0.05; done"


class Up:
    """One worker of one generation, as it said itself."""

    def __init__(self, words):
        self.generation, self.rank, self.size, self.local, self.pid = map(int, words)


def ups(job, generation):
    found = [Up(w) for w in re.findall(r"\bup (\d+) (\d+) (\d+) (\d+) (\d+)$", job.out, re.M)]
    return {up.rank: up for up in found if up.generation == generation}


class InProcessRestarts(testlib.Case):
    def start_job(self, workers, *options, mode="stays", modes=None):
        """`modes`: of single ranks; "slow" is one that knows nothing of parking."""
        cases = "".join(
            f"{rank}) {SLOW if m == 'slow' else f'exec {RESTART_WORKER} {m} {self.tmp}'};;"
            for rank, m in (modes or {}).items()
        )
        script = self.script("worker.sh", f"case $RANK in {cases}\n"
                             f"*) exec {RESTART_WORKER} {mode} {self.tmp};;\nesac\n")  # fmt: skip
        return self.start_ctrun("--standalone", "-n", workers, *options, "--no-python", "sh", script)

    def wait_up(self, job, generation, count):
        def all_up():
            self.assertTrue(job.running(), job.result())
            found = ups(job, generation)
            return found if len(found) == count else None

        return wait_until(all_up, f"generation {generation}")

    def wait_met(self, job, generation, count):
        found = self.wait_up(job, generation, count)
        wait_until(lambda: len(re.findall(rf"\bmet {generation}$", job.out, re.M)) == count, "a meeting")
        return found

    def finish(self, job, code=0):
        (self.tmp / "go").touch()
        result = job.wait()
        self.assertEqual(result.code, code, result)
        self.assertEqual(job.family(), [], result)
        return result

    def test_survivors_keep_their_process(self):
        logs = self.tmp / "logs"
        job = self.start_job(3, "--max-restarts", "4", "--log-dir", logs, "--tee", "3")
        before = self.wait_met(job, 0, 3)
        for generation, victim in enumerate((1, 0, 2, 0), start=1):
            os.kill(before[victim].pid, signal.SIGKILL)
            after = self.wait_met(job, generation, 3)
            for rank in range(3):
                same = before[rank].pid == after[rank].pid
                self.assertEqual(same, rank != victim, job.result())
            before = after
            job.wait_for(f"generation {generation}: 2 of 3 workers here go on in their processes")
        result = self.finish(job)
        self.assertEqual(result.err.count("restarting the job"), 4, result)
        # What a process writes belongs to the generation that it works in.
        for generation in range(5):
            for rank in range(3):
                (path,) = logs.glob(f"*/attempt_{generation}/{rank}/stdout.log")
                text = path.read_text()
                self.assertEqual(re.findall(r"up (\d+) (\d+)", text), [(str(generation), str(rank))])
                self.assertEqual(re.findall(r"met (\d+)", text), [str(generation)])

    def test_survivors_stay_if_a_check_fails_before_they_have_gone_on(self):
        """They were given up after 24 s, though they were parked all the time."""
        check = '[ "$CTRUN_GENERATION" != 1 ]'
        job = self.start_job(3, "--max-restarts", "4", "--health-check", check)
        before = self.wait_met(job, 0, 3)
        os.kill(before[1].pid, signal.SIGKILL)
        after = self.wait_met(job, 2, 3)
        for rank in range(3):
            self.assertEqual(before[rank].pid == after[rank].pid, rank != 1, job.result())
        self.finish(job)

    def test_kills_in_quick_succession(self):
        job = self.start_job(4, "--max-restarts", "6")
        before = self.wait_up(job, 0, 4)  # perhaps in the middle of opening a communicator
        for generation in range(1, 7):
            os.kill(before[generation % 3].pid, signal.SIGKILL)
            before = self.wait_up(job, generation, 4)
        self.assertEqual(before[3].pid, ups(job, 0)[3].pid, job.result())
        self.finish(job)

    def test_one_that_dies_while_it_waits_is_started_anew(self):
        job = self.start_job(
            3, "--max-restarts", "1", "--shutdown-timeout", "2", mode="alone", modes={2: "slow"}
        )
        before = self.wait_up(job, 0, 2)
        os.kill(before[0].pid, signal.SIGKILL)
        job.wait_for("broken 0")
        os.kill(before[1].pid, signal.SIGKILL)
        after = self.wait_up(job, 1, 2)
        self.assertNotEqual(after[1].pid, before[1].pid)
        self.assertNotIn("go on in their", job.err)
        job.signal(signal.SIGKILL)  # of the slow one nobody ever hears "go"
        job.wait_no_family(testlib.DEADLINE)

    def test_one_that_never_parks_is_ended(self):
        job = self.start_job(3, "--max-restarts", "1", "--shutdown-timeout", "1", modes={2: "deaf"})
        before = self.wait_met(job, 0, 3)
        os.kill(before[0].pid, signal.SIGKILL)
        after = self.wait_met(job, 1, 3)
        self.assertEqual(after[1].pid, before[1].pid)
        self.assertNotEqual(after[2].pid, before[2].pid)
        self.finish(job)

    def test_a_signal_while_they_wait_ends_all(self):
        for mode in ("alone", "stubborn"):
            job = self.start_job(
                3, "--max-restarts", "1", "--shutdown-timeout", "2", mode=mode,
                modes={0: "alone", 2: "slow"},
            )  # fmt: skip
            before = wait_until(lambda: ups(job, 0) if len(ups(job, 0)) == 2 else None, "both")
            os.kill(before[0].pid, signal.SIGKILL)
            job.wait_for("broken 0") if mode == "alone" else job.wait_for("stopping")
            job.signal(signal.SIGTERM)
            result = job.wait()
            self.assertEqual(result.code, 128 + signal.SIGTERM, result)
            self.assertEqual(job.family(), [], result)

    def test_the_last_failure_ends_those_that_wait(self):
        for mode in ("stays", "stubborn"):
            job = self.start_job(3, "--max-restarts", "1", mode=mode)
            os.kill(self.wait_met(job, 0, 3)[0].pid, signal.SIGKILL)
            os.kill(self.wait_met(job, 1, 3)[1].pid, signal.SIGKILL)
            result = job.wait(10)  # far less than the grace time
            self.assertEqual(result.code, 128 + signal.SIGKILL, result)
            self.assertEqual(job.family(), [], result)
            self.assertIn("rank 1 failed", result.err)
            self.assertIn("no restarts are left", result.err)

    def test_children_of_who_stays_stay(self):
        job = self.start_job(2, "--max-restarts", "1", mode="forks")
        before = self.wait_met(job, 0, 2)
        children = {
            int(rank): [int(pid) for r, pid in re.findall(r"\[(\d)\] child \w+ (\d+)", job.out) if r == rank]
            for rank in "01"
        }
        self.assertEqual([len(c) for c in children.values()], [2, 2], job.out)
        os.kill(before[1].pid, signal.SIGKILL)
        after = self.wait_met(job, 1, 2)
        self.assertEqual(after[0].pid, before[0].pid)
        self.assertEqual([testlib.pid_alive(pid) for pid in children[0]], [True, True])
        self.assertEqual([testlib.pid_alive(pid) for pid in children[1]], [False, False])
        self.finish(job)

    def test_nothing_is_offered_where_no_generation_can_follow(self):
        job = self.start_job(1, "--max-restarts", "0", mode="alone")
        job.wait_for("cannot stay: no launcher keeps workers for another generation")
        self.finish(job)


class Nodes(testlib.Case):
    """Two machines, two workers each."""

    def setUp(self):
        super().setUp()
        self.cluster = netns.Cluster(self, 2)

    def start_node(self, i, *options, last_call=0.2):
        return self.start(
            *self.cluster.nodes[i], testlib.program("ctrun"), "--nproc-per-node", 2,
            "--master-addr", self.cluster.addresses[0], "--rdzv-conf",
            f"heartbeat_timeout=2.5,last_call_timeout={last_call},join_timeout=60", *options,
            "--no-python", RESTART_WORKER, "stays", self.tmp,
        )  # fmt: skip

    def wait_met(self, jobs, generation):
        def all_met():
            for job in jobs:
                self.assertTrue(job.running(), job.result())
            return all(len(re.findall(rf"\bmet {generation}$", j.out, re.M)) == 2 for j in jobs)

        wait_until(all_met, f"generation {generation}")
        return {rank: up for job in jobs for rank, up in ups(job, generation).items()}

    def test_survivors_on_every_machine_keep_their_process(self):
        jobs = [self.start_node(i, "--nnodes", 2, "--max-restarts", "3") for i in range(2)]
        before = self.wait_met(jobs, 0)
        for generation, victim in enumerate((3, 0, 2), start=1):
            os.kill(before[victim].pid, signal.SIGKILL)
            after = self.wait_met(jobs, generation)
            for rank in range(4):
                same = before[rank].pid == after[rank].pid
                self.assertEqual(same, rank != victim, jobs[0].result())
            before = after
        (self.tmp / "go").touch()
        for job in jobs:
            result = job.wait()
            self.assertEqual(result.code, 0, result)
            self.assertEqual(job.family(), [], result)

    def lose_one(self, *options):
        """The host's job, waiting for another machine with both its workers parked."""
        jobs = [self.start_node(i, "--nnodes", "2", "--max-restarts", "3", *options) for i in range(2)]
        before = self.wait_met(jobs, 0)
        jobs[1].signal(signal.SIGKILL)
        jobs[1].popen.wait()
        jobs[0].wait_for("all workers here have stopped; the next generation forms")
        for pid in (before[0].pid, before[1].pid):
            self.assertTrue(testlib.pid_alive(pid), jobs[0].result())
        return jobs[0], before

    def test_they_wait_for_another_machine(self):
        job, before = self.lose_one()
        other = self.start_node(1, "--nnodes", "2", "--max-restarts", "3")
        after = self.wait_met([job, other], 1)
        self.assertEqual([after[r].pid for r in (0, 1)], [before[r].pid for r in (0, 1)])
        (self.tmp / "go").touch()
        for job in (job, other):
            self.assertEqual(job.wait().code, 0, job.result())

    def test_a_signal_while_they_wait_for_another_machine(self):
        job, _ = self.lose_one()
        job.signal(signal.SIGTERM)
        result = job.wait()
        self.assertEqual(job.family(), [], result)
        self.assertNotEqual(result.code, 0, result)

    def test_the_job_grows_and_shrinks_around_them(self):
        # Both are to be in the first generation, also where a start takes seconds.
        jobs = [self.start_node(i, "--nnodes", "1:2", "--max-restarts", "3", last_call=5) for i in range(2)]
        before = self.wait_met(jobs, 0)
        jobs[1].signal(signal.SIGKILL)
        after = self.wait_met(jobs[:1], 1)
        self.assertEqual({rank: up.pid for rank, up in after.items()}, {r: before[r].pid for r in (0, 1)})
        self.assertEqual({up.size for up in after.values()}, {2})
        (self.tmp / "go").touch()
        self.assertEqual(jobs[0].wait().code, 0, jobs[0].result())


if __name__ == "__main__":
    testlib.main()
