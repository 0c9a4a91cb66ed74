# SPDX-License-Identifier: Apache-2.0
"""Where workers stand: at a hang, and when somebody asks. py-spy is a script here, which tells the place
that the worker has written into a file; real stacks are read in tests/integration/torch/test_torch_hang.py."""

import ctypes
import http.server
import json
import os
import re
import signal
import socket
import socketserver
import threading
import unittest

import testlib
from testlib import wait_until

# Lives for a while, writes where it stands, then does as its rank is told.
WORKER = """
import ctypes, os, signal, sys, threading, time
folder, what = sys.argv[1:3]
while time.process_time() < 0.7:
    pass
alone = os.environ["RANK"] == "1" and os.environ["CTRUN_GENERATION"] == "0"
line = 7 if alone or what == "apart" and os.environ["RANK"] == "2" else 20
with open(f"{folder}/{os.getpid()}", "w") as f:
    f.write(str(line))
# Nobody hangs before all have come so far: a verdict on those that still start would be another one.
while len(os.listdir(folder)) < int(os.environ["WORLD_SIZE"]) * (int(os.environ["CTRUN_GENERATION"]) + 1):
    time.sleep(0.01)
print("standing", flush=True)
if what == "leave" and os.environ["RANK"] == "0":
    sys.exit()
if alone and what == "sleep":
    time.sleep(1000)  # sleep
if alone and what == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)  # stop
if alone and what == "hold":
    ctypes.PyDLL(None).sleep(1000)  # hold
while alone and what == "loop":
    pass
while os.environ["CTRUN_GENERATION"] == "0":
    threading.Event().wait()
"""
# Goes through steps in which rank 1 works and the others wait for it, until the last file is there.
SLOW = """
import ctypes, os, random, sys, time
worker = ctypes.CDLL(sys.argv[2])
job = ctypes.c_void_p()
assert worker.ctw_job_open(None, ctypes.byref(job), None) == 0
COMPUTE, COLLECTIVE, DONE = 2, 3, 5
slow = os.environ["RANK"] == "1"
with open(f"{sys.argv[1]}/{os.getpid()}", "w") as f:
    f.write("7" if slow else "20")
step = 0
while not os.path.exists(sys.argv[3]):
    pause = random.uniform(0.2, 0.6)
    worker.ctw_progress(job, COMPUTE, ctypes.c_int64(step))
    time.sleep(pause if slow else pause / 10)
    worker.ctw_progress(job, COLLECTIVE, ctypes.c_int64(step))
    time.sleep(pause / 10 if slow else pause)
    step += 1
worker.ctw_progress(job, DONE, ctypes.c_int64(step))
"""
# dump --json --nonblocking --pid PID
PY_SPY = """#!/bin/sh
line=$(cat "{folder}/$5") || exit 1
printf '[{{"thread_name":"MainThread","frames":['
printf '{{"name":"all_reduce","filename":"/venv/lib/python3/site-packages/torch/x.py","line":3}},'
printf '{{"name":"st\\\\u001b[2Jep","filename":"/srv/train.py","line":%d}}]}}]\\n' "$line"
"""
# The same, but only those on line 20 are in all_reduce.
PY_SPY_COLLECTIVE = """#!/bin/sh
line=$(cat "{folder}/$5") || exit 1
printf '[{{"thread_name":"MainThread","frames":['
[ "$line" = 7 ] || printf '{{"name":"all_reduce","filename":"/v/site-packages/torch/distributed/distributed_c10d.py","line":3}},'
printf '{{"name":"step","filename":"/srv/train.py","line":%d}}]}}]\\n' "$line"
"""


def environ_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read()
    except OSError:
        return b""


class Traced:
    """A process that is stopped as by a debugger."""

    SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, pids):
        (self.pid,) = pids
        self.ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        if self.ptrace(self.SEIZE, self.pid, None, None) != 0:
            raise unittest.SkipTest(f"no ptrace here: {os.strerror(ctypes.get_errno())}")
        self.ptrace(self.INTERRUPT, self.pid, None, None)
        os.waitpid(self.pid, self.WALL)

    def detach(self):
        self.ptrace(self.DETACH, self.pid, None, None)


class Stacks(testlib.Case):
    def setUp(self):
        super().setUp()
        self.worker = self.script("worker.py", WORKER)
        self.folder = self.tmp / "places"
        self.folder.mkdir()
        self.tools = self.tmp / "tools"
        self.tools.mkdir()

    def install_py_spy(self, text=PY_SPY):
        path = self.tools / "py-spy"
        path.write_text(text.format(folder=self.folder))
        path.chmod(0o755)

    def run_worker(self, what, *args, workers=4):
        env = {"PATH": f"{self.tools}:{os.environ['PATH']}"}
        return self.ctrun("-n", workers, "--hang-timeout", "2", *args, self.worker, self.folder, what, env=env)

    def test_the_line_of_the_suspect_is_in_the_report(self):
        self.install_py_spy()
        path = self.tmp / "report.json"
        result = self.run_worker("sleep", "--on-hang", "abort", "--report", path)
        self.assertEqual(result.code, 122, result)
        where = "train.py:7 in st?[2Jep, inside all_reduce"
        self.assertIn(f"ctrun: rank 1 is at {where}\n", result.err)
        self.assertIn("ctrun: ranks 0, 2-3 are at train.py:20 in st?[2Jep, inside all_reduce\n", result.err)
        self.assertIn("ctrun: stack of rank 1, from py-spy:\n    main thread MainThread:\n", result.err)
        failure = json.loads(path.read_text())["first_failure"]
        self.assertIn(f" s at {where}", failure["what"])
        self.assertIn("/srv/train.py:7 in st?[2Jep\n", failure["traceback"])

    def test_a_rank_on_another_line_is_named_and_killed(self):
        self.install_py_spy()
        result = self.run_worker("wait", "--max-restarts", "1")
        self.assertEqual(result.code, 0, result)
        self.assertIn("ctrun: the job hangs: no rank has made progress for ", result.err)
        self.assertIn("ctrun: rank 1 is on another line than all others\n", result.err)
        self.assertNotIn("stands out", result.err)
        self.assertRegex(result.err, r"ctrun: rank 1 failed on \S+: process \d+ hung: .* at train.py:7 in ")
        self.assertIn("restarting the job (restart 1 of 1)", result.err)

    def test_of_two_the_one_that_did_not_come_is_named(self):
        self.install_py_spy(PY_SPY_COLLECTIVE)
        path = self.tmp / "report.json"
        result = self.run_worker("wait", "--on-hang", "abort", "--report", path, workers=2)
        self.assertEqual(result.code, 122, result)
        self.assertIn("ctrun: rank 1 did not come to all_reduce, in which rank 0 waits\n", result.err)
        self.assertRegex(result.err, r"ctrun: rank 1 failed on \S+: process \d+ hung: .* at train.py:7 in step\n")
        self.assertNotIn("stands out", result.err)
        self.assertEqual(json.loads(path.read_text())["first_failure"]["rank"], 1)

    def test_two_that_differ_are_not_blamed(self):
        self.install_py_spy()
        path = self.tmp / "report.json"
        result = self.run_worker("apart", "--on-hang", "abort", "--report", path)
        self.assertEqual(result.code, 122, result)
        self.assertNotRegex(result.err, r"rank \d (hung|hangs|failed)|on another line")
        self.assertIn("ctrun: ranks 0, 3 are at train.py:20 in ", result.err)
        self.assertIn("ctrun: ranks 1-2 are at train.py:7 in ", result.err)
        self.assertEqual(result.err.count("ctrun: no rank stands out\n"), 1, result)
        self.assertIn("ctrun: stopping ranks 0-3 because of it", result.err)
        traceback = json.loads(path.read_text())["first_failure"]["traceback"]
        self.assertRegex(traceback, r"\Aranks 0, 3:\n(.*\n)+?  /srv/train.py:20 in st.*\n")
        self.assertRegex(traceback, r"\nranks 1-2:\n(.*\n)+?  /srv/train.py:7 in st.*\n\Z")

    def test_an_endless_loop_is_found(self):
        self.install_py_spy()
        result = self.run_worker("loop", "--on-hang", "abort")
        self.assertEqual(result.code, 122, result)
        self.assertRegex(result.err, r"ctrun: rank 1 hangs: the others have waited for it for .*: it uses the CPU, but")
        self.assertIn("ctrun: rank 1 is at train.py:7 in ", result.err)
        self.assertEqual(result.err.count("rank 1 hangs"), 1, result)

    @unittest.skipUnless(os.environ["SANITIZE"] == "none", "Python cannot load a library with sanitizers")
    def test_a_slow_worker_is_named_and_not_killed(self):
        self.install_py_spy()
        slow, library = self.script("slow.py", SLOW), testlib.program("worker/libctworker.so")
        end = self.tmp / "end"
        job = self.start_ctrun("-n", "3", "--slow-factor", "2", slow, self.folder, library, end,
                               env={"PATH": f"{self.tools}:{os.environ['PATH']}"})  # fmt: skip
        job.wait_for("stack of rank 1, from py-spy:", deadline=240)
        end.touch()
        result = job.wait()
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, r"\Actrun: rank 1 is slow: it worked for \d+ % of the last 60 s, and the other workers of "
                         r"this machine for \d+ %, who wait for it otherwise\nctrun: rank 1 is at train.py:7 in .*\n"
                         r"ctrun: ranks 0, 2 are at train.py:20 in .*\nctrun: stack of rank 1, from py-spy:\n")  # fmt: skip
        self.assertEqual(result.err.count(" is slow"), 1)

    def test_off_asks_nobody(self):
        self.install_py_spy()
        result = self.run_worker("sleep", "--on-hang", "abort", "--hang-stacks", "off")
        self.assertEqual(result.code, 122, result)
        self.assertNotIn("train.py", result.err)

    def run_without_tools(self, what, *args):
        return self.ctrun("-n", "3", "--hang-timeout", "2", "--on-hang", "abort", *args, self.worker, self.folder, what,
                          env={"PATH": "/usr/bin:/bin"})  # fmt: skip

    @unittest.skipIf(os.path.exists("/usr/bin/py-spy"), "py-spy is installed")
    def test_without_py_spy_it_says_what_to_install(self):
        result = self.run_without_tools("sleep")
        self.assertEqual(result.code, 122, result)
        self.assertIn("ctrun: no stack of rank 1\n", result.err)
        self.assertIn("ctrun: to see the lines of Python programs: pip install py-spy\n", result.err)

    @unittest.skipIf(os.path.exists("/usr/bin/py-spy"), "py-spy is installed")
    def test_without_py_spy_a_worker_that_is_killed_writes_its_stack(self):
        lines = WORKER.splitlines()
        path = self.tmp / "report.json"
        for what in ("sleep", "stop", "hold"):
            result = self.run_without_tools(what, "--report", path)
            self.assertEqual(result.code, 122, result)
            number = 1 + next(i for i, line in enumerate(lines) if line.endswith(f"# {what}"))
            where = f"worker.py:{number} in <module>"
            self.assertRegex(result.err, rf"ctrun: rank 1 failed on \S+: process \d+ hung: .* at {where}")
            self.assertIn(f"worker.py:{number} in <module>\n", json.loads(path.read_text())["first_failure"]["traceback"])

    def test_a_user_who_wants_no_stack_of_python_gets_none(self):
        env = {"PATH": f"{self.tools}:/usr/bin:/bin", "PYTHONFAULTHANDLER": ""}
        self.install_py_spy("#!/bin/sh\nexit 1\n")
        result = self.ctrun("-n", "3", "--hang-timeout", "2", "--on-hang", "abort", self.worker, self.folder, "sleep",
                            env=env)  # fmt: skip
        self.assertEqual(result.code, 122, result)
        self.assertNotIn("Fatal Python error", result.err)
        self.assertRegex(result.err, r"ctrun: rank 1 failed on \S+: process \d+ hung: ")

    def test_sigquit_shows_where_the_workers_stand_and_ends_them(self):
        self.install_py_spy()
        env = {"PATH": f"{self.tools}:{os.environ['PATH']}"}
        job = self.start_ctrun("-n", "4", self.worker, self.folder, "wait", env=env)
        wait_until(lambda: job.out.count("standing") == 4, "all workers stand")
        job.signal(signal.SIGQUIT)
        result = job.wait()
        self.assertEqual(result.code, 128 + signal.SIGQUIT, result)
        self.assertIn("ctrun: received SIGQUIT: stopping 4 workers\n", result.err)
        self.assertIn("ctrun: rank 1 is at train.py:7 in ", result.err)
        self.assertIn("ctrun: ranks 0, 2-3 are at train.py:20 in ", result.err)

    def test_a_second_sigquit_does_not_wait_for_an_answer(self):
        self.install_py_spy("#!/bin/sh\nexec sleep 1000\n")
        env = {"PATH": f"{self.tools}:{os.environ['PATH']}"}
        job = self.start_ctrun("-n", "4", "--hang-stacks", "60", self.worker, self.folder, "wait", env=env)
        wait_until(lambda: job.out.count("standing") == 4, "all workers stand")
        job.signal(signal.SIGQUIT)
        job.wait_for("received SIGQUIT")
        job.signal(signal.SIGQUIT)
        result = job.wait(50)
        self.assertEqual(result.code, 128 + signal.SIGQUIT, result)
        self.assertNotIn("no stack of", result.err)
        self.assertNotIn("left behind", result.err)

    def start_two_machines(self, what, *args, tools=(True, True)):
        """Two machines with two workers each, of which none stands out to the machines."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        jobs = [
            self.start_ctrun(
                "-n", "2", "--nnodes", "2", "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", port,
                "--hang-timeout", "6", "--rdzv-conf", "heartbeat_timeout=5", *args,
                self.worker, self.folder, what,
                env={"PATH": f"{self.tools}:{os.environ['PATH']}"} if tools[rank] else None,
            )
            for rank in range(2)
        ]  # fmt: skip
        return jobs

    def run_two_machines(self, what, *args):
        self.install_py_spy()
        return [job.wait() for job in self.start_two_machines(what, *args)]

    def test_a_hang_is_told_once_and_acted_upon_though_a_machine_could_not_vote(self):
        self.install_py_spy("#!/bin/sh\nexec sleep 1000\n")  # so that the first machine is asked for long
        jobs = self.start_two_machines("apart", "--on-hang", "abort", tools=(True, False))
        for job in jobs:
            job.wait_for("the job hangs")
        jobs[1].wait_for("no stack of")
        traced = Traced(pid for pid in jobs[1].family() if b"RANK=2\0" in environ_of(pid))
        self.addCleanup(traced.detach)
        jobs[0].wait_for("no stack of")  # only now it answers; the other one does not stand still
        traced.detach()
        for job in jobs:
            result = job.wait()
            self.assertEqual(result.code, 122, result)
            self.assertEqual(result.err.count("ctrun: the job hangs: "), 1, result)
            self.assertEqual(result.err.count("ctrun: no stack of "), 1, result)
            self.assertEqual(result.err.count("ctrun: no rank stands out\n"), 1, result)
            self.assertNotIn("is over", result.err)

    def test_machines_find_the_rank_that_is_on_another_line(self):
        results = self.run_two_machines("wait", "--max-restarts", "1")
        for result in results:
            self.assertEqual(result.code, 0, result)
            self.assertRegex(result.err, r"ctrun: rank 1 is on another line than all others; it runs on \S+, "
                             r"at /srv/train\.py:7 st\?\[2Jep\n")  # fmt: skip
        self.assertRegex(results[0].err, r"ctrun: rank 1 is at train.py:7 in ")
        self.assertRegex(results[0].err, r"ctrun: rank 1 failed on \S+: process \d+ hung: .* at train.py:7 in ")
        self.assertRegex(results[1].err, r"ctrun: the job hangs: no rank of the job has moved for \d+\.\d s\n")
        self.assertNotIn("stands out", results[0].err + results[1].err)
        self.assertRegex(results[1].err, r"ctrun: ranks 2-3 are at train.py:20 in ")

    def test_a_worker_that_left_early_on_another_machine_keeps_nobody_hanging(self):
        results = self.run_two_machines("leave", "--on-hang", "abort")
        for result in results:
            self.assertEqual(result.code, 122, result)
        self.assertRegex(results[0].err, r"ctrun: the job hung on \S+: no rank has moved for ")

    def test_machines_of_which_no_worker_stands_out_name_none(self):
        results = self.run_two_machines("apart", "--on-hang", "abort")
        for result in results:
            self.assertEqual(result.code, 122, result)
            self.assertNotRegex(result.err, r"rank \d (hung|hangs)|on another line")
            self.assertEqual(result.err.count("ctrun: no rank stands out\n"), 1, result)
        self.assertRegex(results[0].err, r"ctrun: rank 1 is at train.py:7 in ")
        self.assertRegex(results[1].err, r"ctrun: rank 2 is at train.py:7 in ")
        self.assertRegex(results[0].err, r"ctrun: the job hung on \S+: no rank has moved for ")


class WorkerServer(http.server.BaseHTTPRequestHandler):
    """As PyTorch's, which a program starts at the path that ctrun gives it."""

    def do_POST(self):
        text = b'Thread 0x1 (most recent call first):\n  File "/srv/served.py", line 5 in f\n'
        if not self.path.endswith("dump_traceback"):
            text = b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class HostileServer(socketserver.BaseRequestHandler):
    """What a worker may have put in the place of PyTorch's: nothing, bytes without sense, 1 GB, or a stack
    with characters that a terminal would obey."""

    def handle(self):
        if self.server.way == "nothing":
            while self.request.recv(4096):
                pass
            return
        self.request.recv(4096)
        frame = 'Thread 0x1 (most recent call first):\n  File "/srv/\x1b]0;x\x07\u202eevil.py", line 5 in <b>f\n'
        bodies = {"garbage": os.urandom(100000), "a gigabyte": b"x" * 65536, "a terminal": frame.encode()}
        body = bodies[self.server.way]
        length = 1 << 30 if self.server.way == "a gigabyte" else len(body)
        try:
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
            for _ in range(length // len(body)):
                self.request.sendall(body)
        except OSError:
            pass


@unittest.skipUnless(os.environ.get("HAVE_HTTP") == "1", "this build has no HTTP")
class Ask(testlib.Case):
    def setUp(self):
        super().setUp()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        # Tells its socket; the test listens there in its place.
        self.worker = self.script("worker.py", "import os, sys, time\nprint(os.environ['TORCH_WORKER_SERVER_SOCKET'], flush=True)\ntime.sleep(1000)\n")

    def serve(self, path, handler=WorkerServer, way=None):
        server = socketserver.ThreadingUnixStreamServer(path, handler)
        server.daemon_threads, server.way = True, way
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

    def running(self, *args):
        job = self.start_ctrun("-n", "2", "--master-port", self.port, *args, self.worker)
        wait_until(lambda: job.out.count("worker_server.sock") == 2, "both workers run")
        paths = [line.split("] ")[-1] for line in job.out.splitlines()]
        self.assertEqual(len(set(paths)), 2, paths)
        self.serve(paths[0])
        return job

    def stacks(self, *args, env=None):
        return self.run_program(testlib.program("ctrun-stat"), "--stacks", *args, self.port, env=env)

    def test_ctrun_stat_shows_where_workers_stand(self):
        self.running()
        result = wait_until(lambda: (r := self.stacks()).code == 0 and r, "the job is told of")
        self.assertRegex(result.out, r"\A\S+:\n")
        self.assertRegex(result.out, r"  rank [01] is at served.py:5 in f\n")
        self.assertRegex(result.out, r"  no stack of rank [01]\n")
        self.assertRegex(result.out, r"  stack of rank [01], from PyTorch's worker server:\n")

    def test_each_answer_of_a_watch_has_its_time(self):
        self.running()
        wait_until(lambda: self.stacks().code == 0, "the job is told of")
        watch = self.start(testlib.program("ctrun-stat"), "--stacks", "--watch", self.port)
        when = rf"(?m)^127\.0\.0\.1:{self.port} at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\n\S+:\n  "
        wait_until(lambda: len(re.findall(when, watch.out)) >= 2, "two answers")

    def test_worker_servers_that_mean_harm(self):
        worker = self.script("hostile.py", "import os, time\nprint(os.environ['TORCH_WORKER_SERVER_SOCKET'], flush=True)\n"
                             "while True:\n    time.sleep(0.1)\n    if os.path.exists(__file__ + '.go'):\n"
                             "        print('nothing is lost')\n        break\n")  # fmt: skip
        job = self.start_ctrun("-n", "4", "--master-port", self.port, worker)
        wait_until(lambda: job.out.count("worker_server.sock") == 4, "all workers run")
        paths = dict(line[1:].split("] ") for line in job.out.splitlines())
        for rank, way in enumerate(("garbage", "nothing", "a gigabyte", "a terminal")):
            self.serve(paths[str(rank)], HostileServer, way)
        result = wait_until(lambda: (r := self.stacks()).code == 0 and r, "the job is told of")
        self.assertIn("  no stack of ranks 0-2\n", result.out)
        self.assertRegex(result.out, r"  rank 3 is at \?\]0;x\?+evil\.py:5 in <b>f\n")
        self.assertNotRegex(result.out + result.err, "[\x1b\x07\u202e]")
        with open(f"/proc/{job.pid}/status", encoding="ascii") as status:
            peak_kb = int(next(line for line in status if line.startswith("VmHWM:")).split()[1])
        if os.environ["SANITIZE"] == "none":
            self.assertLess(peak_kb, 128 << 10)
        self.script("hostile.py.go", "")
        end = job.wait()
        self.assertEqual((end.code, end.out.count("nothing is lost")), (0, 4), end)

    def test_without_the_token_nobody_is_asked(self):
        token = self.tmp / "token"
        token.write_text("s" * 40 + "\n")
        token.chmod(0o600)
        self.running("--token-file", token)
        refused = wait_until(lambda: "CTRUN_TOKEN" in (r := self.stacks()).out and r, "the job is told of")
        self.assertIn("  give the job's token with --token-file or CTRUN_TOKEN; ", refused.out)
        self.assertNotIn("served.py", refused.out)
        self.assertEqual(refused.code, 2, refused)
        self.assert_one_line(refused.err)
        self.assertIn("no machine gave a stack; ", refused.err)
        other = self.stacks(env={"CTRUN_TOKEN": "t" * 40})
        self.assertEqual((other.code, other.err.count("the token is not that of the job")), (2, 1), other)
        for args, env in ((("--token-file", token), None), ((), {"CTRUN_TOKEN": "s" * 40})):
            self.assertIn("served.py:5", self.stacks(*args, env=env).out)
        wrong = self.stacks("--token-file", self.tmp / "none")
        self.assertEqual(wrong.code, 2, wrong)
        self.assert_one_line(wrong.err)

    def test_without_a_job_it_exits_with_2(self):
        self.assertEqual(self.stacks().code, 2)


if __name__ == "__main__":
    testlib.main()
