# SPDX-License-Identifier: Apache-2.0
"""Who may use the store: this machine, and those who were named. The stranger is another network
namespace at the end of a virtual cable."""

import hmac
import os
import re
import signal
import sys

import testlib
from testlib import SOURCE_ROOT, program, wait_until
from testlib.netns import SERVER4, SERVER6, STRANGER4, TwoMachines

# Says what became of a client: "served", or "refused" when the connection ended without a byte.
CLIENT = """
import sys
from testlib.store_client import MAGIC, Peer
host, port, first = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
peer = Peer(port, greet=False, host=host)
peer.send(first)
try:
    got = peer.sock.recv(100)
except ConnectionResetError:
    got = b""
print("served" if got else "refused")
"""

# Opens connections that never say a word, then as many that do, and waits to be ended.
CROWD = """
import sys
from testlib.store_client import Peer
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
silent = [Peer(port, greet=False, host=host) for _ in range(count)]
print("silent", flush=True)
sys.stdin.readline()
for _ in range(count):
    peer = Peer(port, host=host)
    assert peer.ended()
    peer.close()
print("done", flush=True)
sys.stdin.readline()
"""

# Prints the codes of pages, as a browser asks for them, or who sends a token.
PAGES = """
import sys, urllib.error, urllib.request
headers = {"Accept": "text/html"}
if len(sys.argv) > 3:
    headers["Authorization"] = "Bearer " + sys.argv[3]
for page in ("healthz", "status", "", "page/data", "page/events", "page/rank/0/0"):
    url = f"http://{sys.argv[1]}:{sys.argv[2]}/{page}"
    try:
        print(urllib.request.urlopen(urllib.request.Request(url, headers=headers)).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""

CURRENT = b"\x00\xce\xf7\x85\x3c\x0dping"
LEGACY = b"\x05" + bytes(8)  # how many keys are there?


class Access(testlib.Case):
    def setUp(self):
        super().setUp()
        self.net = TwoMachines(self)

    def serve(self, *args, listen="*"):
        self.daemon = self.start(
            *self.net.server, program("ctrdzvd"), "--port", "0", "--listen", listen, *args
        )
        self.port = self.daemon.wait_for("listening on").rpartition(":")[2]

    def run_python(self, where, code, *args):
        path = str(SOURCE_ROOT / "tests" / "integration")
        return (*where, sys.executable, "-c", code, *args), {"env": {"PYTHONPATH": path}}

    def ask(self, where, host, first=CURRENT):
        argv, kwargs = self.run_python(where, CLIENT, host, self.port, first.hex())
        result = self.run_program(*argv, **kwargs)
        self.assertEqual(result.code, 0, result)
        return result.out.strip()

    def hosts(self):
        return [SERVER4, SERVER6] if self.net.has_ipv6() else [SERVER4]

    def refused(self):
        """How many connections the log says were refused."""
        return sum(int(n) for n in re.findall(r"refused (\d+) connection", self.daemon.err))

    def test_stranger_gets_nothing(self):
        self.serve()
        for host in self.hosts():
            for first in (CURRENT, LEGACY, b"\x00", b"\xff" * 100):
                self.assertEqual(self.ask(self.net.stranger, host, first), "refused")
        self.assertRegex(
            self.daemon.err,
            rf"warning: store: refused 1 connection by address, the last from {STRANGER4}:\d+",
        )
        for host in ("127.0.0.1", *self.hosts()):
            self.assertEqual(self.ask(self.net.server, host), "served")

    def test_stranger_may_ask_for_the_health_alone(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        self.serve()
        for where, host, want in (
            (self.net.stranger, SERVER4, "200\n" + 5 * "403\n"),
            (self.net.server, "127.0.0.1", 5 * "200\n" + "404\n"),
        ):
            argv, kwargs = self.run_python(where, PAGES, host, self.port)
            result = self.run_program(*argv, **kwargs)
            self.assertEqual(result.out, want, result)
        self.assertRegex(
            self.daemon.err,
            rf"warning: store: refused 1 HTTP request, the last from {STRANGER4}:\d+: this address is not admitted\n",
        )

    def read_key(self, token):
        result = self.run_program(program("ctrun-stat"), "--read-key", "--token-file", token)
        self.assertEqual((result.code, result.err), (0, ""), result)
        text = token.read_text().strip().encode()
        self.assertEqual(result.out, hmac.new(text, b"ctrun read key 1", "sha256").hexdigest() + "\n")
        return result.out.strip()

    def test_stranger_with_the_token_may_read_the_pages_alone(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        token = self.tmp / "token"
        token.write_text("0123456789abcdef\n")
        token.chmod(0o600)
        self.serve("--token-file", str(token))
        for bearer, want in (
            ("0123456789abcdef", 5 * "200\n" + "404\n"),
            (self.read_key(token), 5 * "200\n" + "404\n"),
            ("0123456789abcdeg", "200\n" + 5 * "403\n"),
        ):
            argv, kwargs = self.run_python(self.net.stranger, PAGES, SERVER4, self.port, bearer)
            result = self.run_program(*argv, **kwargs)
            self.assertEqual(result.out, want, result)
        self.assertEqual(self.ask(self.net.stranger, SERVER4), "refused")

    def stat(self, where, *args, env=None):
        return self.run_program(*where, program("ctrun-stat"), *args, f"{SERVER4}:{self.port}", env=env)

    def test_ctrun_stat_proves_the_token_from_another_machine(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        token = self.tmp / "token"
        token.write_text("0123456789abcdef\n")
        token.chmod(0o600)
        self.serve("--token-file", str(token))
        for args, env in ((("--token-file", token), None), ((), {"CTRUN_TOKEN": "0123456789abcdef"})):
            for form in ("--json", "--health"):
                result = self.stat(self.net.stranger, form, *args, env=env)
                self.assertEqual((result.code, result.err), (0, ""), result)
        for args, env, why in (
            ((), None, "this machine is not admitted; if the job has a token, name its file with --token-file"),
            ((), {"CTRUN_TOKEN": "0123456789abcdeg"}, "the token is not that of the job"),
            (("--token-file", self.tmp / "none"), None, f"--token-file: there is no file {self.tmp / 'none'}; this makes one: "),
            (("--token-file", self.tmp), None, f"--token-file: {self.tmp} is a folder: name a file that holds the token"),
        ):
            result = self.stat(self.net.stranger, *args, env=env)
            self.assertEqual((result.code, result.out), (2, ""), result)
            self.assertRegex(result.err, rf"^ctrun-stat: .*{re.escape(why)}[^\n]*\n$")
        # The machine of the store is admitted with any token.
        result = self.stat(self.net.server, "--health", env={"CTRUN_TOKEN": "0123456789abcdeg"})
        self.assertEqual((result.code, result.out), (0, "healthy\n"), result)
        # The watch hears of the end of the store as one that is admitted does.
        watch = self.start(*self.net.stranger, program("ctrun-stat"), "--watch", "--health", "--token-file", token,
                           f"{SERVER4}:{self.port}")  # fmt: skip
        wait_until(lambda: watch.out.count("healthy") >= 2, "the store is asked again")
        watch.signal(signal.SIGTERM)
        self.assertEqual(watch.wait().err, "")
        self.assertEqual(self.ask(self.net.stranger, SERVER4), "refused")

    def test_ctrun_stat_of_a_stranger_is_refused_where_there_is_no_token(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        self.serve()
        result = self.stat(self.net.stranger, env={"CTRUN_TOKEN": "0123456789abcdef"})
        self.assertEqual((result.code, result.out), (2, ""), result)
        self.assertIn("the store does not ask for a proof of the token", result.err)

    def test_named_network_is_served(self):
        self.serve("--allow", "192.0.2.0/24", "--allow", "10.9.0.0/30", "--allow", "fd09::/64")
        for host in self.hosts():
            self.assertEqual(self.ask(self.net.stranger, host), "served")

    def test_another_network_is_not(self):
        self.serve("--allow", "192.0.2.0/24", "--allow", "10.9.0.0/31", "--allow", "fd08::/64")
        for host in self.hosts():
            self.assertEqual(self.ask(self.net.stranger, host), "refused")

    def test_open_admits_and_says_so(self):
        self.serve("--open")
        self.assertIn("--open: every client that reaches the port is admitted", self.daemon.err)
        for host in self.hosts():
            self.assertEqual(self.ask(self.net.stranger, host), "served")

    def test_listener_of_ipv4_alone(self):
        self.serve(listen=SERVER4)
        self.assertEqual(self.ask(self.net.stranger, SERVER4), "refused")
        self.assertEqual(self.ask(self.net.server, SERVER4), "served")

    def test_crowd_of_strangers_takes_neither_descriptors_nor_the_log(self):
        self.serve()
        # libuv opens a spare one with the first connection.
        before = len(os.listdir(f"/proc/{self.daemon.pid}/fd")) + 1
        count = 300
        read, write = os.pipe()
        argv, kwargs = self.run_python(self.net.stranger, CROWD, SERVER4, self.port, str(count))
        crowd = self.start(*argv, stdin=read, **kwargs)
        os.close(read)
        crowd.wait_for("silent")
        wait_until(
            lambda: len(os.listdir(f"/proc/{self.daemon.pid}/fd")) <= before + 16,
            "silent strangers are ended",
        )
        self.assertEqual(self.ask(self.net.server, "127.0.0.1"), "served")
        os.write(write, b"\n")
        crowd.wait_for("done")
        # The log lags behind until the next refusal after a second of silence.
        lines = self.daemon.err.count("refused")
        self.assertLess(lines, 30, self.daemon.err)

        def all_told():
            self.ask(self.net.stranger, SERVER4)
            return self.refused() >= 2 * count - 16

        wait_until(all_told, "every refusal is counted")
        os.close(write)
        self.assertEqual(crowd.wait().code, 0)
        wait_until(
            lambda: len(os.listdir(f"/proc/{self.daemon.pid}/fd")) == before,
            "no stranger is left",
        )


class Options(testlib.Case):
    def test_malformed_networks_are_refused(self):
        for net in ("10.0.0.0/33", "10.0.0", "example.org", ""):
            result = self.run_program(program("ctrdzvd"), "--allow", net)
            self.assertEqual(result.code, 2, result)
            self.assert_one_line(result.err)
            self.assertIn(f"--allow: '{net}'", result.err)

    def test_too_many_networks_are_refused(self):
        result = self.run_program(program("ctrdzvd"), *["--allow", "10.0.0.0/8"] * 65)
        self.assertEqual(result.code, 2, result)
        self.assertIn("--allow: more than 64", result.err)


if __name__ == "__main__":
    testlib.main()
