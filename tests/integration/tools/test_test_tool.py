# SPDX-License-Identifier: Apache-2.0
"""tools/test with a pretended build: what it says of tests that did not run."""

import json
import os
import shutil

import testlib

TOOLS = testlib.SOURCE_ROOT / "tools"
PASSED = {"name": "a", "result": "OK"}
SKIPPED = {"name": "b", "result": "SKIP", "stdout": "1..0 # SKIP no b here"}


class TestTool(testlib.Case):
    def setUp(self):
        super().setUp()
        for folder in ("tools", "bin", "build/meson-logs"):
            (self.tmp / folder).mkdir(parents=True)
        for name in ("test", "common.sh"):
            shutil.copy(TOOLS / name, self.tmp / "tools")
        for stub in ("tools/setup", "tools/kubernetes", "bin/meson", "bin/ninja"):
            (self.tmp / stub).write_text("#!/bin/sh\n")
            (self.tmp / stub).chmod(0o755)

    def lines(self, *args, log="testlog", tests=(PASSED, SKIPPED)):
        """What tools/test says after the tests."""
        (self.tmp / f"build/meson-logs/{log}.json").write_text("\n".join(map(json.dumps, tests)))
        path = {"PATH": f"{self.tmp / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        result = self.run_program(self.tmp / "tools/test", *args, env=path)
        self.assertEqual(result.code, 0, result)
        return result.out.partition("== testing\n")[2].splitlines()

    def test_it_names_the_suites_that_it_leaves_out(self):
        left_out, skipped, counts = self.lines()
        self.assertEqual(left_out, "suites left out: torch, packages, kubernetes (tools/test --help)")
        self.assertEqual(skipped, "skipped b: no b here")
        self.assertEqual(counts, "1 passed, 0 failed, 1 skipped")

    def test_it_names_them_where_it_runs_one_suite(self):
        for suite in ("packages", "kubernetes"):
            lines = self.lines(f"--with-{suite}", log=f"testlog-{suite}", tests=(PASSED,))
            self.assertEqual(lines[0], f"suites left out: all but {suite} (tools/test --help)")


if __name__ == "__main__":
    testlib.main()
