# SPDX-License-Identifier: Apache-2.0
"""Binding as workers see it, on whatever machine the test runs."""

import os
import re

import testlib

SAY = "import os; print('cpus', sorted(os.sched_getaffinity(0)))"


class Binding(testlib.Case):
    def cpus_of(self, workers, *args, **kwargs):
        result = self.ctrun("-n", workers, *args, self.script("say.py", SAY), **kwargs)
        self.assertEqual(result.code, 0, result)
        found = re.findall(r"(?:\[(\d+)\] )?cpus \[([\d, ]+)\]", result.out)
        self.assertEqual(len(found), workers, result)
        return {int(r or 0): {int(c) for c in cpus.split(",")} for r, cpus in found}, result.err

    def test_nobody_is_bound_unasked(self):
        cpus, err = self.cpus_of(2)
        self.assertEqual(cpus, {0: os.sched_getaffinity(0), 1: os.sched_getaffinity(0)})
        self.assertEqual(err, "")

    def test_cores_are_shared_out(self):
        result = self.ctrun("-n", "2", "--bind", "core", self.script("say.py", SAY))
        if "has 1 cores for 2" in result.err:
            self.skipTest("one core cannot be shared out")
        cpus, err = self.cpus_of(2, "--bind", "core", env={"LOGLEVEL": "INFO"})
        self.assertFalse(cpus[0] & cpus[1], cpus)
        self.assertLessEqual(cpus[0] | cpus[1], os.sched_getaffinity(0))
        for rank in cpus:
            self.assertRegex(err, rf"rank {rank} is bound to CPUs [\d,-]+ \(NUMA node \d+")

    def test_the_cpuset_is_obeyed(self):
        one = {min(os.sched_getaffinity(0))}
        for word in ("node", "socket", "exclusive", "core-complex"):
            cpus, _ = self.cpus_of(
                1, "--numa-binding", word, preexec=lambda: os.sched_setaffinity(0, one)
            )
            self.assertEqual(cpus, {0: one})

    def test_more_workers_than_cores(self):
        one = {min(os.sched_getaffinity(0))}
        result = self.ctrun(
            "-n", "2", "--bind", "core", "true", preexec=lambda: os.sched_setaffinity(0, one)
        )
        self.assertEqual(result.code, 1, result)
        self.assert_one_line(result.err)
        self.assertIn("has 1 cores for 2 workers", result.err)


if __name__ == "__main__":
    testlib.main()
