# SPDX-License-Identifier: Apache-2.0
"""Warm starts: what is no use as a spare, and how many spares there are."""

import os
import pathlib
import re
import resource
import shutil
import signal
import unittest

import testlib
from testlib.warm_case import LIMIT, PART, PYTHON, WarmCase, drop_sys_nice


class Spares(WarmCase):
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
        self.unfit("import _thread, time\nbegun = _thread.allocate_lock()\nbegun.acquire()\n"
                   "def run():\n  begun.release()\n  time.sleep(9)\n"
                   "_thread.start_new_thread(run, ())\nbegun.acquire()\n", "has started a thread")
        self.unfit("import os\nos.chdir('/')\n", "working directory")
        self.unfit("import os\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
                   "  os.kill(os.getpid(), 9)\n", "too many of them have died")  # fmt: skip
        self.unfit("import os, sys\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
                   "  sys.exit(9)\n", "import unfit: SystemExit: 9")  # fmt: skip

    @unittest.skipIf(os.geteuid() != 0, "needs root to make a device")
    def test_an_import_that_opens_an_accelerator(self):
        """Each is the null device under the name of another one, in a /dev that only this job sees."""
        own = self.tmp / "dev"
        own.mkdir()
        packages = self.tmp / "site-packages"
        packages.mkdir()
        program = self.program("import os, time\nimport opener\n{wait}first_generation()\n")
        for name in ("nvidia99", "dri/card99", "accel99", "neuron99", "davinci99", "vfio/99"):
            with self.subTest(name):
                self.go.unlink(missing_ok=True)
                (packages / "opener.py").write_text(f"keep = open('/dev/{name}')\n")
                job = self.start(
                    "unshare", "--mount", "sh", "-ec",
                    'mount -t tmpfs -o mode=755 none "$0" && cp -a /dev/null /dev/zero /dev/urandom "$0"\n'
                    'mkdir -p "$0/shm" "$0/dri" "$0/vfio" && mount --bind /dev/shm "$0/shm"\n'
                    'mknod "$0/$1" c 1 3 && mount --rbind "$0" /dev && shift && exec "$@"', own, name,
                    testlib.program("ctrun"), "-n", 2, "--max-restarts", "1", "--warm", program,
                    env={"PYTHONPATH": packages}, cwd=self.tmp, preexec=drop_sys_nice,
                )  # fmt: skip
                job.wait_for(f"--warm makes no spares: an import uses an accelerator (/dev/{name})", LIMIT)
                self.go.touch()
                result = job.wait(LIMIT)
                self.assertEqual(result.code, 0, result)
                self.assertNotIn("were warm", result.err)

    def test_a_package_that_is_upgraded_during_the_import(self):
        """The new file has the time that it has in the package, as dpkg and tar make it."""
        self.unfit("import os\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
                   "  with open(__file__) as old, open('new', 'w') as new: new.write(old.read())\n"
                   "  os.utime('new', (10**9, 10**9))\n  os.replace('new', __file__)\n", "unfit.py has changed meanwhile")  # fmt: skip

    def test_a_spare_that_is_stopped_while_it_imports_holds_up_nothing(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "stopper.py").write_text(
            "import os, signal\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
            "  with open('part', 'w') as file: file.write(str(os.getpid()))\n"
            "  os.rename('part', 'stopped')\n  os.kill(os.getpid(), signal.SIGSTOP)\n"
        )
        stopped = self.tmp / "stopped"

        def wait(job):
            testlib.wait_until(stopped.exists, "the import", LIMIT)
            stat = pathlib.Path("/proc", stopped.read_text(), "stat")
            testlib.wait_until(lambda: ") T " in stat.read_text(), "the stop", LIMIT)

        program = self.program("import os, time\nimport stopper\n{wait}first_generation()\nprint('done')\n")
        result = self.restart(program, spares=0, env={"PYTHONPATH": packages}, before=wait)
        self.assertEqual(result.code, 0, result)
        self.assertIn("done", result.out)
        self.assertIn("generation 1: no spare was ready: a cold start\n", result.err)
        self.assertFalse(testlib.pid_alive(int(stopped.read_text())))

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
        python = self.script("python", f'#!/bin/sh\nshift\nexec {PYTHON} -I -u "$@"\n')
        os.chmod(python, 0o755)
        program = self.program("import os, time\nprint('ran', flush=True)\n{wait}first_generation()\n")
        result = self.restart(
            program, spares=0, env={"PYTHON_EXEC": python},
            before=lambda job: job.wait_for("--warm makes no spares", LIMIT),
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertIn("does not import sitecustomize", result.err)
        self.assertEqual(len(re.findall(r"ran", result.out)), 4 if "[0-1]" not in result.out else 2, result)

    def test_an_interpreter_without_the_hook_that_leaves_a_process(self):
        """That process has the socket, so nobody sees its end; ctrun once crashed a minute later."""
        python = self.script("python", '#!/bin/sh\nshift\n[ -z "$CTRUN_WARM" ] || sleep 1000 >/dev/null 2>&1 &\n'
                                       f'exec {PYTHON} -I -u "$@"\n')  # fmt: skip
        os.chmod(python, 0o755)
        program = self.program("import os, time\n{wait}first_generation()\n")
        result = self.restart(
            program, spares=0, env={"PYTHON_EXEC": python},
            before=lambda job: job.wait_for("does not import sitecustomize", LIMIT),
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)

    def test_a_plan_whose_process_is_killed_is_made_again(self):
        """The socket of a process that is killed is closed before its end is seen, here by half a second. That is no
        interpreter without the hook."""
        python = self.script("python", '#!/bin/sh\ncase "$CTRUN_WARM" in *:plan) if [ ! -e killed ]; then\n  touch killed\n'
                                       f'  exec 3>&-\n  sleep 0.5\n  kill -9 $$\nfi;; esac\nexec {PYTHON} "$@"\n')  # fmt: skip
        os.chmod(python, 0o755)
        program = self.program("import os, time\n{wait}first_generation()\n")
        self.assert_warm(self.restart(program, env={"PYTHON_EXEC": python}))
        self.assertTrue((self.tmp / "killed").exists())

    def test_a_spare_without_ctruns_part_never_runs_the_program(self):
        """The file is gone since the plan was made, as when ctrun is removed from the machine."""
        own = self.tmp / "own"
        part = own / "launcher" / "warm" / "sitecustomize.py"
        part.parent.mkdir(parents=True)
        shutil.copy(testlib.program("ctrun"), own)
        shutil.copy(PART / "sitecustomize.py", part)
        program = self.program("import os, time\n{wait}"
                               "with open('ran', 'a') as file: file.write('x')\nfirst_generation()\n")  # fmt: skip
        job = self.start(own / "ctrun", "-n", 2, "--max-restarts", "1", "--warm", program, cwd=self.tmp,
                         env={"LOGLEVEL": "info", "PYTHON_EXEC": PYTHON}, preexec=drop_sys_nice)  # fmt: skip
        for rank in range(2):
            job.wait_for(f"the spare of local rank {rank} is ready", LIMIT)
        part.unlink()
        os.kill(self.spares(job, 2)[0], signal.SIGKILL)
        ran = self.tmp / "ran"
        job.wait_for("--warm makes no spares: ", LIMIT, meanwhile=lambda: self.assertEqual(ran.read_text(), "xx"))
        self.go.touch()
        result = job.wait(LIMIT)
        self.assertEqual((result.code, ran.read_text()), (0, "xxxx"), result)
        self.assertIn(f"--warm makes no spares: {part}: No such file or directory", result.err)

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

    def test_none_are_made_when_no_restart_is_left(self):
        """They would take memory and time from the last generation, and nobody would use them."""
        program = self.program("import os, time\n{wait}first_generation()\n"
                               "while not os.path.exists('end'):\n  time.sleep(0.01)\n")  # fmt: skip
        job = self.start_ctrun("-n", 2, "--max-restarts", "1", "--warm", program, cwd=self.tmp, env={"LOGLEVEL": "info"})
        for rank in range(2):
            job.wait_for(f"the spare of local rank {rank} is ready", LIMIT)
        self.go.touch()
        job.wait_for("--warm makes no spares: no restart is left", LIMIT)
        (self.tmp / "end").touch()
        self.assert_warm(job.wait(LIMIT))

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

    def test_a_file_in_memory_counts_as_memory_of_the_spare(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "large.py").write_text(
            "import os\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
            "  keep = os.memfd_create('large')\n  os.posix_fallocate(keep, 0, 100 << 20)\n"
        )
        program = self.program("import os, time\nimport large\n{wait}first_generation()\n")
        job = self.start_ctrun("-n", 2, "--max-restarts", "1", "--warm", "--warm-memory", "90", program,
                               cwd=self.tmp, env={"PYTHONPATH": packages})  # fmt: skip
        job.wait_for("--warm makes no spares now: one takes more than the 90 MiB that --warm-memory allows", LIMIT)
        self.go.touch()
        self.assertEqual(job.wait(LIMIT).code, 0)

    def test_a_spare_with_more_descriptors_than_can_be_counted_turns_warming_off(self):
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2048:
            self.skipTest("needs a limit of 2048 open files")
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "opener.py").write_text(
            "import os, resource\nif os.getenv('CTRUN_GENERATION') == '1' and not os.path.exists('go'):\n"
            "  resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))\n"
            "  keep = [os.memfd_create('small') for _ in range(1100)]\n"
        )
        program = self.program("import os, time\nimport opener\n{wait}first_generation()\n")
        job = self.start_ctrun("-n", 2, "--max-restarts", "1", "--warm", "--warm-memory", "10000", program,
                               cwd=self.tmp, env={"PYTHONPATH": packages})  # fmt: skip
        job.wait_for("has so many descriptors or processes that its memory cannot be counted", LIMIT)
        self.go.touch()
        result = job.wait(LIMIT)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(len(re.findall("--warm makes no spares: a spare ", result.err)), 1, result)
        self.assertNotIn("were warm", result.err)

    def test_a_ready_spare_that_grows_is_ended_alone(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "grower.py").write_text(
            "import ctypes, os, time\n"
            "@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)\n"
            "def grow(_):\n"
            "  while not os.path.exists('grow'): time.sleep(0.01)\n"
            "  os.posix_fallocate(os.memfd_create('large'), 0, 200 << 20)\n"
            "  while True: time.sleep(1)\n"
            "if os.getenv('CTRUN_GENERATION') == '1' and os.getenv('LOCAL_RANK') == '2':\n"
            "  ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, grow, None)\n"
        )
        program = self.program("import os, time\nimport grower\n{wait}first_generation()\n")
        job = self.start_ctrun("-n", 3, "--max-restarts", "1", "--warm", "--warm-memory", "200", program,
                               cwd=self.tmp, env={"PYTHONPATH": packages, "LOGLEVEL": "info"})  # fmt: skip
        job.wait_for("the spare of local rank 2 is ready", LIMIT)
        (self.tmp / "grow").touch()
        job.wait_for("--warm makes only 2 of 3 spares now: all of them take more than the 200 MiB", LIMIT)
        self.go.touch()
        result = job.wait(LIMIT)
        self.assertEqual(result.code, 0, result)
        self.assertIn("generation 1: 2 of 3 workers here were warm", result.err)

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

    def test_root_of_a_user_namespace(self):
        """Its capabilities do not let it take idle priority back from a process."""
        enter = ("unshare", "--user", "--map-root-user")
        if self.run_program(*enter, "true").code != 0:
            self.skipTest("user namespaces are forbidden here")
        program = self.program("import os, time\n{wait}first_generation()\n")
        job = self.start(*enter, testlib.program("ctrun"), "-n", 2, "--max-restarts", "1", "--warm", program,
                         env={"LOGLEVEL": "info"}, cwd=self.tmp)  # fmt: skip
        for rank in range(2):
            job.wait_for(f"the spare of local rank {rank} is ready", LIMIT)
        self.go.touch()
        self.assert_warm(job.wait(LIMIT))

    @unittest.skipIf(os.geteuid() != 0, "needs root to mount a file system")
    def test_shared_memory_that_is_full(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        job = self.start(
            "unshare", "--mount", "sh", "-ec",
            'mount -t tmpfs -o size=64k none /dev/shm && ! cat /dev/zero >/dev/shm/all 2>/dev/null && exec "$@"', "sh",
            testlib.program("ctrun"), "-n", 2, "--max-restarts", "1", "--warm", program,
            env={"LOGLEVEL": "info"}, cwd=self.tmp, preexec=drop_sys_nice,
        )  # fmt: skip
        for rank in range(2):
            job.wait_for(f"the spare of local rank {rank} is ready", LIMIT)
        self.go.touch()
        self.assert_warm(job.wait(LIMIT))


if __name__ == "__main__":
    testlib.main()
