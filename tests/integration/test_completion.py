# SPDX-License-Identifier: Apache-2.0
"""What the shells offer, asked by sourcing the scripts that ctrun prints."""

import shutil
import unittest

import testlib

ASK = """
source /dev/stdin <<< "$("$1" --print-completion bash)"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_ctrun
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Bash(testlib.Case):
    def offers(self, *words):
        result = self.run_program(
            "bash", "-c", ASK, "bash", testlib.program("ctrun"), "ctrun", *words, cwd=self.tmp
        )
        self.assertEqual((result.code, result.err), (0, ""), result)
        return sorted(result.out.split())

    def test_options(self):
        self.assertEqual(self.offers("--rdzv-e"), ["--rdzv-endpoint"])
        self.assertEqual(self.offers("-n", "2", "--max"), ["--max-restarts"])
        self.assertNotIn("--run-path", self.offers("--"))
        self.assertIn("--standalone", self.offers("-m", "--"))

    def test_values(self):
        self.assertEqual(self.offers("--rdzv_backend", ""), ["c10d", "static"])
        self.assertEqual(self.offers("--nproc-per-node", "=", "g"), ["gpu"])
        self.assertEqual(self.offers("-n", "=", "a"), ["auto"])
        (self.tmp / "folder").mkdir()
        self.assertEqual(self.offers("--log-dir", "f"), ["folder"])

    def test_arguments_of_the_program_are_files(self):
        (self.tmp / "data").mkdir()
        self.assertEqual(self.offers("--standalone", "x.py", "--r"), [])
        self.assertEqual(self.offers("--standalone", "x.py", "d"), ["data"])
        self.assertIn("data", self.offers("-n", "2", "d"))


class Zsh(testlib.Case):
    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_syntax(self):
        script = self.script("_ctrun", self.ctrun("--print-completion", "zsh").out)
        result = self.run_program("zsh", "-n", script)
        self.assertEqual((result.code, result.err), (0, ""), result)


class Refused(testlib.Case):
    def test_other_shells(self):
        result = self.ctrun("--print-completion", "tcsh")
        self.assertEqual((result.code, result.out), (2, ""), result)
        self.assertIn("tcsh", result.err)


if __name__ == "__main__":
    testlib.main()
