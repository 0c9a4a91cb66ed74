# SPDX-License-Identifier: Apache-2.0
"""ctrun-stat against stores, jobs, and what only pretends to be one."""

import json
import os
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


if __name__ == "__main__":
    testlib.main()
