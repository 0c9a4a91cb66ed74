# SPDX-License-Identifier: Apache-2.0
"""A job that meets at a ctrdzvd goes on when the daemon is lost. All on this machine, over the loopback, but for one."""

import re
import signal
import socket

import testlib
from testlib import netns, wait_until
from testlib.failover_case import PATIENCE, WORKER, FailoverCase
from testlib.token_holder import tell_of_host


class FailoverOfADaemon(FailoverCase):
    def setUp(self):
        super().setUp()
        self.port = 0
        self.daemon = self.start_daemon()

    def start_daemon(self):
        daemon = self.start(testlib.program("ctrdzvd"), "--port", self.port, "--token-file", self.token)
        self.port = int(daemon.wait_for("listening on").rpartition(":")[2])
        return daemon

    def start_agent(self, *options, conf="", heartbeat=15):
        """Mostly nobody falls silent here, so the heartbeat is slow: a busy machine must not count as lost."""
        return self.start_ctrun(
            "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
            "--token-file", self.token, "--rdzv-conf", f"is_host=0,join_timeout=120,heartbeat_timeout={heartbeat}{conf}",
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
        self.assertRegex(again.err, r"ctrun: \S+ hosts the job's store now, at 127\.0\.0\.1 port ")

    def test_an_agent_that_is_started_again_at_once_gets_its_place(self):
        """The daemon may hear of the new one before it hears of the end of the old one."""
        jobs = [self.start_agent("--nnodes", 2, "--max-restarts", 3) for _ in range(2)]
        before = self.all_up(jobs)
        jobs[1].signal(signal.SIGKILL)
        jobs[1] = self.start_agent("--nnodes", 2, "--max-restarts", 3)
        self.all_up(jobs, before)
        self.finish(jobs)

    def test_an_agent_waits_for_the_end_of_its_former_life(self):
        """That one is silent, but its connection has not ended."""
        jobs = [self.start_agent("--nnodes", 2, "--max-restarts", 3, heartbeat=5) for _ in range(2)]
        before = self.all_up(jobs)
        former = jobs[1]
        former.signal(signal.SIGSTOP)
        jobs[1] = self.start_agent("--nnodes", 2, "--max-restarts", 3, heartbeat=5)
        jobs[1].wait_for("the job still counts an earlier ctrun of this machine")
        self.all_up(jobs, before)
        former.kill()
        self.finish(jobs)

    def test_an_agent_that_is_one_too_many_is_refused_soon(self):
        jobs = [self.start_agent("--nnodes", 2) for _ in range(2)]
        self.all_up(jobs)
        result = self.start_agent("--nnodes", 2).wait(PATIENCE)
        self.assertEqual(result.code, 1, result)
        self.assertIn("is one too many: the job ", result.err)
        self.finish(jobs)

    def start_one_that_waits(self):
        """An agent that has joined, and waits for another one."""
        agent = self.start_agent("--nnodes", 2, "--rdzv-id", "job")
        agent.wait_for("waiting for 1 of 2 nodes")
        return agent

    def tell(self, host_port, number):
        tell_of_host(self.port, self.token.read_text().strip(), "job", host_port, number)

    def test_an_agent_that_is_sent_to_no_host_comes_back(self):
        """Somebody with the token names a port at which nobody listens, and one that never answers."""
        agent = self.start_one_that_waits()
        for backlog, why in ((None, "nobody listens there"), (1, "takes connections, but does not answer")):
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                if backlog:
                    other.listen(backlog)
                there = other.getsockname()[1]
                back = (
                    f"ctrun: went back to 127.0.0.1:{self.port}, because the job's store is not at "
                    f"127.0.0.1:{there} as it was told: .*{why}"
                )

                def told():
                    self.tell(there, 5)
                    return re.search(back, agent.err) or agent.popen.poll()

                wait_until(told, "the way back", PATIENCE)
                self.assertRegex(agent.err, back)
        jobs = [agent, self.start_agent("--nnodes", 2, "--rdzv-id", "job")]
        self.all_up(jobs)
        self.finish(jobs)

    def test_a_daemon_believes_no_term_that_nobody_can_have_reached(self):
        agent = self.start_one_that_waits()
        self.tell(1, 0xFFFFF)
        self.daemon.wait_for("127.0.0.1:1 says that it hosts job 'job', in a term that no election can have reached")
        jobs = [agent, self.start_agent("--nnodes", 2, "--rdzv-id", "job")]
        self.all_up(jobs)
        self.assertNotIn("went back", self.finish(jobs)[0].err)

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
