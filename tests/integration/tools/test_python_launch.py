# SPDX-License-Identifier: Apache-2.0
"""ctrun.launch() calls a function on all ranks; `python -m ctrun` makes the alias torchrun."""

import json
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
    import threading
    return threading.Lock()

class Config:
    def __init__(self, plus):
        self.plus = plus

    def rank(self):
        return int(os.environ["RANK"]) + self.plus

def peer_error():
    import ctworker
    raise ctworker.PeerError(-13, "rank 1 has died")

def whose():
    import shadow
    return shadow.NAME

def mode():
    return os.environ.get("MODE"), os.environ.get("OTHER")

def token():
    return os.environ.get("CTRUN_TOKEN")

def cancel():
    import asyncio
    raise asyncio.CancelledError("no time left")

def make_missing():
    raise FileNotFoundError("a file that only workers have")

class Picky:
    def __reduce__(self):
        return make_missing, ()

def pick():
    return Picky()

def stay():
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("stays", flush=True)
    time.sleep(1000)
"""

# As ssh, but the other machine has no variables of this one.
AGENT = """#!/bin/sh
exec env -i PATH="$PATH" CTWORKER_LIBRARY="$CTWORKER_LIBRARY" OTHER=there sh -c "$2"
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

    def test_a_report_of_ones_own_takes_nothing_from_the_story(self):
        for option in ("['--report', 'mine.json']", "['--report=mine.json']", "['--rep', 'mine.json']"):
            result = self.run_python(
                f"import json, os\nos.chdir({str(self.tmp)!r})\n"
                f"try:\n    ctrun.launch(jobs.fail_on, (1,), nproc=2, options={option})\n"
                "except ctrun.LaunchError as e:\n"
                "    print(repr(e.cause), e.report == json.load(open('mine.json')))\n")  # fmt: skip
            self.assertIn("Odd('the very reason', 1) True\n", result.out, result)
            (self.tmp / "mine.json").unlink()
        result = self.run_python("print(ctrun.launch(jobs.rank_times, (3,), options=['--report', '/nowhere/r']))")
        self.assertIn("[0]\n", result.out, result)
        self.assertIn("the report of the job could not be written to /nowhere/r", result.err)

    def test_a_report_of_ones_own_replaces_nothing_else(self):
        result = self.run_python(
            f"print(ctrun.launch(jobs.rank_times, (3,), options=['--report', {str(self.tmp / 'jobs.py')!r}]))")
        self.assertIn("[0]\n", result.out, result)
        self.assertIn("was not written, because", result.err)
        self.assertEqual((self.tmp / "jobs.py").read_text(), MODULE)

    def test_a_report_of_ones_own_comes_also_after_a_timeout(self):
        report = self.tmp / "mine.json"
        result = self.run_python(
            "import subprocess\ntry:\n"
            f"    ctrun.launch(jobs.stay, timeout=1, options=['--shutdown-timeout=0', '--report', {str(report)!r}])\n"
            "except subprocess.TimeoutExpired:\n    print('too late')\n")  # fmt: skip
        self.assertIn("too late\n", result.out, result)
        self.assertNotEqual(json.loads(report.read_text())["exit_code"], 0)

    def test_the_token_stays_with_ctrun(self):
        result = self.run_python("print(ctrun.launch(jobs.token, env={'CTRUN_TOKEN': 'x' * 32}))")
        self.assertIn("[None]\n", result.out, result)

    def test_what_is_no_exception_is_raised_too(self):
        result = self.run_python(
            "try:\n    ctrun.launch(jobs.cancel)\nexcept ctrun.LaunchError as e:\n    print(repr(e.cause), e)\n")
        self.assertIn("CancelledError('no time left') rank 0 failed", result.out, result)

    def test_a_result_that_cannot_be_unpacked_is_told_as_such(self):
        result = self.run_python("try:\n    ctrun.launch(jobs.pick)\nexcept ctrun.LaunchError as e:\n    print(e)\n")
        self.assertIn("the result of rank 0 cannot be read: a file that only workers have", result.out, result)

    def test_variables_reach_all_machines(self):
        agent = self.script("agent", AGENT)
        os.chmod(agent, 0o755)
        shared = self.tmp / "shared"
        shared.mkdir()
        result = self.run_python(
            f"print(ctrun.launch(jobs.mode, hosts=['localhost', '127.0.0.2'], folder={str(shared)!r}, timeout=60,\n"
            f"    env={{'MODE': 'x', 'OTHER': 'here'}},\n"
            f"    options=['--launch-agent', {str(agent)!r}, '--local-addr', '127.0.0.1']))\n")
        self.assertIn("[('x', 'here'), ('x', 'there')]", result.out, result)

    def test_a_second_interrupt_ends_the_job_at_once(self):
        """launch() had left its workers to themselves, with their GPUs, and had removed their folder."""
        job = self.start_python("ctrun.launch(jobs.stay, nproc=2, options=['--shutdown-timeout', '1000'])")
        job.wait_for("[0] stays")
        job.wait_for("[1] stays")
        job.signal(signal.SIGINT)
        job.wait_for("received SIGTERM")
        job.signal(signal.SIGINT)
        job.wait_no_family(60)
        self.assertNotIn("report.json", job.err)

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
            "try:\n    ctrun.launch(jobs.die, options=['--detach'])\nexcept ValueError as e:\n    print('refused:', e)\n"
            "try:\n    ctrun.launch(jobs.unsendable)\nexcept ctrun.LaunchError as e:\n    print('refused:', e)\n")
        self.assertEqual(result.code, 0, result)
        self.assertIn("refused: '<lambda>' cannot be imported by the workers", result.out)
        self.assertIn("refused: the arguments cannot be sent", result.out)
        self.assertIn("refused: with `hosts`, `folder` must name", result.out)
        self.assertIn("refused: launch() waits for the job, so --detach", result.out)
        self.assertIn("TypeError: the result of rank 0 cannot be sent", result.out)

    def test_without_cloudpickle_what_pickle_can_send_is_sent(self):
        result = self.run_python(
            "sys.modules['cloudpickle'] = None\nimport functools\n"
            "print(ctrun.launch(jobs.Config(3).rank, nproc=2), ctrun.launch(functools.partial(jobs.rank_times, 10)))\n"
            "class Mine:\n    pass\n"
            "try:\n    ctrun.launch(jobs.rank_times, (Mine(),))\nexcept TypeError as e:\n    print('refused:', e)\n")
        self.assertEqual(result.code, 0, result)
        self.assertIn("[3, 4] [0]", result.out)
        self.assertIn("refused: the arguments cannot be sent to the workers: Mine of __main__", result.out)

    def test_a_text_is_no_list(self):
        for what in ("args='ab'", "hosts='a,b', folder='.'", "options='--role x'"):
            result = self.run_python(f"try:\n    ctrun.launch(jobs.die, {what})\nexcept TypeError as e:\n    print(e)\n")
            self.assertIn("is a list or a tuple, and not a text", result.out, result)

    def test_the_place_that_a_scheduler_gave_is_not_taken_for_the_jobs(self):
        slurm = {
            "SLURM_STEP_NODELIST": "a,b", "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_PROCID": "1",
            "SLURM_LOCALID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_ID": "7",
        }  # fmt: skip
        for more in ("", f", folder={str(self.tmp)!r}"):
            text = f"print(ctrun.launch(jobs.rank_times, (10,), nproc=2, timeout=60{more}))"
            result = self.run_python(text, slurm)
            self.assertIn("[0, 10]", result.out, result)

    def test_workers_import_the_same_modules(self):
        for folder in ("mine", "theirs"):
            (self.tmp / folder).mkdir()
            (self.tmp / folder / "shadow.py").write_text(f"NAME = '{folder}'\n")
        path = os.pathsep.join((python_package.environment()["PYTHONPATH"], str(self.tmp / "theirs")))
        result = self.run_python(
            f"sys.path.insert(0, {str(self.tmp / 'mine')!r})\nprint(jobs.whose(), ctrun.launch(jobs.whose))",
            {"PYTHONPATH": path})  # fmt: skip
        self.assertIn("mine ['mine']", result.out, result)

    def test_errors_cross_processes(self):
        result = self.run_python(
            "import ctworker, pickle\ntry:\n    ctrun.launch(jobs.peer_error)\n"
            "except ctrun.LaunchError as e:\n"
            "    again = pickle.loads(pickle.dumps(e))\n"
            "    for x in (e, again):\n        print(repr(x.cause), x.cause.code, x.exit_code, x.report['exit_code'])\n")
        self.assertEqual(result.out.count("PeerError('rank 1 has died') -13 1 1"), 2, result)

    def test_cloudpickle_brings_results_and_exceptions_of_main(self):
        python = python_package.python_with("cloudpickle")
        script = self.script("main.py", "\n".join([
            "import ctrun", "class Mine(Exception):", "    pass", "class Result:", "    pass",
            "def give():", "    return Result()", "def fail():", "    raise Mine('why')",
            "print(isinstance(ctrun.launch(give)[0], Result))",
            "try:", "    ctrun.launch(fail)", "except ctrun.LaunchError as e:", "    print(repr(e.cause))"]))  # fmt: skip
        result = self.run_program(python, script, env=python_package.environment())
        self.assertIn("True\n", result.out, result)
        self.assertIn("Mine('why')\n", result.out, result)

    def test_cloudpickle_sends_any_function(self):
        python = python_package.python_with("cloudpickle")
        script = self.script("main.py", "import ctrun\nn = 3\nprint(ctrun.launch(lambda: n * 2, nproc=2))\n")
        result = self.run_program(python, script, env=python_package.environment())
        self.assertIn("[6, 6]", result.out, result)


class Alias(python_package.Case):
    def setUp(self):
        super().setUp()
        self.bin = python_package.folder_with_ctrun(self)
        self.alias = self.bin / "torchrun"

    def alias_command(self, word):
        return python_package.alias_command(self, self.bin, word)

    def test_torchrun_becomes_ctrun_and_pytorchs_comes_back(self):
        self.alias.write_text("#!/bin/sh\necho PyTorch\n")
        self.alias.chmod(0o755)
        for _ in range(2):  # the second changes nothing
            self.assertIn("is ctrun now; PyTorch's is", self.alias_command("install-torchrun"))
        result = self.run_program(self.alias, "--nproc-per-node", "2", "--no-python", "echo", "${rank}")
        self.assertEqual(sorted(result.out.splitlines()), ["[0] 0", "[1] 1"], result)
        elsewhere = self.tmp / "torchrun"
        elsewhere.symlink_to(self.alias)
        self.assertRegex(self.run_program(elsewhere, "--version").out, r"\Actrun \d")
        (self.bin / "ctrun").rename(self.bin / "elsewhere")  # as `pip uninstall ctrun` does
        self.assertEqual(self.run_program(self.alias).out, "PyTorch\n")
        (self.bin / "elsewhere").rename(self.bin / "ctrun")
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
