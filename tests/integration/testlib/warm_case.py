# SPDX-License-Identifier: Apache-2.0
"""Jobs with --warm: their second generation begins when all spares are ready."""

import contextlib
import ctypes
import os
import re
import sys

from .case import Case
from .paths import BUILD_ROOT

PART = BUILD_ROOT / "launcher" / "warm"
LIMIT = 120  # an import at idle priority on a busy machine

# With TEST_PYTHON programs run under that interpreter, otherwise under ctrun's choice.
PYTHON = os.environ.get("TEST_PYTHON", sys.executable)

# linux/prctl.h and linux/capability.h
PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23


def drop_sys_nice():
    """Between fork and exec. Fails without a word where the user is not root, who has no such right to drop."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)


def set_policy(pids, old, new):
    """Gives all threads of these processes that have one policy of scheduling another one. Returns the process groups
    of which there were some."""
    groups = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                if os.sched_getscheduler(thread) == old:
                    os.sched_setscheduler(thread, new, os.sched_param(0))
                    groups.add(os.getpgid(pid))
    return groups


# In generation 0 all wait for the file; then rank 0 fails.
WAIT = """
def first_generation():
    if os.environ["CTRUN_GENERATION"] == "0":
        while not os.path.exists({go!r}):
            time.sleep(0.01)
        os._exit(3 if os.environ["RANK"] == "0" else 0)
"""


class WarmCase(Case):
    def setUp(self):
        super().setUp()
        self.go = self.tmp / "go"
        self.idle = False

    def start_ctrun(self, *args, env=None, **kwargs):
        """Without CAP_SYS_NICE spares import at the usual priority: beside busy processes, as other tests are,
        SCHED_IDLE gives them no time at all. Tests that are about SCHED_IDLE set self.idle: ctrun starts their spares
        with it, and they have it when they become workers."""
        env = {**({"PYTHON_EXEC": PYTHON} if "TEST_PYTHON" in os.environ else {}), **(env or {})}
        return super().start_ctrun(*args, env=env, preexec=None if self.idle else drop_sys_nice, **kwargs)

    def program(self, text, name="program.py", **values):
        wait = WAIT.format(go=str(self.go))
        return self.script(name, text.replace("{wait}", wait) if not values else text.format(wait=wait, **values))

    def restart(self, *args, workers=2, spares=None, env=None, warm=("--warm",), before=None, options=()):
        """A job whose generation 1 begins when the spares are ready. `before` is called then."""
        job = self.start_ctrun(
            "-n", workers, "--max-restarts", "1", *warm, *options, *args,
            env={"LOGLEVEL": "info", **(env or {})}, cwd=self.tmp,
        )  # fmt: skip
        hurried = set()

        def hurry():
            if self.idle:
                hurried.update(set_policy(job.family(), os.SCHED_IDLE, os.SCHED_OTHER))

        for rank in range(workers if spares is None else spares):
            job.wait_for(f"the spare of local rank {rank} is ready", LIMIT, meanwhile=hurry)
        if hurried:
            mine = [pid for pid in job.family() if os.getpgid(pid) in hurried]
            self.assertTrue(set_policy(mine, os.SCHED_OTHER, os.SCHED_IDLE))
        if before is not None:
            before(job)
        self.go.touch()
        return job.wait(LIMIT)

    def spares(self, job, workers):
        """Pids of the spares by rank."""
        found = re.findall(r"the spare of local rank (\d+) is ready \(pid (\d+)", job.err)
        return [int(pid) for _, pid in sorted(found)][:workers]

    def assert_warm(self, result, number=2, of=2, code=0):
        self.assertEqual(result.code, code, result)
        many = f"{number} of {of} workers here were warm"
        self.assertIn(f"generation 1: {many if of > 1 else 'the worker here was warm'}\n", result.err)
