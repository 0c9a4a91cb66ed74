#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training over two hosts without GPUs. The hosts are network namespaces at the two ends of a virtual
cable; two workers on each are started by hand, with the environment that a launcher gives."""

import json
import subprocess

import testlib
from testlib import netns, program
from testlib.netns import SERVER4, STRANGER4, TwoMachines
from testlib.wait import DEADLINE

# A silent host is noticed after 15 s by the leaders' control connection.
SILENCE = 15


class TrainHosts(testlib.Case):
    def start_hosts(self, *train):
        """Two workers in each namespace, rank 0 beside the store; in rank order."""
        self.net = TwoMachines(self)
        daemon = self.start(
            *self.net.server, program("ctrdzvd"), "--port", "0", "--listen", "*",
            "--allow", "10.9.0.0/24",
        )  # fmt: skip
        port = daemon.wait_for("listening on").rpartition(":")[2]
        workers = []
        for rank in range(4):
            env = {
                "RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2,
                "GROUP_RANK": rank // 2, "GROUP_WORLD_SIZE": 2, "OMP_NUM_THREADS": 1,
                "MASTER_ADDR": SERVER4, "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "hosts",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            }  # fmt: skip
            where = self.net.server if rank < 2 else self.net.stranger
            workers.append(self.start(*where, program("train"), *self.common, *train, env=env))
        return workers

    common = ("--data", "synthetic", "--device", "cpu", "--hidden", "64", "--seed", "3")

    def losses(self, path):
        events = [json.loads(line) for line in path.read_text().splitlines()]
        return [e["loss"] for e in events if e["event"] == "epoch"]

    def test_the_losses_are_those_of_one_host(self):
        here, there = self.tmp / "one.jsonl", self.tmp / "two.jsonl"
        one = self.ctrun(
            "--nproc-per-node", "4", program("train"), *self.common, "--epochs", "2",
            "--metrics", str(here),
        )  # fmt: skip
        self.assertEqual(one.code, 0, one)
        for worker in self.start_hosts("--epochs", "2", "--metrics", str(there)):
            result = worker.wait(DEADLINE)
            self.assertEqual(result.code, 0, result)
        self.assertEqual(len(self.losses(there)), 2)
        for one, two in zip(self.losses(here), self.losses(there), strict=True):
            self.assertAlmostEqual(one / two, 1, delta=1e-5)

    def test_consistent_training_gives_the_bits_of_one_host(self):
        def final_hash(path):
            return json.loads(path.read_text().splitlines()[-1])["param_hash"]

        here, there = self.tmp / "one.jsonl", self.tmp / "two.jsonl"
        alone = self.run_program(
            program("train"), *self.common, "--consistent", "--epochs", "1", "--metrics", str(here)
        )
        self.assertEqual(alone.code, 0, alone)
        for worker in self.start_hosts("--consistent", "--epochs", "1", "--metrics", str(there)):
            result = worker.wait(DEADLINE)
            self.assertEqual(result.code, 0, result)
        self.assertEqual(final_hash(here), final_hash(there))

    def test_machines_that_cannot_add_as_a_tree_are_refused_once(self):
        cluster = netns.Cluster(self, 3)
        jobs = [
            self.start(
                *cluster.nodes[i], program("ctrun"), "--nnodes", "3", "--node-rank", i,
                "--nproc-per-node", workers, "--master-addr", cluster.addresses[0],
                "--max-restarts", "1000", "--rdzv-conf", "join_timeout=60",
                program("train"), *self.common, "--consistent",
            )
            for i, workers in enumerate((2, 1, 1))
        ]  # fmt: skip
        for job in jobs:
            result = job.wait(DEADLINE)
            self.assertEqual(result.code, 1, result)
            self.assertIn("each machine must have as many workers as the others", result.err)
            self.assertNotIn("generation 1", result.err)

    def test_a_cut_link_ends_training_on_both_hosts(self):
        metrics = self.tmp / "m.jsonl"
        workers = self.start_hosts("--epochs", "100000", "--metrics", str(metrics))
        testlib.wait_until(
            lambda: metrics.exists() and "epoch" in metrics.read_text(), "an epoch is over"
        )
        subprocess.run(
            [*self.net.server, "ip", "link", "set", "ctveth0", "down"], check=True, timeout=DEADLINE
        )
        for rank, worker in enumerate(workers):
            result = worker.wait(SILENCE + DEADLINE)
            self.assertNotEqual(result.code, 0, result)
            other = f"host 1 ({STRANGER4}, ranks 2 to 3)"
            if rank >= 2:
                other = f"host 0 ({SERVER4}, ranks 0 to 1)"
            self.assertIn(f"lost the connection to {other}", result.err)

    def test_a_killed_worker_ends_training_on_both_hosts(self):
        metrics = self.tmp / "m.jsonl"
        workers = self.start_hosts("--epochs", "100000", "--metrics", str(metrics))
        testlib.wait_until(
            lambda: metrics.exists() and "epoch" in metrics.read_text(), "an epoch is over"
        )
        workers[3].kill()
        for worker in workers[:3]:
            result = worker.wait(DEADLINE)
            self.assertNotEqual(result.code, 0, result)
            self.assertRegex(result.err, r"rank 3 \(pid \d+\) has died")


if __name__ == "__main__":
    testlib.main()
