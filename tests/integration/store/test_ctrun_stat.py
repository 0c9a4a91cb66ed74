# SPDX-License-Identifier: Apache-2.0
"""ctrun-stat against stores, jobs, and what only pretends to be one."""

import json
import os
import re
import signal
import socket
import threading

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


class Strangers(Ctstat):
    def serve(self, answer, *, read=True):
        """Something that gives each client the same bytes; returns its address."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def run():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.settimeout(DEADLINE)
                    try:
                        client.recv(4096)
                        client.sendall(answer)
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
            result = self.ctrun_stat(where)
            self.assert_unreachable(result, where)
            self.assertIn("ctrun chooses a free port, unless --master-port names one", result.err)

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
        body = json.dumps({"health": "healthy", "version": "\x1b[31m" + "x" * 500}).encode()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        result = self.ctrun_stat(self.serve(answer))
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("\x1b", result.out)
        self.assert_fits(result.out)
        self.assertNotIn("\x1b", self.ctrun_stat("--json", self.serve(answer)).out)

    def test_silence_ends_at_the_deadline(self):
        where = self.serve(b"HTTP/1.1 200", read=False)
        self.assert_unreachable(self.ctrun_stat("--timeout", "1", where), "timed out")


class Usage(Ctstat):
    def test_wrong_options_are_refused(self):
        for args in (["--nope"], ["--json", "--health"], ["a", "b"], ["--timeout", "x"], ["a:b:c:"]):
            result = self.ctrun_stat(*args)
            self.assertEqual(result.code, 3, result)
            self.assert_one_line(result.err)

    def test_help_and_version(self):
        self.assertTrue(self.ctrun_stat("--help").out.startswith("usage: ctrun-stat"))
        for word in ("--version", "-V"):
            self.assertRegex(self.ctrun_stat(word).out, r"\Actrun-stat \d+\.\d+\.\d+\n\Z")



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
        self.assertRegex(both.out, rf"(?m)^127.0.0.1:{port} +running +1 first$")
        self.assertRegex(both.out, rf"(?m)^127.0.0.1:{other} +running +1 second$")
        which = self.ctrun_stat("--json", env=self.env)
        self.assertEqual(which.code, 3, which)
        self.assertIn("2 jobs run here", which.err)

        first.kill()  # it cannot remove its entry
        self.assertEqual(len(list(self.folder.iterdir())), 2)
        testlib.wait_until(
            lambda: f"127.0.0.1:{other}: healthy" in self.ctrun_stat(env=self.env).out, "the other"
        )
        self.assertEqual(len(list(self.folder.iterdir())), 1)
        (self.tmp / "second").touch()
        self.assertEqual(second.wait().code, 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_folder_of_another_is_not_used(self):
        self.folder.mkdir(mode=0o700)
        self.folder.chmod(0o777)
        job, port = self.start_job("job")
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertIn("is not this user's alone", self.ctrun_stat(env=self.env).err)
        self.assertEqual(self.ctrun_stat(port).code, 0)
        (self.tmp / "job").touch()
        self.assertEqual(job.wait().code, 0)


class Watch(Ctstat):
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
        body = json.dumps({"health": "degraded", "uptime_s": 5, "job": job}).encode()
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.leaving = threading.Event()

        def run():
            while not self.leaving.is_set():
                client, _ = listener.accept()
                with client:
                    client.recv(4096)
                    if not self.leaving.is_set():
                        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            listener.close()

        threading.Thread(target=run, daemon=True).start()
        return "127.0.0.1:%d" % listener.getsockname()[1]

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


if __name__ == "__main__":
    testlib.main()
