# SPDX-License-Identifier: Apache-2.0
"""The name of the store's machine is known only after all machines have begun, as the name of a pod in Kubernetes
is: two network namespaces with a file /etc/hosts each."""

import testlib
from testlib import netns

STORE = "job-0.pods"
SAY = "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR"


class LateName(testlib.Case):
    def setUp(self):
        super().setUp()
        self.cluster = netns.Cluster(self, 2)

    def check(self, options=(), env=None):
        """`options` of the job; `env(i)` of machine i."""
        jobs = [
            self.start(
                *self.cluster.knowing(i, ""), testlib.program("ctrun"), *options, "-n", "1", "--no-python",
                "--rdzv-conf", "join_timeout=60", "sh", "-c", SAY, env=env(i) if env else {},
            )
            for i in range(2)
        ]  # fmt: skip
        for job in jobs:
            job.wait_for(f"the name of the job's store, {STORE}, cannot be resolved so far: ")
        for i in range(2):
            with open(self.tmp / f"hosts-{i}", "a", encoding="utf-8") as hosts:
                hosts.write(f"{self.cluster.addresses[0]} {STORE}\n")
        results = [job.wait() for job in jobs]
        self.assertEqual([r.code for r in results], [0, 0], results)
        said = "".join(r.out for r in results)
        for rank in (0, 1):
            self.assertIn(f"rank {rank} of 2 at {STORE}\n", said)

    def test_of_an_option_each_machine_finds_out_whose_it_is(self):
        self.check(("--nnodes", "2", "--master-addr", STORE))

    def test_of_variables_the_first_machine_hosts_the_store(self):
        self.check(env=lambda i: {"MASTER_ADDR": STORE, "NNODES": "2", "NODE_RANK": str(i)})

    def test_on_one_machine_it_is_a_mistake(self):
        result = self.ctrun("--master-addr", "nowhere.invalid", "-n", "1", "/bin/true")
        self.assertEqual(result.code, 1, result)
        self.assertIn("--master-addr: cannot resolve host 'nowhere.invalid'", result.err)


if __name__ == "__main__":
    testlib.main()
