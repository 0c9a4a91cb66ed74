# SPDX-License-Identifier: Apache-2.0
"""--preflight on several machines: what is measured, which machine is named, and what becomes of the job."""

import json
import os
import sys
import unittest

import testlib
from testlib import netns, paths

# Waits until the workers' store has no key: the last machine that leaves the preflight removes the last ones.
COUNT_KEYS = f"""
import os, sys, time
sys.path.insert(0, {str(paths.SOURCE_ROOT / "tests" / "integration")!r})
from testlib import store_client
peer = store_client.Peer(int(os.environ["MASTER_PORT"]), host=os.environ["MASTER_ADDR"])
while peer.keys():
    time.sleep(0.01)
print("keys: 0")
"""

# Other programs may slow this machine down many times. So its parts are not compared with each other, and have time.
LIMITS = ("--preflight-limits", "bandwidth=1K,latency=60")
DEADLINE = 150
SLOW = ("rate", "1mbit", "burst", "16kb", "limit", "64kb")


class Machines(testlib.Case):
    def start_node(self, cluster, i, *options, inside=(), env=None, program=()):
        return self.start(
            *cluster.nodes[i], *inside, testlib.program("ctrun"), "--nproc-per-node", "1",
            "--master-addr", cluster.addresses[0], "--rdzv-conf", "join_timeout=120,heartbeat_timeout=20",
            "--node-rank", i,
            *LIMITS, *options, *program, env=env,
        )  # fmt: skip

    def slow_down(self, cluster, i):
        cluster._do(cluster.nodes[i], "tc", "qdisc", "add", "dev", "ctlink", "root", "tbf", *SLOW)
        port = f"ctport{i}"
        cluster._do(cluster.hub, "tc", "qdisc", "add", "dev", port, "root", "tbf", *SLOW)

    def small_shm(self):
        return ("unshare", "--mount", "sh", "-c",
                'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$0" "$@"')  # fmt: skip

    def only(self, cluster, count, *options, inside=lambda i: (), env=lambda i: None):
        jobs = [
            self.start_node(
                cluster, i, "--nnodes", count, "--preflight-only", *options, inside=inside(i), env=env(i)
            )
            for i in range(count)
        ]
        return [job.wait(DEADLINE) for job in jobs]


class Preflight(Machines):
    def test_a_table_has_a_row_for_each_machine(self):
        cluster = netns.Cluster(self, 4)
        report = self.tmp / "report.json"
        results = self.only(cluster, 4, "--report", report)
        self.assertEqual([result.code for result in results], [0] * 4, results)
        self.assertEqual([bool(result.out) for result in results], [True, False, False, False], results)
        rows = results[0].out.splitlines()
        self.assertIn("VERDICT", rows[0])
        self.assertEqual([row.split()[0] for row in rows[1:5]], cluster.names, rows)
        self.assertTrue(all(row.endswith("  fit") for row in rows[1:5]), rows)
        self.assertRegex(rows[-1], r"^network: 6 pairs, median .*; the slowest is node-\d - node-\d with ")

    def test_the_report_has_it_too(self):
        cluster = netns.Cluster(self, 3)
        reports = [self.tmp / f"report-{i}.json" for i in range(3)]
        jobs = [
            self.start_node(cluster, i, "--nnodes", 3, "--preflight-only", "--report", reports[i]) for i in range(3)
        ]
        self.assertEqual([job.wait(DEADLINE).code for job in jobs], [0] * 3)
        found = json.loads(reports[0].read_text())["preflight"]
        self.assertEqual([machine["host"] for machine in found["machines"]], cluster.names)
        self.assertEqual([machine["fit"] for machine in found["machines"]], [True] * 3)
        self.assertEqual(found["pairs"]["measured"], 3)
        self.assertTrue(found["pairs"]["all"])
        self.assertGreater(found["pairs"]["slowest"]["bytes_per_s"], 0)
        self.assertLess(abs(found["machines"][2]["clock_s"]), 10)
        self.assertNotIn("preflight", json.loads(reports[1].read_text()))

    def test_a_slow_link_is_named(self):
        cluster = netns.Cluster(self, 4)
        self.slow_down(cluster, 2)
        results = self.only(cluster, 4, "--preflight-limits", "bandwidth=1M,latency=60")
        self.assertEqual([result.code for result in results], [118] * 4, results)
        table = results[0].out
        self.assertRegex(table, r"not fit: node-3: it exchanges 0\.\d MB/s with another machine at most, less than 1\.0 MB/s")
        self.assertRegex(table, r"the slowest is (node-3 - node-\d|node-\d - node-3) with 1?\d\d kB/s")
        self.assertIn("machine node-3 is not fit", results[2].err)

    def test_a_machine_that_is_not_fit_is_left_out(self):
        cluster = netns.Cluster(self, 3)
        jobs = [
            self.start_node(
                cluster, i, "--nnodes", "2:3", "--preflight", inside=self.small_shm() if i == 1 else (),
                program=("echo", "works"),
            )
            for i in range(3)
        ]  # fmt: skip
        results = [job.wait(DEADLINE) for job in jobs]
        self.assertEqual([result.code for result in results], [0, 0, 0], results)
        self.assertEqual([result.out.count("works") for result in results], [1, 0, 1], results)
        self.assertIn("machine node-2 at 10.9.1.2 is left out: it failed its check", results[0].err)
        self.assertIn("the next generation forms, without this machine", results[1].err)

    def test_a_small_shm_ends_the_job_without_a_spare(self):
        cluster = netns.Cluster(self, 2)
        jobs = [
            self.start_node(
                cluster, i, "--nnodes", 2, "--preflight", inside=self.small_shm() if i else (), program=("echo", "never")
            )
            for i in range(2)
        ]
        results = [job.wait(DEADLINE) for job in jobs]
        self.assertEqual([(result.code, result.out) for result in results], [(118, "")] * 2, results)
        self.assertIn(
            "machine node-2 is not fit: /dev/shm has 16 MiB free of 16 MiB; 1 worker needs 32 MiB", results[1].err
        )
        self.assertIn("--shm-size", results[1].err)
        self.assertIn("machine node-2 at 10.9.1.2 is not fit", results[0].err)

    def test_all_that_are_not_fit_are_named(self):
        cluster = netns.Cluster(self, 3)
        jobs = [
            self.start_node(
                cluster, i, "--nnodes", 3, "--preflight", inside=self.small_shm() if i else (), program=("echo", "never")
            )
            for i in range(3)
        ]
        results = [job.wait(DEADLINE) for job in jobs]
        self.assertEqual([(result.code, result.out) for result in results], [(118, "")] * 3, results)
        self.assertIn("ctrun: preflight: 2 of 3 machines are not fit: node-[2-3]\n", results[0].err)

    def test_all_that_are_fit_go_on(self):
        cluster = netns.Cluster(self, 3)
        jobs = [
            self.start_node(cluster, i, "--nnodes", 3, "--preflight=each", program=("echo", "works")) for i in range(3)
        ]
        results = [job.wait(DEADLINE) for job in jobs]
        self.assertEqual([(result.code, result.out.count("works")) for result in results], [(0, 1)] * 3, results)
        self.assertRegex(results[0].err, "preflight: all 3 machines are fit; 3 pairs, median ")
        self.assertNotIn("preflight", results[1].err)

    def test_a_machine_that_comes_later_looks_at_itself(self):
        cluster = netns.Cluster(self, 3)
        work = "[ $$CTRUN_GENERATION = 2 ] || exec sleep 600; echo works"
        options, program = ("--nnodes", "2:3", "--preflight"), ("sh", "-c", work)
        jobs = [self.start_node(cluster, i, *options, program=program) for i in (0, 1)]
        for job in jobs:
            job.wait_for("generation 0: node", DEADLINE)
        jobs[0].wait_for("preflight: all 2 machines are fit", DEADLINE)
        late = self.start_node(cluster, 2, *options, inside=self.small_shm(), program=program)
        late.wait_for("machine node-3 is not fit: /dev/shm has 16 MiB free", DEADLINE)
        results = [job.wait(DEADLINE) for job in (*jobs, late)]
        self.assertEqual([(r.code, r.out.count("works")) for r in results], [(0, 1), (0, 1), (0, 0)], results)
        self.assertIn("machine node-3 at 10.9.1.3 is left out", results[0].err)

    def test_the_workers_find_an_empty_store(self):
        cluster = netns.Cluster(self, 3)
        count = self.script("count.py", COUNT_KEYS)
        jobs = [
            self.start_node(cluster, i, "--nnodes", 3, "--preflight", program=(sys.executable, count))
            for i in range(3)
        ]  # fmt: skip
        results = [job.wait(DEADLINE) for job in jobs]
        self.assertEqual([(result.code, result.out) for result in results], [(0, "keys: 0\n")] * 3, results)

    def test_a_machine_without_the_option_is_refused(self):
        """At once and by name; another start of it, with the option, is taken."""
        cluster = netns.Cluster(self, 2)
        options = ("--nnodes", 2, "--preflight")
        first = self.start_node(cluster, 0, *options, program=("echo", "works"))
        other = self.start_node(cluster, 1, "--nnodes", 2, program=("echo", "never")).wait(DEADLINE)
        self.assertEqual((other.code, other.out), (2, ""), other)
        self.assertIn("node node-2 says no --preflight, the job was begun with --preflight=first", other.err)
        first.wait_for("node node-2 says no --preflight", DEADLINE)
        again = self.start_node(cluster, 1, *options, program=("echo", "works"))
        results = [job.wait(DEADLINE) for job in (first, again)]
        self.assertEqual([(result.code, result.out) for result in results], [(0, "works\n")] * 2, results)


class Gpus(Machines):
    """With a library that says what NVML would say."""

    def env(self, **wishes):
        library = os.environ.get("FAKE_NVML")
        if not library:
            raise unittest.SkipTest("no fake NVML")
        folder = self.tmp / "nvml"
        folder.mkdir(exist_ok=True)
        link = folder / "libnvidia-ml.so.1"
        if not link.exists():
            link.symlink_to(library)
        wishes = {f"FAKE_NVML_{name}": str(value) for name, value in wishes.items()}
        return {**os.environ, "LD_LIBRARY_PATH": str(folder), **wishes}

    def test_too_few_gpus_and_broken_ones_are_named(self):
        cluster = netns.Cluster(self, 4)
        wishes = ({"COUNT": 8}, {"COUNT": 7}, {"COUNT": 8, "ECC": 2}, {"COUNT": 8})
        results = self.only(cluster, 4, env=lambda i: self.env(**wishes[i]))
        self.assertEqual([result.code for result in results], [118] * 4, results)
        table = results[0].out
        self.assertIn("not fit: node-2: it has 7 GPUs, where most machines have 8; ", table)
        self.assertIn("not fit: node-3: GPU 7 (GPU-00000007): 2 uncorrected ECC errors since its last reset; ", table)
        self.assertEqual(table.count("not fit: "), 2, table)

    def test_a_driver_that_hangs_is_named(self):
        cluster = netns.Cluster(self, 2)
        results = self.only(cluster, 2, env=lambda i: self.env(HANG=i))
        self.assertEqual([result.code for result in results], [118] * 2, results)
        self.assertIn("not fit: node-2: the check of the GPUs (NVML) did not end; ", results[0].out)


if __name__ == "__main__":
    testlib.main()
