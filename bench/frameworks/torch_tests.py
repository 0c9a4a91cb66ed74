# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torchrun (test/distributed/launcher/test_run.py in its sources, unchanged) with ctrun in the
place of torch.distributed.run.main(). A part of bench/warm_frameworks.py.

A job whose program is written in Python has a first generation in which the program does not begin: one worker is
killed, and the test is of the second generation. Under `ctrun --warm` the kill comes when all spares are ready, and
all workers of the second generation must have been spares. A job of a program in another language begins at once,
because there are no spares of it.

--run-path is not passed on: ctrun does not run programs inside of itself, and the tests with this option are of what
the program sees.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

PACKAGES = ("pytest", "expecttest")
SIDES = ("cold", "warm")
MAY_SKIP = 0.25  # of the tests: some need a GPU. If more are skipped, the run says nothing
# They replace parts of torchrun, or start no job.
LEFT_OUT = {
    "test_launch_elastic_agent_raise_exception", "test_launch_elastic_worker_raise_exception",
    "test_launch_shutdown", "test_is_torchelastic_launched_with_logs_spec_defined",
    "test_nproc_gpu_launch_configurations", "test_nproc_xpu_launch_configurations",
    "test_min_max_nodes_parse", "test_is_not_torchelastic_launched",
}  # fmt: skip

# The user's sitecustomize: generation 0 waits here. A spare for generation 0 does, too, and ctrun ends it.
HOLD = """
import os, time

if os.environ.get("CTRUN_GENERATION") == "0":
    with open("/proc/self/environ", "rb") as block:
        spare = b"CTRUN_WARM=" in block.read()
    if not spare:
        path = os.environ["TORCH_TESTS"] + "/held." + os.environ["RANK"]
        with open(path + ".new", "w") as out:
            out.write(str(os.getpid()) + " " + os.environ["WORLD_SIZE"])
        os.rename(path + ".new", path)
    while True:
        time.sleep(0.05)
"""

# DRIVER RESULTS TESTS NAME...: runs these tests with ctrun, and appends a line of each to the results.
DRIVER = """
import contextlib, importlib.util, json, os, pathlib, re, signal, subprocess, sys, time, unittest
import torch.distributed.run
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

CTRUN, WARM, FOLDER = os.environ["TORCH_TESTS_CTRUN"], "TORCH_TESTS_WARM" in os.environ, pathlib.Path(os.environ["TORCH_TESTS"])

def whom_to_kill(log):
    # A worker, when all of them are there, and all spares. The agents of a job share the folder.
    held = [path.read_text().split() for path in FOLDER.glob("held.*[0-9]")]
    for rank in re.findall(r"the spare of local rank (\\d+) is ready", log.read_text()):
        (FOLDER / f"spare.{os.getpid()}.{rank}").touch()
    world = int(held[0][1]) if held else -1
    spares = len(list(FOLDER.glob("spare.*"))) if WARM else world
    return max(int(pid) for pid, _ in held) if len(held) == spares == world else None

def launch(args, other):
    # What ctrun has printed and said, and how it has ended.
    log, printed = FOLDER / f"log.{os.getpid()}", FOLDER / f"printed.{os.getpid()}"
    with open(log, "w") as err, open(printed, "w") as out:
        proc = subprocess.Popen(
            [CTRUN, *(["--warm"] if WARM else []), "--max-restarts", "1", *args], stdout=out, stderr=err,
            env={**os.environ, "PYTHON_EXEC": sys.executable, "LOGLEVEL": "INFO",
                 "PYTHONPATH": os.environ["TORCH_TESTS_HOLD"]})
    pid = -1 if other else None
    while proc.poll() is None:
        if pid is None:
            pid = whom_to_kill(log)
            with contextlib.suppress(ProcessLookupError):  # another agent of the job has killed it
                pid is None or os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for path in [*FOLDER.glob("held.*"), *FOLDER.glob("spare.*")]:
        path.unlink(missing_ok=True)
    return printed.read_text(), log.read_text(), proc.returncode

def main(args=None):
    args = [arg for arg in args if arg != "--run-path"]
    other = "--no-python" in args or os.environ.get("PET_NO_PYTHON", "0") != "0"
    printed, said, code = launch(args, other)
    print(printed)
    print(said, file=sys.stderr)
    if code == 2:
        raise ValueError(said)
    if code != 0:
        raise ChildFailedError("ctrun", {})
    if not other:
        assert "restart 1 of 1" in said or "generation 1" in said, "there was no second generation: " + said
        warm = re.search(r"generation 1: (the worker here was|(\\d+) of \\2 workers here were) warm", said)
        assert (warm is not None) == WARM, "not all workers were as they should be: " + said

class Result(unittest.TextTestResult):
    def tell(self, test, how):
        with open(sys.argv[1], "a") as told:
            told.write(json.dumps([test.id().rpartition(".")[2], how]) + "\\n")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.tell(test, "passed")

    def addError(self, test, err):
        super().addError(test, err)
        self.tell(test, "failed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.tell(test, "failed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell(test, f"skipped ({reason})")

torch.distributed.run.main = main

if __name__ == "__main__":
    spec = importlib.util.spec_from_file_location("test_run", sys.argv[2] + "/test_run.py")
    sys.modules["test_run"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suite = unittest.TestSuite(module.ElasticLaunchTest(name) for name in sys.argv[3:])
    unittest.TextTestRunner(resultclass=Result, verbosity=2).run(suite)
"""


def run(args, python, names, folder, warm):
    """{name: "passed", "failed" or "skipped ..."} of the tests that have come to an end, and what was written."""
    hold, jobs, results = folder / "hold", folder / "jobs", folder / "results"
    hold.mkdir(parents=True)
    jobs.mkdir()
    results.touch()
    (hold / "sitecustomize.py").write_text(HOLD)
    (folder / "driver.py").write_text(DRIVER)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    environment.update(TORCH_TESTS=str(jobs), TORCH_TESTS_HOLD=str(hold), TORCH_TESTS_CTRUN=str(args.build / "ctrun"),
                       OMP_NUM_THREADS="1", **({"TORCH_TESTS_WARM": "1"} if warm else {}))  # fmt: skip
    with open(folder / "log", "w") as log:
        driver = subprocess.Popen([python, folder / "driver.py", results, args.torch_tests, *names], stdout=log,
                                  stderr=subprocess.STDOUT, cwd=folder, env=environment, start_new_session=True)  # fmt: skip
        try:
            driver.wait(args.limit / len(SIDES))
        except subprocess.TimeoutExpired:
            pass
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)  # workers die with their ctrun
                driver.wait()
    return dict(map(json.loads, results.read_text().splitlines())), (folder / "log").read_text()


def check(args, python):
    """Prints one line for each test; returns the exit code."""
    source = (args.torch_tests / "test_run.py").read_text()
    names = args.only or [name for name in re.findall(r"^    def (test_\w+)", source, re.M) if name not in LEFT_OUT]
    found = {}
    with tempfile.TemporaryDirectory(prefix="ctrun-torch-tests-") as folder:
        for side in SIDES:
            found[side], log = run(args, python, names, pathlib.Path(folder, side), side == "warm")
            if any(found[side].get(name, "failed") == "failed" for name in names):
                print(f"{side}:\n{log}")
    return judge(names, found)


def judge(names, found):
    """Prints how each test has ended, cold and warm; returns the exit code."""
    ended = [[found[side].get(name, "not run") for side in SIDES] for name in names]
    for name, (cold, warm) in zip(names, ended):
        print(f"{name:50} {cold} cold, {warm} warm")
    skipped = [any(how.startswith("skipped") for how in both) for both in ended]
    print(f"{sum(how == ['passed', 'passed'] for how in ended)} of {len(names)} tests have passed cold and warm, "
          f"{sum(skipped)} were skipped (at most {MAY_SKIP:.0%})")  # fmt: skip
    missing = any("not run" in how for how in ended) or sum(skipped) > MAY_SKIP * len(names)
    differ = any(cold != warm and "not run" not in (cold, warm) for cold, warm in ended)
    return 1 if differ or any("failed" in how for how in ended) else 2 if missing else 0
