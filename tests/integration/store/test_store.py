# SPDX-License-Identifier: Apache-2.0
"""ctrdzvd seen from outside: raw sockets that behave well, badly, slowly or not at all."""

import os
import pathlib
import random
import signal
import subprocess
import sys

import testlib
from testlib import DEADLINE, program, wait_until
from testlib.store_client import (
    BARRIER, CANCEL, CHECK, GET, LIST_KEYS, MAGIC, MAX_KEY, MAX_KEYS, MAX_VALUE, MULTI_GET,
    MULTI_SET, NUM_KEYS, PING, POP, PUSH, QUEUE_LEN, SET, WAIT, Peer, request, text, u64,
)  # fmt: skip


class StoreCase(testlib.Case):
    def setUp(self):
        super().setUp()
        self.daemon, self.port = self.start_ctrdzvd()

    def peer(self, **kwargs):
        peer = Peer(self.port, **kwargs)
        self.addCleanup(peer.close)
        return peer

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def assert_alone(self, bad, *, ends=True):
        """`bad` loses its connection, a client from before and a new one are served."""
        if ends:
            self.assertTrue(bad.ended())
        self.assertEqual(self.good.get(b"/good"), b"value")
        self.assertTrue(self.peer().ping())
        self.assertTrue(self.daemon.running(), self.daemon.err)


class BadClients(StoreCase):
    def setUp(self):
        super().setUp()
        self.good = self.peer()
        self.good.set(b"/good", b"value")

    def test_garbage_ends_its_connection_alone(self):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        rng = random.Random(seed)
        for _ in range(50):
            bad = self.peer(greet=False)
            # Smaller numbers could begin a greeting or a legacy request, of which more may come, and
            # upper-case letters are HTTP.
            first = rng.choice([n for n in range(13, 256) if not 65 <= n <= 90])
            bad.send(bytes([first]) + rng.randbytes(rng.randrange(1, 2000)))
            self.assert_alone(bad)
        self.assertRegex(self.daemon.err, r"warning: store: connection from 127\.0\.0\.1:\d+ ended")

    def test_other_protocols_are_cut_off(self):
        for hello in (b"get / http/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"):
            bad = self.peer(greet=False)
            bad.send(hello)
            self.assert_alone(bad)

    def test_wrong_magic_is_cut_off(self):
        bad = self.peer(greet=False)
        bad.send(b"\0\xce\xf7\x85\x3d\0\0\0\0")
        self.assert_alone(bad)

    def test_oversized_requests_are_cut_off(self):
        huge = (1 << 64) - 1
        for data in (
            bytes([GET]) + u64(MAX_KEY + 1),
            bytes([GET]) + u64(huge),
            bytes([SET]) + text(b"/k") + u64(MAX_VALUE + 1),
            bytes([SET]) + text(b"/k") + u64(huge),
            bytes([WAIT]) + u64(MAX_KEYS + 1),
            bytes([MULTI_SET]) + u64(huge),
        ):
            with self.subTest(data=data[:20]):
                bad = self.peer()
                bad.send(data)
                self.assert_alone(bad)

    def test_unknown_operations_are_cut_off(self):
        for op in (19, 31, 32, 128, 255):
            bad = self.peer()
            bad.send(bytes([op]))
            self.assert_alone(bad)

    def test_half_a_request_then_nothing(self):
        bad = self.peer()
        bad.send(request(SET, b"/half", b"x" * 1000)[:-1])
        self.assert_alone(bad, ends=False)
        bad.close()
        self.assertEqual(self.good.get(b"/half"), b"")

    def test_half_a_request_then_the_rest(self):
        slow = self.peer(greet=False)
        slow.send(b"\0")
        self.assert_alone(slow, ends=False)
        slow.send(MAGIC + request(SET, b"/half", b"x" * 1000)[:-1])
        self.assertEqual(self.good.get(b"/half"), b"")
        slow.send(b"x")
        self.assertTrue(slow.ping())
        self.assertEqual(self.good.get(b"/half"), b"x" * 1000)

    def test_silent_client_may_begin_late(self):
        silent = self.peer(greet=False)
        self.assert_alone(silent, ends=False)
        silent.send(b"\0" + MAGIC)
        self.assertTrue(silent.ping())

    def test_request_during_a_wait(self):
        bad = self.peer()
        bad.send(request(WAIT, 1, b"/never") + request(GET, b"/good"))
        self.assert_alone(bad)


class Meetings(StoreCase):
    """Operations by which clients wait for each other."""

    def test_work_queue_gives_each_element_to_one(self):
        boss, workers = self.peer(), [self.peer() for _ in range(5)]
        for worker in workers:
            # The answer proves that the WAIT behind it was read as well.
            worker.send(bytes([PING]) + b"ping" + request(WAIT, 1, b"/jobs"))
            self.assertEqual(worker.recv(4), b"ping")
        for i in range(5):
            boss.send(request(PUSH, b"/jobs", b"job %d" % i))
        jobs = set()
        for worker in workers:
            self.assertEqual(worker.recv(1), b"\0")
            worker.send(request(POP, b"/jobs"))
            self.assertGreater(worker.number(), 0)
            jobs.add(worker.value())
        self.assertEqual(jobs, {b"job %d" % i for i in range(5)})
        boss.send(request(QUEUE_LEN, b"/jobs"))
        self.assertEqual(boss.number(), 0)

    def test_worker_that_dies_before_it_pops(self):
        first, second = self.peer(), self.peer()
        for peer in (first, second):
            peer.send(bytes([PING]) + b"ping" + request(WAIT, 1, b"/jobs"))
            self.assertEqual(peer.recv(4), b"ping")
        self.peer().send(request(PUSH, b"/jobs", b"job"))
        self.assertEqual(first.recv(1), b"\0")
        first.close()
        self.assertEqual(second.recv(1), b"\0")
        second.send(request(POP, b"/jobs"))
        self.assertEqual(second.number(), 1)
        self.assertEqual(second.value(), b"job")

    def test_barrier_releases_all_at_once(self):
        peers = [self.peer() for _ in range(10)]
        for peer in peers[:-1]:
            peer.send(request(BARRIER, b"/bar", 10))
        peers[0].send(bytes([CANCEL]))
        self.assertEqual(peers[0].recv(1), b"\1")
        peers[-1].send(request(BARRIER, b"/bar", 10))
        for peer in peers[1:]:
            self.assertEqual(peer.recv(1), b"\0")
        self.assertEqual(peers[0].get(b"/bar"), b"10")

    def test_list_of_many_keys(self):
        peer = self.peer()
        keys = {b"/key number %d" % i for i in range(5000)}
        for key in keys:
            peer.set(key, b"")
        peer.send(request(PUSH, b"/queue", b"x") + bytes([LIST_KEYS]))
        self.assertEqual({peer.value() for _ in range(peer.number())}, keys)


class SlowReaders(StoreCase):
    def test_many_large_replies_are_bounded_and_right(self):
        big = random.randbytes(MAX_VALUE)
        other = self.peer()
        other.set(b"/big", big)
        self.assertTrue(other.ping())
        slow = self.peer()
        gets = 40  # 320 MiB if they were all held
        slow.send(request(GET, b"/big") * gets)
        for _ in range(20):
            self.assertTrue(other.ping())
        self.assertLess(testlib.anonymous_bytes(self.daemon.pid), 150_000_000)
        other.set(b"/big", b"changed")
        self.assertTrue(other.ping())
        values = [slow.value() for _ in range(gets)]
        self.assertEqual(values[0], big)
        self.assertTrue(all(v in (big, b"changed") for v in values))
        self.assertTrue(slow.ping())

    def test_multi_get_of_one_large_value_many_times(self):
        big = random.randbytes(MAX_VALUE)
        peer = self.peer()
        peer.set(b"/big", big)
        peer.send(request(MULTI_GET, 30, *[b"/big"] * 30))
        self.assertTrue(all(peer.value() == big for _ in range(30)))

    def test_reader_that_is_gone(self):
        before = self.descriptors() + 1  # libuv opens a spare one with the first connection
        peer = self.peer()
        peer.set(b"/big", bytes(MAX_VALUE))
        peer.send(request(GET, b"/big") * 10)
        self.assertGreater(peer.number(), 0)
        peer.close()
        wait_until(lambda: self.descriptors() == before, "the connection is closed")


class Crowd(StoreCase):
    def test_two_hundred_clients_meet(self):
        peers = [self.peer() for _ in range(200)]
        for i, peer in enumerate(peers):
            self.assertEqual(peer.add(b"/count", 1), i + 1)
            peer.set(b"/rank/%d" % i, b"%d" % i)
            peer.send(request(WAIT, 1, b"/go"))
        self.peer().set(b"/go", b"")
        for peer in peers:
            self.assertEqual(peer.recv(1), b"\0")
        keys = [b"/rank/%d" % i for i in range(200)]
        for peer in peers:
            peer.send(request(MULTI_GET, len(keys), *keys))
        for peer in peers:
            self.assertEqual([int(peer.value()) for _ in keys], list(range(200)))

    def test_most_keys_of_one_request(self):
        peer = self.peer()
        keys = [b"%d" % i for i in range(MAX_KEYS)]
        pairs = [part for key in keys for part in (key, key)]
        peer.send(request(MULTI_SET, MAX_KEYS, *pairs))
        peer.send(bytes([NUM_KEYS]))
        self.assertEqual(peer.number(), MAX_KEYS)
        peer.send(request(CHECK, MAX_KEYS, *keys))
        self.assertEqual(peer.recv(1), b"\0")

    def test_killed_clients_are_forgotten(self):
        before = self.descriptors() + 1  # libuv opens a spare one with the first connection
        code = (
            "import socket, sys, time\n"
            "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "s.sendall(bytes.fromhex(sys.argv[2]))\n"
            "s.recv(4)\n"
            "print('waiting', flush=True)\n"
            "time.sleep(600)\n"
        )
        hello = b"\0" + MAGIC + bytes([PING]) + b"ping" + request(WAIT, 1, b"/never")
        procs = []
        for _ in range(4):
            procs.append(self.start(sys.executable, "-c", code, self.port, hello.hex()))
        for proc in procs:
            proc.wait_for("waiting")
            proc.signal(signal.SIGKILL)
            proc.popen.wait(DEADLINE)
        wait_until(lambda: self.descriptors() == before, "their connections are closed")
        peer = self.peer()
        peer.set(b"/never", b"x")
        self.assertTrue(peer.ping())


class Program(testlib.Case):
    def test_signals_end_it_clean(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            daemon, port = self.start_ctrdzvd()
            busy, waiting = Peer(port), Peer(port)
            busy.set(b"/k", b"v")
            waiting.send(request(WAIT, 1, b"/never"))
            self.assertTrue(busy.ping())
            daemon.signal(number)
            result = daemon.wait()
            self.assertEqual(result.code, 0, result)
            self.assertTrue(busy.ended() and waiting.ended())
            busy.close()
            waiting.close()

    def test_ready_descriptor_tells_the_port(self):
        for option in ("--ready-fd", "--ready_fd"):
            out, inn = os.pipe()
            with subprocess.Popen(
                [program("ctrdzvd"), "--port=0", option, str(inn)],
                pass_fds=[inn], stderr=subprocess.DEVNULL,
            ) as daemon:  # fmt: skip
                os.close(inn)
                with os.fdopen(out) as ready:
                    told = ready.read()  # ends, because the daemon closes its end
                self.assertRegex(told, r"\A\d+\n\Z")
                peer = Peer(int(told))
                self.assertTrue(peer.ping())
                peer.close()
                daemon.terminate()
                self.assertEqual(daemon.wait(DEADLINE), 0)

    def test_listens_on_all_addresses(self):
        _, port = self.start_ctrdzvd("--listen", "*")
        hosts = ["127.0.0.1", "127.0.0.2"]
        if pathlib.Path("/proc/net/if_inet6").exists() and "lo" in pathlib.Path(
            "/proc/net/if_inet6"
        ).read_text():
            hosts.append("::1")
        for host in hosts:
            peer = Peer(port, host=host)
            self.assertTrue(peer.ping())
            peer.close()

    def test_listens_on_loopback_only_unless_told(self):
        _, port = self.start_ctrdzvd()
        with self.assertRaises(ConnectionRefusedError):
            Peer(port, host="127.0.0.2")

    def test_the_holder_of_the_port_is_named(self):
        daemon, port = self.start_ctrdzvd()
        result = self.run_program(program("ctrdzvd"), "--port", port)
        self.assertEqual(result.code, 1, result)
        self.assert_one_line(result.err)
        self.assertIn(f"port {port} on 127.0.0.1 is in use by pid {daemon.pid} (", result.err)
        self.assertIn("ctrdzvd --port 0", result.err)

    def test_address_that_is_not_ours(self):
        for host in ("203.0.113.1", "no-such-host.invalid"):
            result = self.run_program(program("ctrdzvd"), "--port", "0", "--listen", host)
            self.assertEqual(result.code, 1, result)
            self.assert_one_line(result.err)
            self.assertIn(host, result.err)

    def test_wrong_options_are_named(self):
        for args, named in (
            (["--prot", "1"], "--prot"),
            (["-p", "1"], "-p"),
            (["--port"], "--port"),
            (["--port", "65536"], "65536"),
            (["--port", "-1"], "-1"),
            (["--port", "29500x"], "29500x"),
            (["--port", ""], "--port ''"),
            (["--listen", ""], "--listen"),
            (["--ready-fd", "99"], "99"),
            (["--ready-fd", "x"], "'x'"),
            (["--version=1"], "--version=1"),
            (["extra"], "extra"),
            (["--port", "0", "extra"], "extra"),
        ):
            with self.subTest(args=args):
                result = self.run_program(program("ctrdzvd"), *args)
                self.assertEqual(result.code, 2, result)
                self.assert_one_line(result.err)
                self.assertIn(named, result.err)

    def test_ready_descriptor_must_be_writable(self):
        with open(os.devnull, "rb") as read_only:
            result = self.run_program(program("ctrdzvd"), "--ready-fd", "0", stdin=read_only)
        self.assertEqual(result.code, 2, result)
        self.assertIn("--ready-fd 0 is not open for writing", result.err)

    def test_help_and_version_are_printed(self):
        result = self.run_program(program("ctrdzvd"), "--help")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("--listen", result.out)
        for word in ("--version", "-V"):
            result = self.run_program(program("ctrdzvd"), word)
            self.assertEqual(result.code, 0, result)
            self.assertRegex(result.out, r"\Actrdzvd \d+\.\d+\.\d+\n\Z")


if __name__ == "__main__":
    testlib.main()
