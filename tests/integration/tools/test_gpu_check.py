# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-check without a GPU: everything is built, and one line says why nothing ran."""

import json
import os
import unittest

import testlib

TOOL = testlib.SOURCE_ROOT / "tools" / "gpu-check"


class GpuCheck(testlib.Case):
    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "there is a GPU: run tools/gpu-check")
    def test_builds_all_and_skips(self):
        out = self.tmp / "out"
        result = self.run_program(TOOL, "--keep", out, deadline=450)
        self.assertEqual(result.code, 77, result)
        self.assert_one_line(result.err)
        self.assertIn("built everything, but found no usable GPU: ", result.err)
        for name in ("test_cuda", "gpu-worlds", "bench-gpu", "bench-gpu-gemm", "ctrun-cuda.so"):
            self.assertTrue((out / name).is_file(), name)
        report = json.loads((out / "gpu-check.json").read_text())
        self.assertEqual(report["plain"]["verdict"], "skipped")
        self.assertEqual(report["worlds"]["verdict"], "skipped")
        self.assertEqual(report["timings"], [])
        self.assertNotIn("kept", result.out)

    def test_wrong_usage(self):
        for args in (("--fast",), ("a", "b")):
            result = self.run_program(TOOL, *args)
            self.assertEqual(result.code, 2, result)
            self.assertIn("tools/gpu-check [--keep]", result.err)


if __name__ == "__main__":
    testlib.main()
