# SPDX-License-Identifier: Apache-2.0
"""Status over HTTP on the store's port, by a well-behaved client, by bad ones, and beside clients of
the store, who must not notice."""

import concurrent.futures
import ctypes.util
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time

import testlib
from testlib import DEADLINE, wait_until

HELLO = b"\0" + bytes.fromhex("cef7853c")
PING = b"\x0dping"
LIMIT = 5  # seconds that a request may take, CT_HTTP_REQUEST_MS


def text(value):
    return len(value).to_bytes(8, "little") + value


class Http(testlib.Case):
    """Every test has a daemon of its own."""

    arguments = ()

    def setUp(self):
        super().setUp()
        self.daemon, self.port = self.start_ctrdzvd(*self.arguments)
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")

    def connection(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        self.addCleanup(c.close)
        return c

    def ask(self, path, method="GET", **kwargs):
        """One request on a connection of its own; the answer has its body in .text."""
        return self.ask_on(self.connection(), path, method, **kwargs)

    def ask_on(self, connection, path, method="GET", **kwargs):
        connection.request(method, path, **kwargs)
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        return answer

    def status(self):
        return json.loads(self.ask("/status").text)

    def raw(self, data=b""):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        self.addCleanup(s.close)
        s.sendall(data)
        return s

    def hear_all(self, s):
        data = b""
        try:
            while part := s.recv(65536):
                data += part
        except ConnectionResetError:
            pass
        return data

    def store_client(self):
        return self.raw(HELLO)

    def assert_served(self, client):
        client.sendall(PING)
        self.assertEqual(client.recv(4, socket.MSG_WAITALL), b"ping")


class Pages(Http):
    def test_healthz_and_readyz_tell_that_all_is_well(self):
        for path, want in (
            ("/healthz", {"health": "serving"}),
            ("/readyz", {"ready": True, "problems": []}),
        ):
            answer = self.ask(path)
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.getheader("Content-Type"), "application/json")
            self.assertEqual(json.loads(answer.text), want)

    def test_status_tells_what_the_store_did(self):
        client = self.store_client()
        client.sendall(b"\x01" + text(b"/k") + text(b"value") + b"\x03" + text(b"/k"))
        self.assertEqual(client.recv(13, socket.MSG_WAITALL), text(b"value"))
        waiting = self.store_client()
        waiting.sendall(b"\x06\x01" + bytes(7) + text(b"/a\n\xff\\b"))
        status = wait_until(lambda: (s := self.status())["store"]["waiters"] and s, "the waiter")
        store = status["store"]
        self.assertEqual((store["keys"], store["bytes"], store["connections"]), (1, 7, 2))
        operations = {k: v for k, v in store["operations"].items() if v}
        self.assertEqual(operations, {"validate": 2, "set": 1, "get": 1, "wait": 1})
        peer = "127.0.0.1:%d" % waiting.getsockname()[1]
        self.assertEqual(
            store["waiting"], [{"key": "/a\\x0a\\xff\\\\b", "clients": 1, "peer": peer}]
        )
        self.assertIs(store["waiting_more"], False)
        self.assertEqual(status["health"], "healthy")
        self.assertIs(status["ready"], True)
        self.assertGreaterEqual(status["uptime_s"], 0)  # 0 within the first millisecond
        self.assertNotIn("job", status)
        waiting.close()
        wait_until(lambda: not self.status()["store"]["waiting"], "no waiter is left")

    def test_many_waiters_are_summed_up_by_key(self):
        clients = [self.store_client() for _ in range(40)]
        for i, client in enumerate(clients):
            client.sendall(b"\x06\x01" + bytes(7) + text(b"/own%d" % i))
        crowd = [self.store_client() for _ in range(20)]
        for client in crowd:
            client.sendall(b"\x06\x01" + bytes(7) + text(b"/own0"))
        store = wait_until(
            lambda: (s := self.status()["store"])["waiters"] == 60 and s, "all wait"
        )
        self.assertEqual(len(store["waiting"]), 32)
        self.assertIs(store["waiting_more"], True)
        counts = {w["key"]: w["clients"] for w in store["waiting"]}
        self.assertEqual(counts["/own0"], 21)

    def test_metrics_are_prometheus_text(self):
        client = self.store_client()
        self.assert_served(client)
        answer = self.ask("/metrics")
        self.assertTrue(answer.getheader("Content-Type").startswith("text/plain; version=0.0.4"))
        self.assertIn('\nctrun_store_requests_total{operation="ping"} 1\n', answer.text)
        self.assertIn("\nctrun_store_connections 1\n", answer.text)

    def test_promtool_has_nothing_to_say(self):
        if shutil.which("promtool") is None:
            self.skipTest("promtool is not in PATH (Debian's package prometheus has it)")
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=self.ask("/metrics").text,
            capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_head_has_the_head_of_get(self):
        for path in ("/healthz", "/status", "/metrics", "/nothing"):
            get, head = self.ask(path), self.ask(path, "HEAD")
            self.assertEqual((head.status, head.text), (get.status, ""))
            self.assertEqual(head.getheader("Content-Type"), get.getheader("Content-Type"))
            self.assertGreater(int(head.getheader("Content-Length")), 0)

    def test_unknown_page_is_not_found(self):
        for path in ("/Status", "/status/", "/status%2f", "/" + "a" * 3000):
            answer = self.ask(path)
            self.assertEqual(answer.status, 404, path[:20])
            self.assertIn("/status", json.loads(answer.text)["error"])
        self.assertEqual(self.ask("/status?pretty=1").status, 200)

    def test_who_is_no_browser_gets_the_list_of_pages(self):
        answer = self.ask("/")
        self.assertEqual((answer.status, answer.getheader("Content-Type")), (200, "application/json"))
        pages = json.loads(answer.text)["pages"]
        self.assertIn("/status", pages)
        for path in pages.keys() - {"/end"}:  # it waits for a job
            self.assertIn(self.ask(path).status, (200, 503), path)

    def test_unknown_method_is_refused(self):
        for method, body in (("POST", "x" * 100000), ("DELETE", None), ("FROB", None)):
            answer = self.ask("/status", method, body=body)
            self.assertEqual(answer.status, 405, method)
            self.assertEqual(answer.getheader("Allow"), "GET, HEAD")
            self.assertIn("GET", json.loads(answer.text)["error"])

    def test_keys_are_off(self):
        answer = self.ask("/keys")
        self.assertEqual(answer.status, 404)
        self.assertIn("--http-keys", json.loads(answer.text)["error"])


class Keys(Http):
    arguments = ("--http-keys",)

    def test_keys_are_told_with_their_sizes(self):
        client = self.store_client()
        client.sendall(b"\x01" + text(b"/b") + text(b"123") + b"\x01" + text(b"/\0") + text(b""))
        self.assert_served(client)
        answer = json.loads(self.ask("/keys").text)
        self.assertIs(answer["more"], False)
        self.assertEqual(
            sorted((k["key"], k["bytes"]) for k in answer["keys"]), [("/\\x00", 0), ("/b", 3)]
        )

    def test_list_of_keys_is_bounded(self):
        client = self.store_client()
        pairs = b"".join(text(b"/%d" % i) + text(b"") for i in range(10001))
        client.sendall(b"\x0b" + (10001).to_bytes(8, "little") + pairs)
        self.assert_served(client)
        answer = json.loads(self.ask("/keys").text)
        self.assertEqual(len(answer["keys"]), 10000)
        self.assertIs(answer["more"], True)


class Peers(Http):
    GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

    def test_one_byte_at_a_time(self):
        s = self.raw()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(self.GET)):
            s.sendall(self.GET[i : i + 1])
        self.assertEqual(s.recv(12, socket.MSG_WAITALL), b"HTTP/1.1 200")

    def test_connection_is_kept_alive(self):
        c = self.connection()
        self.ask_on(c, "/healthz")
        first = c.sock
        for _ in range(50):
            self.assertEqual(self.ask_on(c, "/status").status, 200)
        self.assertIs(c.sock, first)

    def test_pipelined_requests_are_answered(self):
        count = 40
        s = self.raw(self.GET * (count - 1) + self.GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual(self.hear_all(s).count(b"HTTP/1.1 200 OK"), count)

    def test_two_hundred_at_once(self):
        connections = [self.connection() for _ in range(200)]
        for c in connections:
            c.connect()
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            codes = list(pool.map(lambda c: self.ask_on(c, "/status").status, connections))
        self.assertEqual(codes, [200] * 200)

    def test_too_many_connections_are_refused(self):
        crowd = [self.raw(b"GET") for _ in range(300)]
        client = self.store_client()
        self.assert_served(client)
        refused = 0
        for s in crowd:
            s.setblocking(False)
        def ended():
            nonlocal refused
            for s in list(crowd):
                try:
                    s.recv(1)
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    pass
                crowd.remove(s)
                refused += 1
            return refused >= 44
        wait_until(ended, "those beyond the limit are refused")
        self.assert_served(client)

    def test_oversized_head_is_refused(self):
        s = self.raw()
        try:
            s.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n")
            for i in range(2000):
                s.sendall(b"X-Filler-%d: %s\r\n" % (i, b"y" * 100))
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = self.hear_all(s)
        self.assertTrue(answer == b"" or re.match(rb"HTTP/1.1 4\d\d", answer), answer[:100])
        self.assertEqual(self.ask("/healthz").status, 200)

    def test_not_http_after_all(self):
        for data in (b"SSH-2.0-OpenSSH\r\n\r\n", b"GET\r\n\r\n", b"A" * 70000):
            s = self.raw()
            try:
                s.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertNotIn(b" 200 ", self.hear_all(s))
        self.assertEqual(self.ask("/healthz").status, 200)

    def test_get_with_a_body_is_cut_off(self):
        s = self.raw(self.GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 10\r\n\r\n") + b"0123456789")
        self.assertNotIn(b" 200 ", self.hear_all(s))

    def test_upper_case_in_the_middle_is_not_http(self):
        """Only the first byte of a connection decides."""
        s = self.raw(HELLO[:1])
        self.assertEqual(self.ask("/healthz").status, 200)  # the daemon has seen that byte
        s.sendall(HELLO[1:] + b"\x01" + text(b"GET / HTTP/1.1") + text(b"x") + PING)
        self.assertEqual(s.recv(4, socket.MSG_WAITALL), b"ping")

    def test_clients_of_the_store_first_byte_first(self):
        s = self.raw()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HELLO + PING:
            s.sendall(bytes([byte]))
        self.assertEqual(s.recv(4, socket.MSG_WAITALL), b"ping")

    def test_slow_ones_are_cut_off_and_silent_store_clients_are_not(self):
        silent = self.raw()
        client = self.store_client()
        half, drip = self.raw(b"GET /sta"), self.raw(b"G")
        idle = self.connection()
        self.ask_on(idle, "/healthz")
        busy = self.connection()
        self.ask_on(busy, "/healthz")
        busy_socket = busy.sock
        greedy = self.raw(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 4)
        started = time.monotonic()
        drip.settimeout(0.2)
        letters = iter(b"ET /status HTTP/1.1\r\nX-Slow: " + b"z" * 1000)

        def dripped_out():
            self.assert_served(client)
            self.ask_on(busy, "/healthz")
            try:
                drip.sendall(bytes([next(letters)]))
                return drip.recv(1) == b""
            except TimeoutError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                return True

        wait_until(dripped_out, "one byte after the other is cut off")
        self.assertGreaterEqual(time.monotonic() - started, LIMIT - 1)
        self.assertIs(busy.sock, busy_socket, "each request gives it time again")
        self.assertEqual(self.hear_all(half), b"")
        self.assertEqual(idle.sock.recv(1), b"")
        self.hear_all(greedy)
        wait_until(lambda: self.status()["http"]["timeouts"] >= 3, "they are counted")
        silent.sendall(HELLO)
        self.assert_served(silent)

    def test_daemon_ends_with_open_connections(self):
        kept = self.connection()
        self.ask_on(kept, "/healthz")
        half = self.raw(b"GET /")
        wait_until(lambda: self.status()["http"]["connections"] >= 3, "both are there")
        self.daemon.popen.terminate()
        self.assertEqual(self.daemon.wait().code, 0)
        self.assertEqual(self.hear_all(half), b"")


class DoubtfulHeads(Http):
    """What a proxy in front may have understood in another way."""

    def refused(self, header):
        s = self.raw(self.GET % header)
        answer = self.hear_all(s)
        self.assertTrue(answer.startswith(b"HTTP/1.1 400"), answer[:100])
        self.assertEqual(answer.count(b"HTTP/1.1"), 1)
        return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]

    GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n%s\r\n\r\nGET /status HTTP/1.1\r\nHost: x\r\n\r\n"

    def test_a_blank_before_the_colon(self):
        self.assertIn("blank", self.refused(b"X-Thing : y"))
        self.assertIn("blank", self.refused(b"Content-Length : 0"))
        self.assertIn("blank", self.refused(b"X-Thing\t: y"))

    def test_two_kinds_of_length_are_refused(self):
        error = self.refused(b"Content-Length: 5\r\nTransfer-Encoding: chunked")
        self.assertIn("Content-Length and Transfer-Encoding", error)
        self.refused(b"transfer-encoding: chunked\r\ncontent-length: 0")


class SlowClients(Http):
    def test_healthz_answers_beside_a_thousand(self):
        slow = [self.raw(b"GET /sta") for _ in range(1000)]
        wait_until(lambda: b"503" in self.asked(b"/status"), "the connections are taken")
        for _ in range(20):
            self.assertIn(b"HTTP/1.1 200 OK", self.asked(b"/healthz"))
        self.assertIn(b"all HTTP connections are taken", self.asked(b"/status"))
        for s in slow:
            s.close()
        wait_until(lambda: b"200 OK" in self.asked(b"/status"), "there is room again")

    def asked(self, path):
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as s:
            s.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path)
            return self.hear_all(s)


class WithoutHttp(testlib.Case):
    """A build without the library, or a machine where it cannot be loaded."""

    def check(self, daemon, port, why):
        for path, code in (("/healthz", 200), ("/status", 501), ("/metrics", 501)):
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
            self.addCleanup(c.close)
            c.request("GET", path)
            answer = c.getresponse()
            body = json.loads(answer.read())
            self.assertEqual((path, answer.status), (path, code))
            self.assertIn(*(("serving", body["health"]) if code == 200 else (why, body["error"])))
        daemon.wait_for(why)
        stat = self.run_program(testlib.program("ctrun-stat"), "127.0.0.1:%d" % port)
        self.assertEqual(stat.code, 2)
        self.assertIn("answered with HTTP code 501", stat.err)
        self.assertIn(why, stat.err)

    def test_this_build_has_none(self):
        if os.environ["HAVE_HTTP"] == "1":
            self.skipTest("this build has HTTP")
        self.check(*self.start_ctrdzvd(), "built without libmicrohttpd")

    def test_the_library_cannot_be_loaded(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            self.skipTest("only root hides a library from a program")
        library = ctypes.util.find_library("microhttpd")
        path = next(
            line.split()[-1]
            for line in subprocess.run(
                ["ldconfig", "-p"], capture_output=True, text=True, check=True
            ).stdout.splitlines()
            if library in line
        )
        self.check(*self.start_ctrdzvd_without(path), "cannot load libmicrohttpd")

    def start_ctrdzvd_without(self, path):
        hidden = 'mount --bind /dev/null "$0" && exec "$@"'
        daemon = self.start(
            "unshare", "-m", "sh", "-c", hidden, os.path.realpath(path),
            testlib.program("ctrdzvd"), "--port", "0",
        )  # fmt: skip
        line = daemon.wait_for("listening on")
        return daemon, int(line.rpartition(":")[2])


if __name__ == "__main__":
    testlib.main()
