# SPDX-License-Identifier: Apache-2.0
"""What a store suffers from its clients, its disk and its own death. After each ordeal somebody who
had nothing to do with it is served as before, and the store has the memory, the connections and the
keys that it had.

CT_FAULT_ROUNDS multiplies the number of kills of the daemon (10 of them give 150)."""

import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest

import testlib
from testlib import DEADLINE, SOURCE_ROOT, program, wait_until
from testlib.store_client import (
    DELETE, MAGIC, MAX_VALUE, MULTI_SET, NUM_KEYS, PING, SET, Peer, request, text, u64,
)  # fmt: skip

ROUNDS = int(os.environ.get("CT_FAULT_ROUNDS", "1"))

# Allocators keep some; what is looked for are leaks of many small or few large things. Sanitizers
# keep everything for a while, and look for leaks themselves.
SANITIZED = os.environ.get("SANITIZE", "none") != "none"
SLACK = 24 << 20


class FaultCase(testlib.Case):
    def serve(self, *args, **kwargs):
        self.daemon, self.port = self.start_ctrdzvd(*args, **kwargs)
        self.good = self.peer()
        self.good.set(b"/good", b"value")
        self.assertTrue(self.good.ping())
        return self.good

    def peer(self, **kwargs):
        peer = Peer(self.port, **kwargs)
        self.addCleanup(peer.close)
        return peer

    def rss(self):
        return testlib.anonymous_bytes(self.daemon.pid)

    def assert_memory_returned(self, before):
        if not SANITIZED:
            self.assertLess(self.rss(), before + SLACK)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def keys(self):
        self.good.send(bytes([NUM_KEYS]))
        return self.good.number()

    def assert_undisturbed(self):
        self.assertTrue(self.daemon.running(), self.daemon.err)
        self.assertEqual(self.good.get(b"/good"), b"value")
        self.assertTrue(self.peer().ping())


# A client that is killed: opens connections, does a bit of everything on them, and goes on.
VICTIM = """
import os, random, sys
from testlib.store_client import *
port, count, rng = int(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
peers = [Peer(port) for _ in range(count)]
for peer in peers:
    what = rng.randrange(5)
    if what == 0:
        peer.send(request(WAIT, 2, b"/never", b"/good"))
    elif what == 1:
        peer.send(request(SET, b"/victim", b"x" * 1000)[: rng.randrange(1, 1000)])
    elif what == 2:
        peer.send(request(GET, b"/big") * 20)
    elif what == 3:
        peer.send(request(ADD, b"/count", 1))
    else:
        peer.send(request(WAIT, 1, b"/also-never") + request(CANCEL))
print("busy", flush=True)
sys.stdin.read()
"""


class Clients(FaultCase):
    def test_a_thousand_clients_are_killed(self):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        self.serve()
        self.good.set(b"/big", os.urandom(1 << 20))
        self.assertTrue(self.good.ping())
        fds = self.descriptors()
        rss = 0
        for round_ in range(20):
            path = str(SOURCE_ROOT / "tests" / "integration")
            argv = [sys.executable, "-c", VICTIM, str(self.port), "50", str(seed + round_)]
            with subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
            ) as victim:  # fmt: skip
                self.assertEqual(victim.stdout.readline(), b"busy\n")
                victim.kill()
                victim.wait(DEADLINE)
            self.assert_undisturbed()
            if round_ == 2:
                rss = self.rss()
        wait_until(lambda: self.descriptors() <= fds + 21, "the connections of the dead are closed")
        self.assert_memory_returned(rss)
        # Their waits are gone as well: nobody is there to be woken.
        self.good.set(b"/never", b"")
        self.assert_undisturbed()

    def test_half_open_and_half_closed_peers(self):
        self.serve()
        fds = self.descriptors()
        for how in range(60):
            peer = self.peer()
            peer.send(request(SET, b"/half", b"x" * 100)[: 1 + how])
            if how % 3 == 0:
                peer.sock.shutdown(socket.SHUT_WR)
                self.assertTrue(peer.ended())
            elif how % 3 == 1:
                # Closes with a reset, as a machine does that lost its memory of us.
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
            else:
                peer.sock.shutdown(socket.SHUT_RD)
        self.assert_undisturbed()
        self.assertEqual(self.keys(), 1)
        wait_until(lambda: self.descriptors() <= fds + 21, "two thirds of them are gone")

    def test_floods_of_garbage_cost_no_memory(self):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        rng = random.Random(seed)
        self.serve()
        rss = self.rss()
        for i in range(200):
            bad = Peer(self.port, greet=i % 2 == 0)
            try:
                bad.send(bytes([rng.randrange(200, 256)]) + rng.randbytes(200_000))
                self.assertTrue(bad.ended())
            except (ConnectionResetError, BrokenPipeError):
                pass
            bad.close()
            if i % 20 == 0:
                self.assert_undisturbed()
        self.assertEqual(self.keys(), 1)
        self.assert_memory_returned(rss)

    def test_memory_of_large_keys_returns(self):
        self.serve()
        rss = self.rss()
        for i in range(20):
            self.good.set(b"/large/%d" % i, bytes(MAX_VALUE))
        self.assertTrue(self.good.ping())
        for i in range(20):
            self.good.send(request(DELETE, b"/large/%d" % i))
            self.assertEqual(self.good.number(), 1)
        self.assertEqual(self.keys(), 1)
        self.assert_memory_returned(rss)

    def test_slow_loris_on_each_dialect(self):
        self.serve()
        current = b"\0" + MAGIC + request(SET, b"/current", b"slowly") + bytes([PING]) + b"ping"
        legacy = b"\0" + text(b"/legacy") + text(b"slowly") + b"\2" + text(b"/legacy")
        http = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        slow = [(self.peer(greet=False), data) for data in (current, legacy, http) * 30]
        for at in range(max(len(current), len(legacy))):
            for peer, data in slow:
                if at < len(data):
                    try:
                        peer.send(data[at : at + 1])
                    except (BrokenPipeError, ConnectionResetError):
                        self.assertIs(data, http)  # may be cut off
            self.assertEqual(self.good.get(b"/good"), b"value")
        for peer, data in slow:
            if data is current:
                self.assertEqual(peer.recv(4), b"ping")
            elif data is legacy:
                self.assertEqual(peer.value(), b"slowly")
        self.assert_undisturbed()

    def test_no_descriptor_is_left(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        self.serve(preexec=few)
        crowd = []
        for _ in range(120):
            try:
                crowd.append(Peer(self.port))
            except OSError:
                pass
        for _ in range(20):
            self.assertEqual(self.good.get(b"/good"), b"value")
        self.assertIn("out of descriptors", self.daemon.err)
        for peer in crowd:
            peer.close()
        wait_until(lambda: self.descriptors() < 40, "their descriptors are free again")
        self.assert_undisturbed()


class Writer(threading.Thread):
    """Counts up a key of its own. `acked` is the last value that the store confirmed."""

    def __init__(self, port, name):
        super().__init__()
        self.peer, self.name_, self.acked = Peer(port), name, 0

    def run(self):
        size = random.randrange(10, 3000)
        try:
            while True:
                n = self.acked + 1
                key = b"/w/%s/" % self.name_
                self.peer.send(
                    request(SET, key + b"%d" % (n % 50), b"%d " % n + bytes(size))
                    + request(MULTI_SET, 2, key + b"a", b"%d" % n, key + b"b", b"%d" % n)
                    + bytes([PING]) + u64(n)[:4]
                )  # fmt: skip
                assert self.peer.recv(4) == u64(n)[:4]
                self.acked = n
        except (OSError, EOFError):
            pass
        finally:
            self.peer.close()


class Death(FaultCase):
    def check_writers(self, writers):
        peer = self.peer()
        for writer in writers:
            key = b"/w/%s/" % writer.name_
            a, b = peer.get(key + b"a"), peer.get(key + b"b")
            self.assertEqual(a, b, "a request with two changes is there in part")
            self.assertIn(int(a or 0), (writer.acked, writer.acked + 1))
            for back in range(min(writer.acked, 49)):
                n = writer.acked - back
                value = peer.get(key + b"%d" % (n % 50))
                self.assertIn(int(value.split()[0]), (n, n + 50), "an acknowledged value is lost")

    def test_nothing_acknowledged_is_lost_by_kill(self):
        journal = self.tmp / "journal"
        seed = random.randrange(1 << 32)
        print("seed", seed)
        rng = random.Random(seed)
        for round_ in range(15 * ROUNDS):
            self.serve("--journal", journal)
            writers = [Writer(self.port, b"%d-%d" % (round_, i)) for i in range(4)]
            for writer in writers:
                writer.start()
            wait_until(lambda: all(w.acked > 0 for w in writers), "all writers write")
            # The moment of death is what is random here; nothing waits for this.
            threading.Event().wait(rng.random() * 0.15)
            self.daemon.signal(signal.SIGKILL)
            self.daemon.popen.wait(DEADLINE)
            for writer in writers:
                writer.join(DEADLINE)
            self.serve("--journal", journal)
            self.check_writers(writers)
            self.assertNotIn("damaged", self.daemon.err)
            # Keeps the file and the next start small.
            peer = self.peer()
            for writer in writers:
                names = [b"a", b"b", *[b"%d" % i for i in range(50)]]
                for name in names:
                    peer.send(request(DELETE, b"/w/%s/%s" % (writer.name_, name)))
                    peer.number()
            self.daemon.signal(signal.SIGKILL)
            self.daemon.popen.wait(DEADLINE)


class Disk(FaultCase):
    def setUp(self):
        super().setUp()
        self.disk = self.tmp / "disk"
        self.disk.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "none", self.disk],
            capture_output=True, text=True,
        )  # fmt: skip
        if made.returncode != 0:
            raise unittest.SkipTest(f"cannot mount a small file system: {made.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True)

    def test_full_disk_refuses_changes_and_reads_go_on(self):
        journal = self.disk / "journal"
        self.serve("--journal", journal)
        values = {}

        def store(i, size):
            """True when the store took it."""
            writer = Peer(self.port)
            key, value = b"/v/%d" % i, os.urandom(size)
            try:
                writer.set(key, value)
                taken = writer.ping()
            except (OSError, EOFError):
                taken = False
            writer.close()
            if taken:
                values[key] = value
            return taken

        count = 0
        while store(count, 100_000):
            count += 1
            self.assertLess(count, 21, "2 MiB hold more than 2 MB")
        self.assertGreater(count, 10)
        for i in range(5):
            self.assertFalse(store(1000 + i, 300_000))
            self.assert_undisturbed()
        self.assertEqual(self.daemon.err.count("reads go on"), 1, self.daemon.err)
        self.assertIn("No space left on device", self.daemon.err)
        for key, value in values.items():
            self.assertEqual(self.good.get(key), value)
        # Room comes back.
        subprocess.run(["mount", "-o", "remount,size=16m", self.disk], check=True)
        self.assertTrue(store(2000, 300_000))
        self.assertEqual(self.daemon.err.count("changes are taken again"), 1, self.daemon.err)
        self.daemon.signal(signal.SIGKILL)
        self.daemon.popen.wait(DEADLINE)
        self.serve("--journal", journal)
        self.assertEqual(self.keys(), len(values) + 1)
        for key, value in values.items():
            self.assertEqual(self.good.get(key), value)


if __name__ == "__main__":
    testlib.main()
