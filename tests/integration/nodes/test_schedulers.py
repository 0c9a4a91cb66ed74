# SPDX-License-Identifier: Apache-2.0
"""ctrun under real launchers, with no option of its own: Slurm with two nodes, Open MPI and MPICH.
What is not installed is skipped."""

import json
import shutil
import uuid

import testlib
from testlib import idx
from testlib.slurm import Slurm

CTRUN = testlib.program("ctrun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

DUMP = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
         "MASTER_ADDR", "TORCHELASTIC_RUN_ID")
print(json.dumps({name: os.environ[name] for name in names}))
"""

KILLED = """
import os, signal, time
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""

RESTARTED = """
import os, sys, time
generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if generation == 0:
    sys.exit(9) if os.environ["RANK"] == "1" else time.sleep(600)
sys.stdout.write(f"generation {generation} of rank {os.environ['RANK']}\\n")  # in one piece
"""

FAIL = """
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit(41)
time.sleep(600)
"""


def facts_of(result):
    """What the workers of DUMP have printed, by rank; in front of each line may stand a prefix."""
    lines = [line[line.index("{") :] for line in result.out.splitlines() if "{" in line]
    return {int(fact["RANK"]): fact for fact in map(json.loads, lines)}


class Trains:
    """The same for each launcher: `launch(*argv)` gives the result of starting `ranks` of them."""

    ranks = 2

    def test_trains_to_the_same_loss(self):
        data = idx.write_dataset(self.tmp)
        args = ("--data", data, "--hidden", "24", "--batch-size", "32", "--device", "cpu",
                "--epochs", "2")  # fmt: skip
        losses = []
        for start in (lambda *argv: self.ctrun("-n", self.ranks, *argv), self.launch_ctrun):
            metrics = self.tmp / f"metrics{len(losses)}"
            result = start("train", *args, "--metrics", str(metrics))
            self.assertEqual(result.code, 0, result)
            events = [json.loads(line) for line in metrics.read_text().splitlines()]
            self.assertEqual({e["world_size"] for e in events if "world_size" in e}, {self.ranks})
            losses.append([e["loss"] for e in events if e["event"] == "epoch"])
        self.assertEqual(len(losses[0]), 2)
        for one, other in zip(*losses):
            self.assertAlmostEqual(other / one, 1, delta=1e-5)

    def test_code_of_a_failed_rank_comes_back(self):
        result = self.launch_ctrun(self.script("fail.py", FAIL))
        self.assertEqual(result.code, 41, result)
        self.assertIn("rank 1 failed", result.err)

    def test_code_of_a_killed_rank_comes_back(self):
        result = self.launch_ctrun(self.script("killed.py", KILLED))
        self.assertEqual(result.code, 137, result)
        self.assertIn("SIGKILL", result.err)

    def test_all_ranks_restart_together(self):
        result = self.launch_ctrun("--max-restarts", "1", self.script("restarted.py", RESTARTED))
        self.assertEqual(result.code, 0, result)
        for rank in range(self.ranks):
            self.assertIn(f"generation 1 of rank {rank}\n", result.out)

    def test_the_story_of_all_nodes_is_told_once(self):
        result = self.launch_ctrun(self.script("fail.py", "import nowhere_at_all\n" + FAIL))
        self.assertNotEqual(result.code, 0, result)
        self.assertEqual(result.err.count("what to do: "), 1, result)
        self.assertEqual(result.err.count("ctrun: the job failed "), 1, result)
        self.assertIn("Python finds no module nowhere_at_all: ", result.err)

    def launch_ctrun(self, *args):
        return self.launch(CTRUN, *args)


class OpenMpi(Trains, testlib.Case):
    def setUp(self):
        super().setUp()
        if shutil.which("mpirun.openmpi") is None:
            self.skipTest("no Open MPI here; see tools/setup --peers")

    def launch(self, *argv):
        # Its own output mixes pieces of lines of different ranks under load; in files none meet.
        kept = self.tmp / f"output-{uuid.uuid4().hex}"
        result = self.run_program(
            "mpirun.openmpi", "--oversubscribe", "-np", "2", "--output-filename", f"{kept}:nocopy",
            *argv, env=AS_ROOT,
        )  # fmt: skip
        for path in sorted(kept.rglob("stdout")):
            result.out += path.read_text()
        for path in sorted(kept.rglob("stderr")):
            result.err += path.read_text()
        return result

    def test_ranks_share_the_host(self):
        facts = facts_of(self.launch_ctrun(self.script("dump.py", DUMP)))
        self.assertEqual(sorted(facts), [0, 1])
        for rank, fact in facts.items():
            self.assertEqual(fact["LOCAL_RANK"], str(rank))
            self.assertEqual(fact["LOCAL_WORLD_SIZE"], "2")
            self.assertEqual((fact["GROUP_RANK"], fact["GROUP_WORLD_SIZE"]), ("0", "1"))
            self.assertTrue(fact["TORCHELASTIC_RUN_ID"].startswith("openmpi-"))


class Mpich(Trains, testlib.Case):
    def setUp(self):
        super().setUp()
        if shutil.which("mpiexec.mpich") is None:
            self.skipTest("no MPICH here; see tools/setup --peers")

    def launch(self, *argv):
        return self.run_program("mpiexec.mpich", "-n", "2", *argv)

    def test_jobs_side_by_side_have_ports_of_their_own(self):
        stores = set()
        for _ in range(2):
            result = self.launch(CTRUN, "--print-config", "train")
            self.assertEqual(result.code, 0, result)
            lines = {line for line in result.out.splitlines() if line.startswith("store")}
            self.assertEqual(len(lines), 1, result)  # all ranks agree
            stores |= lines
        self.assertEqual(len(stores), 2)


class SlurmAgents(Trains, testlib.Case):
    def setUp(self):
        super().setUp()
        self.slurm = Slurm(self)

    def launch(self, *argv):
        return self.slurm.srun("-N2", *argv)

    def test_nodes_have_the_schedulers_order(self):
        result = self.launch(CTRUN, "-n", "2", self.script("dump.py", DUMP))
        facts = facts_of(result)
        self.assertEqual(sorted(facts), [0, 1, 2, 3], result)
        for rank, fact in facts.items():
            self.assertEqual(fact["GROUP_RANK"], str(rank // 2))
            self.assertEqual(fact["LOCAL_RANK"], str(rank % 2))
            self.assertEqual(fact["MASTER_ADDR"], "node1")
            self.assertRegex(fact["TORCHELASTIC_RUN_ID"], r"^slurm-\d+\.0$")

    def test_a_batch_script_is_one_node(self):
        result = self.slurm.case.run_program(
            *self.slurm.inside, "salloc", "-Q", "-N2", CTRUN, "--print-config", "train",
            env=self.slurm.env,
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertIn("outside of any step", result.out)
        self.assertIn("start ctrun through srun", result.out)


class SlurmShims(Trains, testlib.Case):
    ranks = 4

    def setUp(self):
        super().setUp()
        self.slurm = Slurm(self)

    def launch(self, *argv):
        return self.slurm.srun("-n4", *argv)

    def test_each_task_is_a_rank(self):
        result = self.slurm.srun("-N2", "-n3", CTRUN, self.script("dump.py", DUMP))
        facts = facts_of(result)
        self.assertEqual(sorted(facts), [0, 1, 2], result)
        self.assertEqual([facts[r]["LOCAL_RANK"] for r in range(3)], ["0", "1", "0"])
        self.assertEqual([facts[r]["LOCAL_WORLD_SIZE"] for r in range(3)], ["2", "2", "1"])
        self.assertEqual([facts[r]["GROUP_RANK"] for r in range(3)], ["0", "0", "1"])

    def test_workers_cannot_be_asked_for_twice(self):
        result = self.launch(CTRUN, "-n", "2", "train")
        self.assertEqual(result.code, 2, result)
        self.assertIn("leave it out, and every task becomes one rank", result.err)


if __name__ == "__main__":
    testlib.main()
