# SPDX-License-Identifier: Apache-2.0
"""TorchX, which starts `torchrun ... --role '' SCRIPT`, finds ctrun under that name. It comes from the
virtual environment that `tools/test --with-torch` makes."""

import os
import pathlib
import unittest

import testlib
from testlib import pytorch
from testlib.pytorch import CURRENT, LIMIT, PROGRAMS

TORCHX = pathlib.Path(CURRENT).with_name("torchx")

# Fails as a function under PyTorch's @record does.
FAIL = """
import json, os, sys
if os.environ["RANK"] == "1":
    story = {"message": {"message": "ValueError: no data at all",
                         "extraInfo": {"py_callstack": "here", "timestamp": "1700000000"}}}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
        json.dump(story, f)
    sys.exit(3)
"""


@unittest.skipUnless(TORCHX.exists(), f"no TorchX at {TORCHX}; tools/test --with-torch")
class TorchX(pytorch.Case):
    python = CURRENT

    def run_torchx(self, script):
        folder = self.tmp / "bin"
        folder.mkdir()
        (folder / "torchrun").symlink_to(testlib.program("ctrun"))
        path = f"{folder}:{TORCHX.parent}:{os.environ['PATH']}"
        return self.run_program(
            str(TORCHX), "run", "--scheduler", "local_cwd", "dist.ddp", "-j", "1x2",
            "--script", script, cwd=self.tmp, deadline=LIMIT,
            env={"PATH": path, "HOME": str(self.tmp), "PYTHON_EXEC": CURRENT},
        )  # fmt: skip

    def test_a_job_of_two(self):
        result = self.run_torchx(str(PROGRAMS / "gloo.py"))
        self.assertEqual(result.code, 0, result)
        for rank in range(2):
            self.assertRegex(result.out + result.err, rf"\[{rank}\] rank {rank} of 2 done under torch")

    def test_a_failure_is_told_by_torchx(self):
        result = self.run_torchx(self.script("fail.py", FAIL))
        self.assertEqual(result.code, 1, result)
        self.assertIn("no data at all", result.err + result.out)
        self.assertIn("ctrun: rank 1 failed", result.err + result.out)


if __name__ == "__main__":
    testlib.main()
