# SPDX-License-Identifier: Apache-2.0
"""ctrun under a real Grid Engine with two nodes, by the script of contrib/gridengine. Skipped without Debian's
packages (tools/setup --gridengine)."""

import os
import pathlib
import re

import testlib
from testlib.gridengine import GridEngine

SCRIPT = testlib.SOURCE_ROOT / "contrib" / "gridengine" / "ctrun.qsub"
SAY = 'echo "rank $RANK of $WORLD_SIZE is $LOCAL_RANK on $(hostname), first $MASTER_ADDR, job $TORCHELASTIC_RUN_ID"'


class GridEngineJobs(testlib.Case):
    def setUp(self):
        super().setUp()
        self.engine = GridEngine(self)
        folder = pathlib.Path(testlib.program("ctrun")).parent
        self.engine.env["PATH"] = f"{folder}:{os.environ['PATH']}"
        self.engine.env["CTRUN_TOKEN"] = "0123456789abcdef0123456789abcdef"

    def job(self, *args, options=("-pe", "ctrun", "4")):
        """Result and output of a job, by default of two nodes with two slots on each."""
        out = self.tmp / "job.out"
        out.unlink(missing_ok=True)
        done = self.engine.run(
            "qsub", "-sync", "y", "-wd", self.tmp, "-j", "y", "-o", out, *options, SCRIPT, *args, limit=300
        )
        return done, out.read_text()

    def test_tasks_of_an_array_are_jobs_of_their_own(self):
        """They had one id, so two of them whose first node was the same had one port and one list of nodes."""
        done, out = self.job("--no-python", "sh", "-c", SAY, options=("-t", "1-2", "-pe", "ctrun", "2"))
        self.assertEqual(done.returncode, 0, out)
        ids = re.findall(r"rank 0 of 2 .*, job sge-\d+\.(\d)$", out, re.M)
        self.assertEqual(sorted(ids), ["1", "2"], out)
        self.assertEqual(list(self.tmp.glob("ctrun-hosts*")), [])

    def test_a_job_of_two_nodes(self):
        done, out = self.job("--no-python", "sh", "-c", SAY)
        self.assertEqual(done.returncode, 0, out)
        ids = set(re.findall(r"job (\S+)$", out, re.M))
        self.assertEqual(len(ids), 1, out)
        self.assertRegex(ids.pop(), r"^sge-\d+$")
        said = sorted(re.findall(r"rank .*, first \S+(?=,)", out))
        # Grid Engine chooses which node is the first.
        nodes = ("node-1", "node-2") if "first node-1" in out else ("node-2", "node-1")
        self.assertEqual(said, [
            f"rank {rank} of 4 is {rank % 2} on {nodes[rank // 2]}, first {nodes[0]}" for rank in range(4)], out)  # fmt: skip

        # The code of a worker, and arguments as they were given.
        done, out = self.job("--no-python", "sh", "-c", 'test "$RANK" != 3 || { echo "it'"'"'s $0  $1"; exit 41; }', "a b", "$HOME")
        self.assertEqual(done.returncode, 41, out)
        self.assertIn("it's a b  $HOME\n", out)


if __name__ == "__main__":
    testlib.main()
