# SPDX-License-Identifier: Apache-2.0
"""A job that meets at a ctrdzvd goes on when the daemon is lost. All on this machine, over the loopback, but for one."""

import signal

import testlib
from testlib import netns
from testlib.failover_case import PATIENCE, WORKER, FailoverCase


class FailoverOfADaemon(FailoverCase):
    def setUp(self):
        super().setUp()
        self.port = 0
        self.daemon = self.start_daemon()

    def start_daemon(self):
        daemon = self.start(testlib.program("ctrdzvd"), "--port", self.port, "--token-file", self.token)
        self.port = int(daemon.wait_for("listening on").rpartition(":")[2])
        return daemon

    def start_agent(self, *options, conf=""):
        """Nobody falls silent here, so the heartbeat is slow: a busy machine must not count as lost."""
        return self.start_ctrun(
            "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
            "--token-file", self.token, "--rdzv-conf", f"is_host=0,join_timeout=120,heartbeat_timeout=15{conf}",
            "--shutdown-timeout", 20, *options, "--no-python", "sh", "-c", WORKER.replace("$", "$$"), self.go,
        )  # fmt: skip

    def hosts(self, jobs):
        """Those whose last word is that they host the store: none, or one."""

        def last(job):
            return [line for line in job.err.splitlines() if "hosts the job's store now" in line][-1:]

        return [job for job in jobs if last(job) and "this machine hosts" in last(job)[0]]

    def test_the_agents_take_over_and_no_restart_is_used(self):
        jobs = [self.start_agent("--nnodes", 3, "--max-restarts", 0) for _ in range(3)]
        before = self.all_up(jobs)
        self.kill(self.daemon)
        self.all_up(jobs, before)
        for result in self.finish(jobs):
            self.assertRegex(result.err, r"127\.0\.0\.1\), which hosts the job's store, is lost: ")
        self.assertEqual(len(self.hosts(jobs)), 1)

    def test_a_daemon_that_ends_in_order_is_replaced_too(self):
        jobs = [self.start_agent("--nnodes", 2, "--report", self.tmp / f"report-{i}") for i in range(2)]
        before = self.all_up(jobs)
        self.daemon.signal(signal.SIGTERM)
        self.all_up(jobs, before)
        self.finish(jobs)
        self.assertEqual(self.daemon.wait().code, 0)
        report = (self.tmp / "report-0").read_text()
        self.assertIn("the ctrdzvd on ", report)
        self.assertIn("which hosted the job's store, was lost: ", report)

    def test_a_job_that_is_told_to_ends_with_the_daemon(self):
        jobs = [self.start_agent("--nnodes", 2, "--max-restarts", 3, conf=",failover=0") for _ in range(2)]
        self.all_up(jobs)
        self.kill(self.daemon)
        for job in jobs:
            result = job.wait(PATIENCE)
            self.assertEqual(result.code, 121, result)

    def test_the_daemon_stays_the_host_when_an_agent_is_lost(self):
        jobs = [self.start_agent("--nnodes", "1:2", conf=",last_call_timeout=1") for _ in range(2)]
        before = self.all_up(jobs)
        self.kill(jobs[1])
        self.all_up(jobs[:1], before)
        self.finish(jobs[:1])
        self.assertEqual(self.hosts(jobs[:1]), [])

    def test_the_next_host_is_lost_too(self):
        jobs = [self.start_agent("--nnodes", "1:3", conf=",last_call_timeout=1") for _ in range(3)]
        before = self.all_up(jobs)
        self.kill(self.daemon)
        before = self.all_up(jobs, before)
        first = self.hosts(jobs)[0]
        left = [job for job in jobs if job is not first]
        self.kill(first)
        self.all_up(left, before)
        self.finish(left)

    def test_a_daemon_and_an_agent_that_are_started_again_lead_to_the_job(self):
        def start():
            return self.start_agent("--nnodes", "2:3", conf=",last_call_timeout=10")

        jobs = [start() for _ in range(3)]
        before = self.all_up(jobs)
        self.kill(self.daemon)
        before = self.all_up(jobs, before)
        host = self.hosts(jobs)[0]
        lost = next(job for job in jobs if job is not host)
        left = [job for job in jobs if job is not lost]
        self.kill(lost)
        before = self.all_up(left, before)
        self.daemon = self.start_daemon()
        again = start()
        self.all_up([*left, again], before)
        self.finish([*left, again])
        self.assertIn("another machine hosts the job's store now, at 127.0.0.1 port ", again.err)

    def test_the_machine_of_the_daemon_falls_silent(self):
        cluster = netns.Cluster(self, 4)
        daemon = self.start(
            *cluster.nodes[0], testlib.program("ctrdzvd"), "--listen", "*", "--port", 29400, "--token-file", self.token
        )  # fmt: skip
        daemon.wait_for("listening on")
        jobs = [self.start_node(cluster, i, "--nnodes", 3, conf=",is_host=0") for i in range(1, 4)]
        before = self.all_up(jobs)
        cluster.cut(0)
        self.all_up(jobs, before)
        for result in self.finish(jobs):
            self.assertIn("10.9.1.1), which hosts the job's store, is lost", result.err)


if __name__ == "__main__":
    testlib.main()
