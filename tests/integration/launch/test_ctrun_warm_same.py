# SPDX-License-Identifier: Apache-2.0
"""Warm starts: a worker that was a spare is as one that was started cold."""

import json
import os
import pathlib
import re

import testlib
from testlib.warm_case import LIMIT, PYTHON, WarmCase

GOLDEN = """
import os, time
import json
{wait}
import sys, signal, resource, faulthandler, ctypes, subprocess, threading, warnings

def see():
    libc = ctypes.CDLL(None)
    death = ctypes.c_int()
    libc.prctl(2, ctypes.byref(death), 0, 0, 0)
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    umask = os.umask(0)
    os.umask(umask)
    streams = {{name: [getattr(stream, a) if not callable(getattr(stream, a)) else getattr(stream, a)()
                     for a in ("name", "mode", "encoding", "errors", "line_buffering", "write_through",
                               "seekable", "isatty", "fileno")]
               for name, stream in (("in", sys.stdin), ("out", sys.stdout), ("err", sys.stderr))}}
    return {{
        "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "flags": str(sys.flags), "path": sys.path,
        "executable": sys.executable, "prefix": [sys.prefix, sys.base_prefix], "warnoptions": sys.warnoptions,
        "xoptions": str(sys._xoptions), "meta_path": [str(f) for f in sys.meta_path],
        "importers": sorted(set(sys.path_importer_cache) - {{sys.path[0]}}), "hooks": len(sys.path_hooks),
        "environ": list(os.environ.items()), "environ_class": type(os.environ).__name__,
        "c_environ": subprocess.run(["/usr/bin/env", "-u", "_"], stdout=subprocess.PIPE).stdout.decode().split("\\n"),
        "main": [__name__, __file__, str(__spec__), __package__, __doc__, type(__builtins__).__name__,
                 sorted(globals()), str(type(__loader__)), sys.modules["__main__"] is not None],
        "descriptors": {{fd: os.readlink("/proc/self/fd/" + fd).split(":")[0] for fd in sorted(os.listdir("/proc/self/fd"))
                        if os.path.exists("/proc/self/fd/" + fd)}},
        "descriptor_flags": [os.get_inheritable(fd) for fd in range(3)],
        "limits": [resource.getrlimit(number) for number in range(16)],
        "signals": [str(signal.getsignal(number)) for number in range(1, 65) if number in signal.valid_signals()],
        "status": {{name: status[name].split() for name in ("Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Uid", "Gid",
                   "Groups", "CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed") if name in status}},
        "cwd": os.getcwd(), "cmdline": open("/proc/self/cmdline").read(), "comm": open("/proc/self/comm").read(),
        "leads": [os.getpid() == os.getsid(0), os.getpid() == os.getpgrp()], "death_signal": death.value,
        "scheduler": [os.sched_getscheduler(0), os.nice(0), libc.syscall(252, 1, 0)] if os.uname().machine == "x86_64" else None,
        "affinity": sorted(os.sched_getaffinity(0)), "cgroup": open("/proc/self/cgroup").read(),
        "oom": open("/proc/self/oom_score_adj").read(), "root": os.readlink("/proc/self/root"),
        "faulthandler": faulthandler.is_enabled(), "recursion": sys.getrecursionlimit(), "streams": streams,
        "threads": [thread.name for thread in threading.enumerate()],
        "main_thread": threading.main_thread().ident == threading.get_ident(),
        "filters": [str(f) for f in warnings.filters], "hash_of_site": "sitecustomize" in sys.modules,
        "tracing": [sys.gettrace() is None, sys.getprofile() is None],
        "switch": sys.getswitchinterval(),
    }}

MODULES = sorted(sys.modules)
if __name__ == "__main__":
    first_generation()
    seen = see()
    seen["modules"] = MODULES
    with open({out!r} + os.environ["RANK"], "w") as file:
        json.dump(seen, file)
"""


class Same(WarmCase):
    def see(self, name, warm, *args, env=None, options=()):
        """What each rank of generation 1 sees of itself."""
        out = str(self.tmp / name)
        self.go.unlink(missing_ok=True)
        program = self.program(GOLDEN, "golden.py", out=out + ".")
        arguments = args or (program, "--option", "a b")
        result = self.restart(
            *arguments, spares=2 if warm else 0, warm=("--warm",) if warm else (), env=env, options=options
        )
        self.assertEqual(result.code, 0, result)
        if warm:
            self.assert_warm(result)
        texts = [pathlib.Path(f"{out}.{rank}").read_text() for rank in range(2)]
        return [self.plain(json.loads(text)) for text in texts]

    def plain(self, seen):
        """Without what differs between any two jobs."""
        environ = dict(seen["environ"])
        text = json.dumps(seen)
        for name in ("CTRUN_JOB_COOKIE", "TORCHELASTIC_RUN_ID"):
            text = text.replace(environ[name], name)
        text = re.sub(r"/ctrun_\w+/TORCHELASTIC_RUN_ID_\w+/", "/FOLDER/", text).replace(str(self.tmp), "TMP")
        text = re.sub(r"ctrun-\d+-[0-9a-f]{8}", "CGROUP", text)
        text = re.sub(r"/proc/\d+/fd/\d+", "/proc/PID/fd/N", text)
        text = re.sub(r"(MASTER_PORT(=|\", \"))\d+", r"\1PORT", text)
        text = re.sub(r"(TEST_COOKIE|CTRUN_TEST_COOKIE)(=|\", \")\w+", r"\1", text)
        text = re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", text)
        return json.loads(re.sub(r"proc-[0-9a-f]{8}|[0-9a-f]{32}", "ID", text))

    def assert_alike(self, cold, warm, new_modules):
        for rank in range(2):
            extra = set(warm[rank].pop("modules")) - set(cold[rank].pop("modules"))
            self.assertLessEqual(extra, new_modules)
            for what in cold[rank]:
                with self.subTest(rank=rank, what=what):
                    self.assertEqual(cold[rank][what], warm[rank][what])

    def test_a_worker_that_was_a_spare_sees_the_same(self):
        self.idle = True
        self.assert_alike(self.see("cold", False), self.see("warm", True), set())

    def test_the_same_with_a_module_and_the_users_own_python_settings(self):
        own = self.tmp / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("import os\nkeep = os.open('/', os.O_RDONLY)\n")
        env = {"PYTHONPATH": f"{own}::/nowhere", "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "ignore"}
        args = ("--module", "golden", "x")
        self.assert_alike(self.see("cold", False, *args, env=env), self.see("warm", True, *args, env=env), set())

    def test_the_same_behind_a_wrapper_that_adds_to_the_path(self):
        wrapper = self.script(
            "python", f'#!/bin/sh\nPYTHONPATH=/first${{PYTHONPATH:+:$PYTHONPATH}} exec {PYTHON} "$@"\n'
        )
        os.chmod(wrapper, 0o755)
        for path in ({}, {"PYTHONPATH": "/users"}):
            env = {"PYTHON_EXEC": wrapper, **path}
            self.assert_alike(self.see("cold", False, env=env), self.see("warm", True, env=env), set())

    def test_the_same_behind_a_wrapper_that_waits(self):
        """The interpreter is a child of the process that ctrun has started, and was made at idle priority."""
        self.idle = True
        wrapper = self.script("python", f'#!/bin/sh\n{PYTHON} "$@"\nexit $?\n')
        os.chmod(wrapper, 0o755)
        env = {"PYTHON_EXEC": wrapper}
        self.assert_alike(self.see("cold", False, env=env), self.see("warm", True, env=env), set())

    def test_the_same_with_binding_and_hang_detection(self):
        options = ("--hang-timeout", "100") + (("--bind", "core") if (os.cpu_count() or 1) > 1 else ())
        cold = self.see("cold", False, options=options)
        self.assert_alike(cold, self.see("warm", True, options=options), set())
        self.assertTrue(cold[0]["faulthandler"])

    def test_what_the_program_imports_is_there_and_multiprocessing_works(self):
        program = self.program(
            "import os, time, sys\nimport sqlite3, multiprocessing\n{wait}"
            "def square(x): return x * x\n"
            "if __name__ == '__main__':\n"
            "  first_generation()\n"
            "  for start in ('spawn', 'forkserver', None):\n"
            "    with multiprocessing.get_context(start).Pool(2) as pool: print(start, pool.map(square, [1, 2, 3]))\n"
        )  # fmt: skip
        result = self.restart(program)
        self.assert_warm(result)
        for start in ("spawn", "forkserver", "None"):
            self.assertIn(f"{start} [1, 4, 9]", result.out)

    def ends(self, text):
        """How a warm worker ends that runs `text`; all others succeed."""
        program = self.program(
            "import os, sys, time, atexit\n{wait}first_generation()\n"
            "atexit.register(print, 'at exit')\n"
            f"if os.environ['RANK'] == '0':\n    {text}\n"
        )
        result = self.restart(program)
        self.assertIn("generation 1: 2 of 2 workers here were warm", result.err)
        return result

    def test_exit_codes_and_tracebacks(self):
        self.assertEqual(self.ends("sys.exit(41)").code, 41)
        self.go.unlink()
        result = self.ends("raise KeyError('seen')")
        self.assertEqual(result.code, 1)
        self.assertIn("KeyError: 'seen'", result.err)
        self.assertNotIn("sitecustomize", result.err)
        self.assertIn("at exit", result.out)
        self.go.unlink()
        result = self.ends("os._exit(42)")
        self.assertEqual(result.code, 42)
        self.go.unlink()
        self.assertEqual(self.ends("os.kill(os.getpid(), 11)").code, 128 + 11)

    def test_one_worker_has_the_streams_of_ctrun(self):
        program = self.program(
            "import os, sys, time\n{wait}first_generation()\n"
            "print([stream.seekable() for stream in (sys.stdin, sys.stdout, sys.stderr)], sys.stdin.read())\n"
        )
        text = self.tmp / "text"
        text.write_text("input")
        for options, seekable in (((), True), (("--tee", "3"), False)):
            with open(text) as stdin:
                self.go.unlink(missing_ok=True)
                job = self.start_ctrun("-n", "1", "--max-restarts", "1", "--warm", *options, program, stdin=stdin,
                                       env={"LOGLEVEL": "info"})  # fmt: skip
                job.wait_for("the spare of local rank 0 is ready", LIMIT)
                self.go.touch()
                result = job.wait(LIMIT)
            self.assert_warm(result, 1, 1)
            self.assertIn(f"[True, {seekable}, False] input\n", result.out)


if __name__ == "__main__":
    testlib.main()
