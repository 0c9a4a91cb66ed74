# SPDX-License-Identifier: Apache-2.0
"""Warm starts: spares are made, become workers, or make place for a cold start."""

import ctypes
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import time
import urllib.request

import testlib
from testlib.warm_case import LIMIT, PYTHON, WarmCase

PTRACE_SEIZE = 0x4206  # linux/ptrace.h
CT_WARM_WAIT_S = 30  # a generation that begins waits so long for an import


class Warm(WarmCase):
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

    def importing(self, workers, meanwhile, last="pass", before=lambda: None):
        """A restart while the last spare imports; `last` is what its import does last. `before()` is called before the
        restart, and `meanwhile(job, pid)` when the next generation waits for that spare. Returns the result and the
        pids of all processes that have imported."""
        packages = self.tmp / "site-packages"
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir()
        begun, done = self.tmp / "begun", self.tmp / "done"
        for path in (begun, done, self.go):
            path.unlink(missing_ok=True)
        (packages / "slow.py").write_text(
            "import os, time\n"
            f"if os.getenv('CTRUN_GENERATION') == '1' and os.getenv('LOCAL_RANK') == '{workers - 1}':\n"
            f"  with open({str(begun)!r}, 'a') as file: file.write(f'{{os.getpid()}}\\n')\n"
            f"  while not os.path.exists({str(done)!r}): time.sleep(0.01)\n  {last}\n"
        )
        job = self.start_ctrun(
            "-n", workers, "--max-restarts", "1", "--warm",
            self.program("import os, time\nimport slow\n{wait}first_generation()\n"),
            env={"PYTHONPATH": packages, "LOGLEVEL": "info"}, cwd=self.tmp,
        )  # fmt: skip
        testlib.wait_until(lambda: begun.exists() and begun.read_text().endswith("\n"), "the import", LIMIT)
        before()
        self.go.touch()
        job.wait_for(f"waiting for the spare of local rank {workers - 1}, which imports", LIMIT)
        meanwhile(job, int(begun.read_text().split()[0]))
        done.touch()
        result = job.wait(LIMIT)
        self.assertEqual(result.code, 0, result)
        return result, begun.read_text().split()

    def test_a_spare_that_still_imports_becomes_a_worker(self):
        """A cold start would import the same again."""
        for workers in (1, 2):
            with self.subTest(workers=workers):
                result, pids = self.importing(workers, lambda job, pid: None)
                self.assert_warm(result, workers, workers)
                self.assertEqual(len(pids), 1)

    def test_an_import_for_which_a_generation_waits_in_vain(self):
        result, pids = self.importing(1, lambda job, pid: None, "os.write(1, b'hello\\n')")
        self.assertIn("--warm makes no spares: an import has printed: hello", result.err)
        self.assertEqual(len(pids), 2)
        for signo, why in ((signal.SIGSTOP, "does not answer"), (signal.SIGKILL, "has died")):
            with self.subTest(why):
                result, pids = self.importing(1, lambda job, pid, signo=signo: os.kill(pid, signo))
                self.assertIn(f"rank 0 starts cold: its spare (pid {pids[0]}) {why}", result.err)
                self.assertEqual(len(pids), 2)

    def test_an_import_is_not_awaited_when_another_worker_starts_cold(self):
        def edit():
            path = self.tmp / "program.py"
            path.write_text(path.read_text() + "pass\n")

        def look(job, pid):
            job.wait_for("rank 0 starts cold: ", LIMIT)
            job.wait_for("rank 1 starts cold: another worker here starts cold, too", CT_WARM_WAIT_S / 2)

        result, pids = self.importing(2, look, before=edit)
        self.assertRegex(result.err, "rank 0 starts cold: .*program.py has changed")
        self.assertEqual(len(pids), 2)

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

    def test_an_interpreter_that_was_replaced(self):
        python = self.script("python", f'#!/bin/sh\nexec {PYTHON} "$@"\n')
        os.chmod(python, 0o755)
        program = self.program("import os, time\n{wait}first_generation()\n")
        result = self.restart(
            program, env={"PYTHON_EXEC": python},
            before=lambda job: self.script("python", f'#!/bin/sh\nANOTHER=1 exec {PYTHON} "$@"\n'),
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.err.count(f"starts cold: {python} has changed"), 2, result)

    def test_a_wrapper_that_runs_python_for_something_else_first(self):
        """Its first interpreter once became the worker, and the second one ended with 0 in place of the program."""
        wrapper = self.script("python", f'#!/bin/sh\n{PYTHON} -c pass\nexec {PYTHON} "$@"\n')
        os.chmod(wrapper, 0o755)
        program = self.program("import os, time\nprint('begun')\n{wait}first_generation()\n")
        result = self.restart(program, env={"PYTHON_EXEC": wrapper})
        self.assertEqual((result.code, result.out.count("begun")), (0, 4), result)
        self.assertEqual(result.err.count("starts cold: the command runs Python for another program first"), 2, result)

    def test_the_status_tells_of_the_spares(self):
        packages = self.tmp / "site-packages"
        packages.mkdir()
        (packages / "slow.py").write_text(
            "import os, time\ngeneration = os.getenv('CTRUN_GENERATION')\n"
            "while generation != '0' and not os.path.exists('import-' + generation): time.sleep(0.01)\n"
        )
        program = self.program("import os, time\nimport slow\n{wait}first_generation()\n"
                               f"while not os.path.exists({str(self.tmp / 'end')!r}): time.sleep(0.01)\n")  # fmt: skip
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        report = self.tmp / "report.json"
        job = self.start_ctrun(
            "-n", 2, "--max-restarts", "2", "--master-port", port, "--report", report, "--warm", program,
            cwd=self.tmp, env={"LOGLEVEL": "info", "PYTHONPATH": packages},
        )  # fmt: skip
        self.addCleanup((self.tmp / "end").touch)

        def shown(*texts):
            listed = self.run_program(testlib.program("ctrun-stat"), f"127.0.0.1:{port}").out
            return all(text in listed for text in texts)

        testlib.wait_until(lambda: shown("warm: 0 of 2 spares ready, being made, 0 of"), "the making", LIMIT)
        (self.tmp / "import-1").touch()
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
        self.assertEqual(warm["state"], "making")  # the imports of the next generation wait for ever
        self.assertRegex(warm["cold"], r"^its spare \(pid \d+\) does not answer$")

    def late(self, first, told=None):
        """A job of two machines, the second of which comes when the spares of node rank `first` are ready. The bill
        of the one that has waited says so, in the report and, since the job fails, in words. `told(rank)` is the
        environment in which a scheduler starts ctrun; else its options name the machines."""
        program = self.script(
            "program.py",
            "import json, os, time\n"
            "told = [os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'GROUP_RANK', 'MASTER_PORT')]\n"
            f"path = {str(self.tmp)!r} + '/told.' + told[0]\n"
            "with open(path + '.new', 'w') as file: json.dump(told, file)\n"
            "os.rename(path + '.new', path)\n"  # rank 0 ends the job as soon as all four names are there
            f"while not all(os.path.exists({str(self.tmp)!r} + f'/told.{{rank}}') for rank in range(4)): time.sleep(0.01)\n"
            "os._exit(3 if told[0] == '0' else 0)\n",
        )
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]

        def join(rank):
            machines = ("--nnodes", "2", "--node-rank", rank) if told is None else ()
            return self.start_ctrun(
                *machines, "--master-addr", "127.0.0.1", "--master-port", port, "-n", "2",
                "--warm", "--report", self.tmp / f"report.{rank}", program,
                env={"LOGLEVEL": "info", **(told(rank) if told is not None else {})}, cwd=self.tmp,
            )  # fmt: skip

        jobs = {first: join(first)}
        jobs[first].wait_for("the spare of local rank 1 is ready", LIMIT)
        jobs[1 - first] = join(1 - first)
        results = [jobs[rank].wait(LIMIT) for rank in range(2)]
        self.assertEqual([result.code for result in results], [3, 3], results)
        waited = results[first].err
        self.assertIn("generation 0: 2 of 2 workers here were warm", waited)
        self.assertRegex(waited, r"start-up here: connected in .*, spawned in [\d.]+ s \(2 of 2 warm\)\n")
        lines = [json.loads((self.tmp / f"told.{rank}").read_text()) for rank in range(4)]
        self.assertEqual([line[:3] for line in lines], [[str(r), "4", str(r // 2)] for r in range(4)])
        self.assertEqual(len({line[3] for line in lines}), 1)  # one store
        bill = json.loads((self.tmp / f"report.{first}").read_text())["start_up"]
        self.assertEqual(bill["warm"], 2)
        # CT_WARM_BEGIN_MS passes before any spare is made.
        self.assertGreater(bill["connect_s"] + bill["wait_s"], 1)

    def test_spares_are_made_while_a_machine_is_missing(self):
        self.late(0)

    def test_spares_are_made_while_the_machine_of_the_store_is_missing(self):
        self.late(1)

    def test_spares_are_made_while_a_scheduler_still_starts_machines(self):
        """As srun starts one ctrun on each machine, the later ones perhaps minutes later."""
        self.late(0, lambda rank: {
            "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2",
            "SLURM_NODEID": str(rank), "SLURM_PROCID": str(rank), "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        })  # fmt: skip

    def test_spares_become_workers_when_a_machine_joins_and_when_one_is_lost(self):
        """The rank, the world and the master of a spare that was made before are those of another world."""
        program = self.script(
            "program.py",
            "import json, os, time\n"
            "names = ['RANK', 'WORLD_SIZE', 'GROUP_RANK', 'GROUP_WORLD_SIZE', 'LOCAL_RANK']\n"
            "names += ['MASTER_ADDR', 'MASTER_PORT']\n"
            "path = 'told.{CTRUN_GENERATION}.{RANK}'.format_map(os.environ)\n"
            "with open(path + '.new', 'w') as file: json.dump([os.getpid(), *map(os.environ.get, names)], file)\n"
            "os.rename(path + '.new', path)\n"
            "while not os.path.exists('end'): time.sleep(0.01)\n",
        )
        _, port = self.start_ctrdzvd()

        def join():
            return self.start_ctrun(
                "--nnodes", "1:2", "-n", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                "--rdzv-conf", "is_host=0,last_call_timeout=0.1", "--rdzv-id", "warm", "--warm", program,
                env={"LOGLEVEL": "info"}, cwd=self.tmp,
            )  # fmt: skip

        def told(generation, world):
            """The pids of the workers of this generation by rank, each of which was told the right things."""
            paths = [self.tmp / f"told.{generation}.{rank}" for rank in range(world)]
            testlib.wait_until(lambda: all(path.exists() for path in paths), f"generation {generation}", LIMIT)
            self.assertFalse((self.tmp / f"told.{generation}.{world}").exists())
            seen = [json.loads(path.read_text()) for path in paths]
            for rank, (_, *mine) in enumerate(seen):
                self.assertEqual(mine[:5], [str(n) for n in (rank, world, rank // 2, world // 2, rank % 2)])
            self.assertEqual(len({(address, number) for *_, address, number in seen}), 1)
            return [pid for pid, *_ in seen]

        def ready(job, number):
            testlib.wait_until(lambda: len(self.spares(job, 9)) == number, "the spares", LIMIT)
            return set(self.spares(job, 9))

        first = join()
        told(0, 2)
        spares = ready(first, 2)
        second = join()
        pids = told(1, 4)
        self.assertEqual(set(pids[:2]), spares)
        self.assertIn("generation 1: 2 of 2 workers here were warm\n", first.err)
        # The second machine has had the ranks 2 and 3, and goes on alone.
        spares = ready(second, 2)
        first.signal(signal.SIGKILL)
        first.wait(LIMIT)
        pids = told(2, 2)
        self.assertEqual(set(pids), spares)
        self.assertIn("generation 2: 2 of 2 workers here were warm\n", second.err)
        (self.tmp / "end").touch()
        self.assertEqual(second.wait(LIMIT).code, 0)

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

    def test_nothing_is_left_when_the_job_is_over(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        job = self.start_ctrun("-n", "2", "--max-restarts", "1", "--warm", program, env={"LOGLEVEL": "info"})
        job.wait_for("the spare of local rank 1 is ready", LIMIT)
        job.signal(signal.SIGTERM)
        job.wait(LIMIT)
        job.wait_no_family(LIMIT)

    def hold(self, pid):
        """Keeps a process, when it has ended, as one that has not ended yet: its tracer does not look."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if libc.ptrace(PTRACE_SEIZE, pid, None, None) != 0:
            if ctypes.get_errno() == errno.EPERM and os.geteuid() != 0:
                self.skipTest("may not trace other processes")
            self.fail(os.strerror(ctypes.get_errno()))
        self.addCleanup(os.waitpid, pid, 0)

    def cpu_s(self, pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_a_spare_that_cannot_be_ended_does_no_harm(self):
        program = self.script("program.py", "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n")
        job = self.start_ctrun("-n", 1, "--max-restarts", "1", "--shutdown-timeout", "1", "--warm", program,
                               env={"LOGLEVEL": "info"}, cwd=self.tmp)  # fmt: skip
        job.wait_for("the spare of local rank 0 is ready", LIMIT)
        spare = self.spares(job, 1)[0]
        self.hold(spare)
        self.go.touch()
        testlib.wait_until(lambda: not testlib.pid_alive(spare), "its end", LIMIT)
        before = self.cpu_s(job.pid)
        time.sleep(1)
        self.assertLess(self.cpu_s(job.pid) - before, 0.5)
        result = job.wait(LIMIT)
        self.assertEqual(result.code, 0, result)

    def test_nothing_is_left_when_ctrun_is_killed(self):
        program = self.program("import os, time\n{wait}first_generation()\n")
        job = self.start_ctrun("-n", "2", "--max-restarts", "1", "--warm", program, env={"LOGLEVEL": "info"})
        job.wait_for("the spare of local rank 1 is ready", LIMIT)
        job.signal(signal.SIGKILL)
        job.wait_no_family(LIMIT)

    def test_other_programs_are_told_of_no_effect(self):
        result = self.ctrun("--max-restarts", "1", "--warm", "true")
        self.assertEqual(result.code, 0, result)
        self.assertIn("--warm has no effect: true is no Python program, and offers no warm form of itself", result.err)


if __name__ == "__main__":
    testlib.main()
