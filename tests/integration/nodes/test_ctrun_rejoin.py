# SPDX-License-Identifier: Apache-2.0
"""A ctrun that is started again joins the job that went on without it; each machine is a network namespace."""

import testlib
from testlib import wait_until
from testlib.failover_case import PATIENCE, FailoverCase


class Rejoin(FailoverCase):
    def start_again(self, *options, settle, go_on=False):
        """Kills an agent that does not host, and starts it with the same command line: at once, or when the others
        have gone on. Returns the node ranks before and after."""
        cluster, jobs = self.start_job(3, *options, "--max-restarts", 9, settle=settle)
        before = self.all_up(jobs)
        ranks = [self.rank(job) for job in jobs]
        self.kill(jobs[1])
        if go_on:
            before = self.all_up([jobs[0], jobs[2]], before)
        jobs[1] = self.start_node(cluster, 1, *options, "--max-restarts", 9, settle=settle)
        self.all_up(jobs, before)
        again = [self.rank(job) for job in jobs]
        self.finish(jobs)
        return ranks, again

    def test_an_agent_that_is_started_again_has_its_old_node_rank(self):
        before, again = self.start_again("--nnodes", 3, settle=0.5)
        self.assertEqual(before, again)

    def test_so_has_one_of_an_elastic_job_that_waits_for_it(self):
        before, again = self.start_again("--nnodes", "2:3", settle=100)
        self.assertEqual(before, again)

    def test_one_that_is_started_again_joins_a_job_that_went_on_without_it(self):
        _, again = self.start_again("--nnodes", "2:3", settle=0.5, go_on=True)
        self.assertEqual(sorted(again), [0, 1, 2])

    def host_again(self, nodes):
        """Kills the first host, and starts it with the same command line, which says that it hosts the job."""
        cluster, jobs = self.start_job(3, "--nnodes", nodes, "--max-restarts", 9)
        before = self.all_up(jobs)
        self.kill(jobs[0])
        wait_until(lambda: any("this machine hosts the job's store now" in job.err for job in jobs), "a host", PATIENCE)
        jobs[0] = self.start_node(cluster, 0, "--nnodes", nodes, "--max-restarts", 9, settle=100)
        self.all_up(jobs, before)
        ranks = [self.rank(job) for job in jobs]
        result = self.finish(jobs)[0]
        self.assertRegex(
            result.err,
            r"the job runs already, so this ctrun joins it and hosts no other\n"
            r"ctrun: node-[23] hosts the job's store now, at 10\.9\.1\.[23] port",
        )
        return ranks

    def test_the_first_host_that_is_started_again_joins_the_job(self):
        self.assertEqual(self.host_again("3"), [0, 1, 2])

    def test_the_first_host_that_is_started_again_joins_an_elastic_job(self):
        self.assertEqual(sorted(self.host_again("2:3")), [0, 1, 2])

    def test_agents_that_know_the_first_address_are_sent_on(self):
        """One may join the first host's new life before that knows of the running job; another comes later."""
        options = ("--nnodes", "2:5", "--max-restarts", 9)
        cluster, jobs = self.start_job(5, *options)
        before = self.all_up(jobs)
        for i in (4, 0):
            self.kill(jobs[i])

        def hosts():
            return [i for i in (1, 2, 3) if "this machine hosts the job's store now" in jobs[i].err]

        host = wait_until(hosts, "a host", PATIENCE)[0]
        for i in (4, 0):
            jobs[i] = self.start_node(cluster, i, *options, settle=100)
        before = self.all_up(jobs, before)
        late = 1 if host != 1 else 2
        self.kill(jobs[late])
        jobs[late] = self.start_node(cluster, late, *options)
        self.all_up(jobs, before)
        results = self.finish(jobs)
        self.assertIn(
            f"node-{host + 1} hosts the job's store now, at {cluster.addresses[host]} port", results[late].err
        )


if __name__ == "__main__":
    testlib.main()
