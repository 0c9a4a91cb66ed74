# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program on two machines whose own names mean the loopback, or nothing: gloo takes the
address of that name for its own, and tells it to the other machine."""

import testlib
from testlib import netns, pytorch
from testlib.pytorch import LIMIT, PROGRAMS


class Hosts:
    """The tests; the classes below say with which interpreter."""

    def run_on_two(self, hosts, first="10.9.1.1"):
        """`hosts[i]` stands in /etc/hosts of machine i; `first`: what the first calls itself."""
        cluster = netns.Cluster(self, 2)
        jobs = [
            self.start(
                *cluster.knowing(i, hosts[i]), "env", f"PYTHON_EXEC={self.python}",
                testlib.program("ctrun"), "--nnodes", 2, "--nproc-per-node", 2,
                "--master-addr", (first, cluster.addresses[0])[i],
                PROGRAMS / "gloo.py",
            )
            for i in (0, 1)
        ]  # fmt: skip
        for i, job in enumerate(jobs):
            result = job.wait(LIMIT)
            self.assertEqual(result.code, 0, result)
            for rank in (2 * i, 2 * i + 1):
                self.assertIn(f"rank {rank} of 4 done under torch", result.out)

    def test_names_that_mean_the_loopback(self):
        self.run_on_two(("127.0.1.1 node-1", "127.0.1.1 node-2"))

    def test_names_that_mean_nothing_and_a_store_on_0_0_0_0(self):
        self.run_on_two(("", ""), first="0.0.0.0")


class DebianTorch(Hosts, pytorch.Case):
    python = pytorch.DEBIAN


class CurrentTorch(Hosts, pytorch.Case):
    python = pytorch.CURRENT


if __name__ == "__main__":
    testlib.main()
