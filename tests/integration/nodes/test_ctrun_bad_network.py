# SPDX-License-Identifier: Apache-2.0
"""Lines that delay, lose and reorder, cables that are cut while a job comes together or ends, and an
agent that stands still: nobody is lost who is there, and whoever is lost is named."""

import os
import signal
import time

import testlib
from testlib import netns

TRAIN = (
    "train", "--data", "synthetic", "--epochs", "1", "--device", "cpu", "--hidden", "16",
    "--batch-size", "2000",
)  # fmt: skip


class BadNetwork(testlib.Case):
    def start_all(self, cluster, *command, conf="", nodes=None):
        return [self.start_node(cluster, i, *command, conf=conf) for i in nodes or range(len(cluster.nodes))]

    def start_node(self, cluster, i, *command, conf=""):
        return self.start(
            *cluster.nodes[i], testlib.program("ctrun"), "--nnodes", len(cluster.nodes),
            "--node-rank", i, "--nproc-per-node", "1", "--master-addr", cluster.addresses[0],
            "--rdzv-conf", f"join_timeout=120{conf}", *command,
        )  # fmt: skip

    def finish(self, jobs, code=0):
        results = [job.wait() for job in jobs]
        for result in results:
            self.assertEqual(result.code, code, result)
        return results

    def test_a_line_that_loses_much_is_no_lost_node(self):
        cluster = netns.Cluster(self, 2)
        cluster.worsen(delay=0.2, loss=0.05)
        for result in self.finish(self.start_all(cluster, "sleep", "15")):
            self.assertNotIn("lost", result.err)

    def test_train_over_a_slow_line(self):
        cluster = netns.Cluster(self, 2)
        cluster.worsen(delay=0.1, loss=0.02)
        done = self.finish(self.start_all(cluster, *TRAIN))[0]
        self.assertIn("done: ", done.out)

    def test_a_cable_that_comes_late(self):
        cluster = netns.Cluster(self, 2)
        cluster.cut(1)
        jobs = self.start_all(cluster, "true")
        jobs[1].wait_for("cannot reach the job's store at 10.9.1.1:")
        jobs[0].wait_for("waiting for 1 of 2 nodes: node rank 1 never connected; present: node-1")
        cluster.join(1)
        self.finish(jobs)

    def test_a_cable_that_is_cut_while_others_are_waited_for(self):
        cluster = netns.Cluster(self, 3)
        jobs = self.start_all(cluster, "true", conf=",heartbeat_timeout=2.5", nodes=[0, 1])
        jobs[0].wait_for("waiting for 1 of 3 nodes")
        cluster.cut(1)
        jobs[0].wait_for("node rank 1 (node-2) connected from 10.9.1.2 and left ")
        self.assertEqual(jobs[1].wait().code, 120, jobs[1].result())
        cluster.join(1)
        late = [self.start_node(cluster, i, "true") for i in (1, 2)]
        self.finish([jobs[0], *late])

    def test_a_cable_that_is_cut_while_all_stop(self):
        cluster = netns.Cluster(self, 3)
        # Rank 2 is slow to end, so that its machine is lost in the middle of that. The others wait
        # until it would not end at once.
        script = 'trap "echo ending; [ $RANK = 2 ] && sleep 60; exit 1" TERM; touch "$1/up-$RANK"; ' \
                 'while [ $RANK != 1 ] || [ ! -e "$1/up-2" ]; do sleep 0.1; done; exit 5'  # fmt: skip
        jobs = self.start_all(cluster, "sh", "-c", script, "sh", self.tmp, conf=",heartbeat_timeout=2.5")
        jobs[2].wait_for("ending")
        cluster.cut(2)
        began = time.monotonic()
        for result in self.finish(jobs[:2], 5):
            self.assertRegex(result.err, r"the job failed at \S+ in generation 0: rank 1 failed on node-2")
            self.assertRegex(result.err, r"also, node 2 \(node-3 at 10\.9\.1\.3\) is lost: nothing was heard from it for [1-9]\.\d s")
        self.assertLess(time.monotonic() - began, 30, "--shutdown-timeout is not waited for")

    def test_an_agent_that_stands_still_is_lost_all_the_same(self):
        cluster = netns.Cluster(self, 2)
        jobs = self.start_all(cluster, "sleep", "600", conf=",heartbeat_timeout=2.5")
        for job in jobs:
            job.wait_for("generation 0: node")
        os.kill(jobs[1].pid, signal.SIGSTOP)
        # One second is what it is given; a busy machine looks later.
        self.assertRegex(
            self.finish(jobs[:1], 121)[0].err,
            r"node 1 \(node-2 at 10\.9\.1\.2\) is lost: nothing was heard from it for [1-9]\.\d s",
        )
        os.kill(jobs[1].pid, signal.SIGCONT)
        self.finish(jobs[1:], 121)


if __name__ == "__main__":
    testlib.main()
