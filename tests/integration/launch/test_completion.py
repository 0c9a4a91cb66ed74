# SPDX-License-Identifier: Apache-2.0
"""What the shells offer, asked by sourcing the scripts that ctrun prints."""

import shutil
import unittest

import testlib

ASK = """
source /dev/stdin <<< "$("$1" --print-completion bash)"
program=$1
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_ctrun "$program"
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Bash(testlib.Case):
    def offers(self, *words):
        result = self.run_program(
            "bash", "-c", ASK, "bash", testlib.program("ctrun"), "ctrun", *words, cwd=self.tmp
        )
        self.assertEqual((result.code, result.err), (0, ""), result)
        return sorted(result.out.split())

    def test_options_are_offered(self):
        self.assertEqual(self.offers("--rdzv-e"), ["--rdzv-endpoint"])
        self.assertEqual(self.offers("-n", "2", "--max-re"), ["--max-restarts"])
        self.assertNotIn("--run-path", self.offers("--"))
        self.assertIn("--standalone", self.offers("-m", "--"))
        self.assertEqual(self.offers("--rdzv_e"), ["--rdzv-endpoint"])
        self.assertEqual(self.offers("-np", "2", "--max_r"), ["--max-restarts"])
        self.assertEqual(self.offers("-n", "2", "train", "--batch_s"), ["--batch-size"])

    def test_values_are_offered(self):
        self.assertEqual(self.offers("--rdzv_backend", ""), ["c10d", "etcd", "static"])
        self.assertEqual(self.offers("--nproc-per-node", "=", "g"), ["gpu"])
        self.assertEqual(self.offers("-n", "=", "a"), ["auto"])
        self.assertEqual(self.offers("--bind", ""), ["core", "none", "numa"])
        self.assertEqual(
            self.offers("--numa-binding", ""), ["core-complex", "exclusive", "node", "socket"]
        )
        self.assertEqual(self.offers("--event-log-handler", "c"), ["console"])
        self.assertEqual(self.offers("--help", "g"), ["gpu"])
        (self.tmp / "folder").mkdir()
        self.assertEqual(self.offers("--log-dir", "f"), ["folder"])

    def test_arguments_of_the_program_are_files(self):
        (self.tmp / "data").mkdir()
        self.assertEqual(self.offers("--standalone", "x.py", "--r"), [])
        self.assertEqual(self.offers("--standalone", "x.py", "d"), ["data"])
        self.assertIn("data", self.offers("-n", "2", "d"))


@unittest.skipUnless(shutil.which("zsh"), "zsh is not installed: tools/setup --peers")
class Zsh(testlib.Case):
    """Zsh completes in its line editor only, so it gets a terminal of its own and a Tab."""

    def offers(self, *words):
        """The words of the command line after a Tab behind the last one."""
        script = self.script("_ctrun", self.ctrun("--print-completion", "zsh").out)
        # The answer is in a file: a terminal echoes, wraps and moves the cursor.
        answer = self.tmp / "answer"
        setup = self.script(
            "setup",
            "unsetopt prompt_cr; autoload -U compinit; compinit -u -D\n"
            f"source {script}\n"
            f"answer() {{ print -r -- \"$LBUFFER\" >{answer}.new; mv {answer}.new {answer} }}\n"
            "zle -N answer; bindkey '^X' answer; bindkey '^I' complete-word; print rea''dy\n",
        )
        terminal = testlib.Terminal(
            "zsh", "-f", "-i", env={"TERM": "dumb"}, cwd=self.tmp, interactive=True
        )
        self.addCleanup(terminal.close)
        terminal.write(f"source {setup}\n")
        terminal.read_until("ready\r\n")
        terminal.write("ctrun " + " ".join(words) + "\t\x18")
        testlib.wait_until(answer.exists, "zsh's answer")
        text = answer.read_text().removesuffix("\n")
        answer.unlink()
        return text.removeprefix("ctrun ")

    def test_zsh_parses_its_script(self):
        script = self.script("_ctrun", self.ctrun("--print-completion", "zsh").out)
        result = self.run_program("zsh", "-n", script)
        self.assertEqual((result.code, result.err), (0, ""), result)

    def test_options_are_offered(self):
        self.assertEqual(self.offers("--rdzv-e"), "--rdzv-endpoint=")
        self.assertEqual(self.offers("-n", "2", "--max-re"), "-n 2 --max-restarts=")
        self.assertEqual(self.offers("--run-p"), "--run-p")
        self.assertEqual(self.offers("--rdzv_e"), "--rdzv-endpoint=")
        self.assertEqual(self.offers("--rdzv_backend", "c"), "--rdzv_backend c10d ")
        self.assertEqual(self.offers("-np", "2", "--max_r"), "-np 2 --max-restarts=")

    def test_values_are_offered(self):
        self.assertEqual(self.offers("--rdzv-backend", "c"), "--rdzv-backend c10d ")
        self.assertEqual(self.offers("--nproc-per-node=g"), "--nproc-per-node=gpu ")
        self.assertEqual(self.offers("-n", "a"), "-n auto ")
        self.assertEqual(self.offers("--help", "outp"), "--help output ")
        (self.tmp / "folder").mkdir()
        self.assertEqual(self.offers("--log-dir", "fol"), "--log-dir folder/")

    def test_arguments_of_the_program_are_files(self):
        (self.tmp / "data").mkdir()
        self.assertEqual(self.offers("--standalone", "x.py", "--rd"), "--standalone x.py --rd")
        self.assertEqual(self.offers("--standalone", "x.py", "da"), "--standalone x.py data/")
        self.assertEqual(self.offers("-np", "2", "x.py", "--in", "da"), "-np 2 x.py --in data/")
        self.assertEqual(self.offers("--nproc_per_node", "2", "x.py", "da"),
                         "--nproc_per_node 2 x.py data/")
        (self.tmp / "learn_it.py").touch()
        self.assertEqual(self.offers("-m", "learn_i"), "-m learn_it.py ")


ASK_OTHERS = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_ctrun_help "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Others(testlib.Case):
    """The programs beside ctrun."""

    def offers(self, program, *words):
        script = testlib.SOURCE_ROOT / "contrib" / "completion.bash"
        result = self.run_program(
            "bash", "-c", ASK_OTHERS, "bash", script, testlib.program(program), *words, cwd=self.tmp
        )
        self.assertEqual((result.code, result.err), (0, ""), result)
        return sorted(result.out.split())

    def test_other_programs_complete_in_bash(self):
        self.assertEqual(self.offers("ctrdzvd", "--max_m"), ["--max-memory"])
        self.assertEqual(self.offers("ctrun-stat", "--j"), ["--json"])
        self.assertEqual(self.offers("train", "--batch"), ["--batch-size"])
        self.assertEqual(self.offers("train", "--device", ""), ["auto", "cpu", "cuda"])
        self.assertEqual(self.offers("train", "--device", "=", "cu"), ["cuda"])
        (self.tmp / "folder").mkdir()
        self.assertEqual(self.offers("ctrdzvd", "--journal", "f"), ["folder"])
        self.assertEqual(self.offers("train", "--resume", "f"), ["folder"])
        self.assertEqual(self.offers("train", "--resume", "a"), ["auto"])


class Refused(testlib.Case):
    def test_other_shells_are_refused(self):
        result = self.ctrun("--print-completion", "tcsh")
        self.assertEqual((result.code, result.out), (2, ""), result)
        self.assertIn("tcsh", result.err)


if __name__ == "__main__":
    testlib.main()
