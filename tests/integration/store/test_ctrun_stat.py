# SPDX-License-Identifier: Apache-2.0
"""ctrun-stat against stores, jobs, and what only pretends to be one."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import threading
import unittest

import testlib
from testlib import DEADLINE, program

WORKER = """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", os.environ["MASTER_PORT"], flush=True)
time.sleep(1000)
"""


class Ctstat(testlib.Case):
    def ctrun_stat(self, *args, **kwargs):
        return self.run_program(program("ctrun-stat"), *args, **kwargs)

    def assert_fits(self, text):
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])


class Stores(Ctstat):
    def setUp(self):
        super().setUp()
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")

    def test_store_without_a_job_is_shown(self):
        _, port = self.start_ctrdzvd()
        result = self.ctrun_stat(f"127.0.0.1:{port}")
        self.assertEqual((result.code, result.err), (0, ""))
        self.assertRegex(
            result.out,
            rf"\A127\.0\.0\.1:{port}: healthy, up \d+ s, version \S+\n"
            r"store: 0 keys, 0 B, 0 connections, 0 waiters, 0 requests\n\Z",
        )

    def test_the_address_of_the_live_page_will_do(self):
        token = self.tmp / "token"
        token.write_text("x" * 32 + "\n")
        token.chmod(0o600)
        job = self.start_ctrun("--print-url", "--token-file", token, "--no-python", "sleep", "1000")
        url = job.wait_for("live page: ").split()[-1]
        self.assertIn("/#key=", url)
        self.assertEqual(self.ctrun_stat("--health", url).out, "healthy\n")
        refused = self.ctrun_stat(url.replace("http", "https"))
        self.assertEqual((refused.code, refused.err.count("\n")), (3, 1))
        self.assertIn("write " + url, refused.err)

    def test_address_from_the_environment(self):
        _, port = self.start_ctrdzvd()
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        self.assertEqual(self.ctrun_stat("--health", env=env).out, "healthy\n")
        self.assertEqual(self.ctrun_stat("--health", "localhost", env=env).out, "healthy\n")

    def test_ipv6_address_is_asked(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest("this machine has no IPv6")
        _, port = self.start_ctrdzvd("--listen", "::1")
        result = self.ctrun_stat(f"[::1]:{port}")
        self.assertEqual(result.code, 0, result)
        self.assertTrue(result.out.startswith(f"[::1]:{port}: healthy"), result)

    def test_json_is_the_status_document(self):
        _, port = self.start_ctrdzvd()
        result = self.ctrun_stat("--json", f"127.0.0.1:{port}")
        self.assert_one_line(result.out)
        self.assertEqual(json.loads(result.out)["health"], "healthy")

    def test_job_healthy_then_degraded(self):
        go = self.tmp / "go"
        job = self.start_ctrun(
            "--nproc-per-node", "2", self.script("worker.py", WORKER), str(go)
        )
        where = "127.0.0.1:" + job.wait_for("deaf").split()[-1]
        good = self.ctrun_stat(where)
        self.assertEqual(good.code, 0, good)
        self.assert_fits(good.out)
        self.assertRegex(good.out, r"\n    0     0 +\d+ running      -        0 \S")
        self.assertRegex(good.out, r"\n    1     1 +\d+ running      -        0 \S")
        go.touch()
        testlib.wait_until(lambda: self.ctrun_stat("--health", where).code == 1, "it is degraded")
        bad = self.ctrun_stat(where)
        self.assertEqual(bad.code, 1, bad)
        self.assert_fits(bad.out)
        said = r"rank 1 on \S+: process \d+ exited with code 3\n"
        self.assertRegex(bad.out, rf"\nproblem: {said}")
        self.assertRegex(bad.out, r"\n    1     1 +\d+ failed       3        0 \S")
        self.assertRegex(bad.out, rf"\ngeneration 0: {said}\Z")
        self.assertRegex(self.ctrun_stat("--health", where).out, rf"\Adegraded: {said}\Z")
        job.kill()

    def test_watch_ends_when_the_store_is_gone(self):
        daemon, port = self.start_ctrdzvd()
        watch = self.start(program("ctrun-stat"), "--watch", f"127.0.0.1:{port}")
        testlib.wait_until(lambda: watch.out.count("healthy") >= 2, "two answers")
        daemon.signal(signal.SIGTERM)
        daemon.wait()
        result = watch.wait()
        self.assertEqual(result.code, 2, result)
        self.assert_one_line(result.err)
        self.assertIn("the job has probably ended", result.err)


    def test_watch_waits_for_the_first_answer(self):
        daemon, port = self.start_ctrdzvd()
        daemon.signal(signal.SIGSTOP)
        self.addCleanup(daemon.signal, signal.SIGCONT)
        args = ("--watch", "--timeout", "1", f"127.0.0.1:{port}")
        watch = self.start(program("ctrun-stat"), "--health", *args)
        terminal = testlib.Terminal(program("ctrun-stat"), *args, env={"TERM": "xterm"})
        self.addCleanup(terminal.close)
        said = f"ctrun-stat: 127.0.0.1:{port}: timed out; asking again"
        watch.wait_for(said)
        terminal.read_until(said)
        daemon.signal(signal.SIGCONT)
        terminal.read_until("q quits")
        testlib.wait_until(lambda: watch.out.count("healthy") >= 2, "two answers")
        daemon.signal(signal.SIGTERM)
        daemon.wait()
        result = watch.wait()
        self.assertEqual(result.code, 2, result)
        self.assertEqual(result.err.count("asking again"), 1, result)
        refused = self.ctrun_stat(*args)
        self.assertEqual((refused.code, refused.out), (2, ""), refused)
        self.assert_one_line(refused.err)

    def test_watch_goes_on_after_a_silence(self):
        daemon, port = self.start_ctrdzvd()
        watch = self.start(program("ctrun-stat"), "--watch", "--health", "--timeout", "1", f"127.0.0.1:{port}")
        watch.wait_for("healthy")
        daemon.signal(signal.SIGSTOP)
        self.addCleanup(daemon.signal, signal.SIGCONT)
        watch.wait_for(f"127.0.0.1:{port}: timed out; asking again")
        daemon.signal(signal.SIGCONT)
        seen = watch.out.count("healthy")
        testlib.wait_until(lambda: watch.out.count("healthy") > seen + 1, "two more answers")
        daemon.signal(signal.SIGTERM)
        daemon.wait()
        result = watch.wait()
        self.assertEqual(result.code, 2, result)
        self.assertEqual(result.err.count("asking again"), 1, result)
        self.assertIn("the job has probably ended", result.err)


class Strangers(Ctstat):
    def serve(self, answer, *more, read=True):
        """Something that gives each client the same bytes, or the first one `answer` and the others
        what follows; returns its address."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def run():
            answers = [answer, *more]
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.settimeout(DEADLINE)
                    try:
                        client.recv(4096)
                        client.sendall(answers.pop(0) if len(answers) > 1 else answers[0])
                        if read:
                            continue
                        client.recv(1)  # until the other side gives up
                    except OSError:
                        pass

        threading.Thread(target=run, daemon=True).start()
        return "127.0.0.1:%d" % listener.getsockname()[1]

    def assert_unreachable(self, result, text):
        self.assertEqual(result.code, 2, result)
        self.assertEqual(result.out, "")
        self.assert_one_line(result.err)
        self.assertIn(text, result.err)

    def test_port_without_a_listener_is_named(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            where = "127.0.0.1:%d" % s.getsockname()[1]
            env = {"XDG_RUNTIME_DIR": self.tmp}  # where no other job of this user is
            result = self.ctrun_stat(where, env=env)
            self.assert_unreachable(result, where)
            self.assertIn("ctrun chooses a free port, unless --master-port names one", result.err)
            job = self.start_ctrun("--no-python", "sh", "-c", "echo port $MASTER_PORT; sleep 1000", env=env)
            port = job.wait_for("port").split()[-1]
            result = self.ctrun_stat(where, env=env)
            self.assert_unreachable(result, f"your job on this machine has its store at 127.0.0.1:{port}\n")

    def test_answers_of_others_are_refused(self):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
        for answer, text in (
            (b"", "closed without an answer"),
            (b"SSH-2.0-OpenSSH_9\r\n\r\n", "is not HTTP"),
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
            (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "not admitted"),
            (head % 2 + b"{}", "no status"),
            (head % 9 + b"not JSON!", "no status"),
            (head % 9 + b"cut", "in the middle"),
            (head % (1 << 30) + b"x", "longer than"),
            (head % 100000 + b"[" * 100000, "no status"),
            (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000, "too long"),
        ):
            self.assert_unreachable(self.ctrun_stat(self.serve(answer)), text)

    def test_hostile_text_stays_off_the_terminal(self):
        body = json.dumps({"health": "healthy", "version": "\x1b[31m\x7f\u202e" + "x" * 500}, ensure_ascii=False).encode()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        result = self.ctrun_stat(self.serve(answer))
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("\x1b", result.out)
        self.assertIn("x" * 500, result.out)
        terminal = testlib.Terminal(program("ctrun-stat"), self.serve(answer), size=(24, 80))
        self.addCleanup(terminal.close)
        shown = terminal.read_all()
        self.assertIn("xxx...", shown)
        self.assertNotIn("\x1b", shown)
        self.assert_fits(shown)
        self.assertNotRegex(self.ctrun_stat("--json", self.serve(answer)).out, "[\x1b\x7f\u202e]")

    def test_watch_waits_for_a_store_that_is_busy(self):
        busy = b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"
        good = b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"health":"healthy"}'
        watch = self.start(program("ctrun-stat"), "--watch", "--health", self.serve(busy, good))
        watch.wait_for("answered with HTTP code 503; asking again")
        testlib.wait_until(lambda: "healthy" in watch.out, "an answer")

    def test_silence_ends_at_the_deadline(self):
        where = self.serve(b"HTTP/1.1 200", read=False)
        self.assert_unreachable(self.ctrun_stat("--timeout", "1", where), "timed out")


class Usage(Ctstat):
    def test_wrong_options_are_refused(self):
        for args in (["--nope"], ["--json", "--health"], ["a", "b"], ["--timeout", "x"], ["a:b:c:"]):
            result = self.ctrun_stat(*args)
            self.assertEqual(result.code, 3, result)
            self.assert_one_line(result.err)

    def test_help_and_version_are_printed(self):
        self.assertTrue(self.ctrun_stat("--help").out.startswith("usage: ctrun-stat"))
        for word in ("--version", "-V"):
            self.assertRegex(self.ctrun_stat(word).out, r"\Actrun-stat \d+\.\d+\.\d+\n\Z")
        for word in ("--help", "--version"):
            full = self.run_program("sh", "-c", '"$@" > /dev/full', "sh", program("ctrun-stat"), word)
            self.assertEqual((full.code, full.err), (2, "ctrun-stat: cannot write to standard output\n"), full)


class Machine(Ctstat):
    """ctrun-stat without an address."""

    def setUp(self):
        super().setUp()
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        self.env = {"XDG_RUNTIME_DIR": self.tmp, "MASTER_ADDR": None, "MASTER_PORT": None}
        self.folder = self.tmp / "ctrun"

    def start_job(self, name):
        script = f"echo port $MASTER_PORT; while ! [ -e {self.tmp}/{name} ]; do sleep 0.1; done"
        job = self.start_ctrun("--rdzv-id", name, "--no-python", "sh", "-c", script, env=self.env)
        return job, job.wait_for("port").split()[-1]

    def test_the_jobs_of_this_user_are_found(self):
        first, port = self.start_job("first")
        alone = self.ctrun_stat(env=self.env)
        self.assertEqual(alone.code, 0, alone)
        self.assertIn(f"127.0.0.1:{port}: healthy", alone.out)

        second, other = self.start_job("second")
        both = self.ctrun_stat(env=self.env)
        self.assertEqual(both.code, 0, both)
        self.assert_fits(both.out)
        for job, name, at in ((first, "first", port), (second, "second", other)):
            row = rf"(?m)^{name} +running +1 +\d+s +{job.pid} 127.0.0.1:{at} +sh -c .*\.\.\.$"
            self.assertRegex(both.out, row)
        for option in ("--json", "--health", "--stacks", "--watch"):
            which = self.ctrun_stat(option, env=self.env)
            self.assertEqual((which.code, which.out), (3, ""), which)
            self.assertIn("2 jobs run here: add the id of one of them, or as much of its beginning", which.err)
            for job, name, at in ((first, "first", port), (second, "second", other)):
                self.assertRegex(which.err, rf"(?m)^{name} +\d+s +{job.pid} 127.0.0.1:{at} +sh -c ")
        for word, at in (("first", port), ("sec", other), ("sec...", other), (first.pid, port), (other, other)):
            self.assertIn(f"127.0.0.1:{at}: healthy", self.ctrun_stat(word, env=self.env).out)

        first.kill()  # it cannot remove its entry
        self.assertEqual(len(list(self.folder.iterdir())), 2)
        testlib.wait_until(
            lambda: f"127.0.0.1:{other}: healthy" in self.ctrun_stat(env=self.env).out, "the other"
        )
        self.assertEqual(len(list(self.folder.iterdir())), 1)
        (self.tmp / "second").touch()
        self.assertEqual(second.wait().code, 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_word_that_is_no_job_or_several_is_told(self):
        for name in ("pre-1", "pre-2"):
            self.start_job(name)
        several = self.ctrun_stat("pre", env=self.env)
        self.assertEqual(several.code, 3, several)
        self.assertIn("the ids of 2 jobs here begin with 'pre'", several.err)
        self.assert_one_line(several.err)
        for pid, code in ((os.getpid() + (1 << 22), 3), (1, 2)):
            strange = self.ctrun_stat(pid, env=self.env)
            self.assertEqual(strange.code, code, strange)
            self.assert_one_line(strange.err)
            self.assertIn("the process id", strange.err)
        # ".invalid" has no address anywhere.
        none = self.ctrun_stat("no-job.invalid", env=self.env)
        self.assertEqual(none.code, 2, none)
        self.assertIn("no job of yours here has an id that begins so", none.err)
        self.assert_one_line(none.err)

    def stop(self, job):
        job.signal(signal.SIGSTOP)
        self.addCleanup(job.signal, signal.SIGCONT)
        state = pathlib.Path(f"/proc/{job.pid}/stat")
        testlib.wait_until(lambda: ") T " in state.read_text(), "it is stopped")

    def test_a_ctrun_that_is_stopped_is_told_from_one_that_hangs(self):
        job, port = self.start_job("asleep")
        self.stop(job)
        said = f"stopped (process {job.pid} is in state T); kill -CONT {job.pid} lets it go on"
        for word in ((), ("asleep",), (f"127.0.0.1:{port}",)):
            alone = self.ctrun_stat("--timeout", "1", *word, env=self.env)
            self.assertEqual(alone.code, 2, alone)
            self.assert_one_line(alone.err)
            self.assertIn(said, alone.err)
        watch = self.start(program("ctrun-stat"), "--watch", "--timeout", "1", "asleep", env=self.env)
        watch.wait_for(said + "; asking again")
        watch.kill()
        self.start_job("awake")
        both = self.ctrun_stat("--timeout", "1", env=self.env)
        self.assertEqual(both.code, 1, both)
        self.assertRegex(both.out, rf"(?m)^asleep +stopped +- +\d+s +{job.pid} ")
        self.assertRegex(both.out, r"(?m)^awake +running ")
        self.assertTrue(both.out.endswith(said + "\n"), both)
        self.assert_fits(both.out)

    @unittest.skipIf(os.geteuid() != 0 or shutil.which("ip") is None, "needs root and ip, for a network namespace")
    def test_jobs_of_another_network_namespace_do_not_count(self):
        if self.run_program("unshare", "--net", "ip", "link", "set", "lo", "up").code != 0:
            self.skipTest("this root may make no network namespace")
        script = f"echo port $MASTER_PORT; while ! [ -e {self.tmp}/far ]; do sleep 0.1; done"
        far = self.start(
            "unshare", "--net", "sh", "-ec", 'ip link set lo up && exec "$@"', "sh", program("ctrun"),
            "--rdzv-id", "far", "--no-python", "sh", "-c", script, env=self.env,
        )  # fmt: skip
        port = far.wait_for("port").split()[-1]
        said = "not reachable from here (another network namespace)"
        for word in ((), ("far",), ("--health",)):
            alone = self.ctrun_stat(*word, env=self.env)
            self.assertEqual(alone.code, 2, alone)
            self.assert_one_line(alone.err)
            self.assertIn(f"127.0.0.1:{port}: the job 'far' is {said}", alone.err)
        self.start_job("near")
        both = self.ctrun_stat(env=self.env)
        self.assertEqual(both.code, 0, both)
        self.assertRegex(both.out, rf"(?m)^far +elsewhere +- +\d+s +{far.pid} ")
        self.assertRegex(both.out, r"(?m)^near +running ")
        self.assertIn(f"\n{said}; nsenter -n -t {far.pid}\n", both.out)
        (self.tmp / "far").touch()
        self.assertEqual(far.wait().code, 0)

    def test_a_folder_of_another_is_not_used(self):
        self.folder.mkdir(mode=0o700)
        self.folder.chmod(0o777)
        job, port = self.start_job("job")
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertIn("is not this user's alone", self.ctrun_stat(env=self.env).err)
        self.assertEqual(self.ctrun_stat(port).code, 0)
        (self.tmp / "job").touch()
        result = job.wait()
        self.assertEqual(result.code, 0)
        self.assertEqual(
            [line for line in result.err.splitlines() if "ctrun-stat" in line],
            [f"ctrun: warning: ctrun-stat does not list this job, and needs its address 127.0.0.1:{port}: "
             f"the folder of jobs {self.folder} is not this user's alone"],
        )  # fmt: skip

    def test_a_job_that_cannot_be_listed_says_so(self):
        self.env["XDG_RUNTIME_DIR"] = self.tmp / "missing"
        job, port = self.start_job("job")
        (self.tmp / "job").touch()
        result = job.wait()
        self.assertEqual(result.code, 0)
        self.assertIn(
            f"does not list this job, and needs its address 127.0.0.1:{port}: cannot make the folder of jobs "
            f"{self.tmp}/missing/ctrun: No such file or directory\n",
            result.err,
        )


class Screens(Ctstat):
    """ctrun-stat --watch on a terminal."""

    def watch(self, where, rows=24, columns=80):
        terminal = testlib.Terminal(
            "sh", "-c", "stty -a >&2; \"$@\"; echo code $?; stty -a", "sh", program("ctrun-stat"),
            "--watch", where, env={"TERM": "xterm"}, interactive=True, size=(rows, columns),
        )  # fmt: skip
        self.addCleanup(terminal.close)
        return terminal

    def screen(self, terminal, text):
        """The lines of the first screen that has `text`."""
        while True:
            frames = terminal.text().split("\x1b[H")[1:]
            for frame in frames:
                if text in frame and "\x1b[J" in frame:
                    shown = frame.partition("\x1b[J")[0].replace("\x1b[2K", "")
                    return shown.replace("\r", "").split("\n")
            terminal.read_until_more()

    def assert_restored(self, terminal):
        text = terminal.read_all()
        modes = re.findall(r"^speed .*?(?=^speed |\x1b|\Z)", text, re.M | re.S)
        self.assertIn("\x1b[?25h\x1b[?1049l", text)
        before, after = ([word for word in x.split() if "icanon" in word or word in ("echo;", "echo", "-echo")]
                         for x in (modes[0], modes[-1]))  # fmt: skip
        self.assertEqual(before, after)
        self.assertIn("icanon", before)
        return text


class Watch(Screens):
    """ctrun-stat --watch on a terminal, before a store that is played."""

    def store(self, workers):
        """Answers every question with a job of so many workers, of which the last has failed."""
        rows = [
            {
                "rank": rank, "local_rank": rank % 8, "pid": 1000 + rank, "host": f"gpu-{rank // 8}",
                "state": "running", "exit": None, "restarts": 0,
                "progress": {"phase": "compute", "step": 1204, "age_s": 1, "loss": 0.5, "samples_per_s": 9},
            }
            for rank in range(workers)
        ]  # fmt: skip
        rows[-1] |= {"state": "failed", "exit": 3}
        failure = {"generation": 0, "rank": workers - 1, "host": "gpu\x1b[2J", "reason": "exit code 3"}
        job = {"run_id": "j", "state": "stopping", "generation": 0, "world_size": workers,
               "workers": rows, "failures": [failure], "failure_count": 1}  # fmt: skip
        self.status = {"health": "degraded", "uptime_s": 5, "job": job}
        self.end = None  # what is answered to /end; None = the status, too
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.leaving = threading.Event()

        def run():
            while not self.leaving.is_set():
                client, _ = listener.accept()
                with client:
                    asks_end = client.recv(4096).startswith(b"GET /end ")
                    body = json.dumps(self.end if asks_end and self.end else self.status).encode()
                    if not self.leaving.is_set():
                        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            listener.close()

        threading.Thread(target=run, daemon=True).start()
        return "127.0.0.1:%d" % listener.getsockname()[1]

    def test_a_job_of_any_size_fits_and_shows_who_failed(self):
        for workers, columns in ((2, 80), (48, 60), (512, 100)):
            terminal = self.watch(self.store(workers), rows=12, columns=columns)
            lines = self.screen(terminal, "q quits"[: columns])
            self.assertLessEqual(len(lines), 12, lines)
            self.assertEqual([line for line in lines if len(line) > columns], [])
            self.assertEqual(lines[1], f"FAILED generation 0: rank {workers - 1} on gpu?[2J: exit code 3"[:columns])
            (at,) = (i for i, line in enumerate(lines) if line.startswith("RANKS"))
            self.assertRegex(lines[at + 1], rf"^{workers - 1} +1 failed 3 ")
            self.assertRegex(lines[at + 2], rf"^{'0' if workers == 2 else f'0-{workers - 2}'} +{workers - 1} running ")
            terminal.write("q")
            self.assertIn("code 1\n", self.assert_restored(terminal))

    def test_keys_and_a_new_size_redraw(self):
        terminal = self.watch(self.store(48), rows=12)
        self.screen(terminal, "rows 1-2 of 2, 48 workers")
        terminal.write("g")
        self.screen(terminal, "rows 1-7 of 48, 48 workers")
        terminal.write("j\x1b[B")
        self.screen(terminal, "rows 3-9 of 48")
        terminal.write("s")
        self.screen(terminal, "s sorts (step)")
        terminal.resize(20, 70)
        lines = self.screen(terminal, "rows 1-15 of 48")
        self.assertLessEqual(max(map(len, lines)), 70)
        terminal.write("\x03")  # ^C
        self.assertNotIn("code 0", self.assert_restored(terminal))

    def test_the_last_words_are_how_the_job_ended(self):
        terminal = self.watch(self.store(48))
        self.screen(terminal, "rows 1-2")
        self.leaving.set()
        text = self.assert_restored(terminal)
        last = text.rpartition("\x1b[?1049l")[2]
        self.assertTrue(last.startswith("job j has ended; last seen stopping at step 1204\nFAILED"), last)
        self.assertIn("code 2\n", last)

    def assert_the_end_is_not_known(self, terminal):
        last = self.assert_restored(terminal).rpartition("\x1b[?1049l")[2]
        self.assertTrue(last.startswith("job j has ended; last seen stopping at step 1204\nFAILED"), last)
        self.assertIn("another job's store answers there now\n", last)
        self.assertIn("code 2\n", last)
        self.assertNotIn("job k", last)

    def test_the_end_of_another_job_is_not_taken(self):
        terminal = self.watch(self.store(48))
        self.screen(terminal, "rows 1-2")
        self.end = {"ended": True, "run_id": "k", "outcome": "succeeded", "exit_code": 0, "text": "succeeded"}
        self.assert_the_end_is_not_known(terminal)

    def test_the_status_of_another_job_is_not_taken(self):
        terminal = self.watch(self.store(48))
        self.screen(terminal, "rows 1-2")
        self.status = {"health": "healthy", "uptime_s": 0, "job": {"run_id": "k", "state": "running"}}
        self.assert_the_end_is_not_known(terminal)

    def test_the_terminal_is_given_back_while_it_is_suspended(self):
        where = self.store(2)
        script = f"set -m; {program('ctrun-stat')} --watch {where}; stty -a; echo paused; fg >/dev/null"
        terminal = testlib.Terminal("bash", "-c", script, env={"TERM": "xterm"}, interactive=True)
        self.addCleanup(terminal.close)
        self.screen(terminal, "q quits")
        terminal.write("\x1a")
        text = terminal.read_until("paused").rpartition("\x1b[?1049l")[2]
        self.assertNotIn("-icanon", text)
        self.assertIn("icanon", text)
        # The screen of before the suspension is one; that of afterwards may have come with the word above.
        while terminal.text().count("\x1b[?1049h") < 2:
            terminal.read_until_more()
        terminal.write("q")
        terminal.read_all()


class LastWords(Screens):
    """How a real job has ended, as ctrun-stat --watch says it."""

    def setUp(self):
        super().setUp()
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        self.go = self.tmp / "go"

    def begin(self, end, *options):
        """Starts a job whose two workers run `end`, a line of a shell, when they may. Returns it and
        where its store is."""
        script = f"echo port $MASTER_PORT; while ! [ -e {self.go} ]; do sleep 0.1; done; {end}"
        job = self.start_ctrun("--rdzv-id", "j", "--nproc-per-node", "2", *options, "--no-python", "sh", "-c", script)
        return job, "127.0.0.1:" + job.wait_for("port").split()[-1]

    def wait_until_held(self, where, count=1):
        """Waits until so many requests for the end of the job are held."""

        def connections():
            return json.loads(self.ctrun_stat("--json", where).out)["http"]["connections"]

        testlib.wait_until(lambda: connections() == count + 1, "the watchers are there")

    def words(self, terminal):
        return self.assert_restored(terminal).rpartition("\x1b[?1049l")[2].partition("speed ")[0].splitlines()

    def end_of(self, end, *options, code, ask=None):
        """The last words of --watch on a terminal and on a pipe, and its exit code."""
        job, where = self.begin(end, *options)
        terminal = self.watch(where)
        self.screen(terminal, "2 workers")
        pipe = self.start(program("ctrun-stat"), "--watch", where)
        self.wait_until_held(where, 2)
        if ask is None:
            self.go.touch()
        else:
            job.signal(ask)
        self.assertEqual(job.wait().code, code)
        words = self.words(terminal)
        piped = pipe.wait()
        self.assertEqual(piped.err, "")
        self.assertEqual(words[-1], f"code {piped.code}")
        self.assertEqual(piped.out.splitlines()[-len(words) + 1 :], words[:-1])
        return words[:-1], piped.code

    def test_a_watch_tells_that_the_job_has_succeeded(self):
        self.assertEqual(self.end_of("exit 0", code=0), (["job j succeeded"], 0))

    def test_a_watch_tells_what_has_failed(self):
        (line,), code = self.end_of("[ $RANK = 0 ] || exit 3; sleep 100", code=3)
        self.assertRegex(line, r"^job j failed: rank 1 on \S+: process \d+ exited with code 3$")
        self.assertEqual(code, 1)

    def test_success_after_a_restart(self):
        once = f"[ $RANK = 0 ] || [ -e {self.tmp}/again ] || {{ touch {self.tmp}/again; exit 3; }}"
        words, code = self.end_of(f"{once}; sleep 1", "--max-restarts", "1", code=0)
        self.assertEqual((words, code), (["job j succeeded after 1 restart"], 0))

    def test_a_watch_tells_which_signal_has_ended_the_job(self):
        words, code = self.end_of("exit 0", code=143, ask=signal.SIGTERM)
        self.assertEqual((words, code), (["job j was ended by SIGTERM, exit code 143"], 1))

    def test_the_store_that_lingers_says_it_at_once_and_later(self):
        job, where = self.begin("exit 4", "--linger", "600")
        terminal = self.watch(where)
        self.screen(terminal, "2 workers")
        self.wait_until_held(where)
        self.go.touch()
        line, code = self.words(terminal)
        self.assertRegex(line, r"^job j failed: rank [01] on \S+: process \d+ exited with code 4$")
        self.assertEqual(code, "code 1")
        later = self.ctrun_stat("--watch", "--json", where)
        self.assertEqual(later.code, 1, later)
        verdict = json.loads(later.out.splitlines()[-1])
        self.assertEqual(f"job {verdict.pop('run_id')} {verdict.pop('text')}", line)
        self.assertEqual(verdict, {"ended": True, "outcome": "failed", "exit_code": 4})
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait().code, 4)

    def test_another_job_on_the_port_of_one_that_was_killed(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        where = f"127.0.0.1:{port}"
        options = ("--master-port", str(port), "--linger", "600", "--no-python", "sh", "-c")
        job = self.start_ctrun("--rdzv-id", "j", *options, "sleep 1000")
        testlib.wait_until(lambda: " 1 worker" in self.ctrun_stat(where).out, "it runs")
        watch = self.start(program("ctrun-stat"), "--watch", where)
        self.wait_until_held(where)
        watch.signal(signal.SIGSTOP)
        job.kill()
        other = self.start_ctrun("--rdzv-id", "k", *options, "exit 0")
        testlib.wait_until(lambda: "job k: done" in self.ctrun_stat(where).out, "the other one has ended")
        watch.signal(signal.SIGCONT)
        result = watch.wait()
        self.assertEqual(result.code, 2, result)
        self.assertNotIn("job k", result.out)
        self.assertRegex(result.out, r"(?m)^job j has ended; last seen running")
        self.assertIn("the job has probably ended", result.err)
        other.signal(signal.SIGINT)
        other.wait()

    def test_a_job_of_several_machines(self):
        agent = self.script("agent", '#!/bin/sh\nexec env -i PATH="$PATH" sh -c "$2"\n')
        os.chmod(agent, 0o755)
        hosts = ("--hosts", "127.0.0.2,127.0.0.3", "--launch-agent", agent, "--local-addr", "127.0.0.1")
        for end, expected, outcome in (
            ("exit 0", r"succeeded", 0),
            ("[ $RANK = 0 ] || exit 7; sleep 100", r"failed: rank 1 on \S+: process \d+ exited with code 7", 1),
        ):
            script = f"while ! [ -e {self.go} ]; do sleep 0.1; done; {end}"
            job = self.start_ctrun("--rdzv-id", "j", "--print-url", *hosts, "--no-python", "sh", "-c", script)
            where = re.search(r"http://([0-9.:]+)/", job.wait_for("live page: ")).group(1)
            testlib.wait_until(lambda w=where: " 2 workers" in self.ctrun_stat(w).out, "both are there")
            watch = self.start(program("ctrun-stat"), "--watch", where)
            self.wait_until_held(where)
            self.go.touch()
            self.assertEqual(job.wait().code, 7 * outcome)
            result = watch.wait()
            self.assertEqual(result.code, outcome, result)
            self.assertRegex(result.out.splitlines()[-1], f"^job j {expected}$")
            self.go.unlink()

    def test_the_machine_of_the_store_tells_of_another_one(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            where = "127.0.0.1:%d" % free.getsockname()[1]
        script = f"while ! [ -e {self.go} ]; do sleep 0.1; done; [ $RANK = 0 ] || exit 7; sleep 100"
        jobs = [
            self.start_ctrun("--nnodes", "2", "--node-rank", rank, "--rdzv-backend", "c10d", "--rdzv-endpoint", where,
                             "--rdzv-id", "j", "--no-python", "sh", "-c", script)
            for rank in ("0", "1")
        ]  # fmt: skip
        testlib.wait_until(lambda: " 2 workers" in self.ctrun_stat(where).out, "both are there")
        watch = self.start(program("ctrun-stat"), "--watch", where)
        self.wait_until_held(where)
        self.go.touch()
        self.assertEqual([job.wait().code for job in jobs], [7, 7])
        self.assertRegex(watch.wait().out, r"\njob j failed: rank 1 on .*: process \d+ exited with code 7\n$")

    def test_those_who_hold_requests_do_not_hold_the_job(self):
        job, where = self.begin("exit 0")
        host, port = where.split(":")
        holders = [socket.create_connection((host, int(port)), DEADLINE) for _ in range(70)]
        for holder in holders:
            self.addCleanup(holder.close)
            holder.sendall(b"GET /end HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        for holder in holders[64:]:
            self.assertIn(b"503", holder.recv(100))
        self.go.touch()
        self.assertEqual(job.wait().code, 0)
        self.assertIn(b"200", holders[0].recv(100))


if __name__ == "__main__":
    testlib.main()
