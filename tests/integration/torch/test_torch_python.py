# SPDX-License-Identifier: Apache-2.0
"""The package ctworker in a DDP program, README's script, and programs of JAX, with PyPI's current versions."""

import os
import re
import signal
import subprocess
import unittest

import testlib
from testlib import SOURCE_ROOT, program, pytorch, python_package, wait_until
from testlib.failover_case import free_ports


class DDP(pytorch.Case, python_package.Case):
    """The lines of docs/PYTHON.md, as they stand there."""

    python = pytorch.CURRENT

    def ddp_job(self, *options, arguments=()):
        env = {**python_package.environment(), "PYTHON_EXEC": self.python}
        return self.start_ctrun("-n", "2", *options, pytorch.PROGRAMS / "ddp_progress.py", *arguments, env=env)

    def test_a_hang_is_told_with_its_step(self):
        job = self.ddp_job("--hang-timeout", "5", "--on-hang", "abort", arguments=["hang"])
        result = job.wait(pytorch.LIMIT)
        self.assertEqual(result.code, 122, result)
        self.assertRegex(result.err, "rank 1 hangs: .* in phase compute of step 5, while others wait for it")

    def test_the_step_and_the_loss_are_in_the_table(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        job = self.ddp_job()
        port = job.wait_for("the store listens at ", pytorch.LIMIT).split()[-1]

        def rows():
            table = self.run_program(program("ctrun-stat"), f"127.0.0.1:{port}").out
            found = dict(re.findall(r"^ +(\d) +(\d+) \w+ +\d+ s +\d[\d.e-]* +-$", table, re.MULTILINE))
            return len(found) == 2 and all(int(step) > 1 for step in found.values())

        wait_until(rows, "both ranks have told a step and a loss", pytorch.LIMIT)

    def test_both_ranks_save_the_same_step(self):
        """Rank 1 ends each step 0.2 s after rank 0, so each hears of the signal in another step."""
        job = self.ddp_job()
        job.wait_for("the store listens at ", pytorch.LIMIT)
        wait_until(lambda: job.out.count("step 5 begins") == 2, "both ranks compute", pytorch.LIMIT)
        job.signal(signal.SIGTERM)
        result = job.wait(pytorch.LIMIT)
        self.assertEqual(result.code, 123, result)
        steps = dict(re.findall(r"rank (\d) saves step (\d+)", result.out))
        self.assertEqual(sorted(steps), ["0", "1"], result)
        self.assertEqual(steps["0"], steps["1"], result)


class Readme(pytorch.Case):
    python = pytorch.CURRENT

    def test_its_script_runs(self):
        page = (SOURCE_ROOT / "README.md").read_text()
        (script,) = re.findall(r"^```python\n(# train\.py\n.*?)^```$", page, re.M | re.S)
        env = {"PYTHON_EXEC": self.python}
        result = self.ctrun("--nproc-per-node", "2", self.script("train.py", script), env=env, deadline=pytorch.LIMIT)
        self.assertEqual(result.code, 0, result)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2: [1.0, 1.0, 1.0, 1.0]", result.out)


class JAX(testlib.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        probe = [pytorch.CURRENT, "-c", "import jax"]
        try:
            subprocess.run(probe, capture_output=True, timeout=pytorch.LIMIT, check=True)
        except (OSError, subprocess.CalledProcessError):
            raise unittest.SkipTest("no JAX in the environment of tools/test --with-torch") from None

    def test_a_program_with_flags_starts_without_a_wrapper(self):
        result = self.ctrun(
            "-n", "2", pytorch.PROGRAMS / "jax_flags.py", "--coordinator", "${master_addr}:${port:jax}",
            "--processes", "${world_size}", "--process", "${rank}",
            env={"PYTHON_EXEC": pytorch.CURRENT}, deadline=pytorch.LIMIT)  # fmt: skip
        self.assertEqual(result.code, 0, result)
        for rank in range(2):
            self.assertIn(f"process {rank} of 2 sum 6.0", result.out)

    def test_a_program_without_flags_starts_where_slurm_has_started_each_rank(self):
        """JAX reads some variables of Slurm, and ctrun others. Both sets are here."""
        store, coordinator = free_ports(2)
        jobs = [
            self.start_ctrun(
                "--master-port", store, pytorch.PROGRAMS / "jax_flags.py",
                env={
                    "PYTHON_EXEC": pytorch.CURRENT, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
                    "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
                    "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2",
                    "SLURM_STEP_TASKS_PER_NODE": "2",
                    # Else JAX makes its port from the id of the job.
                    "JAX_COORDINATOR_PORT": coordinator,
                },
            )
            for rank in range(2)
        ]  # fmt: skip
        for rank, job in enumerate(jobs):
            result = job.wait(pytorch.LIMIT)
            self.assertEqual(result.code, 0, result)
            self.assertIn(f"process {rank} of 2 sum 6.0", result.out)


if __name__ == "__main__":
    testlib.main()
