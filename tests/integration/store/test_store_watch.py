# SPDX-License-Identifier: Apache-2.0
"""WATCH_KEY of PyTorch 1.13 over real sockets: who watches a key is told of each change of it."""

import resource
import struct

import testlib
from testlib import wait_until
from testlib.store_client import DELETE, MAX_VALUE, NUM_KEYS, Peer, request, text

WATCH = 7  # of the legacy dialect
UPDATED, CREATED, DELETED, REGISTERED = range(4)


class Watcher(Peer):
    """The second connection of a 1.13 client, which only watches."""

    def __init__(self, port, *keys):
        super().__init__(port, greet=False)
        for key in keys:
            self.send(request(WATCH, key))
            assert self.recv(1)[0] == REGISTERED

    def notice(self):
        return struct.unpack("B", self.recv(1))[0], self.value(), self.value(), self.value()


class Watching(testlib.Case):
    def setUp(self):
        super().setUp()
        self.daemon, self.port = self.start_ctrdzvd(*self.arguments())
        self.writer = Peer(self.port)
        self.addCleanup(self.writer.close)

    def arguments(self):
        return ()

    def watcher(self, *keys):
        watcher = Watcher(self.port, *keys)
        self.addCleanup(watcher.close)
        return watcher

    def test_each_change_is_told(self):
        both, one = self.watcher(b"/k", b"/n"), self.watcher(b"/k")
        self.writer.set(b"/k", b"1")
        self.writer.set(b"/other", b"1")
        self.assertEqual(self.writer.add(b"/n", 7), 7)
        self.writer.set(b"/k", b"two")
        self.writer.send(request(DELETE, b"/k"))
        self.assertEqual(self.writer.number(), 1)
        of_k = [
            (CREATED, b"/k", b"", b"1"),
            (UPDATED, b"/k", b"1", b"two"),
            (DELETED, b"/k", b"two", b""),
        ]
        self.assertEqual([one.notice() for _ in range(3)], of_k)
        of_k.insert(1, (CREATED, b"/n", b"", b"7"))
        self.assertEqual([both.notice() for _ in range(4)], of_k)

    def test_largest_values_arrive_whole(self):
        watcher = self.watcher(b"/k")
        before = b""
        for value in (b"a" * MAX_VALUE, b"b" * MAX_VALUE, b"c"):
            self.writer.set(b"/k", value)
            kind, key, old, new = watcher.notice()
            self.assertEqual((kind, key), (UPDATED if before else CREATED, b"/k"))
            self.assertTrue(old == before and new == value)
            before = value

    def test_one_byte_at_a_time(self):
        watcher = self.watcher()
        for byte in bytes([WATCH]) + text(b"/k") + bytes([6]):  # and GETNUMKEYS
            watcher.send(bytes([byte]))
        self.assertEqual(watcher.recv(1)[0], REGISTERED)
        self.assertEqual(watcher.number(), 0)

    def test_many_watchers_get_every_change(self):
        watchers = [self.watcher(b"/k") for _ in range(150)]
        for i in range(20):
            self.writer.set(b"/k", b"%d" % i)
        for watcher in watchers:
            news = [watcher.notice()[3] for _ in range(20)]
            self.assertEqual(news, [b"%d" % i for i in range(20)])

    def test_who_does_not_read_is_ended_alone(self):
        reader = self.watcher(b"/k")
        deaf = self.watcher(b"/k")
        value = b"x" * (1 << 19)

        def ended():
            self.writer.set(b"/k", value)
            reader.notice()
            return "it does not read the notices of the keys it watches" in self.daemon.err

        wait_until(ended, "the end of who does not read")
        self.assertEqual(self.daemon.err.count("it does not read"), 1)
        self.assertTrue(self.writer.ping())
        with self.assertRaises((EOFError, ConnectionResetError)):
            while True:
                deaf.notice()

    def test_who_is_gone_is_forgotten(self):
        for _ in range(50):
            self.watcher(b"/k").close()
        last = self.watcher(b"/k")
        self.writer.set(b"/k", b"1")
        self.assertEqual(last.notice(), (CREATED, b"/k", b"", b"1"))
        self.writer.send(bytes([NUM_KEYS]))
        self.assertEqual(self.writer.number(), 1)

    def test_the_current_dialect_has_no_watches(self):
        self.writer.send(request(WATCH)[:1])  # GETNUMKEYS there
        self.assertEqual(self.writer.number(), 0)


class WatchingWithJournal(Watching):
    """A notice waits for the journal as answers do."""

    def arguments(self):
        return ("--journal", self.tmp / "journal")

    def test_what_could_not_be_written_is_not_told(self):
        watcher = self.watcher(b"/k")
        self.writer.set(b"/k", b"1")
        self.assertEqual(watcher.notice(), (CREATED, b"/k", b"", b"1"))
        limit = (self.tmp / "journal").stat().st_size + 5000
        resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        self.writer.set(b"/k", bytes(6000))
        self.assertTrue(self.writer.ended())
        resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        again = Peer(self.port)
        self.addCleanup(again.close)
        again.set(b"/k", b"2")
        self.assertEqual(watcher.notice(), (UPDATED, b"/k", b"1", b"2"))


if __name__ == "__main__":
    testlib.main()
