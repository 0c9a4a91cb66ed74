# SPDX-License-Identifier: Apache-2.0
"""ctrun under real launchers, with no option of its own: Slurm with two nodes, Open MPI and MPICH.
What is not installed is skipped."""

import shutil

import testlib
from testlib.slurm import Slurm

CTRUN = testlib.program("ctrun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def stores_of(case, result):
    """Where the ranks of --print-config would look for the store."""
    case.assertEqual(result.code, 0, result)
    return {line.split()[1] for line in result.out.splitlines() if line.startswith("store")}


class OpenMpi(testlib.Case):
    def test_ranks_agree_on_the_store(self):
        if shutil.which("mpirun.openmpi") is None:
            self.skipTest("no Open MPI here; see tools/setup --peers")
        result = self.run_program(
            "mpirun.openmpi", "--oversubscribe", "-np", "2", CTRUN, "--print-config", "train",
            env=AS_ROOT,
        )  # fmt: skip
        self.assertEqual(len(stores_of(self, result)), 1, result)
        self.assertIn("Open MPI's mpirun", result.out)


class Mpich(testlib.Case):
    def test_jobs_side_by_side_have_ports_of_their_own(self):
        if shutil.which("mpiexec.mpich") is None:
            self.skipTest("no MPICH here; see tools/setup --peers")
        stores = set()
        for _ in range(2):
            result = self.run_program("mpiexec.mpich", "-n", "2", CTRUN, "--print-config", "train")
            found = stores_of(self, result)
            self.assertEqual(len(found), 1, result)
            stores |= found
        self.assertEqual(len(stores), 2)


class UnderSlurm(testlib.Case):
    def setUp(self):
        super().setUp()
        self.slurm = Slurm(self)

    def test_agents_agree_on_the_store(self):
        result = self.slurm.srun("-N2", CTRUN, "--print-config", "train")
        self.assertEqual(len(stores_of(self, result)), 1, result)
        self.assertEqual(result.out.count("agent: one ctrun on each node"), 2)

    def test_a_batch_script_is_one_node(self):
        result = self.run_program(
            *self.slurm.inside, "salloc", "-Q", "-N2", CTRUN, "--print-config", "train",
            env=self.slurm.env,
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertIn("outside of any step", result.out)
        self.assertIn("start ctrun through srun", result.out)

    def test_workers_cannot_be_asked_for_twice(self):
        result = self.slurm.srun("-n4", CTRUN, "-n", "2", "train")
        self.assertEqual(result.code, 2, result)
        self.assertIn("leave it out, and every task becomes one rank", result.err)


if __name__ == "__main__":
    testlib.main()
