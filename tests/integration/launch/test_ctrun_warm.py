# SPDX-License-Identifier: Apache-2.0
"""Warm starts: a worker that was a spare is as one that was started cold, and what cannot be a spare is not."""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import testlib

PART = testlib.BUILD_ROOT / "launcher" / "warm"
LIMIT = 120  # an import at idle priority on a busy machine

# linux/prctl.h and linux/capability.h
PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23


def drop_sys_nice():
    """Between fork and exec. Fails without a word where the user is not root, who has no such right to drop."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)


# In generation 0 all wait for the file; then rank 0 fails.
WAIT = """
def first_generation():
    if os.environ["CTRUN_GENERATION"] == "0":
        while not os.path.exists({go!r}):
            time.sleep(0.01)
        os._exit(3 if os.environ["RANK"] == "0" else 0)
"""

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


class Warm(testlib.Case):
    def setUp(self):
        super().setUp()
        self.go = self.tmp / "go"
        self.idle = False

    def start_ctrun(self, *args, **kwargs):
        """Without CAP_SYS_NICE spares import at the usual priority: beside busy processes, as other tests are,
        SCHED_IDLE gives them no time at all. Tests that are about SCHED_IDLE set self.idle."""
        return super().start_ctrun(*args, preexec=None if self.idle else drop_sys_nice, **kwargs)

    def program(self, text, name="program.py", **values):
        wait = WAIT.format(go=str(self.go))
        return self.script(name, text.replace("{wait}", wait) if not values else text.format(wait=wait, **values))

    def restart(self, *args, workers=2, spares=None, env=None, warm=("--warm",), before=None, options=()):
        """A job whose generation 1 begins when the spares are ready. `before` is called then."""
        job = self.start_ctrun(
            "-n", workers, "--max-restarts", "1", *warm, *options, *args,
            env={"LOGLEVEL": "info", **(env or {})}, cwd=self.tmp,
        )  # fmt: skip
        for rank in range(workers if spares is None else spares):
            job.wait_for(f"the spare of local rank {rank} is ready", LIMIT)
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
        (own / "sitecustomize.py").write_text("import builtins\nbuiltins.from_site = 1\n")
        env = {"PYTHONPATH": f"{own}::/nowhere", "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "ignore"}
        args = ("--module", "golden", "x")
        self.assert_alike(self.see("cold", False, *args, env=env), self.see("warm", True, *args, env=env), set())

    def test_the_same_behind_a_wrapper_that_adds_to_the_path(self):
        wrapper = self.script(
            "python", f'#!/bin/sh\nPYTHONPATH=/first${{PYTHONPATH:+:$PYTHONPATH}} exec {sys.executable} "$@"\n'
        )
        os.chmod(wrapper, 0o755)
        for path in ({}, {"PYTHONPATH": "/users"}):
            env = {"PYTHON_EXEC": wrapper, **path}
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
            "  with multiprocessing.get_context('spawn').Pool(2) as pool: print(pool.map(square, [1, 2, 3]))\n"
        )  # fmt: skip
        result = self.restart(program)
        self.assert_warm(result)
        self.assertEqual(result.out.count("[1, 4, 9]"), 1 if "[0-1]" in result.out else 2, result)

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

    def cold(self, before, reason, text="import os, time\n{wait}first_generation()\nprint('text 1')\n", number=None):
        """One or all workers start cold after `before`, and a line says why."""
        program = self.program(text)
        result = self.restart(program, before=before)
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, r"(?m)^ctrun: rank \d starts cold: .*" + reason)
        if number is not None:
            self.assertEqual(result.err.count("starts cold"), number, result)
        return result

    def test_a_program_that_was_edited_runs_in_its_new_text(self):
        def edit(job):
            path = self.tmp / "program.py"
            path.write_text(path.read_text().replace("text 1", "text 2"))

        result = self.cold(edit, "program.py has changed", number=2)
        self.assertIn("text 2", result.out)
        self.assertNotIn("text 1", result.out)

    def test_a_spare_that_stands_still_is_replaced(self):
        result = self.cold(
            lambda job: os.kill(self.spares(job, 2)[1], signal.SIGSTOP), "does not answer", number=1
        )
        self.assertIn("generation 1: 1 of 2 workers here were warm", result.err)

    def test_a_spare_that_is_killed_is_made_again(self):
        def kill(job):
            pid = self.spares(job, 2)[0]
            os.kill(pid, signal.SIGKILL)
            testlib.wait_until(lambda: job.err.count("the spare of local rank 0 is ready") == 2, "another one", LIMIT)

        program = self.program("import os, time\n{wait}first_generation()\n")
        self.assert_warm(self.restart(program, before=kill))

    def stuck(self, at_go, ranks=range(6)):
        """A program whose spares of these ranks say that they are ready, and then do what `at_go` says when they
        are to become workers, as if a file server had gone. Returns the program and its environment."""
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "stuck.py").write_text(
            "import os, signal, _socket\n"
            "paths = ['/proc/self/fd/' + name for name in os.listdir('/proc/self/fd') if int(name) > 2]\n"
            "found = [p for p in paths if os.path.exists(p) and os.readlink(p).startswith('socket:')]\n"
            f"if found and int(os.environ['LOCAL_RANK']) in {list(ranks)}:\n"
            "  channel = _socket.socket(fileno=os.dup(int(found[0][14:])))\n  channel.send(b'ready')\n"
            f"  while True:\n    message = channel.recv(65536)\n    if message[:2] == b'go':\n      {at_go}\n"
            "    if not message:\n      os._exit(0)\n"
        )
        return self.program("import os, time\nimport stuck\n{wait}first_generation()\n"), packages

    def test_spares_that_stick_at_the_hand_over_cost_no_machine(self):
        program, packages = self.stuck("pass")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        jobs = [
            self.start_ctrun(
                "--nnodes", "2", "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", port,
                "-n", "6", "--max-restarts", "1", "--warm", program,
                env={"PYTHONPATH": packages, "LOGLEVEL": "info"}, cwd=self.tmp,
            )
            for rank in range(2)
        ]  # fmt: skip
        for job in jobs:
            job.wait_for("the spare of local rank 5 is ready", LIMIT)
        self.go.touch()
        for job in jobs:
            result = job.wait(LIMIT)
            self.assertEqual(result.code, 0, result)
            self.assertEqual(result.err.count("does not answer"), 6, result)
            self.assertNotIn("lost", result.err)

    def test_a_spare_that_is_stopped_during_the_hand_over_stops_no_other(self):
        program, packages = self.stuck("os.kill(os.getpid(), signal.SIGSTOP)", [1])
        result = self.restart(program, workers=3, env={"PYTHONPATH": packages})
        self.assert_warm(result, 2, 3)
        self.assertRegex(result.err, r"rank 1 starts cold: its spare \(pid \d+\) does not answer")

    def test_a_spare_that_dies_during_the_hand_over_stops_no_other(self):
        program, packages = self.stuck("os.kill(os.getpid(), signal.SIGKILL)", [1])
        result = self.restart(program, workers=3, env={"PYTHONPATH": packages})
        self.assert_warm(result, 2, 3)

    def test_the_job_can_end_during_the_hand_over(self):
        """ctrun goes on working while spares are silent: here it takes a signal."""
        marker = self.tmp / "asked"
        program, packages = self.stuck(f"open({str(marker)!r}, 'a').close()", [1])
        job = self.start_ctrun(
            "-n", 2, "--max-restarts", "1", "--warm", program,
            env={"PYTHONPATH": packages, "LOGLEVEL": "info"}, cwd=self.tmp,
        )  # fmt: skip
        job.wait_for("the spare of local rank 1 is ready", LIMIT)
        self.go.touch()
        testlib.wait_until(marker.exists, "the hand-over", LIMIT)
        job.signal(signal.SIGTERM)
        result = job.wait(LIMIT)
        self.assertEqual(result.code, 128 + signal.SIGTERM, result)
        self.assertNotIn("generation 1:", result.err)

    def test_a_file_that_was_imported_has_changed(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        module = packages / "upgraded.py"
        module.write_text("VERSION = 1\n")
        result = self.cold_package("upgraded", lambda job: module.write_text("VERSION = 22\n"), "has changed")
        self.assertIn("version 22", result.out)

    def cold_package(self, name, before, reason):
        program = self.program(
            f"import os, time\nimport {name}\n{{wait}}first_generation()\nprint('version', {name}.VERSION)\n"
        )
        result = self.restart(program, before=before, env={"PYTHONPATH": self.tmp / "site-packages"})
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, r"(?m)^ctrun: rank \d starts cold: .*" + reason)
        return result

    def test_a_module_beside_the_program_hides_an_installed_one(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "hidden.py").write_text("VERSION = 1\n")
        beside = self.tmp / "hidden.py"
        result = self.cold_package("hidden", lambda job: beside.write_text("VERSION = 2\n"), "would be imported instead")
        self.assertIn("version 2", result.out)

    def unfit(self, source, reason):
        """An installed module with this text makes no spare, and the job is as ever."""
        shutil.rmtree(self.tmp / "site-packages", ignore_errors=True)
        (self.tmp / "site-packages").mkdir()
        (self.tmp / "site-packages" / "unfit.py").write_text(source)
        self.go.unlink(missing_ok=True)
        program = self.program("import os, time\nimport unfit\n{wait}first_generation()\n")
        env = {"PYTHONPATH": self.tmp / "site-packages"}
        result = self.restart(
            program, spares=0, env=env, before=lambda job: job.wait_for("--warm makes no spares", LIMIT)
        )
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, "(?m)^ctrun: --warm makes no spares: .*" + reason)
        self.assertEqual(result.err.count("--warm"), 1, result)
        self.assertNotIn("were warm", result.err)

    def test_what_an_import_must_not_do(self):
        self.unfit("import sys\nprint('hello')\n", "has printed: hello")
        self.unfit("import os\nos.write(2, b'raw')\n", "has printed: raw")
        self.unfit("import socket\nkeep = socket.socket()\n", "has opened a socket")
        self.unfit("import os\nif os.fork() == 0:\n  os.execvp('sleep', ['sleep', '100'])\n", "has started a process")
        self.unfit("import threading, time\n"
                   "threading.Thread(target=time.sleep, args=(9,), daemon=True, name='t 1').start()\n", "thread t 1")
        self.unfit("import os\nos.chdir('/')\n", "working directory")
        self.unfit("import os\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
                   "  os.kill(os.getpid(), 9)\n", "too many of them have died")  # fmt: skip
        self.unfit("import os, sys\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
                   "  sys.exit(9)\n", "import unfit: SystemExit: 9")  # fmt: skip

    def test_an_import_that_prints_without_end_is_stopped_at_once(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "endless.py").write_text(
            "import os\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
            "  while not os.path.exists('enough'):\n    os.write(1, b'x' * 4096)\n"
        )
        program = self.program("import os, time\nimport endless\n{wait}first_generation()\n")
        for options in ((), ("--tee", "3")):  # it prints into a file in memory, or into a pipe that is full soon
            job = self.start_ctrun("-n", "1", "--max-restarts", "1", "--warm", *options, program, cwd=self.tmp,
                                   env={"PYTHONPATH": packages})  # fmt: skip
            try:
                job.wait_for("--warm makes no spares: an import has printed: xxx", LIMIT)
            finally:
                (self.tmp / "enough").touch()
                self.go.touch()
            self.assertEqual(job.wait(LIMIT).code, 0)
            (self.tmp / "enough").unlink()
            self.go.unlink()

    def test_a_ready_spare_that_prints_is_ended_and_keeps_little(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "talker.py").write_text(
            "import ctypes, os, time\n"
            "@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)\n"
            "def talk(_):\n"
            "  while not os.path.exists('talk'): time.sleep(0.01)\n"
            "  try:\n"
            "    written = 0\n"
            "    while True: written += os.write(1, b'x' * 4096)\n"
            "  except OSError:\n"
            "    with open('part', 'w') as file: file.write(str(written))\n"
            "    os.rename('part', 'written')\n"
            "if os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
            "  ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, talk, None)\n"
        )
        program = self.program("import os, time\nimport talker\n{wait}first_generation()\n")
        written = self.tmp / "written"
        for options in ((), ("--tee", "3")):  # it prints into a file in memory, or into a pipe
            job = self.start_ctrun("-n", "1", "--max-restarts", "1", "--warm", *options, program, cwd=self.tmp,
                                   env={"PYTHONPATH": packages, "LOGLEVEL": "info"})  # fmt: skip
            job.wait_for("the spare of local rank 0 is ready", LIMIT)
            if not options:
                job.signal(signal.SIGSTOP)  # so that nobody looks at what it prints
            (self.tmp / "talk").touch()
            if not options:
                testlib.wait_until(written.exists, "the end of the file in memory", LIMIT)
                self.assertEqual(int(written.read_text()), 65536)
                job.signal(signal.SIGCONT)
            job.wait_for("--warm makes no spares: a spare has printed: xxx", LIMIT)
            self.go.touch()
            self.assertEqual(job.wait(LIMIT).code, 0)
            (self.tmp / "talk").unlink()
            self.go.unlink()

    def test_an_interpreter_without_the_hook_never_runs_the_program(self):
        python = self.script("python", f'#!/bin/sh\nshift\nexec {sys.executable} -I -u "$@"\n')
        os.chmod(python, 0o755)
        program = self.program("import os, time\nprint('ran', flush=True)\n{wait}first_generation()\n")
        result = self.restart(
            program, spares=0, env={"PYTHON_EXEC": python},
            before=lambda job: job.wait_for("--warm makes no spares", LIMIT),
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertIn("does not import sitecustomize", result.err)
        self.assertEqual(len(re.findall(r"ran", result.out)), 4 if "[0-1]" not in result.out else 2, result)

    def test_an_import_that_has_read_its_rank_is_no_use_for_another(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "ranked.py").write_text("import os\nVERSION = os.environ['CTRUN_GENERATION']\n")
        program = self.program("import os, time\nimport ranked\n{wait}first_generation()\nprint('v', ranked.VERSION)\n")
        result = self.restart(program, env={"PYTHONPATH": packages})
        self.assert_warm(result)  # it was told the right one
        self.assertNotIn("v 0", result.out)

    def test_more_than_there_are_workers(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        result = self.restart(program, warm=("--warm=500",))
        self.assert_warm(result)
        self.assertIn("--warm=500: there are 2 workers here, so 2 spares will be made", result.err)

    def test_fewer_than_there_are_workers(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        self.assert_warm(self.restart(program, warm=("--warm=1",), spares=1), number=1)

    def test_no_memory_for_spares(self):
        program = self.program("import os, time\n{wait}first_generation()\nprint('done')\n")
        result = self.restart(program, warm=("--warm", "--warm-memory", "1"), spares=0)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("were warm", result.err)

    def test_it_is_said_when_not_even_one_spare_fits(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        job = self.start_ctrun("-n", 2, "--max-restarts", "1", "--warm", "--warm-memory", "1", program, cwd=self.tmp)
        job.wait_for("--warm makes no spares now: one takes more than the 1 MiB that --warm-memory allows", LIMIT)
        self.go.touch()
        self.assertEqual(job.wait(LIMIT).code, 0)

    def test_it_is_said_when_some_spares_do_not_fit(self):
        program = self.program("import os, time\nimport json\n{wait}first_generation()\n")
        args = ("-n", 3, "--max-restarts", "1", "--warm")
        job = self.start_ctrun(*args, program, cwd=self.tmp, env={"LOGLEVEL": "info"})
        line = job.wait_for("the spare of local rank 0 is ready", LIMIT)
        mib = int(re.search(r", (\d+) MiB, ", line).group(1))
        self.go.touch()
        self.assertEqual(job.wait(LIMIT).code, 0)
        self.go.unlink()
        job = self.start_ctrun(*args, "--warm-memory", mib * 5 // 2, program, cwd=self.tmp)
        job.wait_for("--warm makes only 2 of 3 spares now: all of them take more than the ", LIMIT)
        self.go.touch()
        result = job.wait(LIMIT)
        self.assertEqual(result.code, 0, result)
        self.assertIn("generation 1: 2 of 3 workers here were warm", result.err)

    @unittest.skipIf(os.geteuid() != 0, "needs root to mount a file system")
    def test_shared_memory_that_is_full(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        job = self.start(
            "unshare", "--mount", "sh", "-ec",
            'mount -t tmpfs -o size=64k none /dev/shm && ! cat /dev/zero >/dev/shm/all 2>/dev/null && exec "$@"', "sh",
            testlib.program("ctrun"), "-n", 2, "--max-restarts", "1", "--warm", program,
            env={"LOGLEVEL": "info"}, cwd=self.tmp,
        )  # fmt: skip
        for rank in range(2):
            job.wait_for(f"the spare of local rank {rank} is ready", LIMIT)
        self.go.touch()
        self.assert_warm(job.wait(LIMIT))

    def test_the_status_tells_of_the_spares(self):
        program = self.program("import os, time\n{wait}first_generation()\n"
                               f"while not os.path.exists({str(self.tmp / 'end')!r}): time.sleep(0.01)\n")  # fmt: skip
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        report = self.tmp / "report.json"
        job = self.start_ctrun(
            "-n", 2, "--max-restarts", "1", "--master-port", port, "--report", report, "--warm", program,
            cwd=self.tmp, env={"LOGLEVEL": "info"},
        )  # fmt: skip
        self.addCleanup((self.tmp / "end").touch)

        def shown(*texts):
            listed = self.run_program(testlib.program("ctrun-stat"), f"127.0.0.1:{port}").out
            return all(text in listed for text in texts)

        testlib.wait_until(lambda: shown("warm: 2 of 2 spares ready (", "each), 0 of the workers"), "the spares", LIMIT)
        os.kill(self.spares(job, 2)[1], signal.SIGSTOP)
        self.go.touch()
        testlib.wait_until(lambda: shown("1 of the workers were spares", "\ncold start on ", "does not answer"),
                           "the warm worker", LIMIT)  # fmt: skip
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT) as answer:
            self.assertRegex(answer.read().decode(), r"\nctrun_job_warm_workers\{.*\} 1\n")
        (self.tmp / "end").touch()
        self.assertEqual(job.wait(LIMIT).code, 0)
        warm = json.loads(report.read_text())["warm"]
        self.assertEqual((warm["wanted"], warm["workers"], warm["workers_in_all"], warm["off"]), (2, 1, 1, ""))
        self.assertRegex(warm["cold"], r"^its spare \(pid \d+\) does not answer$")

    def test_spares_are_made_while_machines_are_missing(self):
        report = self.tmp / "report.json"
        program = self.script(
            "program.py",
            "import json, os\n"
            "print('rank', *(os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'GROUP_RANK', 'MASTER_PORT')))\n",
        )
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]

        def join(rank):
            return self.start_ctrun(
                "--nnodes", "2", "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", port, "-n", "2",
                "--warm", "--report", report if rank == 1 else self.tmp / "other", program,
                env={"LOGLEVEL": "info"}, cwd=self.tmp,
            )  # fmt: skip

        first = join(0)  # hosts the store
        first.wait_for("the spare of local rank 1 is ready", LIMIT)
        second = join(1)
        results = [first.wait(LIMIT), second.wait(LIMIT)]
        self.assertEqual([result.code for result in results], [0, 0], results)
        self.assertIn("generation 0: 2 of 2 workers here were warm", results[0].err)
        told = sorted(re.findall(r"rank (\d+) (\d+) (\d+) (\d+)", "".join(result.out for result in results)))
        store = {line[3] for line in told}
        self.assertEqual([line[:3] for line in told], [(str(r), "4", str(r // 2)) for r in range(4)])
        self.assertEqual(len(store), 1)
        self.assertEqual(json.loads((self.tmp / "other").read_text())["start_up"]["warm"], 2)

    def test_a_job_that_ends_before_all_have_come_leaves_no_spare(self):
        program = self.script("program.py", "import json\n")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        job = self.start_ctrun(
            "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", port, "-n", "2",
            "--warm", program, env={"LOGLEVEL": "info"}, cwd=self.tmp,
        )  # fmt: skip
        job.wait_for("the spare of local rank 0 is ready", LIMIT)
        job.signal(signal.SIGTERM)
        job.wait(LIMIT)
        job.wait_no_family(LIMIT)

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

    def test_nothing_is_left_when_the_job_is_over(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        job = self.start_ctrun("-n", "2", "--max-restarts", "1", "--warm", program, env={"LOGLEVEL": "info"})
        job.wait_for("the spare of local rank 1 is ready", LIMIT)
        job.signal(signal.SIGTERM)
        job.wait(LIMIT)
        job.wait_no_family(LIMIT)

    def test_nothing_is_left_when_ctrun_is_killed(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        job = self.start_ctrun("-n", "2", "--max-restarts", "1", "--warm", program, env={"LOGLEVEL": "info"})
        job.wait_for("the spare of local rank 1 is ready", LIMIT)
        job.signal(signal.SIGKILL)
        job.wait_no_family(LIMIT)

    def test_other_programs(self):
        result = self.ctrun("--max-restarts", "1", "--warm", "true")
        self.assertEqual(result.code, 0, result)
        self.assertIn("--warm has no effect: true is no Python program, and offers no warm form of itself", result.err)


class Environment(testlib.Case):
    """What the part in Python answers when the worker is to have another rank than the spare was told."""

    def answer(self, source):
        (self.tmp / "ranked.py").write_text(source)
        start = {"PYTHONPATH": f"{PART}:{self.tmp}", "RANK": "1"}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, tempfile.TemporaryFile() as before, tempfile.TemporaryFile() as after:
            before.write(f"PYTHONPATH={self.tmp}\0RANK=1\0".encode())
            after.write(f"PYTHONPATH={self.tmp}\0RANK=2\0".encode())
            for block in (before, after):
                block.seek(0)
            with subprocess.Popen(
                [sys.executable, "-u", "-c", "pass"], env={**start, "CTRUN_WARM": f"1:{theirs.fileno()}:spare"},
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            ) as spare:  # fmt: skip
                theirs.close()
                ours.settimeout(LIMIT)
                socket.send_fds(ours, [b"import\0i ranked"], [before.fileno()])
                self.assertEqual(ours.recv(65536).partition(b"\0")[0], b"ready")
                socket.send_fds(ours, [b"go\0module\0nothing"], [after.fileno()])
                answer = ours.recv(65536).decode()
                ours.close()
                spare.wait(LIMIT)
        return answer

    def test_a_variable_that_an_import_has_used_must_stay(self):
        used = ("os.environ.get('RANK')", "os.environb.get(b'RANK')", "os.getenvb(b'RANK')", "'RANK' in os.environ",
                "dict(os.environ)", "os.environ.pop('RANK')", "os.putenv('OTHER', '') or os.environ.setdefault('RANK', '')")
        for use in used:
            with self.subTest(use):
                self.assertRegex(self.answer(f"import os\n{use}\n"), "^no\0.*has used RANK, which is another one now")

    def test_one_that_none_has_used_may_change(self):
        for use in ("os.environ.get('OTHER')", "os.environb.get(b'OTHER')"):
            with self.subTest(use):
                self.assertEqual(self.answer(f"import os\n{use}\n"), "set")


class Plan(unittest.TestCase):
    """What the part in Python takes of a program; under each Python that is installed."""

    PYTHONS = sorted({shutil.which(f"python3.{minor}") for minor in range(8, 15)} - {None} | {sys.executable})

    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="ctrun-test-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)

    def works(self, python):
        return subprocess.run([python, "-c", "pass"], capture_output=True, check=False).returncode == 0

    def ask(self, python, program, kind="file", names="", env=None):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {**os.environ, "PYTHONPATH": str(PART), "CTRUN_WARM": f"1:{theirs.fileno()}:plan",
               "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}  # fmt: skip
        with ours, theirs:
            ours.settimeout(LIMIT)
            ours.send("\0".join(["plan", kind, str(program), names]).encode())
            done = subprocess.run([python, "-u", "-c", "print('went on')"], env=env, pass_fds=[theirs.fileno()],
                                  capture_output=True, text=True, cwd=self.tmp, timeout=LIMIT, check=False)  # fmt: skip
            answer = ours.recv(65536).decode()
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        word, _, text = answer.partition("\0")
        return word, text

    def imports(self, text, kind="file", program=None, **files):
        """The imports of a program, which must be the same under each Python."""
        answers = {}
        (self.tmp / "program.py").write_text(text)
        for name, content in files.items():
            path = self.tmp / (name.replace("__in__", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        for python in self.PYTHONS:
            if self.works(python):
                word, plan = self.ask(python, program or self.tmp / "program.py", kind)
                answers[python] = (word, [line[2:] for line in plan.split("\n") if line.startswith("i ")])
        self.assertTrue(answers)
        self.assertEqual(len({str(answer) for answer in answers.values()}), 1, answers)
        word, names = answers.popitem()[1]
        self.assertEqual(word, "plan")
        return names

    def test_the_imports_at_the_beginning(self):
        self.assertEqual(
            self.imports("'doc'\nfrom __future__ import annotations\nimport os, json.decoder as d\n"
                         "from xml import dom\nfrom email import *\nX = 1\nimport csv\n"),
            ["os", "json.decoder", "xml:dom", "email", "csv"],
        )  # fmt: skip

    def test_what_may_fail_and_what_ends_the_list(self):
        begin = "import os, sys\n"
        for end in ("os.environ['A'] = '1'", "sys.path.insert(0, 'x')", "print()", "for x in []: pass", "X = os.environ",
                    "with open('/dev/null'): pass", "del X", "if True: print()", "sys.x = 1", "assert print",
                    "X = sys.modules", "if __name__ == '__main__': print()"):  # fmt: skip
            self.assertEqual(self.imports(begin + end + "\nimport csv\n"), ["os", "sys"], end)
        for middle in ("def f(): print()", "class A: pass", "X = f(1)", "if 1: X = 2", "X: int = 3", "pass",
                       "X = os.path.join('a')", "if sys.version_info > (3, 8): import csv"):  # fmt: skip
            self.assertEqual(self.imports(begin + middle + "\nimport json\n"), ["os", "sys", "json"], middle)
        self.assertEqual(self.imports("try:\n import csv\nexcept ImportError:\n import json\nimport xml\n"), ["?csv", "xml"])

    def test_the_jobs_own_modules_are_read_and_not_run(self):
        self.assertEqual(
            self.imports("import helper\nfrom lib import part\nimport json\n",
                         helper="import csv\nif __name__ == '__main__':\n    exit(1)\nimport wave\n",
                         lib__in____init__="from .other import x\n", lib__in__part="import bz2\nfrom . import missing\n",
                         lib__in__other="import gzip\n"),
            ["csv", "wave", "gzip", "bz2", "json"],
        )  # fmt: skip
        self.assertEqual(self.imports("import helper\nimport json\n", helper="import csv\nprint('no')\n"), ["csv"])
        # A module beside the program hides the one of the standard library.
        self.assertEqual(self.imports("import csv\nimport json\n", csv="import wave\n"), ["wave", "json"])

    def test_a_module_as_the_program(self):
        self.assertEqual(
            self.imports("", "module", "pack.run", pack__in____init__="import csv\n", pack__in__run="import wave\n"),
            ["csv", "wave"],
        )

    def test_what_cannot_be_read(self):
        for text, reason in (("import (\n", "cannot be read"), ("\0", "cannot be read")):
            (self.tmp / "program.py").write_text(text)
            word, why = self.ask(sys.executable, self.tmp / "program.py")
            self.assertEqual(word, "no", text)
            self.assertIn(reason, why)
        self.assertEqual(self.ask(sys.executable, self.tmp / "nowhere.py")[0], "no")

    def test_names_replace_it(self):
        (self.tmp / "program.py").write_text("import csv\n")
        self.assertEqual(self.ask(sys.executable, self.tmp / "program.py", names="wave,xml.dom")[1], "i wave\ni xml.dom")

    def test_the_first_use_of_an_optimizer(self):
        packages = self.tmp / "site-packages"
        (packages / "torch").mkdir(parents=True)
        (packages / "torch" / "__init__.py").write_text("")
        for text, later in (("X = torch.optim.SGD\n", ["i ?torch._dynamo"]), ("X = torch.nn\n", [])):
            program = self.tmp / "program.py"
            program.write_text("import torch\n" + text)
            word, plan = self.ask(sys.executable, program, env={"PYTHONPATH": f"{PART}:{packages}"})
            self.assertEqual(word, "plan")
            self.assertEqual([line for line in plan.split("\n") if line[0] == "i"], ["i torch", *later])


if __name__ == "__main__":
    testlib.main()
