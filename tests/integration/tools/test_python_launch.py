# SPDX-License-Identifier: Apache-2.0
"""ctrun.launch() calls a function on all ranks; `python -m ctrun` makes the alias torchrun."""

import os
import signal
import sys

import testlib
from testlib import python_package

MODULE = """
import os, sys

def rank_times(factor, plus=0):
    print("called on", os.environ["RANK"])
    return int(os.environ["RANK"]) * factor + plus

class Odd(Exception):
    pass

def fail_on(rank):
    if os.environ["RANK"] == str(rank):
        raise Odd("the very reason", rank)
    import time
    time.sleep(1000)

def die():
    os._exit(41)

def once():
    if os.environ["CTRUN_GENERATION"] == "0":
        raise ValueError("at first")
    return os.environ["CTRUN_GENERATION"]

def leave(rank):
    if os.environ["RANK"] == str(rank):
        sys.exit(0)

def wait_for_ever():
    import time
    print("waiting", flush=True)
    time.sleep(1000)

def unsendable():
    return lambda: 0
"""


class Launch(python_package.Case):
    def start_python(self, text, env=None):
        (self.tmp / "jobs.py").write_text(MODULE)
        script = self.script("main.py", "import ctrun, jobs, sys\n" + text)
        return self.start(
            sys.executable, script, env={**python_package.environment(), "TMPDIR": str(self.tmp), **(env or {})})

    def run_python(self, text, env=None):
        return self.start_python(text, env).wait()

    def test_results_come_back_by_rank(self):
        result = self.run_python("print(ctrun.launch(jobs.rank_times, (10,), {'plus': 5}, nproc=3))")
        self.assertEqual(result.code, 0, result)
        self.assertIn("[5, 15, 25]", result.out)
        for rank in range(3):
            self.assertIn(f"[{rank}] called on {rank}", result.out)
        self.assertEqual([p for p in os.listdir(self.tmp) if p.startswith("ctrun-launch")], [])

    def test_the_first_failure_is_raised_with_its_story(self):
        result = self.run_python(
            "try:\n    ctrun.launch(jobs.fail_on, (1,), nproc=2)\n"
            "except ctrun.LaunchError as e:\n"
            "    print('code', e.exit_code, 'rank', e.report['first_failure']['rank'])\n"
            "    print('cause', repr(e.cause), e.__cause__ is e.cause)\n    print('text', e)\n")  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertIn("code 1 rank 1", result.out)
        self.assertIn("cause Odd('the very reason', 1) True", result.out)
        self.assertRegex(result.out, r"text rank 1 failed on .*exit(ed)? ")
        self.assertIn("in fail_on", result.out)

    def test_a_worker_that_dies_is_told(self):
        result = self.run_python(
            "try:\n    ctrun.launch(jobs.die)\n"
            "except ctrun.LaunchError as e:\n    print(e.exit_code, e.cause, e)\n")  # fmt: skip
        self.assertRegex(result.out, "^41 None rank 0 failed on .*41", result)

    def test_a_rank_that_ends_without_a_result(self):
        for rank in range(2):
            result = self.run_python(
                f"try:\n    ctrun.launch(jobs.leave, ({rank},), nproc=2)\n"
                "except ctrun.LaunchError as e:\n    print(e.exit_code, e)\n")  # fmt: skip
            self.assertRegex(result.out, rf"(?m)^0 the job has succeeded, but .*rank {rank} .*", result)

    def test_the_job_ends_with_the_process_that_waits_for_it(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            job = self.start_python("ctrun.launch(jobs.wait_for_ever, nproc=2)")
            job.wait_for("[1] waiting")
            job.signal(number)
            job.wait_no_family(60)

    def test_a_restart_may_help(self):
        result = self.run_python("print(ctrun.launch(jobs.once, nproc=2, max_restarts=1))")
        self.assertIn("['1', '1']", result.out, result)

    def test_what_cannot_be_sent_is_refused(self):
        # A module that cannot be imported stands for cloudpickle, wherever this runs.
        result = self.run_python(
            "sys.modules['cloudpickle'] = None\n"
            "try:\n    ctrun.launch(lambda: 0)\nexcept TypeError as e:\n    print('refused:', e)\n"
            "try:\n    ctrun.launch(jobs.rank_times, (lambda: 0,))\nexcept TypeError as e:\n    print('refused:', e)\n"
            "try:\n    ctrun.launch(jobs.die, hosts=['a'])\nexcept ValueError as e:\n    print('refused:', e)\n"
            "try:\n    ctrun.launch(jobs.unsendable)\nexcept ctrun.LaunchError as e:\n    print('refused:', e)\n")
        self.assertEqual(result.code, 0, result)
        self.assertIn("refused: '<lambda>' cannot be imported by the workers", result.out)
        self.assertIn("refused: the arguments cannot be sent", result.out)
        self.assertIn("refused: with `hosts`, `folder` must name", result.out)
        self.assertIn("TypeError: the result of rank 0 cannot be sent", result.out)

    def test_cloudpickle_sends_any_function(self):
        python = python_package.python_with("cloudpickle")
        script = self.script("main.py", "import ctrun\nn = 3\nprint(ctrun.launch(lambda: n * 2, nproc=2))\n")
        result = self.run_program(python, script, env=python_package.environment())
        self.assertIn("[6, 6]", result.out, result)


class Alias(python_package.Case):
    def setUp(self):
        super().setUp()
        self.bin = self.tmp / "bin"
        self.bin.mkdir()
        (self.bin / "ctrun").symlink_to(testlib.program("ctrun"))
        self.alias = self.bin / "torchrun"

    def alias_command(self, word):
        env = {**python_package.environment(), "CTRUN_PROGRAM": str(self.bin / "ctrun")}
        result = self.run_program(sys.executable, "-m", "ctrun", word, env=env)
        self.assertEqual((result.code, result.err), (0, ""), result)
        return result.out

    def test_torchrun_becomes_ctrun_and_pytorchs_comes_back(self):
        self.alias.write_text("#!/bin/sh\necho PyTorch\n")
        self.alias.chmod(0o755)
        for _ in range(2):  # the second changes nothing
            self.assertIn("is ctrun now; PyTorch's is", self.alias_command("install-torchrun"))
        result = self.run_program(self.alias, "--nproc-per-node", "2", "--no-python", "echo", "${rank}")
        self.assertEqual(sorted(result.out.splitlines()), ["[0] 0", "[1] 1"], result)
        self.assertIn("is PyTorch's again", self.alias_command("remove-torchrun"))
        self.assertEqual(self.run_program(self.alias).out, "PyTorch\n")
        self.assertIn("nothing to do", self.alias_command("remove-torchrun"))
        self.assertEqual(sorted(os.listdir(self.bin)), ["ctrun", "torchrun"])

    def test_it_leaves_nothing_where_there_was_nothing(self):
        self.alias_command("install-torchrun")
        self.alias_command("remove-torchrun")
        self.assertEqual(os.listdir(self.bin), ["ctrun"])


if __name__ == "__main__":
    testlib.main()
