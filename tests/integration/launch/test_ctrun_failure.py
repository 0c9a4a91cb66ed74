# SPDX-License-Identifier: Apache-2.0
"""Exit codes of every class, and what is said about a failure."""

import json
import os
import re
import signal
import socket
import time

import testlib


class ExitCodes(testlib.Case):
    def test_success_prints_nothing(self):
        result = self.ctrun("-n", "3", "true")
        self.assertEqual((result.code, result.out, result.err), (0, "", ""), result)

    def test_workers_code_is_ours(self):
        for code in (1, 2, 85, 255):
            result = self.ctrun("-n", "2", "sh", "-c", f"exit {code}")
            self.assertEqual(result.code, code, result)

    def test_signal_is_128_plus(self):
        result = self.ctrun("sh", "-c", "kill -SEGV $$$$")
        self.assertEqual(result.code, 139, result)
        self.assertIn("SIGSEGV", result.err)

    def test_program_cannot_be_run(self):
        plain = self.script("plain", "data")
        headless = self.script("headless", "neither a script nor a binary\n")
        os.chmod(headless, 0o755)
        orphan = self.script("orphan", "#!/nonexistent/interpreter\n")
        os.chmod(orphan, 0o755)
        for program, code in (
            ("no-such-program-anywhere", 127),
            (str(self.tmp / "absent"), 127),
            (str(self.tmp / "absent.py"), 127),
            (str(self.tmp), 126),
            (plain, 126),
        ):
            with self.subTest(program=program):
                result = self.ctrun("-n", "2", program)
                self.assertEqual(result.code, code, result)
                self.assertIn(program, result.err)
                self.assert_one_line(result.err)
        for program, code in ((headless, 126), (orphan, 127)):
            with self.subTest(program=program):
                result = self.ctrun("-n", "2", "--max-restarts", "3", program)
                self.assertEqual(result.code, code, result)
                self.assertIn(program, result.err.splitlines()[0])
                self.assertNotIn("restarting", result.err)

    def test_the_holder_of_the_port_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as holder:
            port = holder.getsockname()[1]
            result = self.ctrun("--master-port", port, "echo", "never")
        self.assertEqual((result.code, result.out), (1, ""), result)
        self.assertIn(str(port), result.err)
        self.assertIn(str(os.getpid()), result.err)

    def test_an_unusable_log_folder_is_named(self):
        taken = self.script("file", "x")
        result = self.ctrun("--log-dir", taken, "echo", "never")
        self.assertEqual((result.code, result.out), (1, ""), result)
        self.assertIn(taken, result.err)
        self.assert_one_line(result.err)

    def test_gpu_is_refused_where_there_is_none(self):
        result = self.ctrun("-n", "gpu", "true", env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.code, 1, result)
        self.assertIn("no GPU", result.err)


FAILING = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
if rank == 2:
    print("about to fail", file=sys.stderr)
    print("the very reason", file=sys.stderr)
    sys.exit(41)
# The others fail of it, each in its own way.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1) if rank == 0 else sys.exit(0))
open(sys.argv[1] + f"/ready{rank}", "w").close()
while True:
    time.sleep(60)
"""


class Report(testlib.Case):
    def test_first_failure_is_named_though_others_fail_too(self):
        script = self.script("failing.py", FAILING.replace(
            'print("about', 'while len([f for f in os.listdir(sys.argv[1]) if f[:5] == "ready"]) < 3:'
            "\n        time.sleep(0.01)\n    print(\"about"))  # fmt: skip
        result = self.ctrun("-n", "4", script, self.tmp)
        self.assertEqual(result.code, 41, result)
        said = [line for line in result.err.splitlines() if line.startswith("ctrun: ")]
        self.assertRegex(
            said[0],
            rf"^ctrun: rank 2 failed on {re.escape(socket.gethostname())}: "
            r"process \d+ exited with code 41$",
        )
        self.assertIn("ctrun: stopping ranks 0-1, 3 because of it", said[1])
        self.assertIn("the very reason\n", result.err)
        self.assertIn("ctrun: later, rank 0 exited with code 1", said)
        self.assertIn("ctrun: stopped because of it: ranks 1, 3", said)
        self.assertEqual(result.err.count("failed on"), 1, result)

    def test_a_traceback_that_was_shown_last_is_not_shown_twice(self):
        quiet = "[ $RANK = 0 ] || { echo one >&2; echo two >&2; exit 1; }; sleep 100"
        result = self.ctrun("-n", "2", "--no-python", "sh", "-c", quiet)
        self.assertEqual(result.code, 1, result)
        self.assertEqual(result.err.count("two\n"), 1, result)
        # Where another worker has written since, the lines are quoted.
        loud = f"trap 'echo farewell >&2; exit 0' TERM; touch {self.tmp}/$RANK; sleep 100 & wait"
        loud = f"[ $RANK = 1 ] || {{ {loud}; }}; while ! [ -e {self.tmp}/0 ]; do sleep 0.1; done; " + quiet
        result = self.ctrun("-n", "2", "--no-python", "sh", "-c", loud)
        self.assertEqual(result.code, 1, result)
        self.assertRegex(result.err, r"\[0\] farewell\n")
        self.assertIn("ctrun: rank 1 wrote last on stderr:\n    one\n    two\n", result.err)

    def test_killed_worker_is_named_with_its_signal(self):
        result = self.ctrun(
            "-n", "2", "sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; kill -KILL $$$$"
        )
        self.assertEqual(result.code, 137, result)
        self.assertRegex(result.err, r"\Actrun: rank 1 failed on .* killed by signal 9 \(SIGKILL\)")
        self.assertIn("memory", result.err)

    def test_error_file_is_quoted_and_passed_on(self):
        content = {"message": {"message": "ValueError: boom", "extraInfo": {
            "py_callstack": "Traceback: here", "timestamp": "1"}}}  # fmt: skip
        script = self.script(
            "error.py",
            "import os, sys\n"
            f"open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write({json.dumps(content)!r})\n"
            "sys.exit(5)\n",
        )
        own = self.tmp / "own.json"
        result = self.ctrun(
            script, env={"TORCHELASTIC_ERROR_FILE": own, "TMPDIR": self.tmp}
        )
        self.assertEqual(result.code, 5, result)
        self.assertIn("    ValueError: boom\n", result.err)
        self.assertIn("    Traceback: here\n", result.err)
        passed_on = json.loads(own.read_text())
        self.assertEqual(passed_on["message"].pop("errorCode"), 5)
        self.assertEqual(passed_on, content)
        # It is worth keeping, and said to be there.
        kept = re.search(r"files of this run: (\S+)", result.err).group(1)
        self.assertTrue(os.path.exists(f"{kept}/attempt_0/0/error.json"))

    def test_broken_error_file_does_not_hide_the_failure(self):
        script = "echo '{' > $TORCHELASTIC_ERROR_FILE; exit 5"
        result = self.ctrun("sh", "-c", script)
        self.assertEqual(result.code, 5, result)
        self.assertIn("rank 0 failed", result.err)
        self.assertIn("error.json", result.err)

    def test_nothing_is_left_in_the_temporary_folder(self):
        tmp = self.tmp / "tmp"
        tmp.mkdir()
        for command, code in (("exit 0", 0), ("exit 3", 3)):
            result = self.ctrun("-n", "2", "sh", "-c", command, env={"TMPDIR": tmp})
            self.assertEqual(result.code, code, result)
            self.assertEqual(list(tmp.iterdir()), [])

    def test_worker_that_ignores_the_stop_is_killed(self):
        script = "if [ $RANK = 1 ]; then while [ ! -e $0/ready ]; do sleep 0.01; done; exit 3; fi; "
        script += "trap '' TERM; : > $0/ready; while :; do sleep 0.05; done"
        started = time.monotonic()
        result = self.ctrun("-n", "2", "--shutdown-timeout", "1", "sh", "-c", script, self.tmp)
        self.assertEqual(result.code, 3, result)
        self.assertLess(time.monotonic() - started, 15)
        self.assertIn("did not stop in time", result.err)


class Restart(testlib.Case):
    # Counts its starts per rank in the store of this generation, by PyTorch's protocol.
    WORKER = """
import os, socket, struct, sys
rank, generation = os.environ["RANK"], int(os.environ["CTRUN_GENERATION"])
print("generation", generation, "restart", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
s.sendall(b"\\0" + struct.pack("<I", 0x3C85F7CE))
s.sendall(b"\\x04" + struct.pack("<Q", 4) + b"/key" + struct.pack("<q", 1))
count = struct.unpack("<q", s.recv(8, socket.MSG_WAITALL))[0]
assert count <= int(os.environ["WORLD_SIZE"]), count
# Both are there before one fails, so each generation counts to two.
while count < 2:
    s.sendall(b"\\x04" + struct.pack("<Q", 4) + b"/key" + struct.pack("<q", 0))
    count = struct.unpack("<q", s.recv(8, socket.MSG_WAITALL))[0]
if rank == "1" and generation < int(sys.argv[1]):
    os.kill(os.getpid(), 9)
if generation < int(sys.argv[1]):
    s.recv(1)  # until we are stopped
"""

    def test_each_generation_has_an_empty_store(self):
        script = self.script("worker.py", self.WORKER)
        result = self.ctrun("-n", "2", "--max-restarts", "3", script, "2")
        self.assertEqual(result.code, 0, result)
        for generation in (0, 1, 2):
            line = f"generation {generation} restart {generation}"
            self.assertEqual(result.out.count(line), 2, result)
        self.assertIn("restarting the job (restart 1 of 3)", result.err)
        self.assertIn("restarting the job (restart 2 of 3)", result.err)

    def test_restarts_end_with_the_budget(self):
        script = self.script("worker.py", self.WORKER)
        result = self.ctrun("-n", "2", "--max-restarts", "1", script, "9")
        self.assertEqual(result.code, 137, result)
        self.assertEqual(result.err.count("rank 1 failed"), 2, result)
        self.assertEqual(result.err.count("no restarts are left (--max-restarts 1)"), 1, result)

    def test_restart_is_quick(self):
        # As a program does that links ctworker(3): its first step is done (common/progress_page.h).
        step = (
            "printf 'CTP1\\1\\0\\0\\0\\1\\1\\0\\0\\0\\0\\0\\0\\1\\0\\0\\0\\0\\0\\0\\0' |"
            " dd of=${CTRUN_PROGRESS%%:*} bs=1 seek=${CTRUN_PROGRESS##*:} conv=notrunc 2>/dev/null;"
        )
        started = time.monotonic()
        result = self.ctrun(
            "-n", "2", "--max-restarts", "20", "sh", "-c", step + "[ $CTRUN_GENERATION = 20 ]"
        )
        self.assertEqual(result.code, 0, result)
        # Twenty restarts; a sleep or poll of a second anywhere would be seen.
        self.assertLess(time.monotonic() - started, 10)

    def test_early_failures_are_followed_by_a_pause(self):
        job = self.start_ctrun("-n", "2", "--max-restarts", "1000", "sh", "-c", "exit 3")
        job.wait_for("generations in a row failed within a second of their start")
        job.wait_for("(restart 3 of 1000)")
        job.signal(signal.SIGTERM)  # in the pause of 2 s that follows
        result = job.wait()
        self.assertEqual(result.code, 123, result)  # no worker had anything to lose
        self.assertEqual(result.err.count("generations in a row failed"), 1, result)

    def test_a_worker_that_others_kill_starts_again_at_once(self):
        script = "[ $CTRUN_GENERATION = 6 ] || kill -9 $$$$"
        result = self.ctrun("-n", "2", "--max-restarts", "20", "sh", "-c", script)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("generations in a row", result.err)


class Leftovers(testlib.Case):
    def test_background_processes_end_with_the_job(self):
        job = self.start_ctrun("-n", "2", "sh", "-c", "sleep 1000 & setsid sleep 1000 & exit 0")
        result = job.wait()
        self.assertEqual(result.code, 0, result)
        self.assertEqual(job.family(), [])

    def test_and_with_a_failure(self):
        job = self.start_ctrun(
            "-n", "2", "sh", "-c", "sleep 1000 & [ $RANK = 1 ] && exit 9; sleep 1000"
        )
        self.assertEqual(job.wait().code, 9)
        self.assertEqual(job.family(), [])

    def test_sigkill_of_ctrun_leaves_nothing_alive(self):
        job = self.start_ctrun(
            "-n", "3", "sh", "-c", "setsid sleep 1000 & sleep 1000 & echo up; wait",
            env={"TMPDIR": self.tmp},
        )  # fmt: skip
        testlib.wait_until(lambda: job.out.count("up") == 3, "three workers")
        job.signal(signal.SIGKILL)
        job.popen.wait()
        job.wait_no_family(10)


class WrittenReport(testlib.Case):
    """--report on one machine."""

    def report(self, *args, code=0):
        path = self.tmp / "report.json"
        result = self.ctrun("--report", path, *args)
        self.assertEqual(result.code, code, result)
        return json.loads(path.read_text())

    def test_where_the_time_before_the_first_step_went(self):
        report = self.report(
            "-n", 2, testlib.program("train"), "--data", "synthetic", "--epochs", 1, "--hidden", 16
        )
        times = report["start_up"]
        for name in ("connect_s", "wait_s", "spawn_s", "first_step_s"):
            self.assertGreater(times[name], 0, times)
        self.assertLess(sum(v for k, v in times.items() if k.endswith("_s")), testlib.DEADLINE)

    def test_a_file_that_cannot_be_written_is_told_before_the_job(self):
        for path, why in (("/no/such/report", "No such file"), (self.tmp, "Is a directory")):
            result = self.ctrun("--report", path, "echo", "started")
            self.assertEqual((result.code, result.out), (1, ""), result)
            self.assertIn(f"ctrun: --report: cannot write {path}: {why}", result.err)

    def test_a_job_that_cannot_be_started_has_one_too(self):
        plain = self.script("plain", "no program")
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        for args, code, why in (
            (["nosuchprog"], 127, "nosuchprog"),
            ([plain], 126, str(plain)),
            (["--master-port", taken.getsockname()[1], "true"], 1, "in use"),
        ):
            with self.subTest(args=args):
                report = self.report("-n", 2, "--rdzv-id", "early", "--no-python", *args, code=code)
                self.assertEqual(report["exit_code"], code)
                self.assertIn(why, report["why"])
                self.assertEqual((report["run_id"], report["node_rank"]), ("early", -1))
                self.assertEqual(report["generation"], -1)
                self.assertIsNone(report["first_failure"])

    def test_a_pipe_gets_the_report(self):
        read, write = os.pipe()
        with open(read) as pipe:
            result = self.ctrun("--report", f"/proc/{os.getpid()}/fd/{write}", "true")
            os.close(write)
            self.assertEqual(result.code, 0, result)
            self.assertEqual(json.load(pipe)["exit_code"], 0)

    def test_a_known_cause_comes_with_what_to_do(self):
        path = self.tmp / "report.json"
        script = self.script("absent.py", "import nowhere_at_all\n")
        result = self.ctrun("-n", 1, "--report", path, script)
        advice = json.loads(path.read_text())["first_failure"]["advice"]
        self.assertIn("Python finds no module nowhere_at_all: ", advice)
        self.assertIn(f"ctrun: what to do: {advice}\n", result.err)
        self.assertEqual(result.err.count("No module named"), 1, result)

    def test_an_option_of_ctrun_behind_the_program_is_told(self):
        script = self.script(
            "given.py", "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"
        )
        result = self.ctrun("-n", 1, script, "--lr", "1", "--max-restarts=3")
        self.assertEqual(result.code, 2, result)
        self.assertIn("ctrun: what to do: --max-restarts is an option of ctrun, but stands behind", result.err)
        result = self.ctrun("-n", 1, script, "--lt", "1")
        self.assertIn("ctrun: what to do: the program does not know its argument --lt: ", result.err)

    def test_no_first_step_of_a_program_that_tells_none(self):
        report = self.report("-n", 2, "sh", "-c", "exit 3", code=3)
        self.assertIsNone(report["start_up"]["first_step_s"], report)


if __name__ == "__main__":
    testlib.main()
