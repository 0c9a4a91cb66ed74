# SPDX-License-Identifier: Apache-2.0
"""ctrdzvd --journal: what was acknowledged is there after kill -9, and what a file can suffer."""

import os
import resource
import signal
import threading

import testlib
from testlib import DEADLINE, program, wait_until
from testlib.store_client import (
    APPEND, COMPARE_SET, DELETE, MULTI_SET, NUM_KEYS, SET, WAIT, Peer, request,
)  # fmt: skip

HEAD = 16  # bytes of the file's header, and of a record without key and value


class JournalCase(testlib.Case):
    def setUp(self):
        super().setUp()
        self.path = self.tmp / "journal"

    def serve(self, *args, **kwargs):
        self.daemon, self.port = self.start_ctrdzvd("--journal", self.path, *args, **kwargs)
        return self.peer()

    def peer(self):
        peer = Peer(self.port)
        self.addCleanup(peer.close)
        return peer

    def kill(self):
        self.daemon.signal(signal.SIGKILL)
        self.daemon.popen.wait(DEADLINE)

    def again(self, *args):
        """Kills the daemon and starts it on the same file."""
        self.kill()
        return self.serve(*args)

    def keys(self, peer):
        peer.send(bytes([NUM_KEYS]))
        return peer.number()

    def refuses(self, *args, named):
        result = self.run_program(program("ctrdzvd"), "--port", "0", *args)
        self.assertEqual(result.code, 1, result)
        self.assert_one_line(result.err)
        for text in named:
            self.assertIn(text, result.err)


class Restart(JournalCase):
    def change_everything(self, peer):
        peer.set(b"/set", b"one")
        peer.set(b"/set", b"two")
        self.assertEqual(peer.add(b"/n", 5), 5)
        self.assertEqual(peer.add(b"/n", -8), -3)
        peer.send(request(APPEND, b"/a", b"x") + request(APPEND, b"/a", b"yz"))
        peer.send(request(COMPARE_SET, b"/c", b"", b"new"))
        self.assertEqual(peer.value(), b"new")
        peer.send(request(COMPARE_SET, b"/c", b"old", b"newer"))
        self.assertEqual(peer.value(), b"new")
        peer.send(request(MULTI_SET, 2, b"/m1", b"1", b"/m2", b"2"))
        peer.set(b"/gone", b"x")
        peer.send(request(DELETE, b"/gone") + request(DELETE, b"/never"))
        self.assertEqual((peer.number(), peer.number()), (1, 0))
        peer.set(b"", b"")
        peer.set(b"/\0bytes\xff", bytes(range(256)))
        self.assertTrue(peer.ping())

    def expect_everything(self, peer):
        for key, value in (
            (b"/set", b"two"), (b"/n", b"-3"), (b"/a", b"xyz"), (b"/c", b"new"), (b"/m1", b"1"),
            (b"/m2", b"2"), (b"/\0bytes\xff", bytes(range(256))),
        ):  # fmt: skip
            self.assertEqual(peer.get(key), value)
        self.assertEqual(self.keys(peer), 8)

    def test_every_change_survives_kill(self):
        self.change_everything(self.serve())
        peer = self.again()
        self.expect_everything(peer)
        self.expect_everything(self.again())
        self.assertNotIn("journal", self.daemon.err)

    def test_every_change_survives_an_orderly_end(self):
        peer = self.serve("--journal-sync")
        self.change_everything(peer)
        peer.set(b"/late", b"without a reply")
        self.assertTrue(peer.ping())
        self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait().code, 0)
        peer = self.serve("--journal-sync")
        self.assertEqual(peer.get(b"/late"), b"without a reply")

    def test_large_values_and_many_keys(self):
        peer = self.serve()
        big = os.urandom(8 << 20)
        peer.set(b"/big", big)
        pairs = [part for i in range(5000) for part in (b"/%d" % i, b"%d" % (i * i))]
        peer.send(request(MULTI_SET, 5000, *pairs))
        self.assertTrue(peer.ping())
        peer = self.again()
        self.assertEqual(self.keys(peer), 5001)
        self.assertEqual(peer.get(b"/big"), big)
        self.assertEqual(peer.get(b"/4999"), b"%d" % (4999 * 4999))

    def test_whoever_was_woken_can_rely_on_it(self):
        for round_ in range(5):
            setter = self.serve()
            waiter = self.peer()
            key = b"/%d" % round_
            waiter.send(request(WAIT, 1, key))
            setter.set(key, b"here")
            self.assertEqual(waiter.recv(1), b"\0")
            peer = self.again()
            self.assertEqual(peer.get(key), b"here")
            self.kill()

    def test_set_without_a_reply_is_written_soon(self):
        peer = self.serve()
        peer.set(b"/k", b"v" * 100)
        wait_until(lambda: self.path.stat().st_size == HEAD + HEAD + 2 + 100, "it is in the file")

    def test_pipeline_larger_than_what_is_sent_at_a_time(self):
        peer = self.serve()
        value = b"x" * 100_000
        peer.set(b"/v", value)
        count = 60
        reader = threading.Thread(target=lambda: [peer.value() for _ in range(count)])
        reader.start()
        for i in range(count):
            peer.send(request(3, b"/v") + request(SET, b"/%d" % i, b"%d" % i))
        reader.join(DEADLINE)
        self.assertTrue(peer.ping())
        self.assertEqual(self.keys(self.again()), count + 1)


class Size(JournalCase):
    def test_is_written_anew_when_most_of_it_is_dead(self):
        peer = self.serve()
        peer.set(b"/keep", b"kept")
        for i in range(200):
            peer.set(b"/v", b"%d " % i + bytes(60_000))
            self.assertTrue(peer.ping())
            self.assertLess(self.path.stat().st_size, 3 * 60_000 + (1 << 20))
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
        peer = self.again()
        self.assertEqual(peer.get(b"/keep"), b"kept")
        self.assertTrue(peer.get(b"/v").startswith(b"199 "))
        self.assertEqual([p.name for p in self.tmp.glob("journal*")], ["journal"])

    def test_stays_as_large_as_what_it_holds(self):
        peer = self.serve()
        for i in range(100):
            peer.set(b"/%d" % i, bytes(60_000))
        self.assertTrue(peer.ping())
        self.assertGreater(self.path.stat().st_size, 6_000_000)

    def test_no_room_refuses_changes_and_nothing_else(self):
        reader = self.serve()
        reader.set(b"/old", b"value")
        self.assertTrue(reader.ping())
        limit = self.path.stat().st_size + 5000
        resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        writer = self.peer()
        for i in range(10):
            writer.set(b"/fits/%d" % i, b"x")
        self.assertTrue(writer.ping())
        for change in (
            request(SET, b"/new", bytes(6000)),
            request(APPEND, b"/old", bytes(6000)),
            request(MULTI_SET, 2, b"/m1", b"1", b"/m2", bytes(6000)),
        ):
            loser = self.peer()
            loser.send(change)
            self.assertTrue(loser.ended())
        self.assertEqual(reader.get(b"/old"), b"value")
        self.assertEqual(reader.get(b"/new"), b"")
        # One that fits is still taken, which does not mean that all is well.
        writer.set(b"/small", b"x")
        self.assertTrue(writer.ping())
        self.assertEqual(self.daemon.err.count("reads go on"), 1, self.daemon.err)
        self.assertNotIn("taken again", self.daemon.err)
        resource.prlimit(
            self.daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2
        )
        writer.set(b"/new", bytes(6000))
        self.assertTrue(writer.ping())
        self.assertEqual(self.daemon.err.count("taken again, after 3 were refused"), 1)
        self.assertNotIn("ended: a change", self.daemon.err)
        peer = self.again()
        self.assertEqual(peer.get(b"/new"), bytes(6000))
        self.assertEqual(peer.get(b"/small"), b"x")
        self.assertEqual(peer.get(b"/m2"), b"")


class Damage(JournalCase):
    """Three records of known size: /a, /b, /c with ten bytes each."""

    RECORD = HEAD + 2 + 10

    def setUp(self):
        super().setUp()
        peer = self.serve()
        for key in (b"/a", b"/b", b"/c"):
            peer.set(key, b"0123456789")
        self.assertTrue(peer.ping())
        self.kill()
        self.data = self.path.read_bytes()
        self.assertEqual(len(self.data), HEAD + 3 * self.RECORD)

    def expect(self, peer, *there):
        self.assertEqual(self.keys(peer), len(there))
        for key in there:
            self.assertEqual(peer.get(key), b"0123456789")
        # And the file can be appended to.
        peer.set(b"/more", b"x")
        self.assertTrue(peer.ping())
        peer = self.again()
        self.assertEqual(self.keys(peer), len(there) + 1)
        self.assertEqual(peer.get(b"/more"), b"x")
        self.assertNotIn("cut", self.daemon.err)
        self.kill()

    def test_torn_end_is_cut_and_said(self):
        for cut in (1, 10, 12, 13, self.RECORD - 1):
            with self.subTest(cut=cut):
                self.path.write_bytes(self.data[:-cut])
                peer = self.serve()
                self.assertIn(
                    f"cut {self.RECORD - cut} bytes of an unfinished write", self.daemon.err
                )
                self.expect(peer, b"/a", b"/b")

    def test_last_bytes_that_never_reached_the_disk(self):
        self.path.write_bytes(self.data[:-4] + bytes(4))
        peer = self.serve()
        self.assertIn(f"cut {self.RECORD} bytes", self.daemon.err)
        self.expect(peer, b"/a", b"/b")

    def test_header_alone_in_part(self):
        for size in (0, 1, HEAD - 1, HEAD):
            with self.subTest(size=size):
                self.path.write_bytes(self.data[:size])
                self.expect(self.serve())

    def test_flipped_bit_stops_there_and_keeps_the_file(self):
        for count, (at, there) in enumerate(
            (
                (HEAD + self.RECORD + 3, [b"/a"]),  # checksum of the head
                (HEAD + self.RECORD + 13, [b"/a"]),  # length: must not pass for a torn end
                (HEAD + self.RECORD + HEAD + 5, [b"/a"]),  # value
                (HEAD + HEAD, []),  # first key
            ),
            1,
        ):
            with self.subTest(at=at):
                bad = bytearray(self.data)
                bad[at] ^= 0x40
                self.path.write_bytes(bad)
                peer = self.serve()
                self.assertIn(
                    f"damaged at byte {HEAD + len(there) * self.RECORD} of {len(bad)}",
                    self.daemon.err,
                )
                kept = self.tmp / f"journal.damaged.{count}"
                self.assertIn(str(kept), self.daemon.err)
                self.assertEqual(kept.read_bytes(), bad)
                self.expect(peer, *there)

    def test_request_of_several_changes_is_there_whole_or_not_at_all(self):
        self.path.write_bytes(self.data)
        peer = self.serve()
        peer.send(request(MULTI_SET, 2, b"/d", b"1", b"/e", b"2"))
        self.assertTrue(peer.ping())
        self.kill()
        whole = self.path.read_bytes()
        self.assertEqual(self.keys(self.serve()), 5)
        self.kill()
        for size in range(len(self.data), len(whole)):
            self.path.write_bytes(whole[:size])
            self.assertEqual(self.keys(self.serve()), 3, size)
            self.kill()


class Refused(JournalCase):
    def test_file_that_is_no_journal_is_left_alone(self):
        for text in ("my thesis, the only copy\n", "x", "CTJRNL but not really one\n"):
            self.path.write_text(text)
            self.refuses("--journal", self.path, named=[str(self.path), "not a journal"])
            self.assertEqual(self.path.read_text(), text)

    def test_later_version_is_refused_and_kept(self):
        import zlib

        head = b"CTJRNL\r\n" + (2).to_bytes(4, "little")
        self.path.write_bytes(head + zlib.crc32(head).to_bytes(4, "little") + b"future")
        self.refuses("--journal", self.path, named=["version 2"])
        self.assertTrue(self.path.read_bytes().endswith(b"future"))

    def test_one_file_for_two_daemons(self):
        peer = self.serve()
        self.refuses("--journal", self.path, named=[str(self.path), "another process uses it"])
        # Also after the file was written anew, which makes it another file.
        for _ in range(40):
            peer.set(b"/v", bytes(60_000))
            self.assertTrue(peer.ping())
        self.refuses("--journal", self.path, named=["another process uses it"])
        self.assertTrue(peer.ping())

    def test_places_where_no_file_can_be(self):
        os.mkfifo(self.tmp / "fifo")
        self.refuses("--journal", self.tmp, named=[str(self.tmp)])
        self.refuses("--journal", self.tmp / "fifo", named=["not a regular file"])
        self.refuses("--journal", self.tmp / "no" / "journal", named=["No such file"])
        self.refuses("--journal", "/dev/null", named=["not a regular file"])

    def test_link_stays_a_link(self):
        target = self.tmp / "target"
        self.path.symlink_to(target)
        peer = self.serve()
        for _ in range(40):
            peer.set(b"/v", bytes(60_000))
            self.assertTrue(peer.ping())
        self.assertTrue(self.path.is_symlink())
        self.assertLess(target.stat().st_size, 2_000_000)

    def test_wrong_options_are_refused(self):
        for args in (["--journal", ""], ["--journal-sync"], ["--journal"]):
            result = self.run_program(program("ctrdzvd"), *args)
            self.assertEqual(result.code, 2, result)
            self.assert_one_line(result.err)
            self.assertIn("--journal", result.err)


if __name__ == "__main__":
    testlib.main()
