# SPDX-License-Identifier: Apache-2.0
"""A machine on which every generation fails first, or that fails a check, is left out and named."""

import signal

import testlib
from testlib import netns

# Fails on node-2 only, when a file is there. Elsewhere it ends as soon as a generation runs without that machine.
SCRIPT = """
if [ "$(uname -n)" = node-2 ]; then
    while [ ! -e "$0" ]; do sleep 0.1; done
    exit 7
fi
case $CTRUN_GENERATION in 0|1) exec sleep 600;; esac
"""


class Ban(testlib.Case):
    def setUp(self):
        super().setUp()
        self.go = self.tmp / "go"

    def start_node(self, cluster, i, *options):
        return self.start(
            *cluster.nodes[i], testlib.program("ctrun"), "--nproc-per-node", "1",
            "--master-addr", cluster.addresses[0], "--rdzv-conf", "join_timeout=120", "--max-restarts", "5",
            "--ban-after", "2", *options, "sh", "-c", SCRIPT.replace("$", "$$"), self.go,
        )  # fmt: skip

    def test_a_spare_takes_its_place(self):
        cluster = netns.Cluster(self, 3)
        options = ("--nnodes", "2", "--spares", "1")
        jobs = [self.start_node(cluster, 0, *options)]
        jobs[0].wait_for("waiting for 1 of 2 nodes")
        jobs.append(self.start_node(cluster, 1, *options))
        jobs[1].wait_for("generation 0: node 1 of 2")
        jobs.append(self.start_node(cluster, 2, *options))
        jobs[2].wait_for("this node waits as a spare")
        self.go.touch()
        results = [job.wait() for job in jobs]
        self.assertEqual([result.code for result in results], [0, 0, 0], results)
        named = "machine node-2 at 10.9.1.2 is left out: 2 generations in a row failed first on it (--ban-after 2)"
        for result in results:
            self.assertIn(named, result.err)
            self.assertIn("the job succeeded after 2 restarts", result.err)
        self.assertIn("this node is left out of the job", results[1].err)
        self.assertIn("generation 2: node 1 of 2", results[2].err)
        self.assertNotIn("generation 2: node", results[1].err)

    def test_a_spare_takes_the_place_of_one_that_fails_its_check(self):
        cluster = netns.Cluster(self, 3)
        check = "echo the check of $(uname -n); [ $(uname -n) != node-2 ]"
        jobs = []
        for i in range(3):
            jobs.append(self.start(
                *cluster.nodes[i], testlib.program("ctrun"), "--nproc-per-node", "1", "--nnodes", "2", "--spares", "1",
                "--master-addr", cluster.addresses[0], "--rdzv-conf", "join_timeout=120",
                "--health-check-timeout", "200", "--health-check", f"while [ ! -e {self.go} ]; do sleep 0.1; done; {check}", "echo", "works",
            ))  # fmt: skip
            jobs[i].wait_for(("there is no token", "generation 0: node 1 of 2", "this node waits as a spare")[i])
        self.go.touch()
        results = [job.wait() for job in jobs]
        self.assertEqual([result.code for result in results], [0, 0, 0], results)
        # The first machine may have started its workers before the check of the second one ended.
        self.assertEqual([result.out.count("works") for result in results[1:]], [0, 1], results)
        for result in results[::2]:
            self.assertIn("machine node-2 at 10.9.1.2 is left out: it failed its check", result.err)
        self.assertIn("machine node-2 is not fit: its health check exited with code 1", results[1].err)
        self.assertIn("    the check of node-2\n", results[1].err)
        self.assertIn("without this machine if another one can take its place", results[1].err)

    def test_a_smaller_world_goes_on(self):
        cluster = netns.Cluster(self, 2)
        self.go.touch()
        jobs = [self.start_node(cluster, i, "--nnodes", "1:2") for i in range(2)]
        results = [job.wait() for job in jobs]
        self.assertEqual([result.code for result in results], [0, 0], results)
        self.assertIn("machine node-2 at 10.9.1.2 is left out", results[0].err)
        self.assertIn("node 0 of 1", results[0].err)

    def test_one_of_three_goes_on_if_another_one_is_lost_meanwhile(self):
        """With failover, the one that is left out counts as well: without it, one of three could decide nothing."""
        cluster = netns.Cluster(self, 3)
        token = self.tmp / "token"
        token.write_text("a-token-for-three-machines\n")
        token.chmod(0o600)
        script = """
            case $(uname -n),$CTRUN_GENERATION in
            node-2,*) while [ ! -e "$0" ]; do sleep 0.1; done; exit 7;;
            node-1,0)
                trap 'while [ ! -e "$0.end" ]; do sleep 0.1; done; exit 0' TERM
                touch "$0.ready"
                while :; do sleep 0.1; done;;
            node-3,*) exec sleep 600;;
            esac
        """
        jobs = [
            self.start(
                *node, testlib.program("ctrun"), "--nproc-per-node", "1", "--nnodes", "1:3", "--ban-after", "1",
                "--master-addr", cluster.addresses[0], "--token-file", token, "--rdzv-conf", "join_timeout=120,failover=1",
                "--max-restarts", "5", "--shutdown-timeout", "100", "sh", "-c", script.replace("$", "$$"), self.go,
            ) for node in cluster.nodes
        ]  # fmt: skip
        for job in jobs:
            job.wait_for("of 3, rank")
        testlib.wait_until((self.tmp / "go.ready").exists, "the first worker")
        self.go.touch()
        jobs[2].wait_for("rank 1 failed on node-2")
        jobs[2].signal(signal.SIGKILL)
        jobs[2].wait()  # the host hears of its end before the last worker stops
        (self.tmp / "go.end").touch()
        results = [job.wait() for job in jobs[:2]]
        self.assertEqual([result.code for result in results], [0, 0], results)
        self.assertIn("this node is left out of the job", results[1].err)
        self.assertRegex(results[0].err, r"generation \d: node 0 of 1, rank 0 of 1")

    def test_a_machine_that_is_needed_is_named(self):
        cluster = netns.Cluster(self, 2)
        self.go.touch()
        jobs = [self.start_node(cluster, i, "--nnodes", "2") for i in range(2)]
        results = [job.wait() for job in jobs]
        self.assertEqual([result.code for result in results], [7, 7], results)
        self.assertIn("warning: machine node-2 at 10.9.1.2 should be left out", results[0].err)


if __name__ == "__main__":
    testlib.main()
