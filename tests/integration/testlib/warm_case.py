# SPDX-License-Identifier: Apache-2.0
"""Jobs with --warm: their second generation begins when all spares are ready."""

import contextlib
import ctypes
import json
import os
import pathlib
import platform
import re
import sys

from .case import Case
from .paths import BUILD_ROOT, SOURCE_ROOT

PART = BUILD_ROOT / "launcher" / "warm"
LIMIT = 120  # an import at idle priority on a busy machine

# With TEST_PYTHON programs run under that interpreter, otherwise under ctrun's choice.
PYTHON = os.environ.get("TEST_PYTHON", sys.executable)

# linux/prctl.h and linux/capability.h
PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23


def drop_sys_nice():
    """Between fork and exec. Fails without a word where the user is not root, who has no such right to drop."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)


FIRST_USER_NAMESPACE = 0xEFFFFFFD  # USER_NS_INIT_INO of linux/nsfs.h
# linux/ioprio.h, and the number of ioprio_get(2), which the C library does not have
IOPRIO_WHO_PROCESS, IOPRIO_CLASS_SHIFT, IOPRIO_CLASS_IDLE = 1, 13, 3
IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(platform.machine())


def must_idle():
    """Must ctrun start spares at idle priority, because it may take that back from them?"""
    capabilities = re.search(r"^CapEff:\s*(\w+)$", pathlib.Path("/proc/self/status").read_text(), re.M).group(1)
    first = os.stat("/proc/self/ns/user").st_ino == FIRST_USER_NAMESPACE
    return first and int(capabilities, 16) >> CAP_SYS_NICE & 1 == 1


def io_class(pid):
    """That of the process, or IOPRIO_CLASS_IDLE where nobody knows how to ask."""
    if IOPRIO_GET is None:
        return IOPRIO_CLASS_IDLE
    return ctypes.CDLL(None).syscall(IOPRIO_GET, IOPRIO_WHO_PROCESS, pid) >> IOPRIO_CLASS_SHIFT


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
        with it, and they have it when they become workers; where that must be so, restart() fails if it is not."""
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
        if self.idle and must_idle():
            hurry()  # one may have become ready since the last time
            for pid in self.spares(job, workers):
                self.assertIn(os.getpgid(pid), hurried)
                self.assertEqual(io_class(pid), IOPRIO_CLASS_IDLE)
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


# ---- what a program can see of its own process, so that a cold and a warm start can be compared ----
# A test puts IMPORTS and SEE into its program, which calls see(). Python 3.8 is enough for both.

# What differs from a cold start: the rows of the table in docs/WARM.md, and a word by which man page ctrun tells each.
# Of these see() has the modules, sys.path_importer_cache and /proc/PID/environ. All else that it has must be equal.
DIFFERENCES = {
    "`sys.modules` when the program begins": "sys.modules",
    "`sys.path_importer_cache`": "sys.path_importer_cache",
    "`/proc/PID/environ`, `posix.environ`": "posix.environ",
    "what the imports of the plan see of the program": "__main__.__file__",
    "warnings that Python shows only where the program itself causes them, as a `DeprecationWarning` of a module that "
    "it imports": "DeprecationWarning",
    "time of the start, CPU time and page faults of the process": "page faults",
    "what imports compute once (`logging` keeps the time of its import)": "computes once",
}

IMPORTS = """
import atexit, builtins, ctypes, faulthandler, fcntl, gc, json, locale, os, resource, signal, subprocess, sys, threading
import time, warnings
"""

SEE = r'''
# These say what the process or the machine does at the moment, or where its memory is, not how it was started. What is
# mounted changes with the machine; ns/mnt says that both processes see the same of it.
OF_THE_MOMENT = {
    "arch_status", "auxv", "clear_refs", "io", "maps", "mem", "mountinfo", "mounts", "mountstats", "numa_maps",
    "oom_score", "pagemap", "sched", "schedstat", "smaps", "smaps_rollup", "stack", "stat", "statm", "status", "syscall",
    "wchan",
}
OF_THE_STATUS = {
    "Pid", "Tgid", "PPid", "NSpid", "NStgid", "NSpgid", "NSsid", "FDSize", "SigQ", "voluntary_ctxt_switches",
    "nonvoluntary_ctxt_switches",
}
OF_THE_STAT = {
    "tty": 7, "foreground": 8, "priority": 18, "nice": 19, "threads": 20, "timer": 21, "exit_signal": 38,
    "rt_priority": 40, "policy": 41,
}
# PF_FORKNOEXEC, PF_RANDOMIZE and PF_NO_SETAFFINITY of linux/sched.h. The others say what the process has done.
FIXED_FLAGS = 0x40 | 0x00400000 | 0x04000000
# PR_GET_DUMPABLE, _KEEPCAPS, _SECUREBITS, _TIMERSLACK, _NO_NEW_PRIVS, _THP_DISABLE of linux/prctl.h
ASKED = (3, 7, 27, 30, 39, 42)


def small_files():
    """Of /proc/self, by name: what a link names, and the text of a file."""
    seen = {}
    for folder in ("", "ns/", "attr/"):
        for name in os.listdir("/proc/self/" + folder):
            path = "/proc/self/" + folder + name
            try:
                if os.path.islink(path):
                    seen[folder + name] = os.readlink(path)
                elif not os.path.isdir(path) and name not in OF_THE_MOMENT:
                    with open(path, "rb") as file:
                        seen[folder + name] = file.read(65536).decode("latin-1")
            except OSError as error:
                seen[folder + name] = os.strerror(error.errno)
    seen["autogroup"] = seen.get("autogroup", "").partition(" ")[2]  # each session has a group of its own
    return seen


def status():
    with open("/proc/self/status") as file:
        lines = [line.split(":", 1) for line in file]
    return {name: text.split() for name, text in lines
            if name not in OF_THE_STATUS and not name.startswith(("Vm", "Rss", "Huge"))}


def stat():
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    seen = {name: fields[number - 3] for name, number in OF_THE_STAT.items()}
    seen["flags"] = int(fields[6]) & FIXED_FLAGS
    return seen


def depth():
    frame, number = sys._getframe(), 0
    while frame is not None:
        frame, number = frame.f_back, number + 1
    return number


def see():
    libc = ctypes.CDLL(None)
    death = ctypes.c_int()
    libc.prctl(2, ctypes.byref(death), 0, 0, 0)
    plain = (str, int, float, tuple, list, type(None))
    streams = {name: [getattr(stream, a) if not callable(getattr(stream, a)) else getattr(stream, a)()
                      for a in ("name", "mode", "encoding", "errors", "line_buffering", "write_through",
                                "seekable", "isatty", "fileno")]
               for name, stream in (("in", sys.stdin), ("out", sys.stdout), ("err", sys.stderr))}
    return {
        # The interpreter.
        "sys": {name: repr(getattr(sys, name)) for name in dir(sys) if isinstance(getattr(sys, name), plain)},
        "hooks": [repr(getattr(sys, name)) for name in dir(sys) if name.endswith("hook")],
        "settings": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.getdlopenflags(), str(sys._xoptions),
                     sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(),
                     sys.get_coroutine_origin_tracking_depth(), str(sys.get_asyncgen_hooks()), sys.gettrace() is None,
                     sys.getprofile() is None],
        "importers": sorted(set(sys.path_importer_cache) - {sys.path[0]}),
        "environ": list(os.environ.items()), "environ_class": type(os.environ).__name__,
        "c_environ": subprocess.run(["/usr/bin/env", "-u", "_"], stdout=subprocess.PIPE).stdout.decode().split("\n"),
        "main": [__name__, __file__, str(__spec__), __package__, __doc__, type(__builtins__).__name__,
                 sorted(globals()), str(type(__loader__)), sys.modules["__main__"] is not None],
        "builtins": sorted(vars(builtins)), "depth": depth(), "at_exit": atexit._ncallbacks(),
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count(), len(gc.callbacks)],
        "locale": [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False), time.tzname],
        "warnings": [str(each) for each in warnings.filters] + [repr(warnings.showwarning), warnings.defaultaction],
        "threads": [thread.name for thread in threading.enumerate()],
        "main_thread": [threading.main_thread().ident == threading.get_ident(),
                        threading.get_native_id() == os.getpid(), threading.stack_size(), repr(threading.excepthook)],
        "faulthandler": faulthandler.is_enabled(), "sitecustomize": "sitecustomize" in sys.modules, "streams": streams,
        # The process.
        "files": small_files(), "status": status(), "stat": stat(),
        "descriptors": {fd: os.readlink("/proc/self/fd/" + fd).split(":")[0]
                        for fd in sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd/" + fd)},
        "descriptor_flags": [[fcntl.fcntl(fd, fcntl.F_GETFD), fcntl.fcntl(fd, fcntl.F_GETFL)] for fd in range(3)],
        "limits": [resource.getrlimit(number) for number in range(16)],
        "signals": [str(signal.getsignal(number)) for number in range(1, 65) if number in signal.valid_signals()],
        "other_signals": [sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), sorted(signal.sigpending()),
                          signal.set_wakeup_fd(-1), [signal.getitimer(number) for number in range(3)]],
        "prctl": [libc.prctl(number, 0, 0, 0, 0) for number in ASKED], "death_signal": death.value,
        "leads": [os.getpid() == os.getsid(0), os.getpid() == os.getpgrp()],
        "scheduler": [os.sched_getscheduler(0), os.nice(0)]
                     + ([libc.syscall(252, 1, 0)] if os.uname().machine == "x86_64" else []),  # ioprio_get(2)
        "affinity": sorted(os.sched_getaffinity(0)),
    }
'''


def plain(seen, tmp):
    """Without what differs between any two jobs. `tmp` is the folder of the test."""
    environ = dict(seen["environ"])
    text = json.dumps(seen)
    for name in ("CTRUN_JOB_COOKIE", "TORCHELASTIC_RUN_ID"):
        text = text.replace(environ[name], name)
    text = re.sub(r"/ctrun_\w+/TORCHELASTIC_RUN_ID_\w+/", "/FOLDER/", text).replace(str(tmp), "TMP")
    text = re.sub(r"ctrun-\d+-[0-9a-f]{8}", "CGROUP", text)
    text = re.sub(r"/proc/\d+/fd/\d+", "/proc/PID/fd/N", text)
    text = re.sub(r"(MASTER_PORT(=|\", \"))\d+", r"\1PORT", text)
    text = re.sub(r"(TEST_COOKIE|CTRUN_TEST_COOKIE)(=|\", \")\w+", r"\1", text)
    text = re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", text)
    return json.loads(re.sub(r"proc-[0-9a-f]{8}|[0-9a-f]{32}", "ID", text))


def variables(block):
    """Of the text of /proc/PID/environ."""
    return {entry.partition("=")[0]: entry.partition("=")[2] for entry in block.split("\0") if entry}


def assert_start_environment(case, cold, warm):
    """That of a spare is the one of a worker, but for CTRUN_WARM and one folder in PYTHONPATH."""
    cold, warm = variables(cold), variables(warm)
    case.assertRegex(warm.pop("CTRUN_WARM"), r"^1:\d+:spare$")
    folders = warm.pop("PYTHONPATH").split(":")
    own = os.path.realpath(PART)
    folders.remove(next(folder for folder in folders if os.path.realpath(folder) == own))
    case.assertEqual(":".join(folders), cold.pop("PYTHONPATH", ""))
    case.assertEqual(warm, cold)


def assert_alike(case, cold, warm):
    """Compares what each rank has seen of itself, as plain() gives it."""
    for rank, (mine, other) in enumerate(zip(warm, cold)):
        with case.subTest(rank=rank, what="/proc/PID/environ"):
            assert_start_environment(case, other["files"].pop("environ"), mine["files"].pop("environ"))
        case.assertEqual(list(mine), list(other))
        for what in other:
            with case.subTest(rank=rank, what=what):
                case.assertEqual(mine[what], other[what])


def documented_differences():
    """The rows of the table of docs/WARM.md, and the section of man page ctrun, in plain text."""
    table = (SOURCE_ROOT / "docs" / "WARM.md").read_text().partition("## What differs from a cold start\n")[2]
    rows = [line.split("|")[1].strip() for line in table.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    section = (SOURCE_ROOT / "man" / "ctrun.1").read_text().partition(".Ss Warm starts\n")[2].partition("\n.Ss ")[0]
    return rows[1:], section
