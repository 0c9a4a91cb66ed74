# SPDX-License-Identifier: Apache-2.0
"""`import ctworker`: what it reports is seen, what it reads is right, what it adds is the sum."""

import json
import os
import pathlib
import re
import shlex
import signal
import time
import urllib.request

import testlib
from testlib import DEADLINE, program, python_package, wait_until

PROGRESS = """
import os, sys, time, ctworker
job = ctworker.job()
told = dict(loss=0.25 + job.rank, samples_per_s=1000.0, total=40)

def wait():
    print("store", job.master_port, flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)

if job.rank == 0:
    ctworker.progress(7, phase=ctworker.Phase.DATA, **told)
    wait()
else:
    ctworker.progress(7, **told)
    with ctworker.phase(ctworker.Phase.DATA):
        with ctworker.phase(ctworker.Phase.CHECKPOINT):
            pass
        wait()
"""

FORK = """
import ctworker, os
job = ctworker.job()
assert job.add("seen", 1) == 1
child = os.fork()
if child == 0:
    code = 1
    try:
        job.add("seen", 1)
    except ValueError:
        code = 0 if ctworker.job() is not job and ctworker.job().add("seen", 1) == 2 else 2
    job.close()
    os._exit(code)
assert os.waitpid(child, 0)[1] == 0
assert job.add("seen", 1) == 3
"""

FORKED_PROGRESS = """
import os
job = ctworker.job()
with job.phase(ctworker.Phase.DATA):
    child = os.fork()
if child == 0:  # it has left the block, too
    for wrong in (lambda: job.progress(99), lambda: job.phase(ctworker.Phase.DATA).__enter__()):
        try:
            wrong()
            os._exit(1)
        except ValueError:
            pass
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""

STORE = """
import ctworker
with ctworker.Job() as job:
    assert (job.world_size, job.local_world_size, job.node_count) == (2, 2, 1)
    assert job.launched and job.master_addr == "127.0.0.1" and job.generation == 0
    if job.rank == 0:
        job.set("key", b"a\\0b")
    assert job.get("key") == b"a\\0b"
    assert job.add("sum", 2 + job.rank) in (2, 3, 5)
    job.set(f"done-{job.rank}", b"")
    job.get("done-0"), job.get("done-1")
    assert job.add("sum", 0) == 5
    try:
        job.set("", b"")
        raise AssertionError
    except ctworker.Error as error:
        assert error.code == -2, error
    for wrong in (lambda: job.set("a\\0b", b""), lambda: job.get("a\\0b"), lambda: job.add("a\\0b", 1)):
        try:
            wrong()
            raise AssertionError
        except ValueError:  # and not the key "a"
            pass
try:
    job.set("key", b"")
    raise AssertionError
except ValueError:
    pass
print("all well")
"""

COLLECTIVES = """
import numpy, ctworker
with ctworker.Job() as job:
    comm = ctworker.Communicator(job, timeout=60)
    a = numpy.arange(1000, dtype=numpy.float32).reshape(10, 100) * (job.rank + 1)
    total = comm.all_reduce(a)
    assert (total == numpy.arange(1000).reshape(10, 100) * 6).all()
    assert comm.all_reduce(a, out=a) is a and (a == total).all()
    for bad in (a.T, a.astype(numpy.float64), [1.0]):
        try:
            comm.all_reduce(bad)
            raise AssertionError
        except (TypeError, ValueError):
            pass
    try:
        comm.all_reduce(a[:5], out=a[1:6])
        raise AssertionError
    except ValueError as error:
        assert "has a part of" in str(error), error
    try:
        comm.broadcast(numpy.array([None, "x"]))
        raise AssertionError
    except TypeError as error:  # addresses of another process
        assert "Python objects" in str(error), error
    b = numpy.full(3, job.rank, dtype=numpy.int64)
    comm.broadcast(b, root=2)
    assert (b == 2).all()
    comm.barrier()
    job.set(f"passed-{job.rank}", b"")
    if job.rank == 1:
        job.get("passed-0"), job.get("passed-2")  # else they might still be in that barrier
        comm.close()
        raise SystemExit(0)
    try:
        comm.barrier()
        raise AssertionError
    except ctworker.PeerError as error:
        print("noticed:", error)
"""

SNAPSHOT = """
import ctworker, sys
job = ctworker.job()
with job.snapshot() as kept:
    if job.generation == 0:
        kept.write(b"step 7")
        sys.exit(3)
    print("kept", kept.read())
"""

PREEMPTED = """
import time, ctworker
assert ctworker.preemption() is None
print("up", flush=True)
while (notice := ctworker.preemption()) is None:
    time.sleep(0.01)
print("notice", notice.signo, 0 < notice.seconds <= 20)
"""

# Rank 0 runs ahead until it waits for the answer of rank 1.
TOGETHER = """
import time, ctworker
job = ctworker.job()
step = 0
while not ctworker.stop_together():
    step += 1
    ctworker.progress(step)
    time.sleep(0.001 * (1 + job.rank))
    if step == 100:
        print("up", flush=True)
assert ctworker.stop_together()
print(f"rank {job.rank} saves step {step}")
"""

# Waits in C for a rank that has failed.
HELD_UP = """
import ctypes, os, sys, ctworker
ctworker.stop_together()
if os.environ["RANK"] == "1":
    sys.exit(3)
ctypes.PyDLL(None).sleep(1000)
"""


ALONE = """
import pickle, ctworker

class Seven:
    def __index__(self):
        return 7

for error in (ctworker.Error(-5, "a"), ctworker.PeerError(-13, "b"), ctworker.TimeoutError(-4, "c")):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.code, str(copy)) == (type(error), error.code, str(error))
job = ctworker.job()
job.progress(Seven(), total=Seven(), loss=1)
for wrong in (
    lambda: job.progress(-1), lambda: job.progress(2**63), lambda: ctworker.Job(timeout=0),
    lambda: ctworker.Job(timeout=float("inf")), lambda: ctworker.Job(timeout=float("nan")),
):
    try:
        wrong()
        raise AssertionError
    except ValueError:
        pass
try:
    job.add("x", 2**63)
    raise AssertionError
except OverflowError:
    pass
with job:
    pass
assert job.closed
job.report_error("closed")  # another error is under way
ctworker.report_error(None)
ctworker.progress(1)
assert ctworker.job() is not job
print("all well")
"""


# Prints each name that users of the packages see, and those that have no words in the program.
NAMES = """
import inspect, ctrun, ctworker

def show(name, thing):
    print("name", name.rpartition(".")[2])
    documented = thing.fget if isinstance(thing, property) else thing
    if (inspect.isfunction(documented) or inspect.isclass(documented)) and not documented.__doc__:
        print("undocumented", name)
    if inspect.isfunction(thing):
        for parameter in inspect.signature(thing).parameters:
            if parameter != "self":
                print("name", parameter)

for package in (ctworker, ctrun):
    for name in package.__all__:
        thing = getattr(package, name)
        show(name, thing)
        for member, what in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_"):
                show(f"{name}.{member}", what)
objects = (ctworker.Job(), ctworker.Error(-1, ""), ctrun.LaunchError("", 1, None, None))
for name in {name for one in objects for name in vars(one)}:
    if not name.startswith("_"):
        print("name", name)
for made in (ctworker.Job, ctworker.Communicator):
    for parameter in inspect.signature(made).parameters:
        print("name", parameter)
"""

# One part of the package uses them of another.
INTERNAL = {"handle", "own_handle", "communicators"}


class Worker(python_package.Case):
    def test_progress_reaches_the_status(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        go = self.tmp / "go"
        job = self.python_job(2, PROGRESS, arguments=[go])
        port = int(job.wait_for("store ").split()[-1])

        def rows():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=DEADLINE) as answer:
                found = [w["progress"] for w in json.load(answer)["job"]["workers"] if w["progress"]]
            return len(found) == 2 and all(p["phase"] == "data" for p in found) and found

        workers = wait_until(rows, "both workers tell of their data")
        self.assertEqual([w["step"] for w in workers], [7, 7])
        self.assertEqual([float(w["loss"]) for w in workers], [0.25, 1.25])
        self.assertEqual({float(w["samples_per_s"]) for w in workers}, {1000.0})
        screen = testlib.Terminal(program("ctrun-stat"), "--watch", f"127.0.0.1:{port}", env={"TERM": "xterm"})
        self.addCleanup(screen.close)
        screen.read_until("loss 0.25 ▁▁ 0.25")
        go.touch()
        self.assertEqual(job.wait().code, 0)

    def test_the_place_and_the_store(self):
        result = self.python_job(2, STORE).wait()
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.out.count("all well"), 2, result)

    def test_arrays_are_summed_and_a_rank_that_left_is_noticed(self):
        result = self.python_job(3, COLLECTIVES, python=python_package.python_with("numpy")).wait()
        self.assertEqual(result.code, 0, result)
        # Rank 1 has left; the others hear of it from rank 1, or from the one that heard it first.
        self.assertEqual(len(re.findall(r"noticed: barrier: rank \d", result.out)), 2, result)

    def test_the_snapshot_outlives_a_generation(self):
        result = self.python_job(1, SNAPSHOT, "--max-restarts", "1").wait()
        self.assertEqual(result.code, 0, result)
        self.assertIn("kept b'step 7'", result.out)

    def test_a_permanent_error_is_not_met_again(self):
        text = "import ctworker, sys\nctworker.report_error('no such data', permanent=True)\nsys.exit(9)"
        result = self.python_job(1, text, "--max-restarts", "3").wait()
        self.assertEqual(result.code, 9, result)
        self.assertIn("no such data", result.err)
        self.assertNotIn("generation 1", result.err)

    def assert_keeps_its_progress(self, line):
        """A worker has completed step 8, runs this line, and fails."""
        text = f"import ctworker, subprocess, sys\nctworker.progress(7)\nctworker.progress(8)\n{line}\nsys.exit(9)"
        report = self.tmp / "report.json"
        result = self.python_job(1, text, "--report", report).wait()
        self.assertEqual(result.code, 9, result)
        self.assertEqual(json.loads(report.read_text())["first_failure"].get("last_step"), 8, result)

    def test_a_permanent_error_keeps_the_progress_that_was_told(self):
        self.assert_keeps_its_progress("ctworker.report_error('x', permanent=True)")

    def test_a_child_that_opens_the_job_keeps_the_progress_of_its_parent(self):
        """As a data loader that is spawned does, which imports the main script again, and tells what it does."""
        self.assert_keeps_its_progress(
            "subprocess.run([sys.executable, '-c', 'import ctworker; ctworker.progress(0)'], check=True)"
        )

    def test_a_fork_does_not_use_the_connection_of_its_parent(self):
        """An answer went to whichever process read first."""
        result = self.python_job(1, FORK).wait()
        self.assertEqual(result.code, 0, result)

    def test_a_fork_tells_no_progress_by_the_job_of_its_parent(self):
        """A forked data loader that held it overwrote the step of the worker."""
        self.assert_keeps_its_progress(FORKED_PROGRESS)

    def test_an_exception_of_a_recorded_function_is_the_reason(self):
        text = "import ctworker\n@ctworker.record\ndef main():\n    raise KeyError('lr')\nmain()"
        report = self.tmp / "report.json"
        result = self.python_job(1, text, "--report", report).wait()
        self.assertEqual(result.code, 1, result)
        self.assertEqual(json.loads(report.read_text())["first_failure"]["message"], "KeyError: 'lr'")

    def test_a_preemption_is_noticed(self):
        job = self.python_job(1, PREEMPTED, "--shutdown-timeout", "20")
        job.wait_for("up")
        job.signal(signal.SIGTERM)
        result = job.wait()
        self.assertEqual(result.code, 123, result)
        self.assertIn("notice 15 True", result.out)

    def test_all_ranks_stop_after_the_same_step(self):
        job = self.python_job(2, TOGETHER, "--shutdown-timeout", "100")
        job.wait_for("[0] up")
        job.wait_for("[1] up")
        job.signal(signal.SIGTERM)
        result = job.wait()
        self.assertEqual(result.code, 123, result)
        steps = dict(re.findall(r"rank (\d) saves step (\d+)", result.out))
        self.assertEqual(sorted(steps), ["0", "1"], result)
        self.assertEqual(steps["0"], steps["1"], result)

    def test_a_signal_without_a_request_ends_a_worker_that_would_save(self):
        """Even one in C code, where no handler in Python runs."""
        began = time.monotonic()
        result = self.python_job(2, HELD_UP, "--shutdown-timeout", "100").wait()
        self.assertEqual(result.code, 3, result)
        self.assertLess(time.monotonic() - began, 80, result)

    def test_without_a_launcher_a_process_is_alone(self):
        text = (
            "import ctworker\nwith ctworker.Job() as job:\n"
            "    assert (job.rank, job.world_size, job.launched) == (0, 1, False)\n"
            "    assert job.snapshot() is None and ctworker.preemption() is None and not ctworker.stop_together()\n"
            "    job.progress(1, loss=1.0)\n"
            "    try:\n        job.get('x')\n    except ctworker.Error as error:\n        print(error)\n"
        )
        result = self.run_program(
            python_package.python_with("ctypes"), self.script("alone.py", text), env=python_package.environment()
        )
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("no store", result.out)

    def test_what_is_wrong_is_refused_and_errors_can_be_sent(self):
        result = self.run_program(
            python_package.python_with("ctypes"), self.script("alone.py", ALONE), env=python_package.environment()
        )
        self.assertEqual((result.code, result.out, result.err), (0, "all well\n", ""), result)

    def test_a_library_of_another_version_is_told(self):
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
        source, library = self.script("old.c", "int ctw_job_open;\n"), self.tmp / "libctworker.so.0"
        built = self.run_program(*compiler, "-shared", "-fPIC", source, "-o", library)
        self.assertEqual(built.code, 0, built)
        env = {**python_package.environment(), "CTWORKER_LIBRARY": str(library)}
        result = self.run_program(python_package.python_with("ctypes"), "-c", "import ctworker", env=env)
        self.assertIn(f"ImportError: {library} is of another version of ctrun than ctworker", result.err)

    def test_structures_have_the_sizes_of_the_header(self):
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
        source = self.script("sizes.c", "\n".join([
            '#include "worker/ctworker.h"', "#include <stdio.h>", "int main(void) {",
            'printf("%zu %zu %zu %zu %zu\\n", sizeof(struct ctw_env), sizeof(struct ct_err),',
            "sizeof(struct ctw_job_options), sizeof(struct ctw_comm_options),",
            "offsetof(struct ctw_env, device_index)); }"]))  # fmt: skip
        built = self.run_program(*compiler, "-I", testlib.SOURCE_ROOT, source, "-o", self.tmp / "sizes")
        self.assertEqual(built.code, 0, built)
        expected = self.run_program(self.tmp / "sizes").out
        text = (
            "import ctypes, ctworker._library as c\n"
            "print(*map(ctypes.sizeof, (c.Env, c.Err, c.JobOptions, c.CommOptions)), c.Env.device_index.offset)\n"
        )
        found = self.run_program(
            python_package.python_with("ctypes"), self.script("sizes.py", text), env=python_package.environment()
        )
        self.assertEqual(found.out, expected, found)

    def test_the_page_has_every_name(self):
        text = (testlib.SOURCE_ROOT / "docs" / "PYTHON.md").read_text()
        code = " ".join(re.findall(r"```.*?```|`[^`]+`", text, re.DOTALL))
        told = self.run_program(
            python_package.python_with("ctypes"), self.script("names.py", NAMES), env=python_package.environment()
        )
        self.assertEqual(told.code, 0, told)
        lines = [line.split() for line in told.out.splitlines()]
        names = {name for what, name in lines if what == "name"} - INTERNAL
        self.assertGreater(len(names), 60)
        self.assertEqual([name for name in sorted(names) if not re.search(rf"\b{name}\b", code)], [])
        self.assertEqual([name for what, name in lines if what == "undocumented"], [])

    def test_types_are_complete(self):
        mypy = [python_package.python_with("mypy"), "-m", "mypy", "--strict", "--cache-dir", self.tmp / "cache"]
        result = self.run_program(*mypy, "ctworker", "ctrun", cwd=pathlib.Path(python_package.FOLDER))
        self.assertEqual(result.code, 0, result)


if __name__ == "__main__":
    testlib.main()
